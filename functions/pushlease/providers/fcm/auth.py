"""The bearer that Google wants: got from whatever the app's secret describes, kept, and renewed before it is needed."""

import asyncio
import json
from collections.abc import Callable, Mapping

import httpx

from pushlease.errors import CredentialsError, PushleaseError, TransportError
from pushlease.providers.fcm.external_account import ExternalAccount
from pushlease.providers.fcm.grant import Account, Fields, Grant
from pushlease.providers.fcm.service_account import ServiceAccount
from pushlease.providers.http import Response
from pushlease.providers.identity import CallerIdentity
from pushlease.providers.recent import within
from pushlease.providers.transport import exchange

STALE_MS = 225_000  # as Google's own libraries: a bearer is renewed 3 min 45 s before it expires
PAUSE_MS = 30_000  # after a failed grant, the next waits this long: every push of a batch would ask again
RENEWAL_MS = 300_000  # a bearer refused sooner after its renewal is refused for another reason than its age
ASIDE_S = 5.0  # a renewal that nobody waits for must not hold up the record of the batch that it runs beside
FAIR_S = 2.0  # a grant that was given less time and failed says nothing about the next


def account_in(secret: str, *, identity: CallerIdentity, host: str) -> Account:
    """Whoever the secret describes: its ``type`` decides. Raises ``CredentialsError``, which never quotes the secret.

    ``identity`` and ``host`` (FCM's) serve accounts of type ``external_account``.
    """
    try:
        values = json.loads(secret)
    except (ValueError, RecursionError):
        values = None
    match values:
        case {"type": "service_account"}:
            return ServiceAccount.of(Fields(what="FCM service account", values=values))
        case {"type": "external_account"}:
            return ExternalAccount.of(Fields(what="FCM external account", values=values), identity=identity, host=host)
    raise CredentialsError(
        "FCM: the secret is not the JSON of a service account or an external account (type: service_account, "
        "external_account)"
    )


class FcmBearers:
    """Keeps the bearer of one account; of all who need a new one, one gets it.

    A bearer near its end is renewed by ``refresh``, while ``current`` serves it on; only who has none left waits.
    ``connect`` opens a client for one grant: they are nearly an hour apart, and no connection lives that long idle.
    ``clock``: epoch ms.
    """

    def __init__(self, *, account: Account, connect: Callable[[], httpx.AsyncClient], clock: Callable[[], int]) -> None:
        self._account, self._connect, self._clock = account, connect, clock
        self._one_grant = asyncio.Lock()
        self._bearer = ""
        self._granted_at_ms = 0
        self._expires_at_ms = 0
        self._renewed_at_ms: int | None = None
        self._failure: tuple[int, PushleaseError] | None = None

    async def current(self, *, timeout_s: float) -> str:
        """The bearer to send. Raises ``CredentialsError`` or ``TransportError`` if there is none to be had."""
        if not self._serves():
            await self._renewed(self._serves, timeout_s)
        return self._bearer

    async def refresh(self, *, timeout_s: float) -> None:
        """Renew a bearer that is near its end; to be run beside the batch that it still serves. Raises nothing."""
        if not self._serves() or self._fresh():
            return
        try:
            await self._renewed(self._fresh, min(timeout_s, ASIDE_S))
        except Exception:  # whatever it is: whoever finds no bearer left meets it again, and reports it
            return

    def refused(self, bearer: str) -> None:
        """Google refused ``bearer``: forget it, unless it replaced a refused one just now."""
        now_ms = self._clock()
        if bearer == self._bearer and not within(RENEWAL_MS, since_ms=self._renewed_at_ms, now_ms=now_ms):
            self._bearer = ""
            self._renewed_at_ms = now_ms

    def _serves(self) -> bool:
        return bool(self._bearer) and self._clock() < self._expires_at_ms

    def _fresh(self) -> bool:
        """Far from its end, as far as is known: if the clock was put back, nothing is."""
        return self._serves() and self._granted_at_ms <= self._clock() < self._expires_at_ms - STALE_MS

    async def _renewed(self, enough: Callable[[], bool], timeout_s: float) -> None:
        """Wait for the one grant under way, or get it, unless the bearer is good ``enough`` by then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(until):
                await self._one_grant.acquire()
        except TimeoutError:
            raise TransportError(f"no turn for a grant within {timeout_s:.1f} s") from None
        try:
            if not enough():
                await self._renew(until - loop.time())
        finally:
            self._one_grant.release()

    async def _renew(self, timeout_s: float) -> None:
        now_ms = self._clock()
        if self._failure and within(PAUSE_MS, since_ms=self._failure[0], now_ms=now_ms):
            raise self._failure[1]
        try:
            grant = await self._grant(now_ms, timeout_s)
        except PushleaseError as failure:
            if isinstance(failure, CredentialsError) or timeout_s >= FAIR_S:
                self._failure = (now_ms, failure)
            raise
        self._failure = None
        self._bearer = grant.bearer
        self._granted_at_ms, self._expires_at_ms = now_ms, now_ms + grant.life_s * 1000

    async def _grant(self, now_ms: int, timeout_s: float) -> Grant:
        async def post(url: str, *, headers: Mapping[str, str], body: bytes) -> Response:
            return await exchange(client, url, headers=headers, body=body, timeout_s=timeout_s)

        try:
            async with asyncio.timeout(timeout_s), self._connect() as client:
                return await self._account.grant(post, now_ms=now_ms)
        except TimeoutError:
            raise TransportError(f"no grant within {timeout_s:.1f} s") from None
