"""The bearers: how long they live, how often they are renewed, and that no secret shows in a fault."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fakes import FakeCallerIdentity
from pushlease.codes import Code
from pushlease.errors import CredentialsError, TransportError
from pushlease.providers.apns.auth import ApnsBearers
from pushlease.providers.batch import credentials_fault
from pushlease.providers.fcm.auth import FcmBearers, account_in

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000
START_MS = 1_800_000_000_000


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


P256 = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ACCOUNT = {
    "type": "service_account",
    "client_email": "push@demo.iam.gserviceaccount.com",
    "private_key_id": "key-1",
    "private_key": pem(RSA),
    "token_uri": "https://oauth2.example/token",
}


def apns_bearers() -> ApnsBearers:
    return ApnsBearers(team_id="TEAM000001", key_id="KEY0000001", p8=pem(P256))


# --- APNs -------------------------------------------------------------------------------------------------------------


def test_apples_bearer_names_team_key_and_moment() -> None:
    bearer = apns_bearers().current(now_ms=START_MS + 999)
    header = jwt.get_unverified_header(bearer)
    assert (header["alg"], header["kid"]) == ("ES256", "KEY0000001")
    claims = jwt.decode(bearer, P256.public_key(), algorithms=["ES256"], options={"verify_iat": False})
    assert claims == {"iss": "TEAM000001", "iat": START_MS // 1000 - 30}  # a clock may run ahead of Apple's


def test_apples_bearer_lives_45_minutes() -> None:
    bearers = apns_bearers()
    first = bearers.current(now_ms=START_MS)
    assert bearers.current(now_ms=START_MS + 45 * MINUTE_MS - 1) == first
    assert bearers.current(now_ms=START_MS + 45 * MINUTE_MS) != first


def test_a_refused_bearer_of_apple_is_replaced_once_in_20_minutes() -> None:
    bearers = apns_bearers()
    first = bearers.current(now_ms=START_MS)
    bearers.refused(first, now_ms=START_MS + 1)
    second = bearers.current(now_ms=START_MS + 1)
    assert second != first
    bearers.refused(first, now_ms=START_MS + 2)  # another push's late news
    bearers.refused(second, now_ms=START_MS + 2)  # not its age, then: minting on would draw a limit upon us
    assert bearers.current(now_ms=START_MS + 2) == second
    bearers.refused(second, now_ms=START_MS + 21 * MINUTE_MS)
    assert bearers.current(now_ms=START_MS + 21 * MINUTE_MS) != second


@pytest.mark.parametrize("back_ms", [1, 1000, 21 * MINUTE_MS, 600 * MINUTE_MS])
def test_a_clock_that_is_put_back_mints_nothing(back_ms: int) -> None:
    bearers = apns_bearers()
    first = bearers.current(now_ms=START_MS)
    for now_ms in range(START_MS - back_ms, START_MS, back_ms // 5 + 1):
        assert bearers.current(now_ms=now_ms) == first


def test_a_bearer_from_a_future_that_was_put_back_is_replaced_when_apple_refuses_it_and_then_once_in_20_minutes() -> (
    None
):
    bearers = apns_bearers()
    first = bearers.current(now_ms=START_MS + 120 * MINUTE_MS)
    bearers.refused(first, now_ms=START_MS + 120 * MINUTE_MS)
    second = bearers.current(now_ms=START_MS + 120 * MINUTE_MS)
    bearers.refused(second, now_ms=START_MS)
    third = bearers.current(now_ms=START_MS)
    assert len({first, second, third}) == 3
    assert jwt.decode(third, options={"verify_signature": False})["iat"] == START_MS // 1000 - 30
    for minute in range(20):
        bearers.refused(third, now_ms=START_MS + minute * MINUTE_MS)
        assert bearers.current(now_ms=START_MS + minute * MINUTE_MS) == third


def test_a_clock_that_leaps_ahead_mints_once() -> None:
    bearers = apns_bearers()
    first = bearers.current(now_ms=START_MS)
    second = bearers.current(now_ms=START_MS + 600 * MINUTE_MS)
    assert second != first
    assert bearers.current(now_ms=START_MS + 601 * MINUTE_MS) == second


def test_a_bearer_is_doubtful_when_nothing_was_accepted_with_it_for_20_minutes() -> None:
    bearers = apns_bearers()
    bearer = bearers.current(now_ms=START_MS)
    assert not bearers.doubtful(bearer, now_ms=START_MS + 20 * MINUTE_MS - 1)
    assert bearers.doubtful(bearer, now_ms=START_MS + 20 * MINUTE_MS)
    bearers.proved(bearer, now_ms=START_MS + 10 * MINUTE_MS)
    assert not bearers.doubtful(bearer, now_ms=START_MS + 30 * MINUTE_MS - 1)
    assert bearers.doubtful(bearer, now_ms=START_MS + 30 * MINUTE_MS)
    bearers.refused(bearer, now_ms=START_MS + 30 * MINUTE_MS)
    assert bearers.doubtful(bearer, now_ms=START_MS + 30 * MINUTE_MS)  # a late answer: another bearer is tried
    renewed = bearers.current(now_ms=START_MS + 30 * MINUTE_MS)
    assert not bearers.doubtful(renewed, now_ms=START_MS + 30 * MINUTE_MS)


@pytest.mark.parametrize("p8", ["", "hunter2", pem(RSA), pem(ec.generate_private_key(ec.SECP384R1()))])
def test_a_malformed_p8_is_named_and_not_shown(p8: str) -> None:
    with pytest.raises(CredentialsError, match="KEY0000001") as caught:
        ApnsBearers(team_id="TEAM000001", key_id="KEY0000001", p8=p8)
    assert p8 == "" or p8[:40] not in str(caught.value)
    assert caught.value.__cause__ is None


# --- the grant --------------------------------------------------------------------------------------------------------


@dataclass
class Google:
    """The grant's endpoint as a transport: answers from ``answers``, in order, the last one for ever."""

    answers: list[Callable[[], httpx.Response]]
    now_ms: int = START_MS
    assertions: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()
        account = account_in(json.dumps(ACCOUNT), identity=FakeCallerIdentity(), host="fcm.example")
        self.bearers = FcmBearers(account=account, connect=self.connect, clock=lambda: self.now_ms)

    def connect(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer))

    async def answer(self, request: httpx.Request) -> httpx.Response:
        (assertion,) = parse_qs(request.content.decode())["assertion"]
        self.assertions.append(assertion)
        self.asked.set()
        await self.may_answer.wait()
        return self.answers[min(len(self.assertions), len(self.answers)) - 1]()

    async def current(self) -> str:
        return await self.bearers.current(timeout_s=1)

    async def refresh(self) -> None:
        await self.bearers.refresh(timeout_s=1)


def granted(bearer: str, expires_in: object = 3600) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(200, json={"access_token": bearer, "expires_in": expires_in})


def denied(status: int = 400, **answer: Any) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(status, json=answer)


def cut() -> httpx.Response:
    raise httpx.ConnectError("refused")


async def test_the_assertion_is_signed_for_the_endpoint_and_for_an_hour() -> None:
    google = Google([granted("b1")])
    await google.current()
    claims = jwt.decode(
        google.assertions[0],
        RSA.public_key(),
        algorithms=["RS256"],
        audience=ACCOUNT["token_uri"],
        options={"verify_iat": False, "verify_exp": False},  # the test's clock is not the library's
    )
    assert claims["iss"] == ACCOUNT["client_email"]
    assert claims["iat"] == START_MS // 1000 - 30
    assert claims["exp"] - claims["iat"] == 3600
    assert jwt.get_unverified_header(google.assertions[0])["kid"] == "key-1"


@pytest.mark.parametrize("expires_in", [3600, "3600", 86_400, "soon", None])
async def test_googles_bearer_is_kept_for_an_hour(expires_in: object) -> None:
    google = Google([granted("b1", expires_in), granted("b2")])
    assert await google.current() == "b1"
    google.now_ms += 3_600_000 - 1
    assert await google.current() == "b1"
    google.now_ms += 1
    assert await google.current() == "b2"


@pytest.mark.parametrize("expires_in", [0, -5, "0", 1])
async def test_a_bearer_said_to_be_dead_at_once_is_not_asked_for_at_every_push(expires_in: object) -> None:
    google = Google([granted("b1", expires_in), granted("b2")])
    assert await google.current() == "b1"
    google.now_ms += 59_999
    assert await google.current() == "b1"


async def test_a_bearer_near_its_end_serves_on_while_one_renewal_runs_and_nobody_waits_for_it() -> None:
    google = Google([granted("b1"), granted("b2")])
    await google.current()
    await google.refresh()
    assert len(google.assertions) == 1  # far from its end
    google.now_ms += 3_600_000 - 225_000
    google.asked.clear()
    google.may_answer.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as batches:
        for _ in range(10):
            batches.create_task(google.refresh())
        await google.asked.wait()
        assert {await google.current() for _ in range(10)} == {"b1"}
        google.may_answer.set()
    assert await google.current() == "b2"
    assert len(google.assertions) == 2


async def test_a_clock_that_was_put_back_has_the_bearer_renewed_aside() -> None:
    google = Google([granted("b1"), granted("b2")])
    await google.current()
    google.now_ms -= 7_200_000
    assert await google.current() == "b1"
    await google.refresh()
    assert await google.current() == "b2"


async def test_a_renewal_aside_that_meets_silence_is_given_up_and_the_old_bearer_serves() -> None:
    google = Google([granted("b1"), granted("b2")])
    await google.current()
    google.now_ms += 3_600_000 - 225_000
    google.may_answer.clear()
    await google.bearers.refresh(timeout_s=0.05)
    assert await google.current() == "b1"


async def test_who_waits_for_a_grant_waits_no_longer_than_its_own_time() -> None:
    google = Google([granted("b1")])
    google.may_answer.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as batch:
        first = batch.create_task(google.bearers.current(timeout_s=4))
        await google.asked.wait()
        with pytest.raises(TransportError, match="no turn"):
            await google.bearers.current(timeout_s=0.05)
        google.may_answer.set()
    assert first.result() == "b1"


async def test_silence_is_remembered_if_it_was_given_its_time() -> None:
    google = Google([granted("b1")])
    google.may_answer.clear()
    with pytest.raises(TransportError, match=r"no (grant|answer) within"):
        await google.bearers.current(timeout_s=0.01)
    with pytest.raises(TransportError, match=r"no (grant|answer) within"):
        await google.bearers.current(timeout_s=2.05)
    google.may_answer.set()
    with pytest.raises(TransportError, match=r"no (grant|answer) within"):
        await google.current()
    assert len(google.assertions) == 2
    google.now_ms += 30_000
    assert await google.current() == "b1"


async def test_all_who_ask_meanwhile_wait_for_one_grant() -> None:
    google = Google([granted("b1")])
    assert set(await asyncio.gather(*(google.current() for _ in range(50)))) == {"b1"}
    assert len(google.assertions) == 1


async def test_a_failed_grant_is_not_repeated_for_half_a_minute() -> None:
    google = Google([denied(error="invalid_grant", error_description="Invalid JWT Signature."), granted("b1")])
    for _ in range(3):
        with pytest.raises(CredentialsError, match="HTTP 400, invalid_grant: Invalid JWT Signature") as caught:
            await google.current()
    assert len(google.assertions) == 1
    assert google.assertions[0] not in str(caught.value)
    google.now_ms += 30_000
    assert await google.current() == "b1"


async def test_an_old_bearer_serves_on_while_grants_fail() -> None:
    google = Google([granted("b1"), denied(503)])
    await google.current()
    google.now_ms += 3_600_000 - 100_000
    await google.refresh()
    assert len(google.assertions) == 2
    assert await google.current() == "b1"
    google.now_ms += 100_000
    with pytest.raises(CredentialsError, match="HTTP 503"):
        await google.current()


async def test_a_refused_bearer_of_google_is_renewed_once() -> None:
    google = Google([granted("b1"), granted("b2"), granted("b3")])
    google.bearers.refused(await google.current())
    assert await google.current() == "b2"
    google.bearers.refused("b1")
    google.bearers.refused("b2")
    assert await google.current() == "b2"


async def test_no_answer_is_no_fault_of_the_credentials() -> None:
    with pytest.raises(TransportError, match="ConnectError"):
        await Google([cut]).current()


@pytest.mark.parametrize("answer", [denied(200), denied(200, access_token="a\r\nb"), lambda: httpx.Response(200)])
async def test_a_grant_without_a_usable_bearer_is_a_fault(answer: Callable[[], httpx.Response]) -> None:
    with pytest.raises(CredentialsError, match="access_token"):
        await Google([answer]).current()


@pytest.mark.parametrize(
    ("answer", "passing"),
    [
        (denied(400, error="invalid_grant"), False),
        (denied(401, error="unauthorized_client"), False),
        (denied(403, error={"status": "PERMISSION_DENIED", "message": "No."}), False),
        (denied(400, error="internal_failure"), True),
        (denied(400, error="temporarily_unavailable"), True),
        (denied(408), True),
        (denied(429), True),
        (denied(500), True),
        (lambda: httpx.Response(502, text="<html>"), True),
        (denied(200), False),
        (lambda: httpx.Response(307, headers={"location": "https://elsewhere.example/token"}), False),
    ],
)  # fmt: skip
async def test_a_refusal_that_passes_is_told_from_one_to_be_mended(
    answer: Callable[[], httpx.Response], passing: bool
) -> None:
    google = Google([answer])
    with pytest.raises(CredentialsError) as caught:
        await google.current()
    assert caught.value.passing is passing
    assert len(google.assertions) == 1  # a redirect is not followed
    verdict = credentials_fault(caught.value)
    assert (verdict.code, verdict.alarm) == (Code.PROVIDER_ERROR, not passing)
