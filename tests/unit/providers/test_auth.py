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

from pushlease.errors import CredentialsError, TransportError
from pushlease.providers.apns.auth import ApnsBearers
from pushlease.providers.fcm.auth import FcmBearers, ServiceAccount

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
    assert claims == {"iss": "TEAM000001", "iat": START_MS // 1000}


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


@pytest.mark.parametrize("p8", ["", "hunter2", pem(RSA), pem(ec.generate_private_key(ec.SECP384R1()))])
def test_a_malformed_p8_is_named_and_not_shown(p8: str) -> None:
    with pytest.raises(CredentialsError, match="KEY0000001") as caught:
        ApnsBearers(team_id="TEAM000001", key_id="KEY0000001", p8=p8)
    assert p8 == "" or p8[:40] not in str(caught.value)
    assert caught.value.__cause__ is None


# --- the service account ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["client_email", "private_key_id", "private_key", "token_uri"])
@pytest.mark.parametrize("value", [None, "", 5])
def test_a_service_account_without_a_field_names_it(missing: str, value: object) -> None:
    with pytest.raises(CredentialsError, match=missing):
        ServiceAccount.parse(json.dumps(ACCOUNT | {missing: value}))


@pytest.mark.parametrize(
    "text", ["", "hunter2", "[]", "{}", json.dumps(ACCOUNT | {"type": "external_account"})]
)  # fmt: skip
def test_what_is_no_service_account_is_said_so(text: str) -> None:
    with pytest.raises(CredentialsError, match="service account"):
        ServiceAccount.parse(text)


@pytest.mark.parametrize(
    ("field", "value"), [("private_key", "hunter2"), ("private_key", pem(P256)), ("token_uri", "http://plain.example")]
)  # fmt: skip
def test_an_unusable_field_is_named_and_not_shown(field: str, value: str) -> None:
    with pytest.raises(CredentialsError, match=field) as caught:
        ServiceAccount.parse(json.dumps(ACCOUNT | {field: value}))
    assert value[:40] not in str(caught.value)
    assert pem(RSA)[40:80] not in repr(ServiceAccount.parse(json.dumps(ACCOUNT)))


# --- the grant --------------------------------------------------------------------------------------------------------


@dataclass
class Google:
    """The grant's endpoint as a transport: answers from ``answers``, in order, the last one for ever."""

    answers: list[Callable[[], httpx.Response]]
    now_ms: int = START_MS
    assertions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        account = ServiceAccount.parse(json.dumps(ACCOUNT))
        self.bearers = FcmBearers(account=account, connect=self.connect, clock=lambda: self.now_ms)

    def connect(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        (assertion,) = parse_qs(request.content.decode())["assertion"]
        self.assertions.append(assertion)
        return self.answers[min(len(self.assertions), len(self.answers)) - 1]()

    async def current(self) -> str:
        return await self.bearers.current(timeout_s=1)


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


@pytest.mark.parametrize("expires_in", [3600, "3600"])
async def test_googles_bearer_is_kept_until_shortly_before_it_expires(expires_in: object) -> None:
    google = Google([granted("b1", expires_in), granted("b2")])
    assert await google.current() == "b1"
    google.now_ms += 3_600_000 - 225_001
    assert await google.current() == "b1"
    google.now_ms += 1
    assert await google.current() == "b2"


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
