"""What a look-alike does with frames: stream limits, refused streams, GOAWAY; seen by a bare h2 client."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import h2.settings
import jwt
import pytest

from pushlease_local.lookalike import Lookalike, Service, Step

pytestmark = pytest.mark.anyio

MAX_STREAMS = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS
SLOW = "aa" * 32
SILENT = "bb" * 32
QUICK = "cc" * 32


class BareClient:
    """Sends pushes without waiting and tells what comes back, event by event."""

    def __init__(self, lookalike: Lookalike, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        apns = lookalike.apns
        self._reader, self._writer = reader, writer
        self._unread: list[h2.events.Event] = []
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._bearer = jwt.encode(
            {"iss": apns.team_id, "iat": int(time.time())}, apns.key_pem, "ES256", headers={"kid": apns.key_id}
        )
        self._h2.initiate_connection()

    @property
    def max_streams(self) -> int:
        return self._h2.remote_settings.max_concurrent_streams

    def push(self, push_token: str, *, bearer: str | None = None) -> int:
        """Start a stream, whatever the server's limit is; returns its id."""
        self._h2.remote_settings[MAX_STREAMS] = 1000
        self._h2.remote_settings.acknowledge()
        stream_id = self._h2.get_next_available_stream_id()
        headers = {
            ":method": "POST",
            ":scheme": "https",
            ":authority": "localhost",
            ":path": f"/3/device/{push_token}",
            "authorization": f"bearer {bearer or self._bearer}",
            "apns-topic": "com.example.app",
            "apns-push-type": "alert",
        }
        self._h2.send_headers(stream_id, list(headers.items()))
        self._h2.send_data(stream_id, b'{"aps":{"alert":"hi"}}', end_stream=True)
        self._writer.write(self._h2.data_to_send())
        return stream_id

    def cancel(self, stream_id: int) -> None:
        self._h2.reset_stream(stream_id, 8)
        self._writer.write(self._h2.data_to_send())

    async def next[E: h2.events.Event](self, kind: type[E]) -> E:
        """Read until an event of that kind."""
        async with asyncio.timeout(5):
            while True:
                while self._unread:
                    event = self._unread.pop(0)
                    if isinstance(event, kind):
                        return event
                data = await self._reader.read(65536)
                assert data, f"closed before {kind.__name__}"
                self._unread = self._h2.receive_data(data)
                self._writer.write(self._h2.data_to_send())

    async def body(self) -> int:
        """Read a body to its end, opening the window only when it is used up; returns its bytes."""
        received = 0
        while True:
            event = await self.next(h2.events.DataReceived)
            received += len(event.data or b"")
            if event.stream_ended is not None:
                return received
            if self._h2.remote_flow_control_window(event.stream_id) == 0:
                for stream_id in (None, event.stream_id):
                    self._h2.increment_flow_control_window(40_000, stream_id)
                self._writer.write(self._h2.data_to_send())

    async def status(self) -> tuple[int, str]:
        """The next answer's stream and status."""
        event = await self.next(h2.events.ResponseReceived)
        return event.stream_id, next(str(value) for name, value in event.headers if str(name) == ":status")

    async def settings(self) -> int:
        """The stream limit in the next SETTINGS that names one."""
        while True:
            event = await self.next(h2.events.RemoteSettingsChanged)
            if MAX_STREAMS in event.changed_settings:
                return event.changed_settings[MAX_STREAMS].new_value

    async def closed(self) -> bool:
        async with asyncio.timeout(5):
            while await self._reader.read(65536):
                pass
        return True


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def running(anyio_backend: str) -> AsyncIterator[Lookalike]:
    async with Lookalike.start() as lookalike:
        yield lookalike


@pytest.fixture
async def lookalike(running: Lookalike) -> Lookalike:
    running.control.reset()
    running.control.script(SLOW, [Step(do="accept", delay_ms=300)])
    running.control.script(SILENT, [Step(do="silence", times=None)])
    return running


@asynccontextmanager
async def connected(lookalike: Lookalike) -> AsyncIterator[BareClient]:
    port = int(lookalike.urls[Service.APNS_PRODUCTION].rpartition(":")[2])
    tls = lookalike.client_tls()
    tls.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield BareClient(lookalike, reader, writer)
    finally:
        writer.transport.abort()


async def test_one_stream_is_allowed_until_a_bearer_is_proved(lookalike: Lookalike) -> None:
    async with connected(lookalike) as client:
        client.push(QUICK, bearer="nonsense")
        assert await client.settings() == 1
        assert await client.status() == (1, "403")
        client.push(QUICK)
        assert await client.settings() == 1000
        assert await client.status() == (3, "200")


async def test_a_second_stream_before_that_is_refused_unprocessed(lookalike: Lookalike) -> None:
    async with connected(lookalike) as client:
        first, second = client.push(QUICK), client.push(QUICK)
        reset = await client.next(h2.events.StreamReset)
        assert (reset.stream_id, reset.error_code) == (second, 7)
        assert await client.status() == (first, "200")
    assert len(lookalike.control.requests()) == 1


async def test_streams_above_the_limit_are_refused_and_the_connection_lives(lookalike: Lookalike) -> None:
    async with connected(lookalike) as client:
        client.push(SILENT)
        assert [await client.settings(), await client.settings()] == [1, 1000]
        client.push(SILENT)
        assert await lookalike.control.wait(requests=2)
        lookalike.control.max_concurrent_streams("apns-production", 2)
        assert await client.settings() == 2
        refused = client.push(QUICK)
        reset = await client.next(h2.events.StreamReset)
        assert (reset.stream_id, reset.error_code) == (refused, 7)
        lookalike.control.max_concurrent_streams("apns-production", 1000)
        assert await client.settings() == 1000
        answered = client.push(QUICK)
        assert await client.status() == (answered, "200")


async def test_an_expired_bearer_drops_the_limit_to_one_until_the_next_success(lookalike: Lookalike) -> None:
    expired = Step(do="answer", status=403, reason="ExpiredProviderToken")
    lookalike.control.script(QUICK, [Step(do="accept"), expired])
    async with connected(lookalike) as client:
        client.push(QUICK)
        limits = [await client.settings(), await client.settings()]
        for _ in range(2):
            client.push(QUICK)
            limits.append(await client.settings())
    assert limits == [1, 1000, 1, 1000]


async def test_a_stream_that_the_client_resets_makes_room_for_the_next(lookalike: Lookalike) -> None:
    lookalike.control.max_concurrent_streams("apns-production", 1)
    async with connected(lookalike) as client:
        client.cancel(client.push(SILENT))  # in one write: gone before it is looked at
        waiting = client.push(SILENT)
        assert await lookalike.control.wait(requests=1)
        client.cancel(waiting)
        answered = client.push(QUICK)
        assert await client.status() == (answered, "200")


async def test_a_graceful_goaway_lets_open_streams_finish_and_takes_no_more(lookalike: Lookalike) -> None:
    async with connected(lookalike) as client:
        client.push(QUICK)
        assert await client.status() == (1, "200")
        slow = client.push(SLOW)
        assert await lookalike.control.wait(accepted=2)
        assert lookalike.control.goaway("apns-production", reason="Shutdown") == 1
        goaway = await client.next(h2.events.ConnectionTerminated)
        assert (goaway.last_stream_id, goaway.error_code) == (slow, 0)
        assert goaway.additional_data == b'{"reason": "Shutdown"}'
        assert await client.closed()
    assert [push.push_token for push in lookalike.control.accepted()] == [QUICK, SLOW]


async def test_a_goaway_now_names_a_last_stream_and_closes(lookalike: Lookalike) -> None:
    async with connected(lookalike) as client:
        client.push(SILENT)
        assert await lookalike.control.wait(requests=1)
        lookalike.control.goaway("apns-production", graceful=False, last_stream_id=0, code=2)
        goaway = await client.next(h2.events.ConnectionTerminated)
        assert (goaway.last_stream_id, goaway.error_code) == (0, 2)
        assert await client.closed()


async def test_a_scripted_goaway_leaves_its_own_stream_unprocessed(lookalike: Lookalike) -> None:
    lookalike.control.script(QUICK, [Step(do="goaway")])
    async with connected(lookalike) as client:
        client.push(SILENT)
        assert [await client.settings(), await client.settings()] == [1, 1000]
        client.push(QUICK)
        goaway = await client.next(h2.events.ConnectionTerminated)
        assert goaway.last_stream_id == 1
    assert lookalike.control.accepted() == []


async def test_a_scripted_reset_carries_its_code(lookalike: Lookalike) -> None:
    lookalike.control.script(QUICK, [Step(do="reset", code=11)])
    async with connected(lookalike) as client:
        client.push(QUICK)
        assert (await client.next(h2.events.StreamReset)).error_code == 11


async def test_a_long_body_waits_for_the_clients_window(lookalike: Lookalike) -> None:
    lookalike.control.script(QUICK, [Step(do="answer", status=400, body="x" * 200_000)])
    async with connected(lookalike) as client:
        client.push(QUICK)
        assert await client.body() == 200_000
