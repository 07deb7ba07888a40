"""The look-alike providers, driven over real HTTP/2 and TLS by a client that is not ours."""

import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import jwt
import pytest

from pushlease_local.lookalike import Lookalike, Service, Step
from pushlease_local.lookalike.credentials import new_apns_credentials, new_service_account
from pushlease_local.lookalike.oauth import GRANT

pytestmark = pytest.mark.anyio

PUSH_TOKEN = "ab" * 32
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"


@dataclass
class Clock:
    """UNIX ms that a test can move on."""

    ahead_ms: int = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@dataclass
class Stage:
    """Running look-alikes and a client for them."""

    lookalike: Lookalike
    clock: Clock
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def connect(self, timeout_s: float = 10) -> httpx.AsyncClient:
        tls = self.lookalike.client_tls()
        self.clients.append(httpx.AsyncClient(http1=False, http2=True, verify=tls, timeout=timeout_s))
        return self.clients[-1]

    def bearer(self, **changes: Any) -> str:
        """A good provider bearer, or one with other claims, header fields (`kid`) or signing key (`key_pem`)."""
        apns = self.lookalike.apns
        kid, key_pem = changes.pop("kid", apns.key_id), changes.pop("key_pem", apns.key_pem)
        claims = {"iss": apns.team_id, "iat": self.clock() // 1000, **changes}
        return jwt.encode(claims, key_pem, algorithm="ES256", headers={"kid": kid})

    async def push(
        self,
        client: httpx.AsyncClient,
        *,
        bearer: str | None = None,
        push_token: str = PUSH_TOKEN,
        body: bytes = b'{"aps":{"alert":"hi"}}',
        service: Service = Service.APNS_PRODUCTION,
        **headers: str,
    ) -> httpx.Response:
        """Send through APNs; header names with _ for -, an empty value leaves the header out."""
        sent = {
            "authorization": f"bearer {bearer or self.bearer()}",
            "apns-topic": "com.example.app",
            "apns-push-type": "alert",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await client.post(
            f"{self.lookalike.urls[service]}/3/device/{push_token}",
            headers={name: value for name, value in sent.items() if value},
            content=body,
        )

    def dated(self, claims: dict[str, Any]) -> dict[str, Any]:
        """Spans from now as the instants they mean, in seconds."""
        now_s = self.clock() // 1000
        return {
            name: now_s + value // timedelta(seconds=1) if isinstance(value, timedelta) else value
            for name, value in claims.items()
        }

    def assertion(self, **changes: Any) -> str:
        account = self.lookalike.service_account.json
        now_s = self.clock() // 1000
        claims = {
            "iss": account["client_email"],
            "aud": account["token_uri"],
            "scope": SCOPE,
            "iat": now_s,
            "exp": now_s + 3600,
        }
        key_pem = changes.pop("key_pem", account["private_key"])
        return jwt.encode(claims | changes, key_pem, algorithm="RS256", headers={"kid": account["private_key_id"]})

    async def grant(self, client: httpx.AsyncClient, assertion: str | None = None, **form: str) -> httpx.Response:
        fields = {"grant_type": GRANT, "assertion": assertion or self.assertion(), **form}
        return await client.post(self.lookalike.service_account.json["token_uri"], data=fields)

    async def send(
        self, client: httpx.AsyncClient, body: Any, *, bearer: str | None = None, project: str = "pushlease-local"
    ) -> httpx.Response:
        """Send through FCM; a dict is wrapped as the message, bytes go as they are."""
        if bearer is None:
            bearer = (await self.grant(client)).json()["access_token"]
        content = body if isinstance(body, bytes) else json.dumps({"message": body}).encode()
        url = f"{self.lookalike.urls[Service.FCM]}/v1/projects/{project}/messages:send"
        return await client.post(url, content=content, headers={"authorization": f"Bearer {bearer}"})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def running(anyio_backend: str) -> AsyncIterator[tuple[Lookalike, Clock]]:
    clock = Clock()
    async with Lookalike.start(clock=clock) as lookalike:
        yield lookalike, clock


@pytest.fixture
async def stage(running: tuple[Lookalike, Clock]) -> AsyncIterator[Stage]:
    lookalike, clock = running
    clock.ahead_ms = 0
    lookalike.control.reset()
    stage = Stage(lookalike, clock)
    yield stage
    for client in stage.clients:
        await client.aclose()


# APNs


async def test_a_good_push_is_accepted_and_remembered(stage: Stage) -> None:
    apns_id = str(uuid.uuid4())
    answer = await stage.push(stage.connect(), apns_id=apns_id, apns_collapse_id="once", apns_priority="5")
    assert (answer.http_version, answer.status_code, answer.content) == ("HTTP/2", 200, b"")
    assert answer.headers["apns-id"] == apns_id
    (push,) = stage.lookalike.control.accepted()
    assert (push.provider, push.environment, push.push_token) == ("apns", "production", PUSH_TOKEN)
    assert (push.provider_id, push.collapse_id, push.topic) == (apns_id, "once", "com.example.app")
    assert (push.priority, push.body, push.attempt) == ("5", {"aps": {"alert": "hi"}}, 1)


async def test_an_apns_id_is_made_when_none_is_sent(stage: Stage) -> None:
    answer = await stage.push(stage.connect())
    assert str(uuid.UUID(answer.headers["apns-id"])) == answer.headers["apns-id"]


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"authorization": ""}, 403, "MissingProviderToken"),
        ({"authorization": "bearer nonsense"}, 403, "InvalidProviderToken"),
        ({"apns_id": "1234"}, 400, "BadMessageId"),
        ({"apns_id": str(uuid.UUID(int=0xA << 124)).upper()}, 400, "BadMessageId"),
        ({"apns_expiration": "soon"}, 400, "BadExpirationDate"),
        ({"apns_collapse_id": "x" * 65}, 400, "BadCollapseId"),
        ({"apns_push_type": "shout"}, 400, "InvalidPushType"),
        ({"apns_priority": "7"}, 400, "BadPriority"),
        ({"apns_push_type": "background", "apns_priority": "10"}, 400, "BadPriority"),
        ({"apns_push_type": "background"}, 400, "BadPriority"),
        ({"apns_topic": ""}, 400, "MissingTopic"),
        ({"apns_topic": "no topic"}, 400, "BadTopic"),
        ({"apns_push_type": "voip"}, 400, "BadTopic"),
        ({"apns_topic": "com.example.other"}, 400, "TopicDisallowed"),
        ({"push_token": ""}, 400, "MissingDeviceToken"),
        ({"push_token": "xyz"}, 400, "BadDeviceToken"),
        ({"push_token": "abc"}, 400, "BadDeviceToken"),
        ({"push_token": "ab/cd"}, 404, "BadPath"),
        ({"body": b""}, 400, "PayloadEmpty"),
        ({"body": b'{"alert":"hi"}'}, 400, "PayloadEmpty"),
        ({"body": json.dumps({"aps": {"alert": "x" * 4096}}).encode()}, 413, "PayloadTooLarge"),
    ],
)
async def test_a_faulty_push_is_refused_with_apples_reason(
    stage: Stage, changes: dict[str, Any], status: int, reason: str
) -> None:
    answer = await stage.push(stage.connect(), **changes)
    assert (answer.status_code, answer.json()) == (status, {"reason": reason})
    assert answer.headers["apns-id"]
    assert stage.lookalike.control.accepted() == []
    assert stage.lookalike.control.counts() == {"apns-production": {reason: 1}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "OTHERTEAM0"}, "InvalidProviderToken"),
        ({"kid": "OTHERKEY00"}, "InvalidProviderToken"),
        ({"key_pem": new_apns_credentials([]).key_pem}, "InvalidProviderToken"),
        ({"iat": "1"}, "InvalidProviderToken"),
        ({"iat": timedelta(hours=1)}, "InvalidProviderToken"),
        ({"iat": timedelta(minutes=-61)}, "ExpiredProviderToken"),
    ],
)
async def test_a_faulty_bearer_is_refused(stage: Stage, changes: dict[str, Any], reason: str) -> None:
    answer = await stage.push(stage.connect(), bearer=stage.bearer(**stage.dated(changes)))
    assert (answer.status_code, answer.json()) == (403, {"reason": reason})


async def test_other_methods_than_post_are_refused(stage: Stage) -> None:
    answer = await stage.connect().get(f"{stage.lookalike.urls[Service.APNS_SANDBOX]}/3/device/{PUSH_TOKEN}")
    assert (answer.status_code, answer.json()) == (405, {"reason": "MethodNotAllowed"})


async def test_repeated_headers_are_refused(stage: Stage) -> None:
    headers = [("authorization", f"bearer {stage.bearer()}"), ("apns-topic", "a"), ("apns-topic", "b")]
    url = f"{stage.lookalike.urls[Service.APNS_SANDBOX]}/3/device/{PUSH_TOKEN}"
    answer = await stage.connect().post(url, headers=headers, content=b"{}")
    assert answer.json() == {"reason": "DuplicateHeaders"}


async def test_a_voip_push_may_be_larger_than_an_alert(stage: Stage) -> None:
    body = json.dumps({"call": "x" * 5000}).encode()
    topic = "com.example.app.voip"
    client = stage.connect()
    assert (await stage.push(client, apns_push_type="voip", apns_topic=topic, body=body)).status_code == 200
    assert (await stage.push(client, body=body)).json() == {"reason": "PayloadTooLarge"}


@pytest.mark.parametrize(("size", "status"), [(4096, 200), (4097, 413)])
async def test_a_payload_may_fill_four_kibibytes_exactly(stage: Stage, size: int, status: int) -> None:
    body = json.dumps({"aps": {"alert": "x"}}).encode().replace(b"x", b"x" * (size - len(b'{"aps": {"alert": ""}}')))
    assert len(body) == size
    assert (await stage.push(stage.connect(), body=body)).status_code == status


async def test_a_bearer_that_was_good_expires_on_an_open_connection(stage: Stage) -> None:
    client, bearer = stage.connect(), stage.bearer()
    assert (await stage.push(client, bearer=bearer)).status_code == 200
    stage.clock.ahead_ms = 3_700_000
    assert (await stage.push(client, bearer=bearer)).json() == {"reason": "ExpiredProviderToken"}


async def test_a_connection_keeps_the_key_and_the_team_of_its_first_bearer(stage: Stage) -> None:
    control, apns = stage.lookalike.control, stage.lookalike.apns
    same_team, other_team = new_apns_credentials(apns.topics), new_apns_credentials(apns.topics)
    for team_id, key in ((apns.team_id, same_team), (other_team.team_id, other_team)):
        control.register_apns_key(
            team_id=team_id, key_id=key.key_id, public_key_pem=key.public_key_pem, topics=key.topics
        )
    client = stage.connect()
    assert (await stage.push(client)).status_code == 200
    unrelated = stage.bearer(kid=same_team.key_id, key_pem=same_team.key_pem)
    foreign = stage.bearer(iss=other_team.team_id, kid=other_team.key_id, key_pem=other_team.key_pem)
    assert (await stage.push(client, bearer=unrelated)).json() == {"reason": "UnrelatedKeyIdInToken"}
    assert (await stage.push(client, bearer=foreign)).json() == {"reason": "Forbidden"}
    assert (await stage.push(stage.connect(), bearer=foreign)).status_code == 200


async def test_a_key_of_one_environment_is_refused_by_the_other(stage: Stage) -> None:
    key = new_apns_credentials(["com.example.app"])
    stage.lookalike.control.register_apns_key(
        team_id=key.team_id,
        key_id=key.key_id,
        public_key_pem=key.public_key_pem,
        topics=key.topics,
        environments=["sandbox"],
    )
    bearer = stage.bearer(iss=key.team_id, kid=key.key_id, key_pem=key.key_pem)
    assert (await stage.push(stage.connect(), bearer=bearer)).json() == {"reason": "BadEnvironmentKeyIdInToken"}
    assert (await stage.push(stage.connect(), bearer=bearer, service=Service.APNS_SANDBOX)).status_code == 200


async def test_changing_bearers_too_often_is_refused_until_twenty_minutes_passed(stage: Stage) -> None:
    client = stage.connect()
    assert [(await stage.push(client)).status_code for _ in range(3)] == [200, 200, 429]
    stage.clock.ahead_ms = 21 * 60 * 1000
    assert (await stage.push(client)).status_code == 200


async def test_a_registered_push_token_is_good_only_where_it_belongs(stage: Stage) -> None:
    push_token = uuid.uuid4().hex
    stage.lookalike.control.register_push_token(push_token, environment="sandbox", topic="com.example.app")
    sandbox: dict[str, Any] = {"push_token": push_token, "service": Service.APNS_SANDBOX}
    voip = sandbox | {"apns_push_type": "voip", "apns_topic": "com.example.app.voip"}
    assert (await stage.push(stage.connect(), push_token=push_token)).json() == {"reason": "BadDeviceToken"}
    assert (await stage.push(stage.connect(), **voip)).json() == {"reason": "DeviceTokenNotForTopic"}
    assert (await stage.push(stage.connect(), **sandbox)).status_code == 200


# OAuth and FCM


async def test_a_granted_bearer_sends_a_message_that_is_remembered(stage: Stage) -> None:
    client = stage.connect()
    granted = (await stage.grant(client)).json()
    assert (granted["token_type"], granted["expires_in"]) == ("Bearer", 3599)
    message = {"token": "reg:1", "data": {"k": "v"}, "android": {"collapse_key": "once", "priority": "HIGH"}}
    answer = await stage.send(client, message, bearer=granted["access_token"])
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
    (push,) = stage.lookalike.control.accepted()
    assert answer.json() == {"name": push.provider_id}
    assert push.provider_id.startswith("projects/pushlease-local/messages/")
    assert (push.provider, push.environment, push.push_token) == ("fcm", "pushlease-local", "reg:1")
    assert (push.collapse_id, push.priority, push.body) == ("once", "HIGH", message)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"iss": "nobody@example.com"}, "invalid_grant"),
        ({"key_pem": new_service_account("other", "").json["private_key"]}, "invalid_grant"),
        ({"aud": "https://example.com/token"}, "invalid_grant"),
        ({"exp": timedelta(hours=2)}, "invalid_grant"),
        ({"iat": timedelta(hours=-2), "exp": timedelta(hours=-1)}, "invalid_grant"),
        ({"iat": timedelta(minutes=10), "exp": timedelta(minutes=20)}, "invalid_grant"),
        ({"scope": ""}, "invalid_scope"),
    ],
)
async def test_a_faulty_assertion_is_granted_nothing(stage: Stage, changes: dict[str, Any], error: str) -> None:
    answer = await stage.grant(stage.connect(), stage.assertion(**stage.dated(changes)))
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert answer.json()["error_description"]


async def test_another_grant_or_another_encoding_is_refused(stage: Stage) -> None:
    client = stage.connect()
    assert (await stage.grant(client, grant_type="password")).json()["error"] == "unsupported_grant_type"
    as_json = await client.post(stage.lookalike.service_account.json["token_uri"], json={"grant_type": GRANT})
    assert (as_json.status_code, as_json.json()["error"]) == (400, "invalid_request")


async def test_an_access_bearer_expires(stage: Stage) -> None:
    client = stage.connect()
    bearer = (await stage.grant(client)).json()["access_token"]
    stage.clock.ahead_ms = 3_601_000
    answer = await stage.send(client, {"token": "reg"}, bearer=bearer)
    assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")
    assert "details" not in answer.json()["error"]


async def test_an_unknown_project_is_not_found_and_says_nothing_of_the_push_token(stage: Stage) -> None:
    answer = await stage.send(stage.connect(), {"token": "reg"}, project="elsewhere")
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")
    assert "details" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"data": {}}, "message"),
        ({"token": "reg", "topic": "news"}, "message.topic"),
        ({"topic": "no spaces"}, "message.topic"),
        ({"token": "reg", "data": {"a": "1", "b": 2}}, "message.data[1].value"),
        ({"token": "reg", "data": {"from": "me"}}, "message.data"),
        ({"token": "reg", "data": {"google.x": "1"}}, "message.data"),
        ({"token": "reg", "surprise": 1}, "message.surprise"),
        ({"token": "reg", "android": {"ttl": "1h"}}, "message.android.ttl"),
        ({"token": "reg", "android": {"ttl": "2419201s"}}, "message.android.ttl"),
        ({"token": "reg", "android": {"priority": "URGENT"}}, "message.android.priority"),
        ({"token": "reg", "apns": {"headers": {"apns-priority": 5}}}, "message.apns.headers[0].value"),
        ({"token": "reg", "notification": "hi"}, "message.notification"),
    ],
)
async def test_a_malformed_message_is_refused_by_field(stage: Stage, message: dict[str, Any], path: str) -> None:
    error = (await stage.send(stage.connect(), message)).json()["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    (detail,) = error["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert [violation["field"] for violation in detail["fieldViolations"]] == [path]


@pytest.mark.parametrize(
    "message",
    [
        {"token": "reg", "data": {"k": "x" * 4096}},
        {"token": "reg", "notification": {"body": "ü" * 2048}},
        {"token": "reg", "apns": {"payload": {"aps": {"alert": "x" * 4096}}}},
        {"topic": "news", "data": {"k": "x" * 2048}},
    ],
)
async def test_a_message_that_is_too_big_is_told_so(stage: Stage, message: dict[str, Any]) -> None:
    error = (await stage.send(stage.connect(), message)).json()["error"]
    assert (error["code"], error["message"]) == (400, "Message is too big")
    assert [detail.get("errorCode") for detail in error["details"]] == [None, "INVALID_ARGUMENT"]
    assert "fieldViolations" not in error["details"][0]


async def test_a_malformed_registration_is_an_invalid_argument_without_field(stage: Stage) -> None:
    error = (await stage.send(stage.connect(), {"token": "not a registration"})).json()["error"]
    assert "not a valid FCM registration token" in error["message"]
    assert [detail["errorCode"] for detail in error["details"]] == ["INVALID_ARGUMENT"]


async def test_validate_only_accepts_without_sending(stage: Stage) -> None:
    body = json.dumps({"validate_only": True, "message": {"token": "reg"}}).encode()
    assert (await stage.send(stage.connect(), body)).status_code == 200
    assert stage.lookalike.control.accepted() == []


# Misbehaviour


async def test_a_script_is_consumed_step_by_step(stage: Stage) -> None:
    stage.lookalike.control.script(
        PUSH_TOKEN,
        [
            Step(do="answer", status=429, reason="TooManyRequests", headers={"retry-after": "7"}, times=2),
            Step(do="answer", status=410, reason="Unregistered", timestamp_ms=1_700_000_000_000),
        ],
    )
    client, bearer = stage.connect(), stage.bearer()
    answers = [await stage.push(client, bearer=bearer) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [429, 429, 410, 200]
    assert answers[0].headers["retry-after"] == "7"
    assert answers[2].json() == {"reason": "Unregistered", "timestamp": 1_700_000_000_000}
    assert [push.attempt for push in stage.lookalike.control.accepted()] == [4]


async def test_a_faulty_request_uses_up_no_step(stage: Stage) -> None:
    stage.lookalike.control.script(PUSH_TOKEN, [Step(do="answer", status=500, reason="InternalServerError")])
    client, bearer = stage.connect(), stage.bearer()
    assert (await stage.push(client, bearer=bearer, apns_priority="7")).status_code == 400
    assert (await stage.push(client, bearer=bearer)).status_code == 500


async def test_fcm_refusals_are_scripted_by_error_code_or_whole_body(stage: Stage) -> None:
    stage.lookalike.control.script(
        "reg",
        [Step(do="answer", status=404, reason="UNREGISTERED"), Step(do="answer", status=502, body="<html>bad</html>")],
    )
    client = stage.connect()
    error = (await stage.send(client, {"token": "reg"})).json()["error"]
    assert (error["status"], error["details"][0]["errorCode"]) == ("NOT_FOUND", "UNREGISTERED")
    front_end = await stage.send(client, {"token": "reg"})
    assert (front_end.status_code, front_end.text) == (502, "<html>bad</html>")


async def test_a_lost_acceptance_is_remembered_though_the_client_hears_503(stage: Stage) -> None:
    stage.lookalike.control.script(PUSH_TOKEN, [Step(do="accept_then_503")])
    answer = await stage.push(stage.connect())
    assert (answer.status_code, answer.json()) == (503, {"reason": "ServiceUnavailable"})
    assert len(stage.lookalike.control.accepted()) == 1


@pytest.mark.parametrize(
    ("step", "taken"),
    [
        (Step(do="reset", code=7), False),
        (Step(do="hang_up"), False),
        (Step(do="goaway"), False),
        (Step(do="accept_then_reset"), True),
        (Step(do="accept_then_hang_up"), True),
    ],
    ids=lambda value: value.do if isinstance(value, Step) else None,
)
async def test_a_broken_stream_leaves_no_answer(stage: Stage, step: Step, taken: bool) -> None:
    stage.lookalike.control.script(PUSH_TOKEN, [step])
    with pytest.raises(httpx.TransportError):
        await stage.push(stage.connect())
    (seen,) = stage.lookalike.control.requests()
    assert seen.ending == step.do.removeprefix("accept_then_")
    assert seen.accepted is taken
    assert len(stage.lookalike.control.accepted()) == taken


async def test_silence_outlasts_the_client_and_spares_the_other_streams(stage: Stage) -> None:
    stage.lookalike.control.script("cd" * 32, [Step(do="silence", times=None)])
    client, bearer = stage.connect(timeout_s=0.2), stage.bearer()
    assert (await stage.push(client, bearer=bearer)).status_code == 200
    with pytest.raises(httpx.ReadTimeout):
        await stage.push(client, bearer=bearer, push_token="cd" * 32)
    assert (await stage.push(client, bearer=bearer)).status_code == 200


async def test_a_slow_answer_was_accepted_before_it_was_given(stage: Stage) -> None:
    stage.lookalike.control.script(PUSH_TOKEN, [Step(do="accept", delay_ms=60_000)])
    with pytest.raises(httpx.ReadTimeout):
        await stage.push(stage.connect(timeout_s=0.2))
    assert len(stage.lookalike.control.accepted()) == 1


async def test_an_outage_answers_503_until_it_ends(stage: Stage) -> None:
    client, bearer = stage.connect(), stage.bearer()
    stage.lookalike.control.outage("apns-production", "503")
    assert (await stage.push(client, bearer=bearer)).json() == {"reason": "ServiceUnavailable"}
    assert (await stage.push(client, bearer=bearer, service=Service.APNS_SANDBOX)).status_code == 200
    stage.lookalike.control.outage("apns-production", "off")
    assert (await stage.push(client, bearer=bearer)).status_code == 200


async def test_a_closed_service_cuts_open_and_coming_connections(stage: Stage) -> None:
    client, bearer = stage.connect(), stage.bearer()
    assert (await stage.push(client, bearer=bearer)).status_code == 200
    stage.lookalike.control.outage("apns-production", "closed")
    for attempt in (client, stage.connect()):
        with pytest.raises(httpx.TransportError):
            await stage.push(attempt, bearer=bearer)
    stage.lookalike.control.outage("apns-production", "off")
    assert (await stage.push(client, bearer=bearer)).status_code == 200


async def test_expired_bearers_are_refused_until_a_new_one_comes(stage: Stage) -> None:
    client, bearer = stage.connect(), stage.bearer()
    access = (await stage.grant(client)).json()["access_token"]
    assert (await stage.push(client, bearer=bearer)).status_code == 200
    stage.lookalike.control.expire_bearers("apns")
    stage.lookalike.control.expire_bearers("fcm")
    assert (await stage.push(client, bearer=bearer)).json() == {"reason": "ExpiredProviderToken"}
    assert (await stage.send(client, {"token": "reg"}, bearer=access)).status_code == 401
    assert (await stage.push(client)).status_code == 200
    assert (await stage.send(client, {"token": "reg"})).status_code == 200


async def test_the_bearer_endpoint_can_be_scripted(stage: Stage) -> None:
    stage.lookalike.control.script("oauth", [Step(do="answer", status=400, reason="invalid_grant")])
    client = stage.connect()
    assert (await stage.grant(client)).json()["error"] == "invalid_grant"
    assert (await stage.grant(client)).status_code == 200
