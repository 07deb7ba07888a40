"""The HTTP/2 connection and the line over it, against a server that counts what it received and answered.

Nothing that the server accepted is lost, nothing that it answered is sent again, and every request ends by its time.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import httpx
import pytest
from hyperframe.frame import DataFrame, HeadersFrame

from fakes import FakeClock
from pushlease.errors import TransportError
from pushlease.providers.http import Request, Response
from pushlease.providers.http2 import MAX_BODY_BYTES
from pushlease.providers.transport import IDLE_MS, Http2Transport, Line, http2_only, tls_context
from pushlease_local.lookalike.credentials import new_authority
from scripted import Peer, Received, ScriptedServer, scripted

pytestmark = pytest.mark.slow  # most wait for deadlines of theirs

ENOUGH_S = 20.0  # for what should come at once, on a machine that has other work
GRACEFUL = 2**31 - 1
REFUSED_STREAM, CANCEL, NO_ERROR, STREAM_CLOSED = 7, 8, 0, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Who vouches for the server, and the server's own context."""

    server_tls: ssl.SSLContext
    ca_file: Path

    @classmethod
    def create(cls, folder: Path) -> Self:
        made = new_authority(datetime.now(UTC))  # noqa: TID251  (certificates are checked against this machine's clock)
        (folder / "ca.pem").write_text(made.ca_pem)
        return cls(server_tls=made.server_tls, ca_file=folder / "ca.pem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    server: ScriptedServer
    line: Line
    clock: FakeClock

    async def send(self, path: str, *, body: bytes = b"{}", within_s: float = ENOUGH_S) -> Response:
        request = Request(path=path, headers={"apns-id": path}, body=body)
        response, _ = await self.line.send(request, until=asyncio.get_running_loop().time() + within_s)
        return response

    async def all(self, many: int, *, first: int = 0, within_s: float = ENOUGH_S) -> Sequence[Response | BaseException]:
        """So many at once; what became of each."""
        sent = (self.send(f"/{at}", within_s=within_s) for at in range(first, first + many))
        return await asyncio.gather(*sent, return_exceptions=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("tls"))


type Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


@pytest.fixture
def play(authority: Authority) -> Play:
    """Runs a test's own coroutine on a stage of its own."""
    return lambda act: asyncio.run(_on_stage(authority, act))


async def _on_stage(authority: Authority, act: Callable[[Stage], Awaitable[None]]) -> None:
    async with staged(authority) as stage:
        await act(stage)


@asynccontextmanager
async def staged(authority: Authority, **said: int) -> AsyncIterator[Stage]:
    async with scripted(authority.server_tls) as server:
        clock = FakeClock()
        line = a_line(server.origin, authority, clock, **said)
        try:
            yield Stage(server=server, line=line, clock=clock)
        finally:
            await line.close()


def a_line(origin: str, authority: Authority, clock: FakeClock, *, pings: bool = True, **said: int) -> Line:
    tls = http2_only(tls_context(str(authority.ca_file)))
    return Line(origin, tls=tls, clock=clock, streams=said.pop("streams", 1000), pings=pings, **said)


def kinds(outcomes: Sequence[Response | BaseException]) -> Counter[str]:
    """What became of requests: answered, unprocessed or unknown."""

    def kind(outcome: Response | BaseException) -> str:
        if isinstance(outcome, Response):
            return "answered"
        assert isinstance(outcome, TransportError), outcome
        return "unprocessed" if outcome.unprocessed else "unknown"

    return Counter(map(kind, outcomes))


# ---- What decides correctness


def test_of_a_goaway_the_refused_are_resent_the_accepted_awaited_and_the_unanswered_unknown(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def goes_away(peer: Peer, received: Received) -> None:
            if peer is not stage.server.peers[0]:
                peer.answer(received)
            elif len(peer.requests) == 50 and received.whole and all(each.whole for each in peer.requests.values()):
                by_age = [peer.requests[id_] for id_ in sorted(peer.requests)]
                peer.go_away(by_age[24].stream_id)
                for accepted in by_age[:20]:
                    peer.answer(accepted)
                asyncio.get_running_loop().call_later(0.2, peer.close)

        stage.server.on_request = goes_away
        outcomes = await stage.all(50)
        assert kinds(outcomes) == {"answered": 45, "unknown": 5}
        first, second = stage.server.peers
        assert len(second.requests) == 25
        assert not set(first.answered) & {request.path for request in second.requests.values()}
        assert max(Counter(stage.server.answered).values()) == 1

    play(act)


def test_a_graceful_goaway_lets_all_succeed_and_the_next_go_elsewhere(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def winds_down(peer: Peer, received: Received) -> None:
            if peer is not stage.server.peers[0]:
                peer.answer(received)
            elif len(peer.requests) == 50:
                peer.go_away(GRACEFUL)

        stage.server.on_request = winds_down
        under_way = asyncio.ensure_future(stage.all(50))
        await stage.server.until(lambda: len(stage.server.received) == 50)
        (first,) = stage.server.peers
        assert kinds(await stage.all(5, first=50)) == {"answered": 5}
        first.go_away(max(first.requests))
        for received in list(first.requests.values()):
            first.answer(received)
        assert kinds(await under_way) == {"answered": 50}
        assert [len(peer.requests) for peer in stage.server.peers] == [50, 5]
        await asyncio.wait_for(first.gone, ENOUGH_S)  # it is closed once its last answer is in

    play(act)


def test_a_limit_lowered_under_load_is_waited_for_and_everything_goes_on(play: Play) -> None:
    async def act(stage: Stage) -> None:
        lowered: list[Received] = []

        def lowers(peer: Peer, received: Received) -> None:
            lowered.append(received)
            if len(lowered) < 50:
                return
            if len(lowered) == 50:
                peer.say_settings(MAX_CONCURRENT_STREAMS=10)
                peer.most_open = 0
            for held in lowered:
                if held.path not in peer.answered:
                    peer.answer(held)

        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=50)
        stage.server.on_request = lowers
        assert kinds(await stage.all(300)) == {"answered": 300}
        (peer,) = stage.server.peers
        assert peer.most_open <= 10
        assert Counter(stage.server.received) == Counter(stage.server.answered)

    play(act)


def test_a_limit_lowered_below_what_is_open_holds_nobody_beyond_its_deadline(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def falls_silent(peer: Peer, received: Received) -> None:
            if len(peer.requests) == 20:
                peer.say_settings(MAX_CONCURRENT_STREAMS=0)

        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=20)
        stage.server.on_request = falls_silent
        outcomes = await stage.all(60, within_s=1)
        assert kinds(outcomes) == {"unknown": 20, "unprocessed": 40}

    play(act)


def test_a_limit_of_one_that_rises_with_the_first_answer_is_used_at_once(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def proves(peer: Peer, received: Received) -> None:
            if len(peer.requests) == 1:
                assert peer.open == 1
                peer.answer(received)
                peer.say_settings(MAX_CONCURRENT_STREAMS=1000)
            elif peer.open == 199:
                for each in list(peer.requests.values())[1:]:
                    peer.answer(each)

        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=1)
        stage.server.on_request = proves
        assert kinds(await stage.all(200)) == {"answered": 200}

    play(act)


def test_a_refused_stream_is_resent_at_once(play: Play) -> None:
    async def act(stage: Stage) -> None:
        seen: Counter[str] = Counter()

        def refuses(peer: Peer, received: Received) -> None:
            seen[received.path] += 1
            if seen[received.path] == 1 and received.path != "/0":
                peer.reset(received, REFUSED_STREAM)
                peer.reset(received, STREAM_CLOSED)  # Apple has been seen to say so a second time
                peer.open += 1
            else:
                peer.answer(received)

        stage.server.on_request = refuses
        assert kinds(await stage.all(10)) == {"answered": 10}
        assert len(stage.server.peers) == 1
        assert seen.total() == 19

    play(act)


def test_what_is_refused_again_and_again_is_said_to_be_unprocessed(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_request = lambda peer, received: peer.reset(received, REFUSED_STREAM)
        assert kinds(await stage.all(1)) == {"unprocessed": 1}
        assert len(stage.server.received) == 3

    play(act)


@pytest.mark.parametrize("pings", [True, False])
def test_a_connection_that_became_a_hole_while_frozen_costs_no_request(authority: Authority, pings: bool) -> None:
    async def act() -> None:
        async with staged(authority, pings=pings) as stage:
            assert kinds(await stage.all(3)) == {"answered": 3}
            (dead,) = stage.server.peers
            dead.deaf = True
            stage.clock.forward(milliseconds=IDLE_MS + 1)
            assert kinds(await stage.all(3, first=3)) == {"answered": 3}
            assert len(dead.requests) == 3
            assert [len(peer.requests) for peer in stage.server.peers] == [3, 3]

    asyncio.run(act())


def test_a_connection_that_lives_after_an_idle_gap_is_kept(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.all(1)
        stage.clock.forward(milliseconds=IDLE_MS + 1)
        await stage.all(5, first=1)
        (peer,) = stage.server.peers
        assert peer.pings == 1

    play(act)


def test_a_farewell_that_came_while_frozen_is_taken_in_before_the_first_request(play: Play) -> None:
    async def act(stage: Stage) -> None:
        await stage.all(1)
        (first,) = stage.server.peers
        first.go_away(1)
        first.close()
        await first.gone
        await stage.line.begin()
        assert kinds(await stage.all(3, first=1)) == {"answered": 3}
        assert len(first.requests) == 1

    play(act)


# ---- Windows


def test_a_body_is_sent_as_the_streams_window_opens(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=10, INITIAL_WINDOW_SIZE=10)
        sending = asyncio.ensure_future(stage.send("/1", body=b"x" * 100))
        await stage.server.until(lambda: bool(stage.server.peers) and bool(stage.server.peers[0].requests))
        (peer,) = stage.server.peers
        (received,) = peer.requests.values()
        for opened in range(1, 10):
            await stage.server.until(lambda opened=opened: len(received.body) == 10 * opened)  # type: ignore[misc]
            peer.open_window(received.stream_id, 10)
        assert (await sending).status == 200
        assert received.chunks == [10] * 10

    play(act)


def test_the_connections_window_is_shared_and_obeyed(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def answer_and_open(peer: Peer, received: Received) -> None:
            peer.open_window(0, len(received.body))
            peer.answer(received)

        stage.server.on_request = answer_and_open
        sent = await asyncio.gather(*(stage.send(f"/{at}", body=b"x" * 4096) for at in range(64)))
        assert {response.status for response in sent} == {200}
        (peer,) = stage.server.peers
        assert {len(request.body) for request in peer.requests.values()} == {4096}

    play(act)


def test_a_window_that_shrinks_in_the_middle_of_a_body_is_obeyed(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=10, INITIAL_WINDOW_SIZE=50)
        sending = asyncio.ensure_future(stage.send("/1", body=b"x" * 100))
        await stage.server.until(lambda: bool(stage.server.peers) and 50 in _lengths(stage.server.peers[0]))
        (peer,) = stage.server.peers
        peer.say_settings(INITIAL_WINDOW_SIZE=0)  # RFC 9113 §6.9.2: the stream's window is now at -50
        await stage.server.until(lambda: peer.acked == 2)
        peer.open_window(1, 60)
        await stage.server.until(lambda: 60 in _lengths(peer))
        peer.open_window(1, 40)
        assert (await sending).status == 200
        assert peer.requests[1].chunks == [50, 10, 40]

    play(act)


def _lengths(peer: Peer) -> set[int]:
    return {len(request.body) for request in peer.requests.values()}


def test_answers_of_any_number_flow_because_what_was_read_is_given_back(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_request = lambda peer, received: peer.answer(received, body=b"y" * 6000)
        for first in range(0, 60, 3):  # five times the connection's first window
            assert kinds(await stage.all(3, first=first)) == {"answered": 3}

    play(act)


# ---- One request's fate is its own


def test_a_cancelled_request_resets_its_stream_alone(play: Play) -> None:
    async def act(stage: Stage) -> None:
        held: list[Received] = []
        stage.server.on_request = lambda _peer, received: held.append(received)
        doomed, other = (asyncio.ensure_future(stage.send(path)) for path in ("/doomed", "/other"))
        await stage.server.until(lambda: len(held) == 2)
        doomed.cancel()
        (peer,) = stage.server.peers
        (id_,) = (received.stream_id for received in held if received.path == "/doomed")
        await stage.server.until(lambda: peer.resets == {id_: CANCEL})
        for received in held:
            peer.answer(received)  # the late one is ignored
        assert (await other).status == 200
        stage.server.on_request = lambda peer, received: peer.answer(received)
        assert (await stage.send("/next")).status == 200
        assert len(stage.server.peers) == 1
        with pytest.raises(asyncio.CancelledError):
            await doomed

    play(act)


def test_every_request_ends_by_its_deadline_and_frees_its_place(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=3)
        stage.server.on_request = lambda _peer, _received: None
        sent = asyncio.ensure_future(stage.all(3, within_s=1.5))
        await stage.server.until(lambda: len(stage.server.received) == 3)
        assert kinds(await stage.all(6, first=3, within_s=0.3)) == {"unprocessed": 6}
        assert kinds(await sent) == {"unknown": 3}
        stage.server.on_request = lambda peer, received: peer.answer(received)
        assert kinds(await stage.all(9, first=9)) == {"answered": 9}

    play(act)


def test_a_server_that_never_says_how_much_it_takes_gets_nothing(play: Play) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_connect = lambda _peer: None
        assert kinds(await stage.all(3, within_s=0.5)) == {"unprocessed": 3}
        assert stage.server.received == []

    play(act)


@pytest.mark.parametrize("code", [1, 2, 8, 11, 200])
def test_any_other_reset_says_nothing_of_what_the_peer_did(play: Play, code: int) -> None:
    async def act(stage: Stage) -> None:
        stage.server.on_request = lambda peer, received: peer.reset(received, code)
        assert kinds(await stage.all(4)) == {"unknown": 4}
        assert len(stage.server.received) == 4

    play(act)


def test_an_answer_before_the_whole_body_was_read_counts(play: Play) -> None:
    """RFC 9113 §8.1: the rest of the body is not wanted, which the server says by a reset without an error."""

    async def act(stage: Stage) -> None:
        def hasty(peer: Peer, received: Received) -> None:
            peer.answer(received, status=413, body=b'{"reason":"PayloadTooLarge"}')
            peer.reset(received, NO_ERROR)

        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=10, INITIAL_WINDOW_SIZE=10)
        stage.server.on_headers = hasty
        response = await stage.send("/large", body=b"x" * 5000)
        assert (response.status, response.json_object()) == (413, {"reason": "PayloadTooLarge"})

    play(act)


def test_an_answer_without_end_is_cut(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def floods(peer: Peer, received: Received) -> None:
            peer.answer(received, end=False)
            for at in range(MAX_BODY_BYTES // 16_000 + 1):  # slowly enough for the window to open again
                data = DataFrame(received.stream_id, b"z" * 16_000)
                asyncio.get_running_loop().call_later(0.1 * at, peer.send, data)

        stage.server.on_request = floods
        assert kinds(await stage.all(1)) == {"unknown": 1}
        (peer,) = stage.server.peers
        await stage.server.until(lambda: peer.resets == {1: CANCEL})

    play(act)


# ---- The connection's fate


def test_used_up_stream_ids_lead_to_another_connection(authority: Authority) -> None:
    async def act() -> None:
        async with staged(authority, last_stream_id=19) as stage:
            assert kinds(await stage.all(25)) == {"answered": 25}
            assert [len(peer.requests) for peer in stage.server.peers] == [10, 10, 5]

    asyncio.run(act())


def test_a_connection_that_is_lost_tells_apart_what_never_left(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def dies(peer: Peer, received: Received) -> None:
            if peer is stage.server.peers[0]:
                if len(peer.requests) == 10:
                    peer.transport.abort()
            else:
                peer.answer(received)

        stage.server.on_connect = lambda peer: peer.say_settings(MAX_CONCURRENT_STREAMS=10)
        stage.server.on_request = dies
        assert kinds(await stage.all(30)) == {"unknown": 10, "answered": 20}
        assert len(stage.server.received) == 30

    play(act)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00" * 200,
        b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x",
        HeadersFrame(2, b"\x88", flags=["END_HEADERS"]).serialize(),
    ],
    ids=["another protocol", "zeros", "data on no stream", "a stream of its own"],
)
def test_a_peer_that_breaks_the_protocol_is_left_and_nothing_is_resent(play: Play, nonsense: bytes) -> None:
    async def act(stage: Stage) -> None:
        def raves(peer: Peer, received: Received) -> None:
            if peer is not stage.server.peers[0]:
                peer.answer(received)
            elif len(peer.requests) == 5:
                peer.raw(nonsense)

        stage.server.on_request = raves
        assert kinds(await stage.all(5)) == {"unknown": 5}
        assert kinds(await stage.all(5, first=5)) == {"answered": 5}
        assert len(stage.server.peers) == 2

    play(act)


def test_what_a_client_must_bear_is_borne(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def talks(peer: Peer, received: Received) -> None:
            peer.raw(b"\x00\x00\x03\x7f\x00\x00\x00\x00\x00new")  # a frame of a type from the future
            peer.ping()
            peer.open_window(0, 1)
            peer.answer(received)
            peer.open_window(received.stream_id, 1)  # late, for a stream that is over

        stage.server.on_request = talks
        assert kinds(await stage.all(20)) == {"answered": 20}
        (peer,) = stage.server.peers
        await stage.server.until(lambda: peer.pongs == 20)
        assert peer.settings[0][0x2] == 0  # ENABLE_PUSH

    play(act)


def test_a_farewell_of_whatever_text_is_a_farewell(play: Play) -> None:
    async def act(stage: Stage) -> None:
        def leaves(peer: Peer, received: Received) -> None:
            peer.answer(received)
            if peer is stage.server.peers[0]:
                peer.go_away(received.stream_id, code=7, data=b"active streams maximum, \xff not JSON")

        stage.server.on_request = leaves
        assert kinds(await stage.all(1)) == {"answered": 1}
        assert kinds(await stage.all(2, first=1)) == {"answered": 2}

    play(act)


def test_a_server_of_http_1_is_named_as_such(authority: Authority) -> None:
    async def act() -> None:
        async with scripted(authority.server_tls, alpn="http/1.1") as server:
            line = a_line(server.origin, authority, FakeClock())
            with pytest.raises(TransportError, match="does not speak HTTP/2") as caught:
                await line.send(Request(path="/", headers={}, body=b""), until=asyncio.get_running_loop().time() + 5)
            assert caught.value.unprocessed
            await line.close()

    asyncio.run(act())


def test_nobody_there_is_unprocessed(authority: Authority) -> None:
    async def act() -> None:
        line = a_line("https://localhost:1", authority, FakeClock())
        with pytest.raises(TransportError, match="no connection") as caught:
            await line.send(Request(path="/", headers={}, body=b""), until=asyncio.get_running_loop().time() + 5)
        assert caught.value.unprocessed

    asyncio.run(act())


def test_an_unknown_authority_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    async def act() -> None:
        other = Authority.create(tmp_path)
        async with scripted(authority.server_tls) as server:
            line = a_line(server.origin, other, FakeClock())
            with pytest.raises(TransportError, match="SSLCertVerificationError"):
                await line.send(Request(path="/", headers={}, body=b""), until=asyncio.get_running_loop().time() + 5)
            assert server.received == []

    asyncio.run(act())


def test_a_hundred_who_wait_for_a_connection_make_one(play: Play) -> None:
    async def act(stage: Stage) -> None:
        assert kinds(await stage.all(100)) == {"answered": 100}
        assert len(stage.server.peers) == 1

    play(act)


def test_our_own_limit_holds_where_the_servers_is_higher(authority: Authority) -> None:
    async def act() -> None:
        async with staged(authority, streams=7) as stage:
            assert kinds(await stage.all(50)) == {"answered": 50}
            assert stage.server.peers[0].most_open <= 7

    asyncio.run(act())


# ---- Under httpx


def test_httpx_goes_over_it(authority: Authority) -> None:
    async def act() -> None:
        async with scripted(authority.server_tls) as server:
            server.on_request = lambda peer, received: peer.answer(received, body=b'{"ok":true}')
            transport = Http2Transport(tls=tls_context(str(authority.ca_file)), clock=FakeClock())
            async with httpx.AsyncClient(transport=transport, base_url=server.origin) as client:
                answers = await asyncio.gather(*(client.post("/x?y=1", json={"a": 1}) for _ in range(20)))
                assert {(answer.status_code, answer.http_version) for answer in answers} == {(200, "HTTP/2")}
                assert (await client.get("/z", headers={"Connection": "close"})).json() == {"ok": True}
            (peer,) = server.peers
            methods = Counter(received.headers[":method"] for received in peer.requests.values())
            assert methods == {"POST": 20, "GET": 1}
            assert peer.requests[1].body == b'{"a":1}'

    asyncio.run(act())


@pytest.mark.parametrize(
    ("script", "kind", "unprocessed"),
    [
        (lambda peer, received: peer.reset(received, 2), httpx.RemoteProtocolError, False),
        (lambda peer, received: peer.reset(received, REFUSED_STREAM), httpx.ConnectError, True),
        (lambda _peer, _received: None, httpx.ReadTimeout, False),
    ],
)
def test_httpx_is_told_in_its_own_words(
    authority: Authority, script: Callable[[Peer, Received], None], kind: type[Exception], unprocessed: bool
) -> None:
    async def act() -> None:
        async with scripted(authority.server_tls) as server:
            server.on_request = script
            transport = Http2Transport(tls=tls_context(str(authority.ca_file)), clock=FakeClock())
            async with httpx.AsyncClient(transport=transport, timeout=1) as client:
                with pytest.raises(kind) as caught:
                    await client.post(server.origin)
            assert isinstance(caught.value.__cause__, TransportError)
            assert caught.value.__cause__.unprocessed is unprocessed

    asyncio.run(act())


def test_only_tls_is_spoken() -> None:
    async def act() -> None:
        async with httpx.AsyncClient(
            transport=Http2Transport(tls=ssl.create_default_context(), clock=FakeClock())
        ) as client:
            with pytest.raises(httpx.UnsupportedProtocol):
                await client.post("http://localhost/")

    asyncio.run(act())
