"""The look-alike STS and IAM, asked by a client that is not ours: what they grant, and all that they refuse."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from pushlease_local.lookalike import Lookalike, Service, Step

pytestmark = pytest.mark.anyio

URL = "https://sts.eu-west-1.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"


class Stage:
    """Running look-alikes, a client, and the requests of a well-behaved one."""

    def __init__(self, lookalike: Lookalike, client: httpx.AsyncClient) -> None:
        self.lookalike, self.client = lookalike, client
        self.file = lookalike.federation.json

    def subject(self, *, secret: str | None = None, resource: str | None = None, **more: str) -> dict[str, Any]:
        role = self.lookalike.federation
        headers = {"host": "sts.eu-west-1.amazonaws.com"}
        headers["x-goog-cloud-target-resource"] = self.file["audience"] if resource is None else resource
        request = AWSRequest(method="POST", url=URL, headers=headers | more)
        credentials = Credentials(role.access_key_id, secret or role.secret_access_key, role.session)
        SigV4Auth(credentials, "sts", "eu-west-1").add_auth(request)
        listed = [{"key": key, "value": value} for key, value in request.headers.items()]
        return {"url": URL, "method": "POST", "headers": listed}

    async def exchange(self, subject: Mapping[str, Any] | str | None = None, **changes: str) -> httpx.Response:
        shown = subject if isinstance(subject, str) else quote(json.dumps(subject or self.subject()))
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "audience": self.file["audience"],
            "scope": "https://www.googleapis.com/auth/cloud-platform",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "subject_token": shown,
            "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
        }
        return await self.client.post(self.file["token_url"], data=form | changes)

    async def impersonate(self, bearer: str, url: str | None = None, **changes: Any) -> httpx.Response:
        body = {"scope": [SCOPE], "lifetime": "3600s"} | changes
        headers = {"authorization": f"Bearer {bearer}"}
        return await self.client.post(url or self.file["service_account_impersonation_url"], headers=headers, json=body)

    async def push(self, bearer: str) -> httpx.Response:
        url = f"{self.lookalike.urls[Service.FCM]}/v1/projects/pushlease-local/messages:send"
        body = {"message": {"token": "install:1", "notification": {"title": "hi"}}}
        return await self.client.post(url, headers={"authorization": f"Bearer {bearer}"}, json=body)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        Lookalike.start() as lookalike,
        httpx.AsyncClient(http1=False, http2=True, verify=lookalike.client_tls()) as client,
    ):
        yield Stage(lookalike, client)


async def test_a_roles_signature_becomes_a_bearer_that_fcm_takes_in_two_steps(stage: Stage) -> None:
    exchanged = await stage.exchange()
    assert exchanged.status_code == 200
    assert exchanged.json()["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    federated = exchanged.json()["access_token"]
    assert (await stage.push(federated)).status_code == 401  # as some of Google's APIs do: impersonation is needed
    impersonated = await stage.impersonate(federated)
    assert impersonated.status_code == 200
    assert impersonated.json()["expireTime"] > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    assert (await stage.push(impersonated.json()["accessToken"])).status_code == 200


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda subject: subject | {"headers": [one for one in subject["headers"] if one["key"].lower() != name]}


def with_header(key: str, value: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda subject: subject | {"headers": [*subject["headers"], {"key": key, "value": value}]}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda subject: subject | {"method": "GET"}, "percent-encoded JSON"),
        (lambda subject: subject | {"body": ""}, "percent-encoded JSON"),
        (lambda subject: subject | {"headers": 5}, "percent-encoded JSON"),
        (lambda subject: subject | {"url": URL.replace("https", "http")}, "GetCallerIdentity"),
        (lambda subject: subject | {"url": URL.replace("GetCallerIdentity", "AssumeRole")}, "GetCallerIdentity"),
        (lambda subject: subject | {"url": URL.replace("sts.eu", "evil.eu")}, "GetCallerIdentity"),
        (lambda subject: subject | {"url": URL.replace("eu-west-1", "eu-west-2")}, "host"),
        (with_header("x-api-key", "1"), "no identity needs"),
        (with_header("host", "elsewhere"), "percent-encoded JSON"),
        (without("host"), "host"),
        (without("x-goog-cloud-target-resource"), "must be the audience"),
        (without("authorization"), "must be signed"),
        (without("x-amz-security-token"), "session"),
        (without("x-amz-date"), "X-Amz-Date"),
    ],
)
async def test_a_subject_that_is_not_what_google_documents_is_refused(
    stage: Stage, spoil: Callable[[dict[str, Any]], dict[str, Any]], fault: str
) -> None:
    answer = await stage.exchange(spoil(stage.subject()))
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_grant"
    assert fault in answer.json()["error_description"]


async def test_a_signature_of_another_key_or_for_another_provider_is_refused(stage: Stage) -> None:
    forged = await stage.exchange(stage.subject(secret="forged"))
    assert forged.json()["error_description"] == "The signature does not match"
    elsewhere = await stage.exchange(stage.subject(resource="//iam.googleapis.com/other"))
    assert "must be the audience" in elsewhere.json()["error_description"]


async def test_a_subject_that_gives_a_secret_away_is_refused(stage: Stage) -> None:
    leak = with_header("x-amz-date", stage.lookalike.federation.secret_access_key)
    answer = await stage.exchange(leak(without("x-amz-date")(stage.subject())))
    assert answer.json()["error_description"] == "The subject holds a secret"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"grant_type": "authorization_code"}, "invalid_request"),
        ({"subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}, "invalid_request"),
        ({"requested_token_type": ""}, "invalid_request"),
        ({"audience": "//iam.googleapis.com/other"}, "invalid_target"),
        ({"scope": SCOPE}, "invalid_scope"),
        ({"client_secret": "x"}, "invalid_request"),
    ],
)
async def test_a_form_that_says_something_else_is_refused(stage: Stage, changes: dict[str, str], error: str) -> None:
    answer = await stage.exchange(**changes)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


async def test_a_subject_must_be_percent_encoded_within_the_form(stage: Stage) -> None:
    answer = await stage.exchange(unquote(quote(json.dumps(stage.subject()))))
    assert "percent-encoded" in answer.json()["error_description"]


async def test_impersonation_needs_a_federated_bearer_a_known_account_a_scope_and_a_lifetime(stage: Stage) -> None:
    assert (await stage.impersonate("ya29.made-up")).status_code == 401
    federated = (await stage.exchange()).json()["access_token"]
    stranger = stage.file["service_account_impersonation_url"].replace("push@", "root@")
    assert (await stage.impersonate(federated, stranger)).json()["error"]["status"] == "PERMISSION_DENIED"
    for name, value in (
        ("scope", []),
        ("scope", ["drive"]),
        ("lifetime", "7200s"),
        ("lifetime", "1h"),
        ("lifetime", "0s"),
    ):
        changes: dict[str, Any] = {name: value}
        assert (await stage.impersonate(federated, **changes)).json()["error"]["status"] == "INVALID_ARGUMENT"
    granted = (await stage.impersonate(federated)).json()["accessToken"]
    assert (await stage.impersonate(granted)).status_code == 401  # it is FCM's, and no longer the role's


async def test_both_steps_fail_by_script_and_a_grant_that_was_not_given_is_worth_nothing(stage: Stage) -> None:
    control = stage.lookalike.control
    control.script("sts", [Step(do="answer", status=400, reason="invalid_target")])
    assert (await stage.exchange()).json()["error"] == "invalid_target"
    federated = (await stage.exchange()).json()["access_token"]
    control.script("iam", [Step(do="answer", status=403, reason="PERMISSION_DENIED")])
    assert (await stage.impersonate(federated)).json()["error"]["status"] == "PERMISSION_DENIED"
    control.outage("iam", "503")
    assert (await stage.impersonate(federated)).json()["error"]["status"] == "UNAVAILABLE"
    control.outage("sts", "503")
    assert (await stage.exchange()).json()["error"] == "temporarily_unavailable"
    control.reset()
    assert (await stage.impersonate(federated)).status_code == 200
