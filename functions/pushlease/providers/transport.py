"""The way to one host: an HTTP/2 connection that is replaced as soon as it cannot be trusted, and resends what it may.

For Google's token endpoints, once an hour, httpx's own client does: they may be private, and speak HTTP/1.1 alone.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
from h2.exceptions import H2Error

from pushlease.errors import TransportError
from pushlease.providers.http import Request, Response
from pushlease.providers.http2 import LAST_STREAM_ID, Connection

CONNECT_TIMEOUT_S = 5.0  # TCP and TLS to another continent take a fraction of a second
PING_TIMEOUT_S = 1.0  # a peer that takes longer is replaced sooner than it is waited for
CLOSE_TIMEOUT_S = 1.0  # closing is a courtesy: a dead peer does not hold up the batch
HAPPY_EYEBALLS_S = 0.25  # RFC 8305 §5
IDLE_MS = 60_000  # by the wall clock, which goes on while the process is frozen
ILL_ANSWERS = 3  # 5xx in a row on one connection: others may well reach a healthy server
TRIES = 3  # of a request that provably was not processed


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Verifies servers against the public authorities, and against ``ca_file`` (PEM) if given."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return context


class Line:
    """The way to one host.

    ``tls``: it offers HTTP/2 alone. ``streams``: the most requests at once, if the server allows as many. ``pings``:
    whether a connection that was idle for long is asked before it is used; else another is opened. ``clock``: epoch ms.
    """

    def __init__(
        self,
        base_url: str,
        *,
        tls: ssl.SSLContext,
        clock: Callable[[], int],
        streams: int,
        pings: bool,
        last_stream_id: int = LAST_STREAM_ID,
    ) -> None:
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._authority = parts.netloc
        self._tls, self._clock, self._pings, self._last_stream_id = tls, clock, pings, last_stream_id
        self.streams = streams
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._retired: list[Connection] = []
        self._used_at_ms = 0

    async def send(self, request: Request, *, until: float) -> tuple[Response, Connection]:
        """The answer, and the connection that it came on; by ``until`` on the loop's clock.

        What a connection provably did not process goes on another at once. Raises ``TransportError``.
        """
        loop = asyncio.get_running_loop()
        for last in (*[False] * (TRIES - 1), True):
            connection = await self._connected(until)
            try:
                response = await connection.send(request, until=until)
            except TransportError as error:
                in_time = loop.time() < until
                if not (error.unprocessed and connection.accepting and in_time):
                    self.retire(connection)
                if last or not error.unprocessed or not in_time:
                    raise
            else:
                if connection.ill_answers >= ILL_ANSWERS:
                    self.retire(connection)
                return response, connection
        raise AssertionError("the last try returns or raises")

    async def begin(self) -> None:
        """A batch begins: let the loop take in what came while the process was frozen, a farewell above all."""
        for _ in range(2):
            await asyncio.sleep(0)

    def retire(self, connection: Connection) -> None:
        """Give ``connection`` no more requests; those that it has may still be answered."""
        connection.retire()
        if connection not in self._retired:
            self._retired.append(connection)
        if connection is self._connection:
            self._connection = None

    async def close_retired(self) -> None:
        """To be called when no request is under way."""
        retired, self._retired = self._retired, []
        for connection in retired:
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                for connection in retired:
                    await connection.closed()

    async def close(self) -> None:
        """Close every connection."""
        if self._connection:
            self.retire(self._connection)
        await self.close_retired()

    async def _connected(self, until: float) -> Connection:
        now_ms = self._clock()
        connection = self._connection
        if connection and connection.accepting and now_ms - self._used_at_ms <= IDLE_MS:
            self._used_at_ms = now_ms
            return connection
        try:
            async with asyncio.timeout_at(until), self._connecting:  # one for all who wait
                await self._connect(until)
        except TimeoutError:
            raise TransportError("no connection in time", unprocessed=True) from None
        if self._connection is None:
            raise TransportError("the connection was given up", unprocessed=True)
        return self._connection

    async def _connect(self, until: float) -> None:
        connection = self._connection
        idle = self._clock() - self._used_at_ms > IDLE_MS
        if (
            connection
            and connection.accepting
            and (not idle or (self._pings and await self._answers(connection, until)))
        ):
            self._used_at_ms = self._clock()  # only now: until it has answered, nobody else may take it
            return
        if connection:
            self.retire(connection)
        self._connection = await self._open(until)
        self._used_at_ms = self._clock()

    async def _answers(self, connection: Connection, until: float) -> bool:
        return await connection.ping(until=min(until, asyncio.get_running_loop().time() + PING_TIMEOUT_S))

    async def _open(self, until: float) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(until, loop.time() + CONNECT_TIMEOUT_S)):
                transport, connection = await loop.create_connection(
                    lambda: Connection(self._authority, streams=self.streams, last_stream_id=self._last_stream_id),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host,
                    happy_eyeballs_delay=HAPPY_EYEBALLS_S,
                )
        except (OSError, TimeoutError) as error:  # ssl's errors are among the first
            raise TransportError(f"no connection ({type(error).__name__})", unprocessed=True) from error
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            connection.close()
            raise TransportError("the server does not speak HTTP/2", unprocessed=True)
        return connection


def http2_only(tls: ssl.SSLContext) -> ssl.SSLContext:
    """The context, offering nothing but HTTP/2; not to be shared with who offers something else."""
    tls.set_alpn_protocols(["h2"])
    return tls


class Http2Transport(httpx.AsyncBaseTransport):
    """httpx over our connections, a line an origin; what fails has a ``TransportError`` for its cause."""

    def __init__(self, *, tls: ssl.SSLContext, clock: Callable[[], int], streams: int = 100) -> None:
        self._tls, self._clock, self._streams = http2_only(tls), clock, streams
        self._lines: dict[str, Line] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx's own errors."""
        if request.url.scheme != "https":
            raise httpx.UnsupportedProtocol("HTTP/2 over TLS alone", request=request)
        origin = f"https://{request.url.netloc.decode()}"
        if origin not in self._lines:
            self._lines[origin] = Line(origin, tls=self._tls, clock=self._clock, streams=self._streams, pings=True)
        named = {name.decode().lower(): value.decode("latin-1") for name, value in request.headers.raw}
        ours = Request(
            method=request.method,
            path=request.url.raw_path.decode(),
            headers={name: value for name, value in named.items() if name not in _OF_HTTP_1},
            body=await request.aread(),
        )
        spans = [span for span in request.extensions.get("timeout", {}).values() if span is not None]
        loop = asyncio.get_running_loop()
        until = loop.time() + max(spans, default=60.0)
        try:
            response, _ = await self._lines[origin].send(ours, until=until)
        except TransportError as error:
            raise _in_httpx_words(error, late=loop.time() >= until)(error.reason, request=request) from error
        return httpx.Response(
            response.status,
            headers=dict(response.headers),
            content=response.body,
            extensions={"http_version": b"HTTP/2"},
        )

    async def aclose(self) -> None:
        """Close every connection."""
        for line in self._lines.values():
            await line.close()


def _in_httpx_words(error: TransportError, *, late: bool) -> type[httpx.TransportError]:
    if error.unprocessed:
        return httpx.PoolTimeout if late else httpx.ConnectError
    return httpx.ReadTimeout if late else httpx.RemoteProtocolError


# RFC 9113 §8.2.2: what speaks of the connection has no place in a request's headers, and the host is the authority.
_OF_HTTP_1 = frozenset({"host", "connection", "transfer-encoding", "keep-alive", "proxy-connection", "upgrade"})


def open_client(tls: ssl.SSLContext) -> httpx.AsyncClient:
    """A client for one grant; no proxy, no redirect, nothing from the environment."""
    return httpx.AsyncClient(http2=True, verify=tls, trust_env=False, follow_redirects=False)


async def exchange(
    client: httpx.AsyncClient, url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float
) -> Response:
    """POST and read the whole answer. Raises ``TransportError``, after ``timeout_s`` at the latest."""
    timeouts = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.post(url, headers=dict(headers), content=body, timeout=timeouts)
    except TimeoutError:
        raise TransportError(f"no answer within {timeout_s:.1f} s") from None
    except (httpx.HTTPError, httpx.StreamError, H2Error, OSError) as error:
        unprocessed = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        raise TransportError(type(error).__name__, unprocessed=unprocessed) from error
    return Response(
        status=answer.status_code,
        headers={name.lower(): value for name, value in answer.headers.items()},
        body=answer.content,
    )
