"""What every inbox does: the fake, and the real one on two DynamoDBs. Above all: what it counts is what is there."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import DAY_MS, NOW_MS, a_recipient
from fakes import FakeInbox, fixed_dice
from pushlease.aws.inbox import BATCH, TRIES, DynamoInbox
from pushlease.aws.rows import COUNTER, inbox_entry
from pushlease.errors import StoreUnavailable
from pushlease.push.device import Recipient
from pushlease.push.ports import Inbox, InboxEntry

KEPT = timedelta(days=10)
KEPT_MS = 10 * DAY_MS
KINDS = ["fake", "moto", "dynamodb"]

_serials = count(1)


def somebody() -> Recipient:
    """A recipient that no other test has."""
    return a_recipient(f"reader-{next(_serials)}")


class Client:
    """A DynamoDB client whose transactions somebody may be faster than, or meet."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.before: Callable[[], object] | None = None  # called once, ahead of the next transaction
        self.cancelled: list[Sequence[str]] = []  # reasons, for each of the next transactions
        self.transactions = 0
        self.halves = 0  # so many queries see the counters of transactions that are being committed, and no entry

    def query(self, **call: Any) -> Any:
        answer = self._client.query(**call)
        if self.halves:
            self.halves -= 1
            answer["Items"] = [item for item in answer["Items"] if item["entry"]["S"] == COUNTER]
        return answer

    def transact_write_items(self, **call: Any) -> Any:
        self.transactions += 1
        if self.before:
            act, self.before = self.before, None
            act()
        if self.cancelled:
            reasons = [{"Code": code} for code in self.cancelled.pop(0)]
            response: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
            raise ClientError(response, "TransactWriteItems")
        return self._client.transact_write_items(**call)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """An inbox, and its rows as they stand. ``inbox_of``: the same rows, through another client."""

    inbox: Inbox
    rows: Callable[[Recipient], Mapping[str, bool]]  # entry → whether it was read
    prune: Callable[[Recipient, int], None]  # what TTL removes by that instant, in its own time
    gone: Callable[[Recipient], bool]  # not a row is left


def rig_of_fake() -> Rig:
    fake = FakeInbox(KEPT)

    def prune(owner: Recipient, now_ms: int) -> None:
        there = fake.rows.get(owner, {})
        for key in [key for key, entry in there.items() if entry.created_at_ms + 3 * KEPT_MS <= now_ms]:
            del there[key]

    return Rig(
        inbox=fake,
        rows=lambda owner: {key: entry.read_at_ms is not None for key, entry in fake.rows.get(owner, {}).items()},
        prune=prune,
        gone=lambda owner: not fake.rows.get(owner),
    )


def an_inbox(client: Any, table: str, pauses: list[float] | None = None) -> DynamoInbox:
    return DynamoInbox(
        client=client,
        table=table,
        kept=KEPT,
        pause=pauses.append if pauses is not None else lambda _: None,
        dice=fixed_dice(),
    )


def rig_of(client: Any, table: str) -> Rig:
    def items(owner: Recipient) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = client.query(
            TableName=table,
            KeyConditionExpression="recipient = :recipient",
            ExpressionAttributeValues={":recipient": {"S": f"{owner.app_id}#{owner.user_id}"}},
            ConsistentRead=True,
        )["Items"]
        return found

    def prune(owner: Recipient, now_ms: int) -> None:
        for item in items(owner):
            if "ttl" in item and int(item["ttl"]["N"]) * 1000 <= now_ms:
                client.delete_item(TableName=table, Key={key: item[key] for key in ("recipient", "entry")})

    return Rig(
        inbox=an_inbox(client, table),
        rows=lambda owner: {
            item["entry"]["S"]: "read_at" in item for item in items(owner) if item["entry"]["S"] != COUNTER
        },
        prune=prune,
        gone=lambda owner: not items(owner),
    )


def rig_of_kind(kind: str, request: pytest.FixtureRequest) -> Rig:
    if kind == "fake":
        return rig_of_fake()
    if kind == "moto":
        moto = request.getfixturevalue("moto")
        return rig_of(moto.client, moto.make_table("inbox"))
    table = request.getfixturevalue("make_table")("inbox")
    return rig_of(boto3.client("dynamodb"), table)


@pytest.fixture(scope="module", params=KINDS)
def rig(request: pytest.FixtureRequest) -> Rig:
    return rig_of_kind(request.param, request)


@pytest.fixture(scope="module")
def inbox(rig: Rig) -> Inbox:
    return rig.inbox


def put(inbox: Inbox, owner: Recipient, name: str, *, at_ms: int = NOW_MS, now_ms: int | None = None) -> str:
    """An entry of this notification; its key."""
    inbox.put(
        owner,
        notification_id=name,
        content=f'{{"title":"<{name}>"}}',
        created_at_ms=at_ms,
        now_ms=at_ms if now_ms is None else now_ms,
    )
    return inbox_entry(at_ms, name)


def names(inbox: Inbox, owner: Recipient, now_ms: int = NOW_MS) -> list[str]:
    page = inbox.page(owner, now_ms=now_ms, limit=100)
    assert page.next is None
    return [entry.notification_id for entry in page.entries]


# ---- Entries


def test_entries_are_shown_newest_first_as_they_were_put(inbox: Inbox) -> None:
    owner, other = somebody(), somebody()
    later, earlier = put(inbox, owner, "later", at_ms=NOW_MS + 5), put(inbox, owner, "earlier")
    assert inbox.mark_read(owner, [earlier], now_ms=NOW_MS + 7) == 1
    assert inbox.page(owner, now_ms=NOW_MS + 9, limit=9).entries == (
        InboxEntry(entry=later, notification_id="later", content='{"title":"<later>"}', created_at_ms=NOW_MS + 5),
        InboxEntry(
            entry=earlier,
            notification_id="earlier",
            content='{"title":"<earlier>"}',
            created_at_ms=NOW_MS,
            read_at_ms=NOW_MS + 7,
        ),
    )
    assert (names(inbox, other), inbox.unread(other, now_ms=NOW_MS)) == ([], 0)


def test_an_entry_does_not_say_its_text_in_a_log(inbox: Inbox) -> None:
    owner = somebody()
    put(inbox, owner, "secret")
    assert "<secret>" not in repr(inbox.page(owner, now_ms=NOW_MS, limit=1))


def test_a_repeat_changes_neither_the_entry_nor_the_count_even_once_it_was_read(inbox: Inbox) -> None:
    owner = somebody()
    entry = put(inbox, owner, "n")
    inbox.put(owner, notification_id="n", content="another text", created_at_ms=NOW_MS, now_ms=NOW_MS + 1)
    assert inbox.unread(owner, now_ms=NOW_MS) == 1
    before = inbox.page(owner, now_ms=NOW_MS, limit=9)
    assert [shown.content for shown in before.entries] == ['{"title":"<n>"}']
    assert inbox.mark_read(owner, [entry], now_ms=NOW_MS) == 1
    put(inbox, owner, "n")
    assert inbox.unread(owner, now_ms=NOW_MS) == 0


def test_pages_go_on_where_the_last_one_ended(inbox: Inbox) -> None:
    owner = somebody()
    entries = [put(inbox, owner, f"n{at}", at_ms=NOW_MS + at) for at in range(5)]
    first = inbox.page(owner, now_ms=NOW_MS + 9, limit=2)
    put(inbox, owner, "new", at_ms=NOW_MS + 8)
    second = inbox.page(owner, now_ms=NOW_MS + 9, limit=2, after=first.next)
    third = inbox.page(owner, now_ms=NOW_MS + 9, limit=2, after=second.next)
    shown = [[entry.entry for entry in page.entries] for page in (first, second, third)]
    assert shown == [[entries[4], entries[3]], [entries[2], entries[1]], [entries[0]]]
    assert third.next is None


def test_a_page_that_holds_just_what_is_left_is_the_last(inbox: Inbox) -> None:
    owner = somebody()
    entry = put(inbox, owner, "n")
    page = inbox.page(owner, now_ms=NOW_MS, limit=1)
    assert (len(page.entries), page.next) == (1, None)
    assert inbox.page(owner, now_ms=NOW_MS, limit=1, after=entry).entries == ()


def test_a_page_goes_on_after_an_entry_that_has_gone_meanwhile(inbox: Inbox) -> None:
    owner = somebody()
    put(inbox, owner, "n")
    for gone, left in ((inbox_entry(NOW_MS + 1, "never"), ["n"]), (inbox_entry(NOW_MS - 2 * KEPT_MS, "long"), [])):
        page = inbox.page(owner, now_ms=NOW_MS, limit=9, after=gone)
        assert ([entry.notification_id for entry in page.entries], page.next) == (left, None)


def test_a_page_of_many_large_entries_is_whole(inbox: Inbox) -> None:
    owner = somebody()
    for at in range(80):  # 1.2 MB: more than one answer of DynamoDB holds
        inbox.put(owner, notification_id=f"n{at}", content="x" * 15_000, created_at_ms=NOW_MS + at, now_ms=NOW_MS)
    page = inbox.page(owner, now_ms=NOW_MS, limit=79)
    assert [entry.notification_id for entry in page.entries] == [f"n{at}" for at in range(79, 0, -1)]
    assert page.next == inbox_entry(NOW_MS + 1, "n1")


# ---- What was read


def test_marking_counts_what_was_unread_and_nothing_else(inbox: Inbox) -> None:
    owner, other = somebody(), somebody()
    one, two, _ = (put(inbox, owner, name) for name in "abc")
    theirs = put(inbox, other, "theirs")
    assert inbox.mark_read(owner, [one], now_ms=NOW_MS) == 1
    nowhere = ["", COUNTER, "~", inbox_entry(NOW_MS, "never"), theirs]
    assert inbox.mark_read(owner, [two, one, two, *nowhere], now_ms=NOW_MS + 1) == 1
    assert inbox.mark_read(owner, [two, one, *nowhere], now_ms=NOW_MS + 2) == 0
    assert inbox.mark_read(owner, [], now_ms=NOW_MS + 2) == 0
    assert (inbox.unread(owner, now_ms=NOW_MS), inbox.unread(other, now_ms=NOW_MS)) == (1, 1)
    read = [entry.read_at_ms for entry in inbox.page(owner, now_ms=NOW_MS, limit=9).entries]
    assert read == [None, NOW_MS + 1, NOW_MS]


def test_more_than_one_transaction_holds_is_marked(rig: Rig) -> None:
    inbox, owner, size = rig.inbox, somebody(), 2 * BATCH + 1
    entries = [put(inbox, owner, f"n{at:03d}") for at in range(size)]
    assert inbox.mark_read(owner, entries[: BATCH + 1], now_ms=NOW_MS) == BATCH + 1
    assert inbox.unread(owner, now_ms=NOW_MS) == BATCH
    assert inbox.mark_all_read(owner, now_ms=NOW_MS) == BATCH
    assert inbox.mark_all_read(owner, now_ms=NOW_MS) == 0
    assert inbox.unread(owner, now_ms=NOW_MS) == 0
    assert rig.rows(owner) == dict.fromkeys(entries, True)
    put(inbox, owner, "new")
    assert inbox.unread(owner, now_ms=NOW_MS) == 1


# ---- What has expired


def test_an_entry_is_there_until_its_time_is_over(rig: Rig) -> None:
    inbox, owner = rig.inbox, somebody()
    first, _ = put(inbox, owner, "first"), put(inbox, owner, "second", at_ms=NOW_MS + 1)
    last_ms = NOW_MS + KEPT_MS - 1
    assert (names(inbox, owner, last_ms), inbox.unread(owner, now_ms=last_ms)) == (["second", "first"], 2)
    assert inbox.unread(owner, now_ms=last_ms + 1) == 1
    assert names(inbox, owner, last_ms + 1) == ["second"]
    assert inbox.mark_read(owner, [first], now_ms=last_ms + 1) == 0
    assert inbox.mark_all_read(owner, now_ms=last_ms + 2) == 0
    assert rig.rows(owner) == {}


@pytest.mark.parametrize("call", ["put", "page", "unread", "mark_read", "mark_all_read"])
def test_every_call_first_sweeps_what_has_expired_however_much_it_is(rig: Rig, call: str) -> None:
    inbox, owner = rig.inbox, somebody()
    entries = [put(inbox, owner, f"n{at:03d}") for at in range(BATCH + 2)]
    inbox.mark_read(owner, entries[::2], now_ms=NOW_MS)
    put(inbox, owner, "young", at_ms=NOW_MS + 1)
    now_ms = NOW_MS + KEPT_MS
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: put(inbox, owner, "young", at_ms=NOW_MS + 1, now_ms=now_ms),
        "page": lambda: inbox.page(owner, now_ms=now_ms, limit=1),
        "unread": lambda: inbox.unread(owner, now_ms=now_ms),
        "mark_read": lambda: inbox.mark_read(owner, entries, now_ms=now_ms),
        "mark_all_read": lambda: inbox.mark_all_read(owner, now_ms=now_ms),
    }
    calls[call]()
    assert rig.rows(owner) == {inbox_entry(NOW_MS + 1, "young"): call == "mark_all_read"}
    assert inbox.unread(owner, now_ms=now_ms) == (0 if call == "mark_all_read" else 1)


def test_what_is_put_after_its_time_is_there_for_nobody(rig: Rig) -> None:
    inbox, owner = rig.inbox, somebody()
    put(inbox, owner, "late", now_ms=NOW_MS + KEPT_MS)
    assert rig.rows(owner) == {}
    assert inbox.unread(owner, now_ms=NOW_MS + KEPT_MS) == 0
    put(inbox, owner, "just", now_ms=NOW_MS + KEPT_MS - 1)
    assert inbox.unread(owner, now_ms=NOW_MS + KEPT_MS - 1) == 1


@pytest.mark.parametrize("then", ["unread", "put"])
def test_rows_that_ttl_pruned_before_anybody_looked_are_not_counted(rig: Rig, then: str) -> None:
    inbox, owner = rig.inbox, somebody()
    for at in range(4):
        put(inbox, owner, f"n{at}", at_ms=NOW_MS + at * KEPT_MS // 4)
    now_ms = NOW_MS + 3 * KEPT_MS + KEPT_MS // 2
    rig.prune(owner, now_ms)  # the older half; the others are expired too
    assert len(rig.rows(owner)) == 1
    if then == "put":
        put(inbox, owner, "new", at_ms=now_ms)
    assert inbox.unread(owner, now_ms=now_ms) == (1 if then == "put" else 0)


def test_what_a_clock_ahead_put_is_counted_though_the_last_put_is_older(inbox: Inbox) -> None:
    owner = somebody()
    put(inbox, owner, "ahead", at_ms=NOW_MS + 5)
    put(inbox, owner, "behind")
    assert inbox.unread(owner, now_ms=NOW_MS + KEPT_MS) == 1


def test_ttl_prunes_nothing_that_anybody_could_see(rig: Rig) -> None:
    inbox, owner = rig.inbox, somebody()
    put(inbox, owner, "n")
    rig.prune(owner, NOW_MS + 3 * KEPT_MS - 1000)
    assert len(rig.rows(owner)) == 1
    rig.prune(owner, NOW_MS + 3 * KEPT_MS)
    assert len(rig.rows(owner)) == 0


# ---- What is erased


def test_what_is_erased_leaves_nothing_behind(rig: Rig) -> None:
    inbox, owner, other = rig.inbox, somebody(), somebody()
    entries = [put(inbox, owner, f"n{at:03d}") for at in range(BATCH + 2)]
    put(inbox, other, "theirs")
    inbox.mark_read(owner, entries[::2], now_ms=NOW_MS)
    for _ in range(2):
        inbox.erase(owner)
        assert rig.gone(owner)
        assert (names(inbox, owner), inbox.unread(owner, now_ms=NOW_MS)) == ([], 0)
    put(inbox, owner, "n000")
    assert (inbox.unread(owner, now_ms=NOW_MS), inbox.unread(other, now_ms=NOW_MS)) == (1, 1)


def test_what_is_erased_leaves_no_count_of_rows_that_ttl_pruned(rig: Rig) -> None:
    inbox, owner = rig.inbox, somebody()
    put(inbox, owner, "n")
    rig.prune(owner, NOW_MS + 3 * KEPT_MS)
    inbox.erase(owner)
    assert rig.gone(owner)


# ---- Any order of all of that

SPANS_MS = [1, KEPT_MS // 10, KEPT_MS // 2, KEPT_MS, 2 * KEPT_MS, 3 * KEPT_MS, 5 * KEPT_MS]
NAMES = st.integers(0, 7).map("n{}".format)
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(-2, 15)),  # so many tenths of the span old; a repeat keeps its age
    st.tuples(st.just("read"), st.lists(NAMES, max_size=4)),
    st.tuples(st.just("forward"), st.sampled_from(SPANS_MS)),
    st.tuples(st.sampled_from(["put new", "all", "prune", "look", "erase"])),
    # Clocks differ, but by no more than the span less what an entry may be ahead of its put.
    st.tuples(st.just("skew"), st.integers(0, 5)),
)


class Story:
    """Plays steps on an inbox, beside a plain model of what a recipient must see."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.owner = rig, somebody()
        self.high_ms, self.behind_ms = NOW_MS, 0
        self.created: dict[str, int] = {}
        self.there: dict[str, bool] = {}  # notification → whether it was read
        self._new = count(1)

    @property
    def now_ms(self) -> int:
        return self.high_ms - self.behind_ms

    def play(self, step: tuple[Any, ...]) -> None:
        inbox, owner = self.rig.inbox, self.owner
        match step:
            case ("put", str(name), int(tenths)):
                self.put(name, tenths)
            case ("put new",):
                self.put(f"new{next(self._new)}", 0)
            case ("read", [*said]):
                self.sweep()
                marked = {name for name in said if self.there.get(name) is False}
                entries = [inbox_entry(self.created.get(name, NOW_MS), name) for name in said]
                assert inbox.mark_read(owner, entries, now_ms=self.now_ms) == len(marked)
                self.there |= dict.fromkeys(marked, True)
            case ("all",):
                self.sweep()
                unread = [*self.there.values()].count(False)
                assert inbox.mark_all_read(owner, now_ms=self.now_ms) == unread
                self.there = dict.fromkeys(self.there, True)
            case ("forward", int(span_ms)):
                self.high_ms += span_ms
            case ("skew", int(tenths)):
                self.behind_ms = tenths * KEPT_MS // 10
            case ("prune",):
                self.rig.prune(owner, self.high_ms)
            case ("erase",):
                inbox.erase(owner)
                self.there.clear()
            case ("look",):
                self.look()
            case _:
                raise AssertionError(step)

    def put(self, name: str, tenths: int) -> None:
        self.sweep()
        created_ms = self.created.setdefault(name, self.now_ms - tenths * KEPT_MS // 10)
        put(self.rig.inbox, self.owner, name, at_ms=created_ms, now_ms=self.now_ms)
        if self.alive(name):
            self.there.setdefault(name, False)

    def alive(self, name: str) -> bool:
        return self.created[name] > self.now_ms - KEPT_MS

    def sweep(self) -> None:
        self.there = {name: read for name, read in self.there.items() if self.alive(name)}

    def look(self) -> None:
        """What the inbox says, what stands in its rows, and what must be."""
        self.sweep()
        unread = self.rig.inbox.unread(self.owner, now_ms=self.now_ms)
        page = self.rig.inbox.page(self.owner, now_ms=self.now_ms, limit=100)
        assert {entry.notification_id: entry.read_at_ms is not None for entry in page.entries} == self.there
        rows = {inbox_entry(self.created[name], name): read for name, read in self.there.items()}
        assert self.rig.rows(self.owner) == rows
        assert unread == [*rows.values()].count(False)


EXAMPLES = {"fake": 300, "moto": 60, "dynamodb": 20}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_is_what_is_unread_after_any_sequence(request: pytest.FixtureRequest, kind: str) -> None:
    rig = rig_of_kind(kind, request)

    @settings(max_examples=EXAMPLES[kind], deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STEPS, max_size=25))
    def play(steps: list[tuple[Any, ...]]) -> None:
        story = Story(rig)
        for step in [*steps, ("look",)]:
            story.play(step)

    play()


# ---- Several at once


@pytest.fixture(scope="module")
def table(aws: Any, make_table: Callable[[str], str]) -> str:
    return make_table("inbox")


def test_puts_and_marks_from_many_threads_end_in_the_exact_count(table: str) -> None:
    client = boto3.client("dynamodb")
    rig, owner = rig_of(client, table), somebody()
    keys = [inbox_entry(NOW_MS + at, f"n{at}") for at in range(30)]
    with ThreadPoolExecutor(8) as pool:
        twice = [at for at in range(30) for _ in range(2)]
        list(pool.map(lambda at: put(rig.inbox, owner, f"n{at}", at_ms=NOW_MS + at), twice))
        assert rig.inbox.unread(owner, now_ms=NOW_MS) == 30
        windows = [keys[at : at + 10] for at in range(0, 20, 2)]
        marking = pool.map(lambda some: rig.inbox.mark_read(owner, some, now_ms=NOW_MS), windows)
        more = pool.map(lambda at: put(rig.inbox, owner, f"m{at}", at_ms=NOW_MS + 100 + at), range(10))
        assert sum(marking) == 28
        list(more)
    assert rig.inbox.unread(owner, now_ms=NOW_MS) == 2 + 10
    assert [*rig.rows(owner).values()].count(False) == 12
    now_ms = NOW_MS + KEPT_MS + 50
    with ThreadPoolExecutor(4) as pool:  # each sweeps what the others do
        assert [*pool.map(lambda _: rig.inbox.unread(owner, now_ms=now_ms), range(8))][-1] == 10
    assert rig.inbox.unread(owner, now_ms=now_ms) == 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two workers on one inbox: ``mine``, whose transactions the other may come before."""

    client: Client
    mine: DynamoInbox
    other: Rig
    owner: Recipient
    pauses: list[float]


@pytest.fixture
def race(table: str) -> Race:
    plain = boto3.client("dynamodb")
    client, pauses = Client(plain), list[float]()
    return Race(
        client=client,
        mine=an_inbox(client, table, pauses),
        other=rig_of(plain, table),
        owner=somebody(),
        pauses=pauses,
    )


def test_what_two_mark_at_once_is_counted_once(race: Race) -> None:
    entries = [put(race.mine, race.owner, name) for name in "abc"]
    race.client.before = lambda: race.other.inbox.mark_read(race.owner, entries[:2], now_ms=NOW_MS)
    assert race.mine.mark_read(race.owner, entries, now_ms=NOW_MS) == 1
    assert race.mine.unread(race.owner, now_ms=NOW_MS) == 0


def test_what_is_marked_while_it_is_swept_is_counted_once(race: Race) -> None:
    entry = put(race.mine, race.owner, "n")
    race.client.before = lambda: race.other.inbox.mark_read(race.owner, [entry], now_ms=NOW_MS)
    assert race.mine.unread(race.owner, now_ms=NOW_MS + KEPT_MS) == 0
    assert race.other.rows(race.owner) == {}
    put(race.mine, race.owner, "next", at_ms=NOW_MS + KEPT_MS)
    assert race.mine.unread(race.owner, now_ms=NOW_MS + KEPT_MS) == 1


def test_what_two_sweep_at_once_is_counted_once(race: Race) -> None:
    put(race.mine, race.owner, "n")
    young = NOW_MS + KEPT_MS
    put(race.mine, race.owner, "young", at_ms=young - 1)
    race.client.before = lambda: race.other.inbox.unread(race.owner, now_ms=young)
    assert race.mine.unread(race.owner, now_ms=young) == 1


def test_what_is_put_while_the_count_of_pruned_rows_is_undone_is_counted(race: Race) -> None:
    put(race.mine, race.owner, "n")
    now_ms = NOW_MS + 3 * KEPT_MS
    race.other.prune(race.owner, now_ms)
    race.client.before = lambda: put(race.other.inbox, race.owner, "new", at_ms=now_ms)
    assert race.mine.unread(race.owner, now_ms=now_ms) == 1


def test_what_is_put_while_all_is_erased_is_erased_or_counted(race: Race) -> None:
    put(race.mine, race.owner, "n")
    race.mine.mark_all_read(race.owner, now_ms=NOW_MS)

    def meanwhile() -> None:  # the entry is removed next; then its counter
        race.client.before = lambda: put(race.other.inbox, race.owner, "new", at_ms=NOW_MS + 1)

    race.client.before = meanwhile
    race.mine.erase(race.owner)
    assert race.other.gone(race.owner)


def test_a_put_of_which_one_half_is_seen_is_counted(race: Race) -> None:
    put(race.mine, race.owner, "n")
    race.client.halves = 2
    assert race.mine.unread(race.owner, now_ms=NOW_MS) == 1
    race.client.halves = 0
    assert race.mine.unread(race.owner, now_ms=NOW_MS) == 1


def test_a_put_of_which_one_half_is_seen_is_waited_for_and_erased(race: Race) -> None:
    put(race.mine, race.owner, "n")
    race.client.halves = 3
    race.mine.erase(race.owner)
    assert race.other.gone(race.owner)
    assert len(race.pauses) == 3


def test_a_transaction_that_meets_another_is_tried_again_after_a_while(race: Race) -> None:
    race.client.cancelled = [["None", "TransactionConflict"], ["ThrottlingError", "None"]]
    put(race.mine, race.owner, "n")
    assert race.mine.unread(race.owner, now_ms=NOW_MS) == 1
    assert (len(race.pauses), race.pauses[0] < race.pauses[1]) == (2, True)


def test_a_refusal_beside_a_conflict_is_final_for_its_own_entry_alone(race: Race) -> None:
    gone, there = inbox_entry(NOW_MS, "gone"), put(race.mine, race.owner, "there")
    race.client.cancelled = [["ConditionalCheckFailed", "TransactionConflict", "None"]]
    assert race.mine.mark_read(race.owner, [gone, there], now_ms=NOW_MS) == 1
    assert race.mine.unread(race.owner, now_ms=NOW_MS) == 0


def test_an_inbox_that_nobody_gets_through_to_is_unavailable_and_unchanged(race: Race) -> None:
    race.client.cancelled = [["TransactionConflict", "None"]] * TRIES
    with pytest.raises(StoreUnavailable, match="conflict"):
        put(race.mine, race.owner, "n")
    assert race.client.transactions == TRIES
    assert race.other.gone(race.owner)


def test_a_table_that_does_not_answer_is_unavailable(aws: Any) -> None:
    nowhere = an_inbox(boto3.client("dynamodb"), "no-such-table")
    for call in (
        lambda: put(nowhere, somebody(), "n"),
        lambda: nowhere.unread(somebody(), now_ms=NOW_MS),
        lambda: nowhere.erase(somebody()),
    ):
        with pytest.raises(StoreUnavailable):
            call()
