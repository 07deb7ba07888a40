"""What an app's FCM secret may hold, and how a bearer is got with it; no fault shows what the secret says."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fakes import FakeCallerIdentity
from pushlease.errors import CredentialsError
from pushlease.providers.fcm.auth import account_in
from pushlease.providers.fcm.grant import Account, Grant
from pushlease.providers.http import Response

pytestmark = pytest.mark.anyio

NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
AUDIENCE = "//iam.googleapis.com/projects/123456/locations/global/workloadIdentityPools/aws/providers/pushlease"
IMPERSONATION = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{}:generateAccessToken"
EXTERNAL: Mapping[str, Any] = {
    "universe_domain": "googleapis.com",
    "type": "external_account",
    "audience": AUDIENCE,
    "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
    "service_account_impersonation_url": IMPERSONATION.format("push@shop-1.iam.gserviceaccount.com"),
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {
        "environment_id": "aws1",
        "region_url": "http://169.254.169.254/latest/meta-data/placement/availability-zone",
        "url": "http://169.254.169.254/latest/meta-data/iam/security-credentials",
        "regional_cred_verification_url": "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15",
    },
}


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


RSA = pem(rsa.generate_private_key(public_exponent=65537, key_size=2048))
P256 = pem(ec.generate_private_key(ec.SECP256R1()))
SERVICE: Mapping[str, Any] = {
    "type": "service_account",
    "client_email": "push@demo.iam.gserviceaccount.com",
    "private_key_id": "key-1",
    "private_key": RSA,
    "token_uri": "https://oauth2.example/token",
}


def account(fields: object) -> Account:
    text = fields if isinstance(fields, str) else json.dumps(fields)
    return account_in(text, identity=FakeCallerIdentity(), host="fcm.example")


@dataclass
class Google:
    """Answers requests in order, and keeps them."""

    answers: list[tuple[int, Mapping[str, Any]]]
    asked: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Response:
        self.asked.append((url, headers, body))
        status, answer = self.answers[len(self.asked) - 1]
        return Response(status=status, headers={}, body=json.dumps(answer).encode())


FEDERATED = (200, {"access_token": "federated", "expires_in": 3600, "token_type": "Bearer"})


def impersonated(expires_at: object = "2027-01-15T09:00:00Z") -> tuple[int, Mapping[str, Any]]:
    return (200, {"accessToken": "b1", "expireTime": expires_at})


# --- which account ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "hunter2", "[]", "{}", "null", '"service_account"', '{"type": "authorized_user"}', "[" * 100_000]
)
def test_what_describes_no_account_is_said_so(text: str) -> None:
    with pytest.raises(CredentialsError, match="FCM: the secret is not the JSON of") as caught:
        account(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("missing", ["client_email", "private_key_id", "private_key", "token_uri"])
@pytest.mark.parametrize("value", [None, "", 5])
def test_a_service_account_without_a_field_names_it(missing: str, value: object) -> None:
    with pytest.raises(CredentialsError, match=f"FCM service account: {missing}"):
        account({**SERVICE, missing: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("private_key", "hunter2"),
        ("private_key", P256),
        ("token_uri", "http://plain.example"),
        ("token_uri", "https://me:hunter2@oauth2.example/token"),
    ],
)
def test_an_unusable_field_is_named_and_not_shown(field: str, value: str) -> None:
    with pytest.raises(CredentialsError, match=field) as caught:
        account({**SERVICE, field: value})
    assert value[:40] not in str(caught.value)
    assert caught.value.__cause__ is None
    assert RSA[40:80] not in repr(account(SERVICE))


# --- an external account ----------------------------------------------------------------------------------------------


def test_a_file_without_impersonation_is_refused_with_the_reason_and_the_cure() -> None:
    fields = {name: value for name, value in EXTERNAL.items() if name != "service_account_impersonation_url"}
    with pytest.raises(CredentialsError, match=r"FCM may refuse federated bearers.*--service-account"):
        account(fields)


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audience", None),
        ("audience", ""),
        ("audience", f"//iam.googleapis.com/{SECRET}"),
        ("audience", f"{AUDIENCE}\r\n{SECRET}"),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("token_url", 5),
        ("token_url", f"http://sts.googleapis.com/v1/token#{SECRET}"),
        ("token_url", f"https://me:{SECRET}@sts.googleapis.com/v1/token"),
        ("token_url", f"https://sts.googleapis.com/v1/token?key={SECRET}"),
        ("token_url", f"https://sts.googleapis.com.{SECRET}.example/v1/token"),
        ("token_url", f"https://{SECRET}googleapis.com/v1/token"),
        ("token_url", f"https://sts.googleapis.com/v1/{SECRET}"),
        ("token_url", "https://[::1]/v1/token"),
        ("service_account_impersonation_url", f"https://me:{SECRET}@iamcredentials.googleapis.com/v1/projects/-/x"),
        ("service_account_impersonation_url", f"https://evil.example/v1/projects/-/serviceAccounts/{SECRET}:generateAccessToken"),
        ("service_account_impersonation_url", IMPERSONATION.format(f"../../{SECRET}")),
        ("service_account_impersonation_url", IMPERSONATION.format(SECRET).replace("AccessToken", "IdToken")),
        ("service_account_impersonation_url", IMPERSONATION.format(SECRET) + "?x=y"),
        ("service_account_impersonation", SECRET),
        ("credential_source", SECRET),
        ("credential_source", {}),
        ("credential_source", {"environment_id": "aws2"}),
        ("credential_source", {"environment_id": "aws1"}),
        ("credential_source", {"environment_id": "aws1", "regional_cred_verification_url": f"https://{SECRET}"}),
    ],
)  # fmt: skip
def test_a_bad_field_of_an_external_account_is_named_and_not_shown(name: str, value: object) -> None:
    with pytest.raises(CredentialsError, match=f"FCM external account: {name}") as caught:
        account({**EXTERNAL, name: value})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("seconds", [599, 43_201, "3600", 3600.0, True, None])
def test_a_lifetime_that_google_does_not_offer_is_refused(seconds: object) -> None:
    with pytest.raises(CredentialsError, match="token_lifetime_seconds"):
        account({**EXTERNAL, "service_account_impersonation": {"token_lifetime_seconds": seconds}})


@pytest.mark.parametrize(
    "host", ["sts.googleapis.com", "sts-private.p.googleapis.com", "fcm.example", "fcm.example:8443"]
)
def test_googles_own_hosts_and_fcms_are_trusted_with_the_exchange(host: str) -> None:
    assert account({**EXTERNAL, "token_url": f"https://{host}/v1/token"})


async def test_the_role_is_exchanged_for_a_federated_bearer_and_that_for_the_service_accounts() -> None:
    google = Google([FEDERATED, impersonated()])
    assert await account(EXTERNAL).grant(google, now_ms=NOW_MS) == Grant(bearer="b1", life_s=3600)
    (exchange_url, exchange_headers, form), (impersonation_url, headers, body) = google.asked
    assert exchange_url == EXTERNAL["token_url"]
    assert exchange_headers == {"content-type": "application/x-www-form-urlencoded"}
    said = {name: value for name, (value,) in parse_qs(form.decode(), strict_parsing=True).items()}
    subject = json.loads(unquote(said.pop("subject_token")))
    assert said == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "audience": AUDIENCE,
        "scope": "https://www.googleapis.com/auth/iam",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
    }
    assert subject["url"] == "https://sts.eu-west-1.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
    assert subject["method"] == "POST"
    shown = {header["key"]: header["value"] for header in subject["headers"]}
    assert shown["host"] == "sts.eu-west-1.amazonaws.com"
    assert shown["x-goog-cloud-target-resource"] == AUDIENCE
    assert "SignedHeaders=host;x-amz-date;x-goog-cloud-target-resource," in shown["Authorization"]
    assert impersonation_url == EXTERNAL["service_account_impersonation_url"]
    assert headers["authorization"] == "Bearer federated"
    assert json.loads(body) == {
        "scope": ["https://www.googleapis.com/auth/firebase.messaging"],
        "lifetime": "3600s",
    }


@pytest.mark.parametrize(
    ("expires_at", "life_s"),
    [
        ("2027-01-15T08:30:00Z", 1800),
        ("2027-01-15T08:30:00.123456789Z", 1800),
        ("2027-01-15T10:30:00+02:00", 1800),
        ("2027-01-15T12:00:00Z", 3600),  # our clock is behind: Google grants no more than was asked for
        ("2027-01-15T07:00:00Z", 60),  # or far ahead: it is not asked anew for every push
        ("soon", 3600),
        ("2027-01-15T08:30:00", 3600),
        (None, 3600),
    ],
)
async def test_an_impersonated_bearer_lives_until_google_says_or_as_long_as_was_asked_for(
    expires_at: object, life_s: int
) -> None:
    grant = await account(EXTERNAL).grant(Google([FEDERATED, impersonated(expires_at)]), now_ms=NOW_MS)
    assert grant.life_s == life_s


async def test_a_longer_life_is_asked_for_and_believed_if_the_file_says_so() -> None:
    google = Google([FEDERATED, impersonated("2027-01-15T20:00:00Z")])
    fields = {**EXTERNAL, "service_account_impersonation": {"token_lifetime_seconds": 43_200}}
    assert (await account(fields).grant(google, now_ms=NOW_MS)).life_s == 43_200
    assert json.loads(google.asked[1][2])["lifetime"] == "43200s"


@pytest.mark.parametrize(
    ("answers", "fault", "passing"),
    [
        ([(400, {"error": "invalid_grant", "error_description": "Received invalid AWS response"})],
         "exchange refused with HTTP 400, invalid_grant: Received invalid AWS response", False),
        ([(503, {})], "exchange refused with HTTP 503", True),
        ([(400, {"error": "temporarily_unavailable"})], "exchange refused with HTTP 400", True),
        ([(200, {})], "exchange answered without an access_token", False),
        ([(302, {})], "exchange refused with HTTP 302", False),
        ([FEDERATED, (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "Permission denied."}})],
         "impersonation refused with HTTP 403, PERMISSION_DENIED: Permission denied", False),
        ([FEDERATED, (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}})],
         "impersonation refused with HTTP 429, RESOURCE_EXHAUSTED", True),
        ([FEDERATED, (200, {"accessToken": "two\nlines"})], "impersonation answered without an accessToken", False),
        ([FEDERATED, (404, {"error": ["?"]})], "impersonation refused with HTTP 404, no reason given", False),
    ],
)  # fmt: skip
async def test_a_refused_step_is_named_and_what_passes_is_told_from_what_must_be_mended(
    answers: list[tuple[int, Mapping[str, Any]]], fault: str, passing: bool
) -> None:
    google = Google(answers)
    with pytest.raises(CredentialsError, match=fault) as caught:
        await account(EXTERNAL).grant(google, now_ms=NOW_MS)
    assert caught.value.passing is passing
    assert "federated" not in str(caught.value)
    assert len(google.asked) == len(answers)


def test_a_grant_does_not_show_its_bearer() -> None:
    assert "b1" not in repr(Grant(bearer="b1", life_s=3600))
