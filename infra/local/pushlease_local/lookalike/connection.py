"""One HTTP/2 connection: frames in, requests to the desk, reactions out; knows nothing of pushes.

Two frames are written by hand rather than through h2. SETTINGS, because h2 answers a stream above its own limit by
ending the connection, where the providers refuse the one stream. GOAWAY, because h2 sends nothing after it, where a
graceful one lets the streams below its last id finish.
"""

import asyncio
import uuid
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame, SettingsFrame

from pushlease_local.lookalike.desk import Desk, Link, Reaction
from pushlease_local.lookalike.messages import Answer, Request

_UNLIMITED = 2**31 - 1
_CHUNK_BYTES = 65536
_MAX_STREAMS = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS


@dataclass(slots=True, kw_only=True)
class _Incoming:
    headers: tuple[tuple[str, str], ...]
    body: bytearray = field(default_factory=bytearray)


class Connection:
    """Serves one accepted socket until either side closes it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, desk: Desk) -> None:
        self._reader = reader
        self._writer = writer
        self._desk = desk
        self._link = Link()
        self._advertised = desk.max_streams(self._link)
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._h2.local_settings = h2.settings.Settings(
            client=False, initial_values={_MAX_STREAMS: self._advertised, h2.settings.SettingCodes.ENABLE_PUSH: 0}
        )
        self._incoming: dict[int, _Incoming] = {}
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._last_taken = 0
        self._refuse_above = _UNLIMITED
        self._window_opened = asyncio.Event()

    async def serve(self) -> None:
        self._h2.initiate_connection()
        self._flush()
        self._h2.local_settings[_MAX_STREAMS] = _UNLIMITED  # ours to enforce from here on, see above
        self._h2.local_settings.acknowledge()
        try:
            async with asyncio.TaskGroup() as streams:
                try:
                    await self._read(streams)
                finally:
                    for task in self._answering.values():
                        task.cancel()
        finally:
            self.abort()

    def sync_max_streams(self) -> None:
        """Advertise the desk's stream limit when it is not what the client was told last."""
        limit = self._desk.max_streams(self._link)
        if limit != self._advertised:
            self._advertised = limit
            self._writer.write(SettingsFrame(0, settings={int(_MAX_STREAMS): limit}).serialize())

    def go_away(self, *, graceful: bool, last_stream_id: int | None = None, code: int = 0, data: bytes = b"") -> None:
        """Send GOAWAY. Graceful: streams up to the last id finish first; otherwise the connection closes at once.

        Without a `last_stream_id` it names the highest stream that reached the desk, which is the truth.
        """
        last = self._last_taken if last_stream_id is None else last_stream_id
        self._refuse_above = last
        self._incoming = {stream_id: begun for stream_id, begun in self._incoming.items() if stream_id <= last}
        frame = GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=data)
        self._writer.write(frame.serialize())
        if not graceful or not self._answering:
            self._writer.close()

    def abort(self) -> None:
        """Cut the TCP connection."""
        self._writer.transport.abort()

    async def _read(self, streams: asyncio.TaskGroup) -> None:
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                for event in self._h2.receive_data(data):
                    self._handle(event, streams)
                self._flush()
                await self._writer.drain()
        except (OSError, EOFError):
            return  # the client is gone; nobody is left to tell
        except h2.exceptions.ProtocolError:
            self._flush()  # h2 has its GOAWAY ready
            self._writer.close()

    def _handle(self, event: h2.events.Event, streams: asyncio.TaskGroup) -> None:
        match event:
            case h2.events.RequestReceived(stream_id=int(stream_id), headers=headers):
                self._open(stream_id, tuple((str(name), str(value)) for name, value in headers or ()))
            case h2.events.DataReceived(stream_id=int(stream_id), data=data):
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
                if stream_id in self._incoming:
                    self._incoming[stream_id].body += data or b""
            case h2.events.StreamEnded(stream_id=int(stream_id)) if stream_id in self._incoming:
                request = _request(self._incoming.pop(stream_id))
                self._last_taken = max(self._last_taken, stream_id)
                answering = streams.create_task(self._answer(stream_id, request))
                self._answering[stream_id] = answering
                # Not a `finally` in the task: one that is cancelled before its first step never gets there.
                answering.add_done_callback(lambda _: self._answered(stream_id))
            case h2.events.StreamReset(stream_id=int(stream_id)):
                self._incoming.pop(stream_id, None)
                if task := self._answering.get(stream_id):
                    task.cancel()
                    self._answered(stream_id)  # at once: the next stream may be in the same read
                self._window_opened.set()
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                self._window_opened.set()
            case _:
                pass

    def _open(self, stream_id: int, headers: tuple[tuple[str, str], ...]) -> None:
        if stream_id > self._refuse_above:
            return  # the client learns of it from the GOAWAY
        if len(self._incoming) + len(self._answering) >= self._desk.max_streams(self._link):
            self._h2.reset_stream(stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        self._incoming[stream_id] = _Incoming(headers=headers)

    async def _answer(self, stream_id: int, request: Request) -> None:
        try:
            reaction = await self._desk.react(request, self._link)
            self.sync_max_streams()
            await asyncio.sleep(reaction.delay_ms / 1000)
            await self._perform(stream_id, reaction)
            self._flush()
        except (OSError, h2.exceptions.ProtocolError):
            pass  # the client closed the stream or the connection meanwhile

    def _answered(self, stream_id: int) -> None:
        self._answering.pop(stream_id, None)
        if self._refuse_above != _UNLIMITED and not self._answering:
            self._writer.close()  # the last one that a graceful GOAWAY waited for

    async def _perform(self, stream_id: int, reaction: Reaction) -> None:
        match reaction.deed:
            case "answer" if reaction.answer is not None:
                await self._send(stream_id, reaction.answer)
            case "reset":
                self._h2.reset_stream(stream_id, reaction.code)
            case "goaway":
                self.go_away(graceful=False, last_stream_id=max(stream_id - 2, 0))
            case "hang_up":
                self.abort()
            case _:
                await asyncio.Event().wait()  # silence: until the client resets the stream or leaves

    async def _send(self, stream_id: int, answer: Answer) -> None:
        headers = [(":status", str(answer.status)), *answer.headers.items()]
        self._h2.send_headers(stream_id, headers, end_stream=not answer.body)
        body = memoryview(answer.body)
        while body:
            room = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size)
            if room <= 0:
                self._flush()
                self._window_opened.clear()
                await self._window_opened.wait()
                continue
            self._h2.send_data(stream_id, bytes(body[:room]), end_stream=len(body) <= room)
            body = body[room:]

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._writer.write(data)


def _request(incoming: _Incoming) -> Request:
    pseudo = dict(incoming.headers)
    return Request(
        method=pseudo.get(":method", ""),
        path=pseudo.get(":path", ""),
        headers=tuple((name, value) for name, value in incoming.headers if not name.startswith(":")),
        body=bytes(incoming.body),
        request_id=str(uuid.uuid4()),
    )
