"""What providers may send that nobody foresaw: answers of any shape, frames in any order, bytes of no sense.

An answer has one verdict, and a request has one end: answered, unprocessed where that is proved, or unknown. ``judge``
reads what was said and what was written by itself, without the connection's own books.

A default run is short; with `--hypothesis-profile=long` it tries twenty times as much.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from pushlease.codes import Code
from pushlease.errors import TransportError
from pushlease.providers.apns import protocol as apns
from pushlease.providers.fcm import protocol as fcm
from pushlease.providers.http import Request, Response
from pushlease.providers.http2 import CLOSED_STREAMS, LAST_STREAM_ID, MAX_BODY_BYTES, Connection
from pushlease.providers.meaning import APNS_REASONS, Circumstances
from pushlease.providers.recent import Recent
from pushlease.push.outcome import Accepted, Refused, Verdict
from scripted import PREFACE


def limits(examples: int) -> settings:
    """So many in the default profile, and in proportion in another."""
    profile = settings()
    return settings(
        max_examples=max(1, examples * profile.max_examples // 100),
        deadline=None,  # a busy machine is no finding
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# --- bytes, mutated ---------------------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["flip", "put", "drop", "double", "insert", "end"]),
        st.integers(0, 2**16),
        st.integers(0, 255),
        st.binary(max_size=9),
    ),
    max_size=5,
)


def mutated(data: bytes, changes: Sequence[tuple[str, int, int, bytes]]) -> bytes:
    """The bytes with some flipped, put, dropped, doubled or inserted, or cut off."""
    for kind, place, number, some in changes:
        at = place % (len(data) + 1)
        span = data[at : at + number % 40]
        match kind:
            case "flip":
                data = data[:at] + bytes(byte ^ 1 << number % 8 for byte in data[at : at + 1]) + data[at + 1 :]
            case "put":
                data = data[:at] + bytes([number]) + data[at + 1 :]
            case "drop":
                data = data[:at] + data[at + len(span) :]
            case "double":
                data = data[:at] + span + data[at:]
            case "insert":
                data = data[:at] + some + data[at:]
            case _:
                data = data[:at]
    return data


# --- answers ----------------------------------------------------------------------------------------------------------

NOW_MS = 1_800_000_000_000
FLOOR = timedelta(seconds=60)
LONGEST = timedelta(days=366 * 8_000)  # a date has four digits for its year

# As Apple and Google send them, by kind.
REAL_APPLE: Sequence[Sequence[Mapping[str, object]]] = [
    [{"reason": reason} for _, reason in APNS_REASONS],
    [{"reason": reason, "timestamp": NOW_MS} for reason in ("Unregistered", "ExpiredToken", "BadDeviceToken")],
]


def google(status: str = "INVALID_ARGUMENT", message: str = "no", **details: Mapping[str, object]) -> dict[str, object]:
    """An error body; its details by their bare type names."""
    typed = [{"@type": f"type.googleapis.com/google.x.{name}", **detail} for name, detail in details.items()]
    return {"error": {"code": 400, "status": status, "message": message, "details": typed}}


INVALID = {"errorCode": "INVALID_ARGUMENT"}
RELAYED = google(FcmError=INVALID, ApnsError={"statusCode": 410})
REAL_GOOGLE: Sequence[Sequence[Mapping[str, object]]] = [
    [google(status) for status in (*fcm.STATUSES, "INVALID_ARGUMENT")],
    [google(FcmError={"errorCode": code}) for code in (*fcm.FCM_ERRORS, "INVALID_ARGUMENT")],
    [google(FcmError=INVALID, ApnsError={"statusCode": status, "reason": reason}) for status, reason in APNS_REASONS],
    [RELAYED],
    [google(BadRequest={"fieldViolations": [{"field": field}]}) for field in ("message.token", "message.data")],
    [google(message="The registration token is not a valid FCM registration token", FcmError=INVALID)],
    [
        google(
            "RESOURCE_EXHAUSTED",
            ErrorInfo={"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit": "PerProject"}},
            QuotaFailure={"violations": [{"subject": "device:x", "description": "no"}]},
        )
    ],
]
# Without these, in whatever place, a provider has not disowned a push token.
CLEAR = re.compile(
    rb"BadDeviceToken|DeviceTokenNotForTopic|Unregistered|ExpiredToken|UNREGISTERED"
    rb"|message\.(token|fid)|not a valid fcm registration token|\b410\b",
    re.IGNORECASE,
)
RAW = st.sampled_from(
    [
        b'"\\ud800"',
        b'"\\udfff\\ud800\\u0000\\r\\n\\u202e"',
        b'"' + b"x" * 300 + b'"',
        b"9" * 300,
        b"-" + b"9" * 4_000,
        b"9" * 5_000,
        b"1e999",
        b"NaN",
        b"-Infinity",
        b"410",
        b"true",
        b"null",
        b"{}",
        b"[[[]]]",
        b'{"a":' * 5_000,
        b"[" * 100_000,
        b"\xff",
    ]
)


def spelt(value: object, others: Mapping[int, bytes], numbers: Iterator[int]) -> bytes:
    """As JSON, with other text in the places of these numbers."""
    if (other := others.get(next(numbers))) is not None:
        return other
    match value:
        case dict():
            members = (json.dumps(key).encode() + b":" + spelt(inner, others, numbers) for key, inner in value.items())
            return b"{" + b",".join(members) + b"}"
        case list():
            return b"[" + b",".join(spelt(inner, others, numbers) for inner in value) + b"]"
    return json.dumps(value).encode()


def answers(real: Sequence[Sequence[Mapping[str, object]]]) -> st.SearchStrategy[bytes]:
    """Real bodies as they are, with some of their values replaced, or with their bytes changed; and senseless ones."""
    bodies = st.sampled_from(real).flatmap(st.sampled_from)
    replaced = st.builds(
        lambda body, others: spelt(body, others, count()), bodies, st.dictionaries(st.integers(1, 14), RAW, max_size=2)
    )
    changed = st.builds(lambda body, changes: mutated(json.dumps(body).encode(), changes), bodies, CHANGES)
    return st.one_of(replaced, replaced, replaced, changed, RAW, st.binary(max_size=60))


DATES = st.builds(
    "{}{} {} {} {}:{}:00 {}".format,
    st.sampled_from(["", "Fri, "]),
    st.sampled_from(["01", "31", "31", "99"]),
    st.sampled_from(["Jan", "Dec", "Dec", "Nil"]),
    st.sampled_from(["0001", "1969", "2026", "2027", "9999", "99", "9" * 20]),
    st.sampled_from(["00", "23", "24"]),
    st.sampled_from(["00", "59", "60"]),
    st.sampled_from(["GMT", "GMT", "", "+2359", "-2359", "+9999", "EST", "+"]),
)
SPANS = st.sampled_from(
    ["0", "1", "-1", "+1", "1.5", "1e3", "0x1", "\u0663", "9" * 9, "9" * 12, "9" * 5_000, " 7 ", "7, 8", ""]
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "retry-after": SPANS | DATES | DATES | st.text(),
        "apns-id": st.sampled_from(["", "0F0E", "x" * 5_000, "\x00\r\n", "é\x85"]) | st.text(),
        "content-type": st.text(),
    },
)
CIRCUMSTANCES = st.builds(
    Circumstances,
    registered_at_ms=st.sampled_from([0, NOW_MS - 60_000, NOW_MS - 50, NOW_MS + 1]),
    sent_at_ms=st.just(NOW_MS - 50),
    now_ms=st.just(NOW_MS),
    recent=st.sampled_from([Recent(), Recent(ok=200, bad=2), Recent(bad=40), Recent(ok=189, bad=10)]),
)
HEALTHY = Circumstances(registered_at_ms=0, sent_at_ms=NOW_MS - 50, now_ms=NOW_MS, recent=Recent(ok=200, bad=2))
ANY_STATUS = st.sampled_from([200, 400, 400, 401, 403, 404, 410, 410, 413, 429, 500, 503]) | st.integers(0, 999)


@limits(500)
@given(ANY_STATUS, HEADERS, answers(REAL_APPLE), CIRCUMSTANCES)
def test_a_verdict_of_any_answer_of_apple_keeps_the_rules(
    status: int, headers: Mapping[str, str], body: bytes, circumstances: Circumstances
) -> None:
    verdict = checked(apns.interpret, status, headers, body, circumstances)
    if isinstance(verdict, Refused) and verdict.disable_before_ms is not None:
        assert status == 410 or (status == 400 and CLEAR.search(body))
        assert status == 410 or (circumstances.recent.ok and not circumstances.recent.burst)


@limits(500)
@given(ANY_STATUS, HEADERS, answers(REAL_GOOGLE), CIRCUMSTANCES)
@example(400, {}, spelt(RELAYED, {11: b"9" * 4_000}, count()), HEALTHY)
def test_a_verdict_of_any_answer_of_google_keeps_the_rules(
    status: int, headers: Mapping[str, str], body: bytes, circumstances: Circumstances
) -> None:
    verdict = checked(fcm.interpret, status, headers, body, circumstances)
    if isinstance(verdict, Refused) and verdict.disable_before_ms is not None:
        assert CLEAR.search(body)


def checked(
    interpret: Callable[..., Verdict],
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    circumstances: Circumstances,
) -> Verdict:
    """The one verdict, which fits a row and a log line whatever was answered."""
    verdict = interpret(Response(status=status, headers=headers, body=body), circumstances, floor=FLOOR)
    event(type(verdict).__name__)
    assert isinstance(verdict, Accepted) is (200 <= status < 300)
    if isinstance(verdict, Accepted):
        assert verdict.provider_id is None or 1 <= len(verdict.provider_id) <= 200
        return verdict
    assert isinstance(verdict, Refused)
    assert 1 <= len(verdict.reason) <= 200
    assert verdict.reason.isprintable()
    if verdict.retry_after is not None:
        event("waits")
        assert verdict.code.retried
        assert timedelta() <= verdict.retry_after <= LONGEST
    if verdict.disable_before_ms is not None:
        event("disables")
        assert verdict.code in (Code.INVALID_TOKEN, Code.EXPIRED_TOKEN)
        assert circumstances.registered_at_ms < verdict.disable_before_ms < 2**63
        assert not verdict.alarm
        assert not verdict.remedy.retry_now
    return verdict


# --- frames: the stage ------------------------------------------------------------------------------------------------

WITHIN_S = 10.0
REFUSED_STREAM = 7
FRAME_BYTES = 2**14 + 9  # the longest frame that we offered to take, and its head: what is longer is refused at once
HEADER_FRAMES = 64  # of one block: h2's own limit


class Loop(asyncio.SelectorEventLoop):
    """Its time passes only when it is told to; what escaped from a callback is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.escaped: list[Mapping[str, Any]] = []
        self.set_exception_handler(lambda _loop, context: self.escaped.append(context))

    def time(self) -> float:
        return self.now_s


class Wire(asyncio.Transport):
    """Keeps what is written, as long as it is open."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        super().__init__()
        self.written = bytearray()
        self._loop, self._connection, self._closing = loop, connection, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self.written += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._connection.connection_lost, error)


@dataclass(slots=True, eq=False)
class Asked:
    """One request, and what became of it."""

    task: asyncio.Task[Response]
    dropped: bool = False  # cancelled, or its time was up

    @property
    def end(self) -> tuple[object, ...]:
        """Its one end: answered, unprocessed, unknown or cancelled."""
        assert self.task.done(), "a request without an end"
        if self.task.cancelled():
            return ("cancelled",)
        match self.task.exception():
            case None:
                answer = self.task.result()
                return ("answered", answer.status, answer.body)
            case TransportError(unprocessed=unprocessed):
                return ("unprocessed",) if unprocessed else ("unknown",)
            case error:
                raise AssertionError("not the documented kind") from error


type Step = tuple[str, Any]


@dataclass(slots=True)
class Stage:
    """A connection between a test's hand and a wire that goes nowhere."""

    loop: Loop
    connection: Connection
    wire: Wire
    asked: list[Asked] = field(default_factory=list)
    pings: list[asyncio.Task[bool]] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)

    async def do(self, step: Step) -> None:
        """One step, then the bounds."""
        match step:
            case "ask", size:
                path = f"/{len(self.asked)}"
                request = Request(path=path, headers={"apns-id": path}, body=b"x" * size)
                sending = self.connection.send(request, until=self.loop.time() + WITHIN_S)
                self.asked.append(Asked(self.loop.create_task(sending)))
            case "hear", said:
                data = b"".join(said)
                self.heard += data
                self.connection.data_received(data)
            case "turn", rounds:
                await self.turn(rounds)
            case "cancel", at:
                for each in self.asked[at : at + 1]:
                    each.dropped = each.dropped or not each.task.done()
                    each.task.cancel()
            case "wait", seconds:
                self.loop.now_s += seconds
                for each in self.asked:  # those whose time is up now; a neighbour too early does no harm
                    each.dropped = each.dropped or not each.task.done()
                await self.turn()
            case "ping", _:
                self.pings.append(self.loop.create_task(self.connection.ping(until=self.loop.time() + 1)))
            case "lose", error:
                self.wire.lose(error)
            case name, _:
                getattr(self.connection, name)()
        self.check_bounds()

    async def turn(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    def check_bounds(self) -> None:
        """Nothing that a peer sends makes us keep more than our own requests and one answer to each."""
        within, h2 = self.connection, self.connection._h2
        assert len(within._open) + len(within._waiting) <= len(self.asked)
        assert set(within._blocked) <= set(within._open)
        assert len(h2._closed_streams) <= CLOSED_STREAMS
        assert all(len(exchange.body) <= MAX_BODY_BYTES for exchange in within._open.values())
        if not self.wire.is_closing():
            assert set(h2.streams) == set(within._open)
            assert len(h2.incoming_buffer._data) <= FRAME_BYTES
            assert len(h2.incoming_buffer._headers_buffer) <= HEADER_FRAMES
        ours = sum(300 + 2 * int(each.task.done()) for each in self.asked) + 100_000 * len(self.asked)
        assert len(self.wire.written) <= 1_000 + ours + 2 * len(self.heard)

    async def over(self) -> None:
        """The connection is gone, and everybody has been told."""
        self.wire.lose(None)
        await self.turn(5)
        within = self.connection
        assert within.idle
        assert not within.accepting
        assert not within._blocked
        assert all(ping.done() and not ping.exception() for ping in self.pings)
        assert all(each.end for each in self.asked)
        assert self.loop.escaped == []


def played(steps: Sequence[Step], **said: int) -> Stage:
    """Every step, then the end of the connection."""
    loop = Loop()

    async def play() -> Stage:
        connection = Connection("push.example", **{"streams": 100, **said})
        stage = Stage(loop, connection, Wire(loop, connection))
        connection.connection_made(stage.wire)
        for step in steps:
            await stage.do(step)
        await stage.over()
        return stage

    try:
        return loop.run_until_complete(play())
    finally:
        loop.close()


def frames_in(data: bytes) -> Iterator[Frame]:
    """As many whole frames as can be read."""
    at = 0
    while at + 9 <= len(data):
        try:
            read, length = Frame.parse_frame_header(memoryview(data[at : at + 9]))
            if at + 9 + length > len(data):
                return
            read.parse_body(memoryview(data[at + 9 : at + 9 + length]))
        except HyperframeError:
            return
        at += 9 + length
        yield read


def written_ids(stage: Stage) -> Mapping[str, int]:
    """Which stream each request left on, by its path."""
    assert bytes(stage.wire.written[: len(PREFACE)]) == PREFACE
    decoder, ids = hpack.Decoder(), dict[str, int]()
    for sent in frames_in(bytes(stage.wire.written[len(PREFACE) :])):
        if isinstance(sent, HeadersFrame):
            fields = {str(name): str(value) for name, value in decoder.decode(sent.data)}
            ids[fields[":path"]] = sent.stream_id
    return ids


def judge(stage: Stage) -> None:
    """Nothing is said to be unprocessed but what never left, what was refused, and what is above a farewell's last id.

    And what never left is never said to be anything else.
    """
    ids, heard = written_ids(stage), list(frames_in(bytes(stage.heard)))
    refused = {
        each.stream_id for each in heard if isinstance(each, RstStreamFrame) and each.error_code == REFUSED_STREAM
    }
    last = min((each.last_stream_id for each in heard if isinstance(each, GoAwayFrame)), default=LAST_STREAM_ID)
    foreseen = {each.stream_id for each in heard} - {0, *ids.values()}  # spoken of before the request had left
    for at, asked in enumerate(stage.asked):
        id_, (end, *_) = ids.get(f"/{at}"), asked.end
        event(str(end))
        if end == "unprocessed":
            assert id_ is None or id_ in refused or id_ > last, f"request {at} left on stream {id_}"
        elif end == "unknown" and not asked.dropped and not foreseen:
            assert id_ is not None, f"request {at} never left"


# --- frames: what a peer may say --------------------------------------------------------------------------------------


def framed(frame: Frame, stream_id: int | None = None) -> bytes:
    """Its bytes; on ``stream_id``, whether or not the kind of frame may be there."""
    data = bytearray(frame.serialize())
    if stream_id is not None:
        data[5:9] = stream_id.to_bytes(4)
    return bytes(data)


@lru_cache
def block(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(list(fields), huffman=False)


def goes_away(last_stream_id: int, code: int = 0, data: bytes = b"") -> bytes:
    return framed(GoAwayFrame(0, last_stream_id=last_stream_id, error_code=code, additional_data=data))


def settings_of(**said: int) -> bytes:
    return framed(SettingsFrame(0, settings={getattr(SettingsFrame, name): value for name, value in said.items()}))


def answer(stream_id: int, status: str = "200", *, end: bool = True) -> bytes:
    flags = ["END_HEADERS", "END_STREAM"] if end else ["END_HEADERS"]
    return framed(HeadersFrame(stream_id, block((":status", status), ("apns-id", "0f0e")), flags=flags))


def data(stream_id: int, size: int, *, end: bool) -> bytes:
    return framed(DataFrame(stream_id, b"z" * size, flags=["END_STREAM"] if end else []))


def reset(stream_id: int, code: int) -> bytes:
    return framed(RstStreamFrame(stream_id, error_code=code))


def unknown(kind: int, stream_id: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, 0]) + stream_id.to_bytes(4) + body


LIMIT = settings_of(MAX_CONCURRENT_STREAMS=100)

# Frames as a peer sends them, to requests that it may have.
IDS = st.sampled_from([1, 1, 3, 5])
CODES = st.sampled_from([0, 1, 2, 5, 7, 7, 8, 11, 200, 2**32 - 1])
OCTETS = st.binary(min_size=8, max_size=8)
LAWFUL = st.one_of(
    st.builds(answer, IDS, st.sampled_from(["200", "410", "503"])),
    st.builds(answer, IDS, st.sampled_from(["200", "103", "x", "٣00", "2000"]), end=st.booleans()),
    st.builds(data, IDS, st.sampled_from([0, 1, 1_000, 16_384]), end=st.booleans()),
    st.builds(reset, IDS, CODES),
    st.builds(lambda size: settings_of(INITIAL_WINDOW_SIZE=size), st.sampled_from([0, 10, 65_535])),
    st.builds(lambda many: settings_of(MAX_CONCURRENT_STREAMS=many), st.sampled_from([0, 1, 2, 100])),
    st.builds(goes_away, st.sampled_from([LAST_STREAM_ID, 0, 1, 3, 5]), CODES, st.binary(max_size=9)),
    st.builds(lambda octets: framed(PingFrame(0, octets)), OCTETS),
    st.builds(lambda id_, by: framed(WindowUpdateFrame(id_, window_increment=by)), IDS, st.sampled_from([1, 65_535])),
    st.builds(lambda by: framed(WindowUpdateFrame(1, window_increment=by), 0), st.sampled_from([1, 65_535])),
    st.builds(unknown, st.integers(10, 255), IDS, st.binary(max_size=30)),
)

# Frames of any kind, anywhere, of any content.
ANY_IDS = st.sampled_from([0, 1, 2, 3, 5, 7, 99, LAST_STREAM_ID])
NUMBERS = st.sampled_from([0, 1, 5, 16_383, 16_384, 65_535, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1])
BLOCKS = st.one_of(
    st.sampled_from([block((":status", "٣00"), ("x", "\x00")), block(("x", "1")), block((":status", "103")), b""]),
    st.binary(max_size=40),
    st.integers(0, 16_300).map(lambda size: block((":status", "200"), ("x", "y" * size))),
)


def flags(*names: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), unique=True)


FRAMES = st.one_of(
    st.builds(HeadersFrame, st.just(1), BLOCKS, flags=flags("END_HEADERS", "END_STREAM")),
    st.builds(ContinuationFrame, st.just(1), BLOCKS, flags=flags("END_HEADERS")),
    st.builds(PushPromiseFrame, st.just(1), st.just(2), BLOCKS, flags=flags("END_HEADERS")),
    st.builds(DataFrame, st.just(1), st.just(b"p"), pad_length=st.integers(0, 255), flags=flags("PADDED")),
    st.builds(DataFrame, st.just(1), st.integers(16_380, 16_390).map(lambda size: b"z" * size)),
    st.builds(SettingsFrame, st.just(0), st.dictionaries(st.integers(0, 10), NUMBERS, max_size=3)),
    st.builds(SettingsFrame, st.just(0), flags=st.just(["ACK"])),
    st.builds(PingFrame, st.just(0), OCTETS, flags=flags("ACK")),
    st.builds(WindowUpdateFrame, st.just(1), st.sampled_from([1, 65_535, 2**31 - 1])),
    st.builds(PriorityFrame, st.just(1), depends_on=ANY_IDS, stream_weight=st.integers(0, 255)),
)
SAID = st.one_of(*[LAWFUL] * 7, st.builds(framed, FRAMES), st.builds(framed, FRAMES, ANY_IDS))


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    """In pieces, at these places."""
    places = sorted({0, *(place % (len(data) + 1) for place in at), len(data)})
    return [data[a:b] for a, b in pairwise(places)]


CUTS = st.lists(st.integers(0, 2**20), max_size=6)
ASK = st.tuples(st.just("ask"), st.sampled_from([0, 2, 300, 70_000]))
HEAR = st.tuples(st.just("hear"), st.lists(SAID, min_size=1, max_size=4))
TURN = st.tuples(st.just("turn"), st.integers(1, 3))
STEPS = st.one_of(
    ASK,
    HEAR,
    HEAR,
    TURN,
    st.tuples(st.just("hear"), SAID.flatmap(lambda said: st.integers(0, len(said)).map(lambda at: [said[:at]]))),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 9.0])),
    st.tuples(st.sampled_from(["ping", "pause_writing", "resume_writing", "retire", "close", "lose"]), st.none()),
)
OPENING = st.builds(
    lambda asked, turn: [("hear", [LIMIT]), *asked, *turn], st.lists(ASK, max_size=4), st.lists(TURN, max_size=1)
)


LEAVING: Sequence[Step] = [("hear", [LIMIT]), ("ask", 0), ("turn", 1)]  # it is to be written at the end of this turn


@limits(250)
@given(OPENING, st.lists(STEPS, max_size=12), st.sampled_from([100, 2]), st.sampled_from([LAST_STREAM_ID, 3]))
@example(LEAVING, [("close", None)], 100, LAST_STREAM_ID)  # the farewell takes along what was called unprocessed
@example(LEAVING, [("hear", [b"\0" * 99])], 100, LAST_STREAM_ID)  # likewise, when the peer broke the rules
@example(LEAVING, [("lose", None)], 100, LAST_STREAM_ID)  # never written, and called unknown
@example([*LEAVING, ("turn", 2)], [("hear", [answer(2)])], 100, LAST_STREAM_ID)  # a stream of the peer's own stays
@example([*LEAVING, ("turn", 2), ("hear", [answer(1, end=False)])], [("hear", [data(1, 16_384, end=False)])] * 9, 1, 3)
def test_whatever_happens_every_request_has_one_end_that_is_proved(
    opening: Sequence[Step], steps: Sequence[Step], streams: int, last_stream_id: int
) -> None:
    judge(played([*opening, *steps], streams=streams, last_stream_id=last_stream_id))


# --- frames: a peer that keeps the rules ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a peer says to so many requests, frame by frame, and how each must end."""

    frames: Sequence[bytes]
    ends: Sequence[tuple[object, ...]]


NOISE = st.sampled_from(
    [
        framed(PingFrame(0, b"12345678")),
        framed(WindowUpdateFrame(1, window_increment=1), 0),
        settings_of(MAX_CONCURRENT_STREAMS=100),
        settings_of(INITIAL_WINDOW_SIZE=70_000),
        framed(SettingsFrame(0, flags=["ACK"])),
        unknown(0x7F, 0, b"new"),
    ]
)
STATUSES = st.sampled_from([200, 400, 410, 429, 500, 503])


def answering(id_: int, status: int, body: bytes, style: str) -> list[bytes]:
    """One answer in frames, the last of which ends it."""
    head = block((":status", str(status)), ("apns-id", "0f0e"))
    match style:
        case "at once" if not body:
            return [answer(id_, str(status))]
        case "continued":
            first = framed(HeadersFrame(id_, head[:2]))
            heads = [first + framed(ContinuationFrame(id_, head[2:], flags=["END_HEADERS"]))]
        case "hinted":
            heads = [answer(id_, "103", end=False), answer(id_, str(status), end=False)]
        case _:
            heads = [answer(id_, str(status), end=False)]
    last = ["END_STREAM"]
    if style == "trailed":
        trailers = HeadersFrame(id_, block(("x-trailer", "1")), flags=["END_HEADERS", "END_STREAM"])
        return [*heads, framed(DataFrame(id_, body)), framed(trailers)]
    if style == "padded":
        return [*heads, framed(DataFrame(id_, body, pad_length=9, flags=["PADDED", *last]))]
    pieces = [framed(DataFrame(id_, body[at : at + 1])) for at in range(len(body))]
    return [*heads, *pieces, framed(DataFrame(id_, b"", flags=last))]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Answers, refusals, resets and silence, interleaved with noise and up to two farewells."""
    streams: dict[int, list[bytes]] = {}
    planned: dict[int, tuple[object, ...]] = {}
    for id_ in range(1, 2 * draw(st.integers(1, 6)), 2):
        status, body = draw(STATUSES), draw(st.sampled_from([b"", b"{}", b'{"reason":"Unregistered"}']))
        style = draw(st.sampled_from(["at once", "continued", "hinted", "trailed", "padded", "in pieces"]))
        frames = answering(id_, status, body, style)
        match draw(st.sampled_from(["answered", "answered", "cut", "refused", "reset", "silent"])):
            case "answered":
                streams[id_], planned[id_] = frames, ("answered", status, body)
            case "cut":
                streams[id_], planned[id_] = frames[:-1], ("unknown",)
            case "refused":
                streams[id_], planned[id_] = [reset(id_, REFUSED_STREAM)], ("unprocessed",)
            case "reset":
                code = draw(st.sampled_from([0, 1, 2, 5, 8, 11, 13, 200]))
                streams[id_], planned[id_] = [*frames[:-1], reset(id_, code)], ("unknown",)
            case _:
                streams[id_], planned[id_] = [], ("unknown",)
    order = draw(st.permutations([id_ for id_, frames in streams.items() for _ in frames]))
    farewells = draw(
        st.dictionaries(st.integers(0, len(order)), st.sampled_from([LAST_STREAM_ID, 0, 1, 3, 5]), max_size=2)
    )
    said, last, ended = [LIMIT], LAST_STREAM_ID, set[int]()
    left = {id_: list(frames) for id_, frames in streams.items()}
    for at in range(len(order) + 1):
        if at in farewells:
            last = min(last, farewells[at])
            said.append(goes_away(last))
            planned |= {id_: ("unprocessed",) for id_ in planned if id_ > last and id_ not in ended}
        if at < len(order) and (order[at] <= last):
            said.append(left[order[at]].pop(0))
            if not left[order[at]] and planned[order[at]] != ("unknown",):
                ended.add(order[at])
            elif not left[order[at]] and len(streams[order[at]]) and streams[order[at]][-1][3] == 3:
                ended.add(order[at])  # reset
        said += draw(st.lists(NOISE, max_size=1))
    return Script(frames=said, ends=list(planned.values()))


def heard_in(pieces: Sequence[bytes], many: int, *, turning: bool) -> Stage:
    """So many requests leave, then these pieces are heard."""
    steps: list[Step] = [("hear", [LIMIT]), *[("ask", 2)] * many, ("turn", 3)]
    for piece in pieces:
        steps += [("hear", [piece]), *[("turn", 2)] * turning]
    return played(steps)


@limits(150)
@given(scripts(), CUTS, st.booleans())
def test_of_a_lawful_peer_every_request_ends_as_it_must_however_its_bytes_are_cut(
    script: Script, cuts: Sequence[int], turning: bool
) -> None:
    stage = heard_in(cut(b"".join(script.frames), cuts), len(script.ends), turning=turning)
    assert [asked.end for asked in stage.asked] == script.ends
    judge(stage)


@limits(150)
@given(scripts(), st.lists(SAID, max_size=4), st.integers(0, 20), CUTS)
@example(Script(frames=[answer(1)], ends=[("answered", 200, b"")]), [b"\0" * 99], 1, [len(answer(1))])
@example(
    Script(frames=[reset(1, REFUSED_STREAM), answer(3)], ends=[("unprocessed",), ("answered", 200, b"")]),
    [answer(1, "103", end=False)],
    1,
    [len(reset(1, REFUSED_STREAM))],
)
def test_the_ends_are_the_same_wherever_the_bytes_are_cut(
    script: Script, wild: Sequence[bytes], at: int, cuts: Sequence[int]
) -> None:
    """What came whole before a peer broke the rules counts, though it came in one piece with the breach."""
    said = b"".join([*script.frames[:at], *wild, *script.frames[at:]])
    whole, pieces = (
        [asked.end for asked in heard_in(parts, len(script.ends), turning=False).asked]
        for parts in ([said], cut(said, cuts))
    )
    assert whole == pieces


# --- frames: recordings, mutated --------------------------------------------------------------------------------------


@limits(150)
@given(
    st.builds(lambda script: b"".join(script.frames), scripts()) | st.binary(max_size=200), CHANGES, CUTS, st.booleans()
)
@example(answer(2), [], [], True)
@example(b"HTTP/1.1 400 Bad Request\r\n\r\n", [], [], True)
@example(b"\x00" * 2_000, [], [7], True)
def test_bytes_of_no_sense_end_every_request_once(
    recorded: bytes, changes: Sequence[tuple[str, int, int, bytes]], cuts: Sequence[int], turning: bool
) -> None:
    judge(heard_in(cut(mutated(recorded, changes), cuts), 4, turning=turning))
