"""The bearer that Google wants: a service account's signed assertion, exchanged for an access token (RFC 7523)."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlencode

import httpx
import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pushlease.errors import CredentialsError, PushleaseError
from pushlease.providers.http import Response, said
from pushlease.providers.transport import exchange

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SKEW_S = 30  # a clock that runs ahead of Google's would make the assertion one from the future
LIFE_S = 3600  # the longest that Google grants
STALE_MS = 225_000  # as Google's own libraries: a bearer is renewed 3 min 45 s before it expires
PAUSE_MS = 30_000  # after a failed grant, the next waits this long: every push of a batch would ask again
RENEWAL_MS = 300_000  # a bearer refused sooner after its renewal is refused for another reason than its age


_TOKEN_URI = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[\w./-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """What of Google's service-account JSON a grant needs."""

    client_email: str
    private_key_id: str
    private_key: RSAPrivateKey
    token_uri: str

    def __repr__(self) -> str:
        return f"ServiceAccount({self.client_email})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ``CredentialsError``, which names the field at fault and never its value."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or fields.get("type") != "service_account":
            raise CredentialsError("FCM: the secret is not the JSON of a service account (type: service_account)")
        token_uri = _field(fields, "token_uri")
        if not _TOKEN_URI.fullmatch(token_uri):
            raise CredentialsError("FCM service account: token_uri must be an https URL")
        try:
            key = load_pem_private_key(_field(fields, "private_key").encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, RSAPrivateKey):
            raise CredentialsError("FCM service account: private_key is not the PEM of an RSA key")
        return cls(
            client_email=_field(fields, "client_email"),
            private_key_id=_field(fields, "private_key_id"),
            private_key=key,
            token_uri=token_uri,
        )

    def assertion(self, *, now_ms: int) -> str:
        """The signed claim to be this account, good for one grant."""
        issued_s = now_ms // 1000 - SKEW_S
        claims = {
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": issued_s,
            "exp": issued_s + LIFE_S,
        }
        return jwt.encode(claims, self.private_key, algorithm="RS256", headers={"kid": self.private_key_id})


class FcmBearers:
    """Gets the bearer of one service account and keeps it; whoever asks meanwhile waits for the same grant.

    ``connect`` opens a client for one grant: they are nearly an hour apart, and no connection lives that long idle.
    ``clock``: epoch ms.
    """

    def __init__(
        self, *, account: ServiceAccount, connect: Callable[[], httpx.AsyncClient], clock: Callable[[], int]
    ) -> None:
        self._account, self._connect, self._clock = account, connect, clock
        self._one_grant = asyncio.Lock()
        self._bearer = ""
        self._expires_at_ms = 0
        self._renewed_at_ms: int | None = None
        self._failure: tuple[int, PushleaseError] | None = None

    async def current(self, *, timeout_s: float) -> str:
        """The bearer to send. Raises ``CredentialsError`` or ``TransportError`` if there is none to be had."""
        async with self._one_grant:
            now_ms = self._clock()
            if self._bearer and now_ms < self._expires_at_ms - STALE_MS:
                return self._bearer
            try:
                await self._renew(now_ms, timeout_s)
            except PushleaseError:
                if not self._bearer or now_ms >= self._expires_at_ms:
                    raise
                # The old bearer still serves: an ailing grant does not stop the pushes yet.
            return self._bearer

    def refused(self, bearer: str) -> None:
        """Google refused ``bearer``: forget it, unless it replaced a refused one just now."""
        now_ms = self._clock()
        young = self._renewed_at_ms is not None and now_ms - self._renewed_at_ms < RENEWAL_MS
        if bearer == self._bearer and not young:
            self._bearer = ""
            self._renewed_at_ms = now_ms

    async def _renew(self, now_ms: int, timeout_s: float) -> None:
        if self._failure and now_ms - self._failure[0] < PAUSE_MS:
            raise self._failure[1]
        try:
            self._bearer, lives_s = await self._grant(now_ms, timeout_s)
        except PushleaseError as failure:
            self._failure = (now_ms, failure)
            raise
        self._failure = None
        self._expires_at_ms = now_ms + lives_s * 1000

    async def _grant(self, now_ms: int, timeout_s: float) -> tuple[str, int]:
        form = urlencode({"grant_type": GRANT, "assertion": self._account.assertion(now_ms=now_ms)})
        headers = {"content-type": "application/x-www-form-urlencoded"}
        async with self._connect() as client:
            response = await exchange(
                client, self._account.token_uri, headers=headers, body=form.encode(), timeout_s=timeout_s
            )
        return _granted(response)


def _granted(response: Response) -> tuple[str, int]:
    """The bearer and its seconds to live."""
    answer = response.json_object()
    if response.status != 200:
        words = [said(answer.get(key), otherwise="") for key in ("error", "error_description")]
        spoken = ": ".join(word for word in words if word) or "no reason given"
        raise CredentialsError(f"FCM grant refused with HTTP {response.status}, {spoken}")
    bearer = answer.get("access_token")
    if not isinstance(bearer, str) or not bearer.isascii() or not bearer.isprintable() or not bearer:
        raise CredentialsError("FCM grant answered without an access_token")
    try:
        lives_s = int(str(answer.get("expires_in", LIFE_S)))  # some endpoints write the number as a string
    except ValueError:
        lives_s = LIFE_S
    return bearer, min(max(lives_s, 0), LIFE_S)


def _field(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise CredentialsError(f"FCM service account: {name} must be a text")
    return value
