"""One HTTP/2 connection to a push provider, on the sans-I/O ``h2`` (RFC 9113).

It is for what general pools get wrong: a stream limit that falls while requests are on their way, a GOAWAY whose
accepted streams are still answered, deadlines that fire whatever the peer does, and errors that say ``unprocessed``
only where that is proved. It sends no more than the peer's windows and limits allow, and buffers no more than its own
requests.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import FrameTooLargeError, H2Error
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from h2.stream import StreamClosedBy
from hyperframe.frame import Frame, GoAwayFrame

from pushlease.errors import TransportError
from pushlease.providers.http import Request, Response

MAX_BODY_BYTES = 64 * 1024  # of an answer; a provider's longest is a few kilobytes
LAST_STREAM_ID = 2**31 - 1  # RFC 9113 §5.1.1: then a connection is used up
CLOSED_STREAMS = 1_000  # that are remembered, for frames that come late


@dataclass(slots=True, eq=False)
class _Exchange:
    """A request on its way; ``stream_id`` is 0 until its headers are handed to h2."""

    request: Request
    until: float
    answer: asyncio.Future[Response]
    stream_id: int = 0
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)


class Connection(asyncio.Protocol):
    """One connection; ``open`` makes it. ``streams``: our own limit of requests at once, below the server's.

    ``accepting``: it takes further requests. ``ill_answers``: how many 5xx came in a row.
    """

    def __init__(self, authority: str, *, streams: int, last_stream_id: int = LAST_STREAM_ID) -> None:
        self.accepting = True
        self.ill_answers = 0
        self._authority, self._streams, self._last_stream_id = authority.encode(), streams, last_stream_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._h2 = _H2()
        self._limit = 0  # nothing is sent before the server's SETTINGS said how much may be
        self._waiting: deque[_Exchange] = deque()
        self._open: dict[int, _Exchange] = {}
        self._blocked: dict[int, _Exchange] = {}  # whose bodies wait for a window
        self._next_id = 1
        self._written_id = 0  # up to here the transport has the requests
        self._writable = True
        self._flushing = False
        self._pings: dict[bytes, asyncio.Future[bool]] = {}
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # ---- For those who use it

    async def send(self, request: Request, *, until: float) -> Response:
        """Send it and read the whole answer, by ``until`` on the loop's clock. Raises ``TransportError``."""
        if not self.accepting:
            raise TransportError("the connection takes no more requests", unprocessed=True)
        exchange = _Exchange(request, until, self._loop.create_future())
        timer = self._loop.call_at(until, self._expire, exchange)
        self._waiting.append(exchange)
        self._start_waiting()
        try:
            return await exchange.answer
        except asyncio.CancelledError:
            self._abandon(exchange)
            raise
        finally:
            timer.cancel()

    async def ping(self, *, until: float) -> bool:
        """Whether the peer answers a PING by ``until``."""
        if self._live() is None:
            return False
        name = len(self._pings).to_bytes(8)
        pong: asyncio.Future[bool] = self._loop.create_future()
        self._pings[name] = pong
        timer = self._loop.call_at(until, _resolve, pong, False)
        self._h2.ping(name)
        self._flush_soon()
        try:
            return await pong
        finally:
            timer.cancel()
            self._pings.pop(name, None)

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return not self._open and not self._waiting

    def retire(self) -> None:
        """Take no more requests; close once those under way have ended."""
        self.accepting = False
        self._refuse_waiting("the connection was given up")
        self._close_if_done()

    def close(self) -> None:
        """Close at once; what is under way fails."""
        self._end("the connection was closed")

    async def closed(self) -> None:
        """Wait until the transport is gone."""
        await asyncio.shield(self._closed)

    # ---- For asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._h2.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        broken = ""
        try:
            self._h2.receive_data(data)
        except Exception as error:  # h2's own kinds, or whatever a hostile frame provokes in it
            broken = f"the peer broke HTTP/2 ({type(error).__name__})"
        for event in self._h2.taken():  # what came before it broke is as good as ever
            self._take(event)
        if broken:
            self._end(broken)
            return
        self._start_waiting()
        self._flush_soon()
        self._close_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(f"the connection was lost ({type(exc).__name__})" if exc else "the peer closed the connection")
        _resolve(self._closed, None)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._start_waiting()

    # ---- Requests

    def _start_waiting(self) -> None:
        """Start what waits, as far as the server's limit, which rises and falls, and the transport allow."""
        while self._waiting and self._writable and len(self._open) < self._limit:
            if self._next_id > self._last_stream_id:
                self.retire()
                return
            exchange = self._waiting.popleft()
            if exchange.until <= self._loop.time():  # its neighbour's time was up a moment before its own
                self._expire(exchange)
                continue
            exchange.stream_id, self._next_id = self._next_id, self._next_id + 2
            self._open[exchange.stream_id] = exchange
            request = exchange.request
            exchange.unsent = memoryview(request.body)
            try:
                self._h2.send_headers(exchange.stream_id, _fields(request, self._authority))
                self._send_body(exchange)
            except H2Error as error:  # a state that the peer brought about, such as a closed connection
                self._fail(exchange, f"not sent ({type(error).__name__})", unprocessed=True)
            self._flush_soon()

    def _send_body(self, exchange: _Exchange) -> None:
        """As much of the body as both windows allow."""
        id_, unsent = exchange.stream_id, exchange.unsent
        while True:
            room = min(self._h2.local_flow_control_window(id_), self._h2.max_outbound_frame_size)
            chunk, unsent = unsent[: max(room, 0)], unsent[max(room, 0) :]
            if unsent and not chunk:
                self._blocked[id_] = exchange
                break
            self._h2.send_data(id_, chunk.tobytes(), end_stream=not unsent)
            if not unsent:
                self._blocked.pop(id_, None)
                break
        exchange.unsent = unsent

    def _expire(self, exchange: _Exchange) -> None:
        sent = self._abandon(exchange)
        reason = "no answer in time" if sent else "its turn did not come in time"
        _reject(exchange, TransportError(reason, untried=not sent))

    def _abandon(self, exchange: _Exchange) -> bool:
        """Give up one request, and reset its stream alone; whether the peer may have it."""
        if exchange.stream_id == 0:
            if exchange in self._waiting:
                self._waiting.remove(exchange)
            return False
        if exchange.stream_id not in self._open:
            return True
        self._reset(exchange)
        self._start_waiting()
        self._flush_soon()
        self._close_if_done()
        return True

    def _reset(self, exchange: _Exchange) -> None:
        with suppress(H2Error):  # it may be closed already
            self._h2.reset_stream(exchange.stream_id, ErrorCodes.CANCEL)
        self._forget(exchange)

    def _forget(self, exchange: _Exchange) -> None:
        self._open.pop(exchange.stream_id, None)
        self._blocked.pop(exchange.stream_id, None)
        self._h2.forget(exchange.stream_id)

    def _fail(self, exchange: _Exchange, reason: str, *, unprocessed: bool = False) -> None:
        self._forget(exchange)
        _reject(exchange, TransportError(reason, unprocessed=unprocessed))

    def _refuse_waiting(self, reason: str) -> None:
        while self._waiting:
            _reject(self._waiting.popleft(), TransportError(reason, unprocessed=True))

    # ---- What the peer says

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived(stream_id=id_, headers=headers):
                if exchange := self._open.get(id_ or 0):
                    self._begin_answer(exchange, headers or ())
            case DataReceived(stream_id=id_, data=data, flow_controlled_length=length):
                self._h2.acknowledge_received_data(length or 0, id_ or 0)
                if exchange := self._open.get(id_ or 0):
                    exchange.body += data or b""
                    if len(exchange.body) > MAX_BODY_BYTES:
                        self._reset(exchange)
                        _reject(exchange, TransportError(f"an answer of more than {MAX_BODY_BYTES} bytes"))
            case StreamEnded(stream_id=id_):
                if exchange := self._open.get(id_ or 0):
                    self._end_answer(exchange)
            case StreamReset(stream_id=id_, error_code=code):
                if exchange := self._open.get(id_ or 0):
                    refused = code == ErrorCodes.REFUSED_STREAM  # RFC 9113 §8.7: not processed at all
                    self._fail(exchange, f"the peer reset the stream ({_name(code)})", unprocessed=refused)
            case ConnectionTerminated(error_code=code, last_stream_id=last):
                self._go_away(last or 0, code)
            case RemoteSettingsChanged():
                self._limit = min(self._h2.remote_settings.max_concurrent_streams, self._streams)
                self._send_blocked()
            case WindowUpdated():
                self._send_blocked()
            case RequestReceived():  # h2 takes a server's streams for a client's
                self._end("the peer broke HTTP/2 (a stream of its own)")
            case PingAckReceived(ping_data=name):
                if pong := self._pings.get(name or b""):
                    _resolve(pong, True)

    def _begin_answer(self, exchange: _Exchange, headers: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            if name == b":status":
                exchange.status = int(value) if value.isdigit() and len(value) == 3 else 0
            else:
                exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def _end_answer(self, exchange: _Exchange) -> None:
        if exchange.unsent:
            self._reset(exchange)  # it was answered before the whole of it was read
        else:
            self._forget(exchange)
        if not exchange.status:
            _reject(exchange, TransportError("an answer without a status"))
        elif not exchange.answer.done():
            self.ill_answers = self.ill_answers + 1 if exchange.status >= 500 else 0
            exchange.answer.set_result(
                Response(status=exchange.status, headers=exchange.headers, body=bytes(exchange.body))
            )

    def _go_away(self, last_stream_id: int, code: ErrorCodes | int | None) -> None:
        """The peer takes no more; what is at or below its last id is still answered, the rest never reached it."""
        self.accepting = False
        reason = f"the peer goes away ({_name(code)})"
        self._refuse_waiting(reason)
        for exchange in [exchange for id_, exchange in self._open.items() if id_ > last_stream_id]:
            self._fail(exchange, reason, unprocessed=True)

    def _send_blocked(self) -> None:
        for exchange in list(self._blocked.values()):
            try:
                self._send_body(exchange)
            except H2Error as error:
                self._fail(exchange, f"its body could not be sent ({type(error).__name__})")

    # ---- The transport

    def _flush_soon(self) -> None:
        """Write at the end of this turn of the loop, so that its requests share one TLS record."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if (transport := self._live()) and (data := self._h2.data_to_send()):
            transport.write(data)
            self._written_id = self._next_id - 2

    def _close_if_done(self) -> None:
        if not self.accepting and self.idle:
            self._end("the connection was given up")

    def _live(self) -> asyncio.Transport | None:
        """The transport, as long as it takes anything."""
        return self._transport if self._transport and not self._transport.is_closing() else None

    def _end(self, reason: str) -> None:
        """Nothing more comes: what the transport never had is unprocessed, of the rest nobody knows."""
        self.accepting = False
        self._refuse_waiting(reason)
        if any(id_ > self._written_id for id_ in self._open):
            self._h2.clear_outbound_data_buffer()  # what is called unprocessed must not leave with the farewell
        for id_, exchange in list(self._open.items()):
            self._fail(exchange, reason, unprocessed=id_ > self._written_id)
        for pong in self._pings.values():
            _resolve(pong, False)
        if transport := self._live():
            with suppress(H2Error):  # the farewell is a courtesy
                self._h2.close_connection()
                transport.write(self._h2.data_to_send())
            transport.close()


class _Frames(FrameBuffer):
    """h2's frames, but that an overlong one is refused by its first bytes: h2 would gather up to 16 MB of it first."""

    def __next__(self) -> Frame:
        if len(self._data) >= 3 and (length := int.from_bytes(self._data[:3])) > self.max_frame_size:
            raise FrameTooLargeError(f"a frame of {length} bytes")
        return super().__next__()


class _H2(H2Connection):
    """h2, without what costs a walk over all streams, and with its eyes open after a GOAWAY."""

    MAX_CLOSED_STREAMS = CLOSED_STREAMS

    def __init__(self) -> None:
        super().__init__(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,  # they are made by a protocol module from validated parts
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
                normalize_inbound_headers=False,
            )
        )
        self.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self.encoder = cast(Any, _LiteralEncoder())  # all that h2 asks of one
        self.incoming_buffer = _Frames()
        self._events: list[Event] = []

    def taken(self) -> list[Event]:
        """The events of all whole frames so far, once; ``receive_data`` forgets them when a later frame is broken."""
        events, self._events = self._events, []
        return events

    def _receive_frame(self, frame: Frame) -> list[Event]:
        events = super()._receive_frame(frame)
        self._events += events
        # At once, or what comes late would be judged by how the bytes were cut into reads.
        if (stream := self.streams.get(frame.stream_id)) and stream.closed:
            self.forget(frame.stream_id)
        return events

    @property
    def open_outbound_streams(self) -> int:
        """The limit is ours to keep: h2 would count by walking over every stream at each request."""
        return 0

    def forget(self, stream_id: int) -> None:
        """Drop a stream that ended; h2 would do so while counting."""
        if stream := self.streams.pop(stream_id, None):
            # Late frames of a stream that was given up are its own matter, as if we had reset it.
            self._closed_streams[stream_id] = stream.closed_by or StreamClosedBy.SEND_RST_STREAM

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        """h2 would hold the connection to be closed, though streams up to the last id are still answered."""
        event = ConnectionTerminated()
        event.error_code = _known(frame.error_code)
        event.last_stream_id = frame.last_stream_id
        return [], [event]


# ---- Headers: literals without a dynamic table (RFC 7541 §6.2)
#
# A push's headers are few, and most are the same in every push. A stateless encoding can be kept from one to the next,
# and costs a fraction of searching a table that paths and ids would only wash through.

_STATIC_NAMES = {b":authority": 1, b":method": 2, b":path": 4, b"authorization": 23, b"content-type": 31}
_HTTPS = b"\x87"  # :scheme https, an entry of the static table
_EACH_ITS_OWN = frozenset({"apns-id"})  # not worth remembering


class _LiteralEncoder:
    """What h2 asks of ``hpack.Encoder``, for headers that are one encoded block already."""

    header_table_size = 4096

    def encode(self, headers: list[tuple[bytes, bytes]], huffman: bool = True) -> bytes:  # noqa: ARG002
        return headers[-1][1]


def _fields(request: Request, authority: bytes) -> list[tuple[bytes, bytes]]:
    """What h2 looks at itself, and the block that is sent, last."""
    block = bytearray(_field(":method", request.method) + _HTTPS)
    block += _field(":authority", authority.decode())
    block += _encoded(":path", request.path)
    for name, value in request.headers.items():
        block += _encoded(name, value) if name in _EACH_ITS_OWN else _field(name, value)
    return [(b":method", request.method.encode()), (b":authority", authority), (b"", bytes(block))]


@lru_cache(maxsize=1024)
def _field(name: str, value: str) -> bytes:
    return _encoded(name, value)


def _encoded(name: str, value: str) -> bytes:
    """One literal, never indexed (§6.2.3): neither the bearer nor a push token stays in a peer's table."""
    name_, value_ = name.encode(), value.encode()
    index = _STATIC_NAMES.get(name_)
    head = _integer(index, 4, 0x10) if index else b"\x10" + _integer(len(name_), 7, 0) + name_
    return head + _integer(len(value_), 7, 0) + value_


def _integer(value: int, bits: int, flags: int) -> bytes:
    """An integer with a prefix of so many bits (§5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((flags | value,))
    encoded = bytearray((flags | most,))
    value -= most
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _resolve(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


def _reject(exchange: _Exchange, error: TransportError) -> None:
    if not exchange.answer.done():
        exchange.answer.set_exception(error)


def _known(code: int) -> ErrorCodes | int:
    try:
        return ErrorCodes(code)
    except ValueError:
        return code


def _name(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else f"code {code}"
