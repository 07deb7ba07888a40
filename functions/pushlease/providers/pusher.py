"""The ``Pusher`` port over APNs and FCM: routes pushes to lines, keeps those and the bearers across invocations."""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlsplit

from pushlease.codes import Code
from pushlease.errors import CredentialsError
from pushlease.providers.apns.auth import ApnsBearers
from pushlease.providers.apns.client import Apns
from pushlease.providers.batch import Batch, Dialect, credentials_fault
from pushlease.providers.fcm.auth import FcmBearers, account_in
from pushlease.providers.fcm.client import Fcm
from pushlease.providers.identity import CallerIdentity
from pushlease.providers.recent import Windows, within
from pushlease.providers.secrets import Secrets
from pushlease.providers.transport import Line, http2_only, open_client, tls_context
from pushlease.push.device import ApnsCredentials, Environment, FcmCredentials, Platform
from pushlease.push.outcome import Accepted, Refused, Scope, Verdict
from pushlease.push.ports import Push

APNS_STREAMS = 1_000  # as Apple's servers have offered; theirs to lower at any time
FCM_STREAMS = 100  # FCM ends a connection with more (firebase-admin-node#2943), and calls PINGs too many
SECRET_RENEWAL_MS = 60_000  # refused credentials are read anew at most this often: each read is a paid call
WRONG_HOST = "BadDeviceToken"  # Apple's word for a push token that its other host issued, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a push goes, and as whom: pushes of one route share a line."""

    url: str
    credentials: ApnsCredentials | FcmCredentials


class ProviderPusher:
    """``Pusher``: synchronous outside, one event loop inside, kept for the life of the process.

    URLs are origins such as ``https://api.push.apple.com``. ``ca_file``: PEM of a further authority to trust.
    ``apns_floor``: the least wait after APNs's 5xx; ``fcm_floor``: after FCM's 429 without Retry-After. ``clock``:
    epoch ms.
    """

    def __init__(
        self,
        *,
        apns_production_url: str,
        apns_sandbox_url: str,
        fcm_url: str,
        ca_file: str | None,
        request_timeout: timedelta,
        apns_floor: timedelta,
        fcm_floor: timedelta,
        secrets: Secrets,
        identity: CallerIdentity,
        clock: Callable[[], int],
    ) -> None:
        self._apns_urls = {Environment.PRODUCTION: apns_production_url, Environment.SANDBOX: apns_sandbox_url}
        self._fcm_url, self._ca_file = fcm_url, ca_file
        self._request_timeout, self._apns_floor, self._fcm_floor = request_timeout, apns_floor, fcm_floor
        self._secrets, self._identity, self._clock = secrets, identity, clock
        self._runner = asyncio.Runner()
        self._windows = Windows()
        self._tls: ssl.SSLContext | None = None
        self._grants: ssl.SSLContext | None = None  # httpx offers HTTP/1.1, too, on whatever context it is given
        self._texts: dict[str, str] = {}  # by secret, as last read
        self._used: dict[Route, str] = {}  # the text that a route's batch was built from
        self._read_anew_at_ms: dict[str, int] = {}
        self._reading: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._apns_bearers: dict[ApnsCredentials, ApnsBearers] = {}
        self._fcm_bearers: dict[str, FcmBearers] = {}  # by secret: one account may send for several projects
        self._batches: dict[Route, Batch] = {}

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        """See ``Pusher``. Nothing that it starts outlives the call."""
        return self._runner.run(self._push(pushes, deadline_ms))

    def close(self) -> None:
        """Close every connection, and the loop."""
        self._runner.run(self._forget(list(self._batches)))
        self._runner.close()

    async def _push(self, pushes: Sequence[Push], deadline_ms: int) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        routes: dict[Route, list[int]] = defaultdict(list)
        for index, push in enumerate(pushes):
            route = self._route(push)
            if route is None:
                # What was not configured at acceptance was never enqueued: this was taken away since.
                verdicts[index] = Refused(
                    code=Code.PROVIDER_ERROR, reason="not configured any more", scope=Scope.CREDENTIALS, alarm=True
                )
            else:
                routes[route].append(index)

        async def serve(route: Route, indices: list[int]) -> None:
            served = await self._serve(route, [pushes[index] for index in indices], deadline_ms)
            verdicts.update(zip(indices, served, strict=True))

        async with asyncio.TaskGroup() as group:  # so that no provider waits for another
            for route, indices in routes.items():
                group.create_task(serve(route, indices))
        await self._cross(pushes, verdicts, deadline_ms)
        return [verdicts[index] for index in range(len(pushes))]

    async def _cross(self, pushes: Sequence[Push], verdicts: dict[int, Verdict], deadline_ms: int) -> None:
        """Take what Apple calls a bad push token to its other host, once: the row may name the wrong environment.

        Those of a burst stay: they tell of a fault of ours. So these answers do not count among the recent ones, and
        what ails the other host spends no attempt here; it only leaves the device as it is.
        """
        crossing = {index: _elsewhere(pushes[index]) for index, verdict in verdicts.items() if _alone(verdict)}
        routes: dict[Route, list[int]] = defaultdict(list)
        for index, push in crossing.items():
            if push.device.platform is Platform.APNS and (route := self._route(push)):
                routes[route].append(index)
        for route, indices in routes.items():
            there = await self._try(route, [crossing[index] for index in indices], deadline_ms, counted=False)
            for index, here, verdict in zip(indices, map(verdicts.get, indices), there, strict=True):
                if isinstance(verdict, Accepted):
                    verdicts[index] = replace(verdict, environment=crossing[index].device.environment)
                elif isinstance(here, Refused) and not _alone(verdict):
                    verdicts[index] = replace(here, disable_before_ms=None)

    def _route(self, push: Push) -> Route | None:
        environment = push.device.environment
        credentials = push.app.credentials(push.device)
        if credentials is None:
            return None
        url = self._fcm_url if isinstance(credentials, FcmCredentials) else self._apns_urls[environment]
        return Route(url=url, credentials=credentials)

    async def _serve(self, route: Route, pushes: Sequence[Push], deadline_ms: int) -> list[Verdict]:
        """Push; if the credentials are refused and the secret has been rotated, once more with the new one."""
        verdicts = await self._try(route, pushes, deadline_ms)
        doubted = [i for i, v in enumerate(verdicts) if isinstance(v, Refused) and v.scope is Scope.CREDENTIALS]
        if doubted and await self._rotated(route, deadline_ms):
            again = await self._try(route, [pushes[i] for i in doubted], deadline_ms)
            for i, verdict in zip(doubted, again, strict=True):
                verdicts[i] = verdict
        return verdicts

    async def _try(
        self, route: Route, pushes: Sequence[Push], deadline_ms: int, *, counted: bool = True
    ) -> list[Verdict]:
        try:
            batch = await self._batch(route, deadline_ms)
            return await batch.push(pushes, deadline_ms=deadline_ms, counted=counted)
        except CredentialsError as error:
            return [credentials_fault(error)] * len(pushes)
        except Exception as error:  # ours: the other routes go on
            return [Refused(code=Code.INTERNAL_ERROR, reason=type(error).__name__)] * len(pushes)

    async def _batch(self, route: Route, deadline_ms: int) -> Batch:
        if route not in self._batches:
            name = route.credentials.secret
            if name not in self._texts:
                self._texts[name] = await self._read(name, deadline_ms, fresh=False)
            self._used[route] = self._texts[name]
            self._batches[route] = self._build(route, self._texts[name])
        return self._batches[route]

    def _build(self, route: Route, secret: str) -> Batch:
        """Raises ``CredentialsError`` for a secret that is of no use."""
        tls = self._tls = self._tls or http2_only(tls_context(self._ca_file))
        dialect: Dialect
        match route.credentials:
            case ApnsCredentials() as credentials:
                if credentials not in self._apns_bearers:
                    self._apns_bearers[credentials] = _apns_bearers(credentials, secret)
                dialect = Apns(bearers=self._apns_bearers[credentials], floor=self._apns_floor, clock=self._clock)
            case FcmCredentials(project_id=project_id, secret=name):
                if name not in self._fcm_bearers:
                    self._fcm_bearers[name] = self._new_fcm_bearers(secret)
                bearers = self._fcm_bearers[name]
                dialect = Fcm(project_id=project_id, bearers=bearers, floor=self._fcm_floor, clock=self._clock)
        return Batch(
            dialect,
            self._line(route, tls),
            windows=self._windows,
            clock=self._clock,
            request_timeout=self._request_timeout,
        )

    def _new_fcm_bearers(self, secret: str) -> FcmBearers:
        grants = self._grants = self._grants or tls_context(self._ca_file)
        account = account_in(secret, identity=self._identity, host=urlsplit(self._fcm_url).hostname or "")
        return FcmBearers(account=account, connect=lambda: open_client(grants), clock=self._clock)

    def _line(self, route: Route, tls: ssl.SSLContext) -> Line:
        apns = isinstance(route.credentials, ApnsCredentials)
        streams = APNS_STREAMS if apns else FCM_STREAMS
        return Line(route.url, tls=tls, clock=self._clock, streams=streams, pings=apns)

    async def _rotated(self, route: Route, deadline_ms: int) -> bool:
        """Read the secret anew; whether it changed, so that another try makes sense."""
        name = route.credentials.secret
        async with self._reading[name]:  # whoever waited finds what was read meanwhile
            if self._texts.get(name) == self._used.get(route):
                await self._read_anew(route, deadline_ms)
        if self._texts.get(name) == self._used.get(route):
            return False
        await self._forget([route])
        return True

    async def _read_anew(self, route: Route, deadline_ms: int) -> None:
        """Adopt what the secret says now; what cannot be used does not replace what may still serve."""
        name, now_ms = route.credentials.secret, self._clock()
        if within(SECRET_RENEWAL_MS, since_ms=self._read_anew_at_ms.get(name), now_ms=now_ms):
            return
        self._read_anew_at_ms[name] = now_ms
        try:
            text = await self._read(name, deadline_ms, fresh=True)
            if text == self._texts.get(name):
                return
            match route.credentials:
                case ApnsCredentials() as credentials:
                    _apns_bearers(credentials, text)
                case FcmCredentials():
                    self._new_fcm_bearers(text)
        except CredentialsError:
            return  # the verdicts tell of the trouble already
        self._texts[name] = text
        self._fcm_bearers.pop(name, None)
        self._apns_bearers = {known: kept for known, kept in self._apns_bearers.items() if known.secret != name}

    async def _read(self, name: str, deadline_ms: int, *, fresh: bool) -> str:
        """Read a secret beside the loop, which goes on pushing to the other provider meanwhile."""
        try:
            async with asyncio.timeout(max(deadline_ms - self._clock(), 0) / 1000):
                return await asyncio.to_thread(self._secrets.get, name, fresh=fresh)
        except TimeoutError:
            raise CredentialsError(f"secret {name}: not read in time") from None

    async def _forget(self, routes: Sequence[Route]) -> None:
        for route in routes:
            if batch := self._batches.pop(route, None):
                await batch.close()


def _alone(verdict: Verdict) -> bool:
    """Whether Apple calls a push token bad, and not those of everybody."""
    return isinstance(verdict, Refused) and verdict.reason == WRONG_HOST and verdict.scope is Scope.DEVICE


def _elsewhere(push: Push) -> Push:
    return replace(push, device=push.device.moved(push.device.environment.other))


def _apns_bearers(credentials: ApnsCredentials, p8: str) -> ApnsBearers:
    return ApnsBearers(team_id=credentials.team_id, key_id=credentials.key_id, p8=p8)
