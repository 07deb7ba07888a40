"""What every caller identity does: the fake, and the role's with botocore, whose signature another verifies."""

import json
import re
from collections.abc import Mapping

import boto3
import pytest
from botocore.exceptions import CredentialRetrievalError

from fakes import FakeCallerIdentity
from pushlease.aws.identity import RoleIdentity
from pushlease.errors import CredentialsError
from pushlease.providers.identity import CallerIdentity
from pushlease_local.lookalike.sigv4 import signature_fault

URL = "https://sts.eu-west-1.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
KEY, SECRET, SESSION = "ASIAEXAMPLE000000001", "a/secret+key", "a session's proof"
RESOURCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/aws/providers/x"


def role(region: str | None = "eu-west-1", session: str | None = SESSION) -> RoleIdentity:
    return RoleIdentity(
        session=boto3.Session(
            aws_access_key_id=KEY, aws_secret_access_key=SECRET, aws_session_token=session, region_name=region
        )
    )


@pytest.fixture(params=["fake", "role"])
def identity(request: pytest.FixtureRequest) -> CallerIdentity:
    return FakeCallerIdentity() if request.param == "fake" else role()


def test_an_identity_has_a_region(identity: CallerIdentity) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", identity.region())


def test_all_headers_of_the_request_are_there_and_the_given_ones_are_signed(identity: CallerIdentity) -> None:
    headers = identity.signed(URL, {"x-goog-cloud-target-resource": RESOURCE})
    assert all(name == name.lower() for name in headers)
    assert headers["host"] == "sts.eu-west-1.amazonaws.com"
    assert headers["x-goog-cloud-target-resource"] == RESOURCE
    assert re.fullmatch(r"\d{8}T\d{6}Z", headers["x-amz-date"])
    match = re.search(
        r"Credential=\w+/(\d{8})/eu-west-1/sts/aws4_request, SignedHeaders=([a-z0-9;-]+)", headers["authorization"]
    )
    assert match
    assert match[1] == headers["x-amz-date"][:8]
    assert set(match[2].split(";")) == set(headers) - {"authorization"}


def test_the_roles_signature_is_what_an_independent_reader_computes() -> None:
    headers = role().signed(URL, {"x-goog-cloud-target-resource": RESOURCE})
    assert signature_fault(URL, headers, {KEY: SECRET}) is None
    assert headers["x-amz-security-token"] == SESSION
    assert SECRET not in json.dumps(dict(headers))


def change(headers: Mapping[str, str], name: str, value: str) -> dict[str, str]:
    return {**headers, name: value}


def test_the_reader_refuses_what_was_changed_after_signing() -> None:
    headers = role().signed(URL, {"x-goog-cloud-target-resource": RESOURCE})
    for name in ("host", "x-amz-security-token", "x-goog-cloud-target-resource"):
        assert signature_fault(URL, change(headers, name, "other"), {KEY: SECRET}) == "The signature does not match"
    assert signature_fault(URL.replace("eu-west-1", "eu-west-2"), headers, {KEY: SECRET}) is None  # the host says it
    assert signature_fault(URL + "&X=1", headers, {KEY: SECRET}) == "The signature does not match"
    assert signature_fault(URL, headers, {KEY: "another"}) == "The signature does not match"
    assert signature_fault(URL, headers, {}) == "The access key ID is unknown"
    assert signature_fault(URL, change(headers, "authorization", "Bearer x"), {KEY: SECRET})
    assert signature_fault(URL, change(headers, "x-amz-date", "20200101T000000Z"), {KEY: SECRET})


def test_a_role_without_a_session_signs_without_one() -> None:
    headers = role(session=None).signed(URL, {})
    assert "x-amz-security-token" not in headers
    assert signature_fault(URL, headers, {KEY: SECRET}) is None


def test_what_is_missing_at_aws_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(CredentialsError, match="AWS: no region is configured"):
        role(None).region()


class NoCredentials(boto3.Session):
    """A session whose instance has no role."""

    def get_credentials(self) -> None:
        return None


class Unreachable(boto3.Session):
    """A session whose metadata service does not answer."""

    def get_credentials(self) -> None:
        raise CredentialRetrievalError(provider="iam-role", error_msg="hunter2")


@pytest.mark.parametrize(("session", "passing"), [(NoCredentials, False), (Unreachable, True)])
def test_a_role_without_credentials_says_whether_that_may_pass(session: type[boto3.Session], passing: bool) -> None:
    identity = RoleIdentity(session=session(region_name="eu-west-1"))
    with pytest.raises(CredentialsError, match="AWS: no credentials") as caught:
        identity.signed(URL, {})
    assert caught.value.passing is passing
    assert "hunter2" not in str(caught.value)
