"""What every ``JobStore`` does: one suite for the fake that the unit tests build on, and for two DynamoDBs."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

import pytest

from builders import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    NOW_MS,
    PHONE,
    TABLET,
    a_claimed_job,
    a_dead_job,
    a_hinted_lead,
    a_job,
    a_job_id,
    a_lead,
    deliveries,
)
from fakes import FakeJobStore, fixed_dice
from pushlease.aws import clients
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.rows import due_lane, lane_of, row_of
from pushlease.aws.statements import Statements
from pushlease.codes import Code
from pushlease.jobs import burial, settle
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status
from pushlease.jobs.lifecycle import TRANSITIONS, Event
from pushlease.jobs.ports import Broken, Claimed, Ended, Exhausted, JobStore, Lead, LostRace
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Failed, Policy, Sent, Settlement

LANES = 16
LEASE = timedelta(seconds=120)
LEASED_UNTIL_MS = NOW_MS + 120_000
POLICY = Policy(retry=RetryPolicy(schedule=listed([timedelta(seconds=30)])), lease=LEASE, grace=timedelta(seconds=180))
SIGHT = Sight(sent_at_ms=NOW_MS, message_id="m1")


class Bench(Protocol):
    """A store, and what a test must see or do behind its back."""

    @property
    def store(self) -> JobStore: ...

    def put(self, job: Job) -> Job:
        """Make the row be so, whatever it was."""
        ...

    def lanes(self, job_id: JobId) -> list[str]:
        """The lanes of the index in which the row stands."""
        ...

    def ttl_s(self, job_id: JobId) -> int | None: ...

    def spoil(self, job_id: JobId) -> None:
        """Make the row unreadable."""
        ...

    def mend(self, job: Job) -> None:
        """Put a row that was spoiled right."""
        ...


class FakeBench:
    def __init__(self) -> None:
        self.store = FakeJobStore(lanes=LANES)

    def put(self, job: Job) -> Job:
        self.store.rows[job.job_id] = job
        return job

    def ttl_s(self, job_id: JobId) -> int | None:
        return self.store.ttl_s.get(job_id)

    def spoil(self, job_id: JobId) -> None:
        self.store.broken[job_id] = "user_id: missing"

    def mend(self, job: Job) -> None:
        del self.store.broken[job.job_id]

    def lanes(self, job_id: JobId) -> list[str]:
        lane = self.store.lane(job_id)
        return [lane] if lane else []


class DynamoBench:
    def __init__(self, client: Any, table: str) -> None:
        self.client = client
        self.table = table
        statements = Statements(
            client=self.client,
            table=table,
            new_id=lambda: uuid.uuid4().hex,
            clock=lambda: NOW_MS,
            pause=lambda _: None,
            dice=fixed_dice(),
        )
        self.store = DynamoJobStore(statements=statements, lanes=LANES, by_recipient=True)

    def put(self, job: Job) -> Job:
        self.client.put_item(TableName=self.table, Item=item_of(job))
        return job

    def item(self, job_id: JobId) -> dict[str, Any]:
        return dict(
            self.client.get_item(TableName=self.table, Key={"job_id": {"S": job_id}}, ConsistentRead=True)["Item"]
        )

    def ttl_s(self, job_id: JobId) -> int | None:
        ttl = self.item(job_id).get("ttl")
        return int(ttl["N"]) if ttl else None

    def lanes(self, job_id: JobId) -> list[str]:
        rows = self.client.scan(TableName=self.table, IndexName="due")["Items"]
        return [row["lane"]["S"] for row in rows if row["job_id"]["S"] == job_id]

    def spoil(self, job_id: JobId) -> None:
        item = self.item(job_id)
        del item["user_id"]
        self.client.put_item(TableName=self.table, Item=item)

    def mend(self, job: Job) -> None:
        self.put(job)


def item_of(job: Job) -> dict[str, Any]:
    """A row at any point of its life, as the store's own writes would have made it."""
    item = row_of(job, lanes=LANES, ttl_s=None)
    later: dict[str, Any] = {
        "claim_id": job.claim_id and {"S": job.claim_id},
        "alone": job.alone and {"BOOL": True},
        "sent_late": job.sent_late and {"SS": sorted(job.sent_late)},
        "last_error": job.last_error and {"S": job.last_error},
        "redrives": job.redrives and {"N": str(job.redrives)},
        "died_at": job.died_at_ms and {"N": str(job.died_at_ms)},
        "sights": job.sights
        and {
            "M": {
                nonce: {"M": {"sent_at": {"N": str(sight.sent_at_ms)}, "message_id": {"S": sight.message_id}}}
                for nonce, sight in job.sights.items()
            }
        },
    }
    return item | {name: value for name, value in later.items() if value}


@pytest.fixture(params=["fake", "dynamodb", "moto"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "fake":
        return FakeBench()
    bench: Bench = request.getfixturevalue(f"{request.param}_bench")
    return bench


@pytest.fixture(scope="module")
def dynamodb_bench(make_table: Callable[[str], str]) -> DynamoBench:
    """One table for all tests: each has jobs of its own."""
    return DynamoBench(clients.dynamodb(), make_table("jobs"))


@pytest.fixture(scope="module")
def moto_bench(moto: Any) -> DynamoBench:
    return DynamoBench(moto.client, moto.make_table("jobs"))


def row(bench: Bench, job: Job) -> Job:
    return bench.store.get([job.job_id])[job.job_id]


def remains(bench: Bench, job: Job) -> Job:
    """The row, even one that cannot be read."""
    found = bench.store.remains(job.job_id)
    assert found is not None
    return found


def settled(job: Job, **results: settle.Result) -> Settlement:
    named = {DeliveryId(name): result for name, result in results.items()}
    return settle.settle(job, named, now_ms=NOW_MS, dice=fixed_dice(), policy=POLICY)


def released(job: Job, *, alone: bool = False) -> Settlement:
    return settle.release(job, until_ms=NOW_MS, alone=alone, now_ms=NOW_MS, policy=POLICY)


def claim(bench: Bench, job: Job) -> Job:
    answer = bench.store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)[0]
    assert isinstance(answer, Claimed)
    return answer.job


# ---- The table of transitions


def at(status: Status) -> Job:
    """A job that was claimed once: still in hand while pending, ended otherwise."""
    match status:
        case Status.PENDING:
            return a_claimed_job()
        case Status.DEAD:
            return a_dead_job(due_at_ms=NOW_MS)
        case Status.DONE:
            served = {PHONE: Delivery(status=DeliveryStatus.SENT, attempts=1)}
            return a_claimed_job(status=status, settled_seq=1, deliveries=served)
        case Status.CANCELLED:
            left = {PHONE: Delivery(status=DeliveryStatus.CANCELLED)}
            return a_claimed_job(status=status, settled_seq=1, deliveries=left)


def _record_late(store: JobStore, job: Job) -> bool:
    store.record_late(job.job_id, [PHONE])
    return PHONE in store.get([job.job_id])[job.job_id].sent_late


WRITES: Mapping[Event, Callable[[JobStore, Job], bool]] = {
    Event.CLAIM: lambda store, job: isinstance(store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)[0], Claimed),
    Event.SETTLE: lambda store, job: store.settle([settled(job, phone=Sent())]) == [Ended.WRITTEN],
    Event.RELEASE: lambda store, job: store.settle([released(job)]) == [Ended.WRITTEN],
    Event.RECORD_LATE: _record_late,
    Event.EXHAUST: lambda store, job: store.exhaust(job, settle.exhausted(job, now_ms=NOW_MS, policy=POLICY)),
    Event.CONDEMN: lambda store, job: store.condemn(job.job_id, due_at_ms=NOW_MS, now_ms=NOW_MS, why="x") is not None,
    Event.CANCEL: lambda store, job: store.cancel([job.job_id], now_ms=NOW_MS)[0],
    Event.SIGHT: lambda store, job: store.sight(
        job.job_id, redrives=job.redrives, nonce="a", sight=SIGHT, due_at_ms=NOW_MS + DAY_MS
    ),
    Event.REBURY: lambda store, job: store.rebury(a_lead(job), due_at_ms=NOW_MS + DAY_MS) is not None,
    Event.REVIVE: lambda store, job: store.revive(
        burial.revival_of(job, now_ms=NOW_MS, dice=fixed_dice(), spread=timedelta(0))
    ),
}


def test_every_write_of_the_lifecycle_is_tried() -> None:
    assert set(WRITES) | {Event.INSERT} == set(TRANSITIONS)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("event", WRITES)
def test_a_write_happens_in_just_the_statuses_that_the_lifecycle_allows(
    bench: Bench, event: Event, status: Status
) -> None:
    job = bench.put(at(status))
    if event is Event.CONDEMN:  # for what cannot be read, and nothing else
        bench.spoil(job.job_id)
    before = remains(bench, job)

    happened = WRITES[event](bench.store, job)

    after = remains(bench, job)
    assert happened == (status in TRANSITIONS[event].before)
    if not happened:
        assert after == before
    elif event is not Event.RECORD_LATE:
        assert after.status in TRANSITIONS[event].after
        assert bench.lanes(job.job_id) == [lane for lane in [lane_of(job.job_id, after.status, lanes=LANES)] if lane]
        if after.status is Status.PENDING:
            assert bench.ttl_s(job.job_id) is None
        elif status is not after.status:
            assert (bench.ttl_s(job.job_id) or 0) * 1000 > NOW_MS + 6 * DAY_MS


@pytest.mark.parametrize("event", WRITES)
def test_no_write_makes_a_row_that_is_not_there(bench: Bench, event: Event) -> None:
    job = at(Status.PENDING)
    if event is Event.RECORD_LATE:
        bench.store.record_late(job.job_id, [PHONE])
    else:
        assert not WRITES[event](bench.store, job)
    assert bench.store.get([job.job_id]) == {}


# ---- Insert and get


def test_an_inserted_job_is_read_as_it_was(bench: Bench) -> None:
    job = a_job(deliveries=deliveries("phone", "tablet"), channel="news", history=("1 a", "2 b"))
    assert bench.store.insert([job]) == [None]
    assert row(bench, job) == job
    assert bench.lanes(job.job_id) == [lane_of(job.job_id, Status.PENDING, lanes=LANES)]
    assert bench.ttl_s(job.job_id) is None


def test_a_job_with_nothing_to_send_is_inserted_done_outside_the_index(bench: Bench) -> None:
    skipped = {PHONE: Delivery(status=DeliveryStatus.SKIPPED, code="unconfigured")}
    job = a_job(status=Status.DONE, deliveries=skipped)
    bench.store.insert([job])
    assert row(bench, job) == job
    assert bench.lanes(job.job_id) == []
    assert bench.ttl_s(job.job_id) == (job.created_at_ms + 7 * DAY_MS) // 1000


def test_inserting_again_answers_with_the_row_that_is_there_and_changes_nothing(bench: Bench) -> None:
    first, other = a_job(fingerprint="first"), a_job()
    bench.store.insert([first])
    claimed = claim(bench, first)
    assert bench.store.insert([replace(first, fingerprint="second"), other]) == [claimed, None]
    assert row(bench, first) == claimed


def test_more_jobs_than_one_batch_holds_are_inserted_and_read(bench: Bench) -> None:
    jobs = [a_job() for _ in range(60)]
    bench.store.insert(jobs[10:12])
    assert bench.store.insert(jobs) == [job if 10 <= at_ < 12 else None for at_, job in enumerate(jobs)]
    assert bench.store.get([job.job_id for job in jobs]) == {job.job_id: job for job in jobs}


def test_an_unknown_job_is_not_found(bench: Bench) -> None:
    assert bench.store.get([a_job_id()]) == {}
    assert bench.store.remains(a_job_id()) is None


# ---- Claim


def test_a_claim_counts_the_attempt_and_takes_the_lease(bench: Bench) -> None:
    job = bench.put(a_job())
    claimed = claim(bench, job)
    assert (claimed.attempts, claimed.claim_seq, claimed.settled_seq) == (1, 1, 0)
    assert claimed.due_at_ms == LEASED_UNTIL_MS
    assert row(bench, job) == claimed


def test_a_first_claim_from_a_hint_leaves_the_forward_dated_due_at_alone(bench: Bench) -> None:
    job = bench.put(a_job(due_at_ms=LEASED_UNTIL_MS + 1))
    answer = bench.store.claim([a_hinted_lead(job)], now_ms=NOW_MS, lease=LEASE)[0]
    assert isinstance(answer, Claimed)
    assert answer.job.due_at_ms == LEASED_UNTIL_MS + 1


@pytest.mark.parametrize(
    "stale",
    [{"due_at_ms": NOW_MS - 1}, {"due_at_ms": NOW_MS + 1}, {"claim_seq": 1}, {"claim_seq": 1, "due_at_ms": NOW_MS - 1}],
)
def test_a_lead_that_no_longer_describes_the_row_claims_nothing(bench: Bench, stale: dict[str, int]) -> None:
    job = bench.put(a_job(claim_seq=2, settled_seq=2))
    answer = bench.store.claim([a_lead(job, **stale)], now_ms=NOW_MS, lease=LEASE)
    assert answer == [LostRace(job_id=job.job_id)]
    assert row(bench, job) == job


@pytest.mark.parametrize("stale", [{"due_at_ms": LEASED_UNTIL_MS}, {"due_at_ms": NOW_MS}, {"claim_seq": 1}])
def test_a_hint_claims_only_if_both_its_claim_seq_and_its_due_at_are_the_rows(
    bench: Bench, stale: dict[str, int]
) -> None:
    job = bench.put(a_job(claim_seq=2, settled_seq=2, due_at_ms=LEASED_UNTIL_MS + 1))
    answer = bench.store.claim([a_hinted_lead(job, **stale)], now_ms=NOW_MS, lease=LEASE)
    assert answer == [LostRace(job_id=job.job_id)]
    assert row(bench, job) == job


def test_without_a_hint_a_lease_that_still_runs_is_not_taken(bench: Bench) -> None:
    job = bench.put(a_claimed_job(due_at_ms=NOW_MS + 1))
    assert bench.store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]
    spent = bench.put(a_claimed_job(due_at_ms=NOW_MS + 1, attempts=5))
    assert bench.store.claim([a_lead(spent)], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=spent.job_id)]


def test_one_lead_claims_once(bench: Bench) -> None:
    job = bench.put(a_job())
    claim(bench, job)
    for lead in (a_lead(job), a_hinted_lead(job)):
        assert bench.store.claim([lead], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]


def test_claims_are_answered_in_order_over_several_batches(bench: Bench) -> None:
    jobs = [bench.put(a_job(due_at_ms=NOW_MS - at_)) for at_ in range(60)]
    leads = [a_lead(job, due_at_ms=1) if at_ % 7 == 0 else a_lead(job) for at_, job in enumerate(jobs)]
    answers = bench.store.claim(leads, now_ms=NOW_MS, lease=LEASE)
    assert [type(answer) for answer in answers] == [LostRace if at_ % 7 == 0 else Claimed for at_ in range(60)]
    assert [answer.job.job_id for answer in answers if isinstance(answer, Claimed)] == [
        job.job_id for at_, job in enumerate(jobs) if at_ % 7
    ]


def test_a_job_without_attempts_left_is_exhausted_not_claimed(bench: Bench) -> None:
    job = bench.put(a_job(attempts=5, claim_seq=5, settled_seq=3))
    assert bench.store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [Exhausted(job=job)]
    assert row(bench, job) == job


def test_a_late_hint_does_not_exhaust_a_job_in_its_last_attempt(bench: Bench) -> None:
    hint = a_hinted_lead(job := bench.put(a_job(max_attempts=1, due_at_ms=LEASED_UNTIL_MS + 1)))
    assert isinstance(bench.store.claim([hint], now_ms=NOW_MS, lease=LEASE)[0], Claimed)
    assert bench.store.claim([hint], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]


def test_a_row_that_cannot_be_read_is_broken_then_condemned_and_listed_among_the_dead(bench: Bench) -> None:
    job, sound = bench.put(a_job()), bench.put(a_job())
    bench.spoil(job.job_id)

    broken, claimed = bench.store.claim([a_lead(job), a_lead(sound)], now_ms=NOW_MS, lease=LEASE)
    assert isinstance(broken, Broken)
    assert isinstance(claimed, Claimed)

    remains = bench.store.condemn(job.job_id, due_at_ms=NOW_MS + MINUTE_MS, now_ms=NOW_MS, why=broken.why)
    assert remains is not None
    assert (remains.status, remains.app_id, remains.died_at_ms) == (Status.DEAD, "shop", NOW_MS)
    assert remains.last_error is not None
    assert remains.last_error.startswith("unreadable: ")
    assert bench.lanes(job.job_id) == [lane_of(job.job_id, Status.DEAD, lanes=LANES)]
    assert (bench.ttl_s(job.job_id) or 0) == NOW_MS // 1000 + 30 * 86_400
    assert bench.store.get([job.job_id]) == {}
    assert bench.store.condemn(job.job_id, due_at_ms=NOW_MS, now_ms=NOW_MS, why="x") is None


def test_a_condemned_row_can_be_seen_and_buried_again(bench: Bench) -> None:
    job = bench.put(a_job())
    bench.spoil(job.job_id)
    bench.store.condemn(job.job_id, due_at_ms=NOW_MS, now_ms=NOW_MS, why="x")
    assert bench.store.sight(job.job_id, redrives=0, nonce="a", sight=SIGHT, due_at_ms=NOW_MS + 5)
    remains = bench.store.remains(job.job_id)
    assert remains is not None
    assert (remains.status, remains.sights, remains.deliveries) == (Status.DEAD, {"a": SIGHT}, {})
    again = bench.store.rebury(a_lead(job, due_at_ms=NOW_MS + 5), due_at_ms=NOW_MS + 9)
    assert again is not None
    assert again.last_error == "unreadable: x"


def test_a_zombie_cannot_settle_what_was_condemned_meanwhile(bench: Bench) -> None:
    job = claim(bench, bench.put(a_job()))
    bench.spoil(job.job_id)
    bench.store.condemn(job.job_id, due_at_ms=NOW_MS, now_ms=NOW_MS, why="x")
    assert bench.store.settle([settled(job, phone=Sent())]) == [Ended.LEASE_LOST]
    assert remains(bench, job).status is Status.DEAD


def test_a_row_that_was_mended_since_it_was_judged_is_not_condemned(bench: Bench) -> None:
    job = bench.put(a_job())
    bench.spoil(job.job_id)
    (broken,) = bench.store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)
    assert isinstance(broken, Broken)
    bench.mend(job)
    assert bench.store.condemn(job.job_id, due_at_ms=NOW_MS, now_ms=NOW_MS, why=broken.why) is None
    assert row(bench, job) == job


# ---- Settle and release


def test_a_success_ends_the_job(bench: Bench) -> None:
    job = claim(bench, bench.put(a_job()))
    assert bench.store.settle([settled(job, phone=Sent(provider_id="p1"))]) == [Ended.WRITTEN]
    after = row(bench, job)
    assert (after.status, after.settled_seq, after.claim_seq) == (Status.DONE, 1, 1)
    assert after.deliveries == {
        PHONE: Delivery(status=DeliveryStatus.SENT, attempts=1, provider_id="p1", sent_at_ms=NOW_MS)
    }
    assert bench.lanes(job.job_id) == []
    assert bench.ttl_s(job.job_id) == (NOW_MS + 7 * DAY_MS) // 1000


def test_a_failure_leaves_the_job_pending_with_what_the_settlement_says(bench: Bench) -> None:
    job = claim(bench, bench.put(a_job(deliveries=deliveries("phone", "tablet"))))
    end = settled(job, phone=Failed(code=Code.NETWORK_ERROR, reason="timeout"), tablet=Sent())
    assert bench.store.settle([end]) == [Ended.WRITTEN]
    after = row(bench, job)
    assert (after.status, after.attempts, after.due_at_ms) == (Status.PENDING, 1, NOW_MS + 30_000 + 180_000)
    assert after.deliveries == end.deliveries
    assert after.last_error == "network_error: timeout"
    assert after.history == end.history
    assert bench.ttl_s(job.job_id) is None


def test_a_release_gives_the_attempt_back_and_keeps_the_fence(bench: Bench) -> None:
    job = claim(bench, bench.put(a_job()))
    assert bench.store.settle([released(job, alone=True)]) == [Ended.WRITTEN]
    after = row(bench, job)
    assert (after.attempts, after.claim_seq, after.settled_seq, after.alone) == (0, 1, 1, True)
    assert after.due_at_ms == NOW_MS
    again = claim(bench, after)
    assert (again.alone, again.claim_seq, again.crashed_claims) == (True, 2, 0)
    bench.store.settle([settled(again, phone=Failed(code=Code.NETWORK_ERROR))])
    assert not row(bench, job).alone


def test_a_second_settle_of_one_claim_is_refused(bench: Bench) -> None:
    job = claim(bench, bench.put(a_job()))
    bench.store.settle([released(job)])
    assert bench.store.settle([settled(job, phone=Sent())]) == [Ended.LEASE_LOST]
    assert row(bench, job).status is Status.PENDING


def test_a_settle_is_refused_once_somebody_else_has_claimed(bench: Bench) -> None:
    mine = claim(bench, bench.put(a_job()))
    later = NOW_MS + HOUR_MS
    answer = bench.store.claim([a_lead(mine)], now_ms=later, lease=LEASE)[0]
    assert isinstance(answer, Claimed)
    assert answer.job.crashed_claims == 1
    assert bench.store.settle([settled(mine, phone=Sent())]) == [Ended.LEASE_LOST]
    assert row(bench, mine) == answer.job


@pytest.mark.parametrize("event", [Event.CANCEL, Event.EXHAUST])
def test_a_settle_is_refused_after_the_job_was_ended_by_somebody_else(bench: Bench, event: Event) -> None:
    job = claim(bench, bench.put(a_job()))
    assert WRITES[event](bench.store, job)
    before = row(bench, job)
    assert bench.store.settle([settled(job, phone=Sent())]) == [Ended.LEASE_LOST]
    assert row(bench, job) == before


def test_settlements_are_answered_in_order_over_several_batches(bench: Bench) -> None:
    jobs = [bench.put(a_claimed_job()) for _ in range(60)]
    bench.store.cancel([job.job_id for job in jobs[::7]], now_ms=NOW_MS)
    ends = bench.store.settle([settled(job, phone=Sent()) for job in jobs])
    assert ends == [Ended.LEASE_LOST if at_ % 7 == 0 else Ended.WRITTEN for at_ in range(60)]


def test_what_was_sent_under_a_lost_lease_is_never_sent_again(bench: Bench) -> None:
    job = bench.put(a_claimed_job(deliveries=deliveries("phone", "tablet"), due_at_ms=NOW_MS))
    bench.store.record_late(job.job_id, [PHONE])
    bench.store.record_late(job.job_id, [PHONE])
    claimed = claim(bench, job)
    assert set(claimed.open_deliveries) == {TABLET}
    assert claimed.deliveries[PHONE].status is DeliveryStatus.SENT
    # Another's settlement, made from what it read before, changes nothing about that.
    bench.store.settle([settled(replace(claimed, deliveries=job.deliveries), tablet=Sent())])
    assert row(bench, job).deliveries[PHONE].status is DeliveryStatus.SENT
    assert row(bench, job).open_deliveries == {}


# ---- Exhaust


@pytest.mark.parametrize("meanwhile", [{"due_at_ms": NOW_MS + 1}, {"claim_seq": 6}, {"settled_seq": 5}])
def test_a_job_is_not_exhausted_if_it_has_changed(bench: Bench, meanwhile: dict[str, int]) -> None:
    seen = a_job(attempts=5, claim_seq=5, settled_seq=4)
    bench.put(replace(seen, **meanwhile))  # type: ignore[arg-type]
    assert not bench.store.exhaust(seen, settle.exhausted(seen, now_ms=NOW_MS, policy=POLICY))


def test_an_exhausted_job_is_dead_and_its_claims_are_closed(bench: Bench) -> None:
    job = bench.put(a_job(attempts=5, claim_seq=5, settled_seq=0, alone=True))
    assert bench.store.exhaust(job, settle.exhausted(job, now_ms=NOW_MS, policy=POLICY))
    after = row(bench, job)
    assert (after.status, after.settled_seq, after.claim_seq, after.alone) == (Status.DEAD, 5, 5, False)
    assert after.deliveries[PHONE] == Delivery(status=DeliveryStatus.FAILED, attempts=5, code="lost")
    assert (after.died_at_ms, after.due_at_ms) == (NOW_MS, NOW_MS + 5 * MINUTE_MS)
    assert bench.ttl_s(job.job_id) == (NOW_MS + 30 * DAY_MS) // 1000


# ---- Cancel


def test_a_cancel_leaves_what_was_sent_and_withdraws_the_rest(bench: Bench) -> None:
    parts = {
        PHONE: Delivery(status=DeliveryStatus.SENT, attempts=1, sent_at_ms=1),
        TABLET: Delivery(attempts=1, code="network_error", due_at_ms=NOW_MS),
    }
    job = bench.put(a_claimed_job(deliveries=parts, alone=True))
    assert bench.store.cancel([job.job_id], now_ms=NOW_MS) == [True]
    after = row(bench, job)
    assert (after.status, after.settled_seq, after.alone) == (Status.CANCELLED, 1, False)
    assert after.deliveries == {
        PHONE: parts[PHONE],
        TABLET: Delivery(status=DeliveryStatus.CANCELLED, attempts=1, code="network_error"),
    }
    assert bench.lanes(job.job_id) == []


def test_a_cancelled_job_is_neither_claimed_nor_revived(bench: Bench) -> None:
    job = bench.put(a_dead_job(due_at_ms=NOW_MS))
    revival = burial.revival_of(job, now_ms=NOW_MS, dice=fixed_dice(), spread=timedelta(0))
    bench.store.cancel([job.job_id], now_ms=NOW_MS)
    assert not bench.store.revive(revival)
    assert bench.store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]


def test_cancels_are_answered_in_order(bench: Bench) -> None:
    pending, done = bench.put(a_job()), bench.put(at(Status.DONE))
    assert bench.store.cancel([a_job_id(), pending.job_id, done.job_id], now_ms=NOW_MS) == [False, True, False]


# ---- The index


def test_a_lane_lists_what_is_due_oldest_first_page_by_page(bench: Bench) -> None:
    lane = due_lane(3)
    jobs = [a_job(job_id=JobId(f"{3:08x}{at_:032x}"), due_at_ms=NOW_MS - at_ % 5) for at_ in range(12)]
    for job in [*jobs, a_job(job_id=JobId(f"{3:08x}{99:032x}"), due_at_ms=NOW_MS + 1)]:
        bench.put(job)
    found: list[Lead] = []
    after: Lead | None = None
    while page := bench.store.due(lane, now_ms=NOW_MS, limit=5, after=after):
        assert len(page) <= 5
        found += page
        after = page[-1]
    assert [lead.due_at_ms for lead in found] == sorted(lead.due_at_ms for lead in found)
    mine = [lead.job_id for lead in found if lead.job_id.startswith(f"{3:08x}")]
    assert sorted(mine) == sorted(job.job_id for job in jobs)


def test_a_lead_of_the_index_claims(bench: Bench) -> None:
    job = bench.put(a_job())
    page = bench.store.due(lane_of(job.job_id, job.status, lanes=LANES) or "", now_ms=NOW_MS, limit=999)
    (lead,) = [lead for lead in page if lead.job_id == job.job_id]
    assert isinstance(bench.store.claim([lead], now_ms=NOW_MS, lease=LEASE)[0], Claimed)


# ---- Burial and redrive


def test_sights_are_kept_by_nonce_and_move_the_burial_check(bench: Bench) -> None:
    job = bench.put(a_dead_job(redrives=2))
    other = Sight(sent_at_ms=5, message_id="m2")
    assert bench.store.sight(job.job_id, redrives=2, nonce="a", sight=SIGHT, due_at_ms=NOW_MS + 1)
    assert bench.store.sight(job.job_id, redrives=2, nonce="b", sight=other, due_at_ms=NOW_MS + 2)
    after = row(bench, job)
    assert (after.sights, after.due_at_ms) == ({"a": SIGHT, "b": other}, NOW_MS + 2)


@pytest.mark.parametrize("redrives", [0, 1, 3])
def test_a_letter_of_another_death_is_not_recorded(bench: Bench, redrives: int) -> None:
    job = bench.put(a_dead_job(redrives=2))
    assert not bench.store.sight(job.job_id, redrives=redrives, nonce="a", sight=SIGHT, due_at_ms=NOW_MS + 1)
    assert row(bench, job) == job


def test_a_dead_job_is_reburied_once_for_one_lead(bench: Bench) -> None:
    job = bench.put(a_dead_job(due_at_ms=NOW_MS))
    again = bench.store.rebury(a_lead(job), due_at_ms=NOW_MS + 5)
    assert again is not None
    assert again == replace(job, due_at_ms=NOW_MS + 5, claim_id=again.claim_id)
    assert bench.store.rebury(a_lead(job), due_at_ms=NOW_MS + 6) is None


def test_a_revival_gives_a_fresh_budget_under_the_old_fence(bench: Bench) -> None:
    job = bench.put(
        a_dead_job(
            claim_seq=7, settled_seq=7, attempts=5, sights={"a": SIGHT}, redrives=1, alone=True, history=("1 a",)
        )
    )
    revival = burial.revival_of(job, now_ms=NOW_MS, dice=fixed_dice(0.0), spread=timedelta(seconds=5))
    assert bench.store.revive(revival)
    after = row(bench, job)
    assert (after.status, after.attempts, after.redrives) == (Status.PENDING, 0, 2)
    assert (after.claim_seq, after.settled_seq) == (7, 7)
    assert (after.sights, after.alone, after.died_at_ms) == ({}, False, None)
    assert after.deliveries == {PHONE: Delivery()}
    assert after.expires_at_ms == revival.expires_at_ms
    assert bench.ttl_s(job.job_id) is None
    assert claim(bench, after).claim_seq == 8


@pytest.mark.parametrize("redrives", [0, 1, 3])
def test_a_revival_of_another_death_is_refused(bench: Bench, redrives: int) -> None:
    job = bench.put(a_dead_job(redrives=2))
    revival = burial.revival_of(job, now_ms=NOW_MS, dice=fixed_dice(), spread=timedelta(0))
    assert not bench.store.revive(replace(revival, redrives=redrives))
    assert row(bench, job) == job


def test_one_death_revives_once(bench: Bench) -> None:
    job = bench.put(a_dead_job(due_at_ms=NOW_MS))
    revival = burial.revival_of(job, now_ms=NOW_MS, dice=fixed_dice(0.0), spread=timedelta(0))
    assert bench.store.revive(revival)
    assert not bench.store.revive(revival)
    again = claim(bench, row(bench, job))
    bench.store.settle([settled(again, phone=Failed(code=Code.REJECTED))])
    assert row(bench, job).status is Status.DEAD
    assert not bench.store.revive(revival)


# ---- A recipient's jobs, and nothing left of them


def test_a_recipients_jobs_are_found_newest_first_and_page_by_page(bench: Bench) -> None:
    user = f"user-{a_job_id()[:8]}"
    jobs = [a_job(user_id=user, created_at_ms=NOW_MS + at // 2) for at in range(6)]  # two of each instant
    bench.store.insert([*jobs, a_job(user_id=f"{user}-other")])
    first = bench.store.of_recipient("shop", user, limit=3)
    rest = bench.store.of_recipient("shop", user, limit=10, after=first[-1])
    found = [*first, *rest]
    assert [accepted.created_at_ms for accepted in found] == [NOW_MS + 2] * 2 + [NOW_MS + 1] * 2 + [NOW_MS] * 2
    assert {accepted.job_id for accepted in found} == {job.job_id for job in jobs}
    earlier = bench.store.of_recipient("shop", user, limit=10, before_ms=NOW_MS + 1)
    assert {accepted.job_id for accepted in earlier} == {job.job_id for job in jobs[:2]}
    assert bench.store.of_recipient("shop", "nobody", limit=10) == []
    assert set(bench.store.everywhere("shop", user)) == {job.job_id for job in jobs}


@pytest.mark.parametrize("kind", ["pending", "claimed", "dead"])
def test_of_a_job_that_is_scrubbed_its_fence_is_left(bench: Bench, kind: str) -> None:
    user = f"user-{a_job_id()[:8]}"
    job = a_job(user_id=user, variables='{"name": "Ada"}')
    bench.store.insert([job])
    if kind == "dead":
        bench.put(a_dead_job(user_id=user, job_id=job.job_id))
    if kind == "claimed":
        bench.store.claim([a_lead(job)], now_ms=NOW_MS, lease=timedelta(seconds=60))
    before = bench.store.get([job.job_id])[job.job_id]
    for _ in range(2):
        assert bench.store.scrub(job.job_id, now_ms=NOW_MS)
    after = bench.store.get([job.job_id])[job.job_id]
    assert (after.user_id, after.content, after.deliveries, after.history) == ("erased", "{}", {}, ())
    assert (after.variables, after.last_error, after.status) == (None, None, Status.CANCELLED)
    assert (after.claim_seq, after.settled_seq) == (before.claim_seq, before.claim_seq)
    assert bench.store.of_recipient("shop", user, limit=10) == []
    assert list(bench.store.everywhere("shop", user)) == []
    assert bench.store.insert([job])[0] is not None
    bench.store.record_late(job.job_id, [*job.deliveries])  # of a worker whose lease was lost meanwhile
    assert bench.store.get([job.job_id])[job.job_id].sent_late == frozenset()
