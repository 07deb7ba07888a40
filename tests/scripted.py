"""An HTTP/2 server that does as it is told, frame by frame, and counts what it received and answered.

It speaks over real TLS on the loopback, and through no HTTP/2 library's rules: what a well-behaved one would refuse to
send is what clients must bear. Each connection is a ``Peer``; a test's script is called with every request on it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import hpack
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER = 9  # bytes before a frame's payload


@dataclass(slots=True, kw_only=True)
class Received:
    """A request, whole or as far as it came; ``chunks``: the sizes of its DATA frames."""

    stream_id: int
    headers: Mapping[str, str]
    body: bytearray = field(default_factory=bytearray)
    chunks: list[int] = field(default_factory=list)
    whole: bool = False

    @property
    def path(self) -> str:
        return self.headers[":path"]


type Script = Callable[["Peer", Received], None]


class Peer(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(self, server: "ScriptedServer") -> None:
        self._server = server
        self._decoder, self._encoder = hpack.Decoder(), hpack.Encoder()
        self._buffer = bytearray()
        self._preface = False
        self.requests: dict[int, Received] = {}
        self.answered: list[str] = []
        self.resets: dict[int, int] = {}
        self.settings: list[Mapping[int, int]] = []
        self.acked = 0
        self.pings = 0
        self.pongs = 0
        self.open = 0  # requests not answered yet
        self.most_open = 0
        self.deaf = False  # a silent hole: nothing is read any more, and nothing said
        self.gone = asyncio.get_running_loop().create_future()

    # ---- What a script may do

    def send(self, frame: Frame) -> None:
        self.raw(frame.serialize())

    def raw(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def say_settings(self, **settings: int) -> None:
        """By hyperframe's names, such as ``MAX_CONCURRENT_STREAMS``."""
        self.send(SettingsFrame(0, settings={getattr(SettingsFrame, name): value for name, value in settings.items()}))

    def answer(self, received: Received, *, status: int = 200, body: bytes = b"", end: bool = True) -> None:
        """A whole answer; with ``end=False`` its stream stays open."""
        self.answered.append(received.path)
        self.open -= 1
        block = self._encoder.encode([(":status", str(status)), ("apns-id", received.headers.get("apns-id", ""))])
        frame = HeadersFrame(received.stream_id, block)
        frame.flags.add("END_HEADERS")
        if end and not body:
            frame.flags.add("END_STREAM")
        self.send(frame)
        for at in range(0, len(body), 16_384):
            data = DataFrame(received.stream_id, body[at : at + 16_384])
            if end and at + 16_384 >= len(body):
                data.flags.add("END_STREAM")
            self.send(data)

    def reset(self, received: Received, code: int) -> None:
        self.open -= 1
        frame = RstStreamFrame(received.stream_id)
        frame.error_code = code
        self.send(frame)

    def go_away(self, last_stream_id: int, *, code: int = 0, data: bytes = b"") -> None:
        frame = GoAwayFrame(0)
        frame.last_stream_id, frame.error_code, frame.additional_data = last_stream_id, code, data
        self.send(frame)

    def open_window(self, stream_id: int, size: int) -> None:
        frame = WindowUpdateFrame(stream_id)
        frame.window_increment = size
        self.send(frame)

    def ping(self) -> None:
        self.send(PingFrame(0, b"12345678"))

    def close(self) -> None:
        self.transport.close()

    # ---- For asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.peers.append(self)
        self._server.happened()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        self._server.happened()

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self._buffer += data
        if not self._preface:
            if len(self._buffer) < len(PREFACE):
                return
            del self._buffer[: len(PREFACE)]
            self._preface = True
            self._server.on_connect(self)
        while len(self._buffer) >= HEADER and not self.deaf:
            frame, length = Frame.parse_frame_header(memoryview(bytes(self._buffer[:HEADER])))
            if len(self._buffer) < HEADER + length:
                break
            frame.parse_body(memoryview(bytes(self._buffer[HEADER : HEADER + length])))
            del self._buffer[: HEADER + length]
            self._take(frame)
        self._server.happened()

    def _take(self, frame: Frame) -> None:
        match frame:
            case HeadersFrame():
                fields = {str(name): str(value) for name, value in self._decoder.decode(frame.data)}
                received = self.requests[frame.stream_id] = Received(stream_id=frame.stream_id, headers=fields)
                self.open += 1
                self.most_open = max(self.most_open, self.open)
                self._server.on_headers(self, received)
            case DataFrame():
                received = self.requests[frame.stream_id]
                received.body += frame.data
                received.chunks.append(len(frame.data))
            case RstStreamFrame():
                self.resets[frame.stream_id] = frame.error_code
                self.open -= 1
            case SettingsFrame():
                if "ACK" in frame.flags:
                    self.acked += 1
                else:
                    self.settings.append(frame.settings)
                    self.send(SettingsFrame(0, flags=["ACK"]))
            case PingFrame():
                if "ACK" in frame.flags:
                    self.pongs += 1
                else:
                    self.pings += 1
                    self.send(PingFrame(0, frame.opaque_data, flags=["ACK"]))
        if isinstance(frame, HeadersFrame | DataFrame) and "END_STREAM" in frame.flags:
            self.requests[frame.stream_id].whole = True
            self._server.on_request(self, self.requests[frame.stream_id])


class ScriptedServer:
    """Where it listens, and its connections. By itself it offers 1,000 streams and answers 200 at once."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.on_connect: Callable[[Peer], None] = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=1000)
        self.on_headers: Script = lambda _peer, _received: None
        self.on_request: Script = lambda peer, received: peer.answer(received)
        self.origin = ""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def happened(self) -> None:
        for condition, future in self._waiting:
            if not future.done() and condition():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool], within_s: float = 20) -> None:
        """Wait for something that the server sees."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        self.happened()
        async with asyncio.timeout(within_s):
            await future

    @property
    def received(self) -> list[str]:
        """The paths of all whole requests, over all connections."""
        return [request.path for peer in self.peers for request in peer.requests.values() if request.whole]

    @property
    def answered(self) -> list[str]:
        return [path for peer in self.peers for path in peer.answered]


@asynccontextmanager
async def scripted(tls: ssl.SSLContext, *, alpn: str = "h2") -> AsyncIterator[ScriptedServer]:
    """A server on the loopback; ``tls``: a context with its certificate."""
    tls.set_alpn_protocols([alpn])
    server = ScriptedServer()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Peer(server), "127.0.0.1", 0, ssl=tls)
    port = cast(Any, listening.sockets[0]).getsockname()[1]
    server.origin = f"https://localhost:{port}"
    try:
        yield server
    finally:
        listening.close()
        for peer in server.peers:
            peer.transport.abort()
        for peer in server.peers:
            await peer.gone
