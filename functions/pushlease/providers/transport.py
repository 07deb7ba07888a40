"""The one place that knows how HTTP/2 is spoken: httpx, its connections, its faults, and deadlines over all of it.

httpx 0.28 has no timeout that fires when a server lowers its stream limit under load, and trusts a connection that
died while the process was frozen. So every request runs under a deadline of our own, and a connection that was idle
for long, or that failed to answer, is replaced.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress

import httpx
from h2.errors import ErrorCodes
from h2.events import StreamReset
from h2.exceptions import H2Error

from pushlease.errors import TransportError
from pushlease.providers.http import Request, Response

CONNECT_TIMEOUT_S = 5.0  # TCP and TLS to another continent take a fraction of a second
CLOSE_TIMEOUT_S = 1.0  # closing is a courtesy: a dead peer does not hold up the batch
IDLE_MS = 60_000  # by the wall clock, which goes on while the process is frozen
ILL_ANSWERS = 3  # 5xx in a row on one connection: others may well reach a healthy server


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Verifies servers against the public authorities, and against ``ca_file`` (PEM) if given."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


def open_client(tls: ssl.SSLContext, *, http1: bool = False) -> httpx.AsyncClient:
    """A client of one connection at a time; no proxy, no redirect, nothing from the environment."""
    return httpx.AsyncClient(
        http1=http1,
        http2=True,
        verify=tls,
        trust_env=False,
        follow_redirects=False,
        limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None),
    )


async def exchange(
    client: httpx.AsyncClient, url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float
) -> Response:
    """POST and read the whole answer. Raises ``TransportError``, after ``timeout_s`` at the latest."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    timeouts = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
    request = httpx.Request("POST", url, headers=raw, content=body, extensions={"timeout": timeouts.as_dict()})
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.send(request)
    except TimeoutError:
        raise TransportError(f"no answer within {timeout_s:.1f} s") from None
    except (httpx.HTTPError, httpx.StreamError, H2Error, OSError) as error:
        raise TransportError(type(error).__name__, unprocessed=_unprocessed(error)) from error
    return Response(
        status=answer.status_code,
        headers={name.lower(): value for name, value in answer.headers.items()},
        body=answer.content,
    )


def _unprocessed(error: Exception) -> bool:
    """Whether the request provably never reached the provider's logic (RFC 9113 §8.7 for a refused stream)."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return True
    event = error.__cause__.args[0] if error.__cause__ and error.__cause__.args else None
    return isinstance(event, StreamReset) and event.error_code == ErrorCodes.REFUSED_STREAM


class Connection:
    """One connection to one host. Until the provider has accepted a bearer on it, requests go one at a time.

    Apple allows a single stream until then; a limit that changes under load is what httpx cannot bear.
    """

    def __init__(self, client: httpx.AsyncClient, base_url: str) -> None:
        self._client, self._base_url = client, base_url
        self._alone = asyncio.Lock()
        self._proven = asyncio.Event()
        self._ill_answers = 0
        self.retired = False

    async def send(self, request: Request, *, timeout_s: float) -> Response:
        """Raises ``TransportError`` after ``timeout_s``; unprocessed if the request still waited for its turn."""
        if self._proven.is_set():
            return await self._post(request, timeout_s)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._alone.acquire()
        except TimeoutError:
            raise TransportError("the connection's first request got no answer", unprocessed=True) from None
        if self.retired:  # by what came back for the one that went first: this one is spared the same
            self._alone.release()
            raise TransportError("the connection was given up", unprocessed=True)
        if self._proven.is_set():
            self._alone.release()
            return await self._post(request, until - loop.time())
        try:
            response = await self._post(request, until - loop.time())
        finally:
            self._alone.release()
        if response.status not in (401, 403):  # those are about the bearer; any other answer accepts it
            self._proven.set()
        return response

    async def _post(self, request: Request, timeout_s: float) -> Response:
        response = await exchange(
            self._client,
            self._base_url + request.path,
            headers=request.headers,
            body=request.body,
            timeout_s=max(timeout_s, 0),
        )
        self._ill_answers = self._ill_answers + 1 if response.status >= 500 else 0
        return response

    def doubt(self) -> None:
        """Let the next request go alone again."""
        self._proven.clear()

    @property
    def ill(self) -> bool:
        return self._ill_answers >= ILL_ANSWERS

    async def close(self) -> None:
        with suppress(TimeoutError, httpx.HTTPError, H2Error, OSError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._client.aclose()


class Line:
    """The way to one host: a connection, replaced as soon as it cannot be trusted.

    ``scouted``: each batch sends its first request alone, since this host lowers its stream limit when it refuses a
    bearer. That costs a round trip a batch; a hundred requests caught by a lower limit would cost all their deadlines.
    """

    def __init__(self, base_url: str, *, tls: ssl.SSLContext, clock: Callable[[], int], scouted: bool) -> None:
        self._base_url, self._tls, self._clock, self._scouted = base_url.rstrip("/"), tls, clock, scouted
        self._connection: Connection | None = None
        self._retired: list[Connection] = []
        self._used_at_ms = 0

    def connection(self) -> Connection:
        """The connection for the next request."""
        now_ms = self._clock()
        if self._connection and now_ms - self._used_at_ms > IDLE_MS:
            self.retire(self._connection)
        self._used_at_ms = now_ms
        if self._connection is None:
            self._connection = Connection(open_client(self._tls), self._base_url)
        return self._connection

    def begin(self) -> None:
        """A batch begins."""
        if self._connection and self._scouted:
            self._connection.doubt()

    def retire(self, connection: Connection) -> None:
        """Give ``connection`` no more requests; those that it has may still be answered."""
        if connection is self._connection:
            connection.retired = True
            self._retired.append(connection)
            self._connection = None

    async def close_retired(self) -> None:
        """To be called when no request is under way."""
        retired, self._retired = self._retired, []
        for connection in retired:
            await connection.close()

    async def close(self) -> None:
        if self._connection:
            self.retire(self._connection)
        await self.close_retired()
