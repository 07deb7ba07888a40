"""Claim → attempt → settle → publish, on fakes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from builders import HOUR_MS, NOW_MS, PHONE, SECOND_MS, TABLET, a_hinted_lead, a_job, a_lead, deliveries
from fakes import FakeAttempter, FakeClock, FakeHints, FakeJobStore, FakeLetters, counting_ids, fixed_dice
from pushlease.codes import Code
from pushlease.jobs.engine import MAX_HOPS, Engine, Report
from pushlease.jobs.job import DeliveryStatus, Job, JobId, Status
from pushlease.jobs.lifecycle import Event
from pushlease.jobs.ports import Lead
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Attempted, Failed, Policy, Sent, Withdrawn

LEASE = timedelta(seconds=120)
POLICY = Policy(retry=RetryPolicy(schedule=listed([timedelta(seconds=30)])), lease=LEASE, grace=timedelta(seconds=180))


def all_sent(job: Job) -> Attempted:
    return dict.fromkeys(job.open_deliveries, Sent())


def failing(code: Code) -> Callable[[Job], Attempted]:
    return lambda job: dict.fromkeys(job.open_deliveries, Failed(code=code))


def void(_: object) -> None:
    """For lambdas whose value nobody wants."""


class WorkerDied(BaseException):
    """The process is gone: nothing that catches exceptions sees it."""


@dataclass(kw_only=True)
class World:
    """An engine and all that it touches. Attempts succeed unless told otherwise."""

    store: FakeJobStore = field(default_factory=FakeJobStore)
    hints: FakeHints = field(default_factory=FakeHints)
    letters: FakeLetters = field(default_factory=FakeLetters)
    attempter: FakeAttempter = field(default_factory=lambda: FakeAttempter(otherwise=all_sent))
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.engine = Engine(
            store=self.store,
            hints=self.hints,
            letters=self.letters,
            attempter=self.attempter,
            clock=self.clock,
            dice=fixed_dice(),
            new_id=counting_ids("nonce"),
            policy=POLICY,
            least_time=timedelta(seconds=10),
        )

    def put(self, *jobs: Job) -> None:
        self.store.insert(jobs)

    def work(self, *leads: Lead, seconds: float = 50) -> Report:
        return self.engine.work(leads, deadline_ms=self.clock() + int(seconds * SECOND_MS))

    def drain(self, **given: float) -> Report:
        """One page with everything that is due, as the drain would read it."""
        rows = [job for job in self.store.rows.values() if job.status is Status.PENDING]
        return self.work(*(a_lead(job) for job in rows if job.due_at_ms <= self.clock()), **given)

    def job(self, job: Job) -> Job:
        return self.store.rows[job.job_id]


@pytest.fixture
def world() -> World:
    return World()


def test_a_due_job_is_sent_and_done(world: World) -> None:
    job = a_job()
    world.put(job)
    report = world.work(a_hinted_lead(job))
    assert world.job(job).status is Status.DONE
    assert [decision.event for decision in report.decisions] == ["settled"]
    assert report.decisions[0].deliveries == {PHONE: "sent"}
    assert (world.hints.published, world.letters.sent) == ([], [])


def test_a_retry_is_hinted_after_it_is_settled_with_what_the_row_says(world: World) -> None:
    job = a_job()
    world.put(job)
    world.attempter.otherwise = failing(Code.NETWORK_ERROR)
    world.work(a_hinted_lead(job, hops=3))
    row = world.job(job)
    (hint,) = world.hints.published
    assert (hint.claim_seq, hint.due_at_ms, hint.hops) == (row.claim_seq, row.due_at_ms, 4)
    assert (hint.delay, hint.app_id) == (timedelta(seconds=30), "shop")
    world.attempter.otherwise = all_sent
    world.clock.forward(seconds=30)
    world.work(Lead(job_id=hint.job_id, claim_seq=hint.claim_seq, due_at_ms=hint.due_at_ms))
    assert world.job(job).status is Status.DONE


def test_at_the_last_hop_no_hint_is_sent_and_the_drain_goes_on(world: World) -> None:
    job = a_job()
    world.put(job)
    world.attempter.otherwise = failing(Code.NETWORK_ERROR)
    world.work(a_hinted_lead(job, hops=MAX_HOPS))
    assert world.hints.published == []
    world.clock.forward(seconds=30)
    assert world.drain().count("settled") == 1
    assert [hint.hops for hint in world.hints.published] == [1]


def test_a_hint_that_cannot_be_sent_costs_only_time(world: World) -> None:
    job = a_job()
    world.put(job)
    world.hints.failing = True
    world.attempter.otherwise = failing(Code.NETWORK_ERROR)
    assert world.work(a_hinted_lead(job)).unpublished == 1
    world.attempter.otherwise = all_sent
    world.clock.forward(seconds=30 + 180)
    world.drain()
    assert world.job(job).status is Status.DONE


def test_a_dead_job_is_buried(world: World) -> None:
    job = a_job()
    world.put(job)
    world.attempter.otherwise = failing(Code.REJECTED)
    world.work(a_hinted_lead(job))
    assert world.job(job).status is Status.DEAD
    (letter,) = world.letters.sent
    assert (letter.job_id, letter.redrives, letter.code, letter.died_at_ms) == (job.job_id, 0, "rejected", NOW_MS)


def test_a_letter_that_cannot_be_sent_is_counted(world: World) -> None:
    job = a_job()
    world.put(job)
    world.letters.failing = True
    world.attempter.otherwise = failing(Code.REJECTED)
    assert world.work(a_hinted_lead(job)).unburied == 1
    assert world.job(job).due_at_ms == NOW_MS + 300 * SECOND_MS


def test_duplicates_in_a_batch_and_late_ones_change_nothing(world: World) -> None:
    job = a_job()
    world.put(job)
    lead = a_hinted_lead(job)
    world.work(lead, lead, lead)
    report = world.work(lead)
    assert world.attempter.batches == [[job.job_id]]
    assert [decision.event for decision in report.decisions] == ["lost_race"]


def test_a_lead_to_an_unknown_job_is_lost(world: World) -> None:
    assert world.work(a_lead(a_job())).count("stale_index_read") == 1


def test_a_store_that_gives_no_answer_leaves_the_lead_to_its_giver(world: World) -> None:
    job, other = a_job(), a_job()
    world.put(job, other)
    world.store.unavailable = {job.job_id}
    report = world.work(a_hinted_lead(job), a_hinted_lead(other))
    assert report.unclaimed == {job.job_id}
    assert (world.job(job), world.job(other).status) == (job, Status.DONE)


# ---- Expiry, withdrawal


def test_an_expired_job_is_not_attempted(world: World) -> None:
    job, fresh = a_job(expires_at_ms=NOW_MS), a_job()
    world.put(job, fresh)
    world.drain()
    assert world.attempter.batches == [[fresh.job_id]]
    assert world.job(job).status is Status.DONE
    assert world.job(job).deliveries[PHONE].code == Code.EXPIRED


def test_a_withdrawn_job_is_cancelled_after_the_others_are_settled(world: World) -> None:
    job, other = a_job(), a_job()
    world.put(job, other)
    world.attempter.script[job.job_id] = Withdrawn()
    report = world.work(a_lead(job), a_lead(other))
    assert world.job(job).status is Status.CANCELLED
    assert world.store.written[-2:] == [(Event.SETTLE, other.job_id), (Event.CANCEL, job.job_id)]
    assert report.count("cancelled") == 1


# ---- Short of time


def test_without_time_for_a_request_the_job_is_released_unspent(world: World) -> None:
    job = a_job()
    world.put(job)
    report = world.work(a_hinted_lead(job), seconds=10)
    row = world.job(job)
    assert (row.status, row.attempts, row.due_at_ms, row.alone) == (Status.PENDING, 0, NOW_MS, False)
    assert (row.claim_seq, row.settled_seq) == (1, 1)
    assert (world.attempter.batches, world.hints.published) == ([], [])
    assert report.count("released") == 1


def test_a_suspect_released_for_want_of_time_stays_alone(world: World) -> None:
    job = a_job(claim_seq=1, attempts=1)
    world.put(job)
    world.drain(seconds=5)
    assert world.job(job).alone
    assert world.job(job).attempts == 1


def test_when_time_runs_out_among_suspects_the_rest_stay_due(world: World) -> None:
    suspects = [a_job(claim_seq=1, attempts=1) for _ in range(3)]
    world.put(*suspects)
    world.attempter.during = lambda: void(world.clock.forward(seconds=30))
    world.drain(seconds=50)
    assert len(world.attempter.batches) == 2
    left = [world.job(job) for job in suspects if world.job(job).status is Status.PENDING]
    assert [(job.alone, job.due_at_ms) for job in left] == [(True, NOW_MS)]


# ---- The lease


def test_what_was_sent_under_a_lost_lease_is_recorded_and_nothing_else(world: World) -> None:
    job = a_job(deliveries=deliveries("phone", "tablet"))
    world.put(job)
    world.attempter.otherwise = lambda _: {PHONE: Sent(), TABLET: Failed(code=Code.NETWORK_ERROR)}

    def somebody_claims() -> None:
        row = world.job(job)
        world.store.claim([a_lead(row)], now_ms=row.due_at_ms, lease=LEASE)

    world.attempter.during = somebody_claims
    report = world.work(a_hinted_lead(job))
    row = world.job(job)
    assert (row.status, row.claim_seq, row.settled_seq) == (Status.PENDING, 2, 0)
    assert row.sent_late == {PHONE}
    assert row.deliveries[TABLET].attempts == 0
    assert report.count("lease_lost") == 1
    assert world.hints.published == []


@pytest.mark.parametrize("code", [Code.NETWORK_ERROR, Code.REJECTED])
def test_a_cancel_during_the_attempt_wins(world: World, code: Code) -> None:
    job = a_job(deliveries=deliveries("phone", "tablet"))
    world.put(job)
    world.attempter.otherwise = lambda _: {PHONE: Sent(), TABLET: Failed(code=code)}
    world.attempter.during = lambda: void(world.store.cancel([job.job_id], now_ms=NOW_MS))
    world.work(a_hinted_lead(job))
    row = world.job(job)
    assert row.status is Status.CANCELLED
    assert row.deliveries[PHONE].status is DeliveryStatus.SENT
    assert row.deliveries[TABLET].status is DeliveryStatus.CANCELLED
    assert (world.hints.published, world.letters.sent) == ([], [])


def test_a_late_record_that_cannot_be_written_harms_no_neighbour(world: World) -> None:
    job, other = a_job(), a_job()
    world.put(job, other)
    world.attempter.script[other.job_id] = {PHONE: Failed(code=Code.NETWORK_ERROR)}
    world.attempter.during = lambda: void(world.store.cancel([job.job_id], now_ms=NOW_MS))

    def refuse(event: Event, _job_id: JobId) -> None:
        if event is Event.RECORD_LATE:
            raise RuntimeError("throttled")

    world.store.before_write = refuse
    world.work(a_lead(job), a_lead(other))
    assert [hint.job_id for hint in world.hints.published] == [other.job_id]


def test_an_unanswered_settle_is_repeated_by_the_next_claim(world: World) -> None:
    job = a_job()
    world.put(job)
    world.attempter.during = lambda: world.store.unavailable.add(job.job_id)
    report = world.work(a_hinted_lead(job))
    assert report.count("unsettled") == 1
    world.attempter.during = lambda: None
    world.store.unavailable.clear()
    world.clock.forward(hours=1)
    world.drain()
    assert world.job(job).status is Status.DONE
    assert world.job(job).deliveries[PHONE].attempts == 2


# ---- Poison


@pytest.mark.parametrize("fault", [WorkerDied, RuntimeError])
def test_a_poison_job_dies_and_the_49_beside_it_are_delivered(world: World, fault: type[BaseException]) -> None:
    poison = a_job(max_attempts=5)
    jobs = [*(a_job() for _ in range(49)), poison]
    world.put(*jobs)

    def attempt(job: Job) -> Attempted:
        if job.job_id == poison.job_id:
            raise fault
        return all_sent(job)

    world.attempter.otherwise = attempt
    crashes = 0
    for _ in range(20):
        try:
            world.drain()
        except fault:
            crashes += 1
        world.clock.forward(seconds=181)

    ends = [world.job(job).status for job in jobs]
    assert ends == [Status.DONE] * 49 + [Status.DEAD]
    assert crashes == 5
    assert world.job(poison).deliveries[PHONE].code == Code.LOST
    assert [letter.job_id for letter in world.letters.sent] == [poison.job_id]
    assert max(world.job(job).deliveries[PHONE].attempts for job in jobs[:-1]) == 2


def test_suspects_are_attempted_one_at_a_time_after_everything_else(world: World) -> None:
    fresh = [a_job() for _ in range(3)]
    suspects = [a_job(claim_seq=1, attempts=1), a_job(alone=True)]
    world.put(*suspects, *fresh)
    world.drain()
    assert [len(batch) for batch in world.attempter.batches] == [3, 1, 1]
    assert {job.job_id for job in fresh} == set(world.attempter.batches[0])
    assert all(world.job(job).status is Status.DONE for job in suspects + fresh)
    # The set-aside run cost nothing: the crash before counts, the release does not.
    assert [world.job(job).deliveries[PHONE].attempts for job in suspects] == [2, 1]


def test_a_suspect_that_is_the_only_claim_in_hand_is_attempted_at_once(world: World) -> None:
    suspect = a_job(claim_seq=1, attempts=1)
    world.put(suspect)
    world.drain()
    assert [event for event, _ in world.store.written] == [Event.INSERT, Event.CLAIM, Event.SETTLE]


def test_a_suspect_that_somebody_else_takes_meanwhile_is_left_to_them(world: World) -> None:
    suspect, other = a_job(claim_seq=1, attempts=1), a_job()
    world.put(suspect, other)

    def somebody_claims() -> None:
        row = world.job(suspect)
        world.store.claim([a_lead(row)], now_ms=NOW_MS, lease=LEASE)

    world.attempter.during = somebody_claims
    report = world.drain()
    assert world.attempter.batches == [[other.job_id]]
    assert report.count("stale_index_read") == 1


def test_a_job_that_kills_every_worker_ends_after_max_attempts(world: World) -> None:
    job = a_job(max_attempts=1)
    world.put(job)

    def die() -> None:
        raise WorkerDied

    world.attempter.during = die
    with pytest.raises(WorkerDied):
        world.work(a_hinted_lead(job))
    world.clock.forward(seconds=300)
    report = world.drain()
    assert report.count("exhausted") == 1
    assert world.job(job).status is Status.DEAD
    assert len(world.attempter.batches) == 1


# ---- Broken and exhausted rows


def test_a_row_that_cannot_be_read_is_condemned_and_buried_after_its_neighbours_are_served(world: World) -> None:
    job, other = a_job(), a_job()
    world.put(job, other)
    world.store.broken[job.job_id] = "user_id: missing"
    report = world.drain()
    assert world.job(other).status is Status.DONE
    assert world.job(job).status is Status.DEAD
    assert world.store.written[-2:] == [(Event.SETTLE, other.job_id), (Event.CONDEMN, job.job_id)]
    assert (report.count("condemned"), [letter.code for letter in world.letters.sent]) == (1, ["unreadable"])


@pytest.mark.parametrize("event", [Event.EXHAUST, Event.CONDEMN, Event.CANCEL])
def test_a_death_that_cannot_be_written_harms_no_neighbour(world: World, event: Event) -> None:
    job, other = a_job(attempts=5 if event is Event.EXHAUST else 0), a_job()
    world.put(job, other)
    if event is Event.CONDEMN:
        world.store.broken[job.job_id] = "user_id: missing"
    world.attempter.script[job.job_id] = Withdrawn()

    def refuse(writing: Event, job_id: JobId) -> None:
        if (writing, job_id) == (event, job.job_id):
            raise RuntimeError("throttled")

    world.store.before_write = refuse
    report = world.drain()
    assert world.job(other).status is Status.DONE
    assert world.job(job).status is Status.PENDING
    assert report.count("unended") == 1


def test_an_exhausted_job_that_changed_meanwhile_is_not_buried(world: World) -> None:
    job = a_job(attempts=5, claim_seq=5, settled_seq=4)
    world.put(job)

    def revive_first(event: Event, job_id: JobId) -> None:
        if event is Event.EXHAUST:
            world.store.rows[job_id] = replace(job, claim_seq=6)

    world.store.before_write = revive_first
    world.drain()
    assert world.letters.sent == []


def test_time_is_counted_to_the_deadline(world: World) -> None:
    assert world.engine.has_time(NOW_MS + 10_001)
    assert not world.engine.has_time(NOW_MS + 10_000)
    assert not world.engine.has_time(NOW_MS - HOUR_MS)
