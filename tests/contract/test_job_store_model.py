"""The real store under any order of its writes, beside a plain model of what its rows must be.

What the store answers is taken down as a fact and judged by the invariants of docs/guarantees.md, by their names. What
is left (a claim or a settle refused without cause, say) shows where a row is not as the model has it. Leads, claims,
deaths and rows without attempts left are kept and used again, however stale: those are the zombies.
"""

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from builders import NOW_MS, PHONE, TABLET, a_job
from fakes import fixed_dice
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.rows import dead_lane, due_lane, job_of
from pushlease.aws.statements import Statements
from pushlease.codes import Code
from pushlease.jobs import burial, settle
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status
from pushlease.jobs.ports import Claimed, Ended, Exhausted, Lead
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Failed, Policy, Sent, Settlement
from simulation.mutants import MUTANTS, Plant

LEASE = timedelta(seconds=120)
POLICY = Policy(retry=RetryPolicy(schedule=listed([timedelta(seconds=30)])), lease=LEASE, grace=timedelta(seconds=180))
LEASE_MS, GRACE_MS = 120_000, 180_000
RESULTS = (Sent(), Failed(code=Code.NETWORK_ERROR), Failed(code=Code.REJECTED))

JOBS = 2  # few, so that much happens to each

_serials = count(1)


@dataclass(slots=True, kw_only=True)
class Expected:
    """What a row must be, and what was granted on it."""

    due_at_ms: int
    max_attempts: int
    status: Status = Status.PENDING
    claim_seq: int = 0
    settled_seq: int = 0
    attempts: int = 0
    redrives: int = 0
    sent: set[DeliveryId] = field(default_factory=set)
    live: dict[int, int] = field(default_factory=dict)  # claims granted and not ended: claim_seq → lease's end
    highest_seq: int = 0  # that any row showed
    cancelled: bool = False
    spent: Counter[int] = field(default_factory=Counter)  # claims of each life that were not given back
    revived: Counter[int] = field(default_factory=Counter)  # revivals of each death

    def end(self, status: Status, due_at_ms: int) -> None:
        self.status, self.due_at_ms, self.settled_seq = status, due_at_ms, self.claim_seq
        self.live.clear()


class JobStoreMachine(RuleBasedStateMachine):
    """Workers, drains and persons on a few jobs. ``client``, ``table``: set by ``machine``."""

    client: Any
    table: str

    jobs, leads, claims = Bundle("jobs"), Bundle("leads"), Bundle("claims")
    spent_jobs, deaths, dead_leads = Bundle("spent_jobs"), Bundle("deaths"), Bundle("dead_leads")

    def __init__(self) -> None:
        super().__init__()
        statements = Statements(
            client=self.client,
            table=self.table,
            new_id=lambda: uuid.uuid4().hex,
            clock=lambda: self.now_ms,
            pause=lambda _: None,
            dice=fixed_dice(),
        )
        self.store = DynamoJobStore(statements=statements, lanes=1)
        self.now_ms = NOW_MS
        self.expected: dict[JobId, Expected] = {}
        self.items: Mapping[JobId, Mapping[str, Any]] = {}
        self.lanes: Mapping[JobId, str] = {}
        self.stale_writes: list[str] = []
        self.sent_again: list[str] = []

    def teardown(self) -> None:
        for job_id in self.expected:
            self.client.delete_item(TableName=self.table, Key={"job_id": {"S": job_id}})

    def look(self) -> None:
        """Read all rows, and the index, as they are after a write."""
        rows = self.client.scan(TableName=self.table)["Items"]
        index = self.client.scan(TableName=self.table, IndexName="due")["Items"]
        self.items = {JobId(row["job_id"]["S"]): row for row in rows}
        self.lanes = {JobId(row["job_id"]["S"]): row["lane"]["S"] for row in index}

    def any_dead(self) -> bool:
        return any(row.status is Status.DEAD for row in self.expected.values())

    def first(self) -> list[Expected]:
        return list(self.expected.values())[:1]

    # ---- What happens

    @precondition(lambda self: len(self.expected) < JOBS)
    @rule(target=leads, parts=st.sampled_from([(PHONE,), (PHONE, TABLET)]), max_attempts=st.integers(1, 2))
    def insert(self, parts: tuple[DeliveryId, ...], max_attempts: int) -> Any:
        """With its hint."""
        job = a_job(
            job_id=JobId(f"{0:08x}{next(_serials):032x}"),
            deliveries={part: Delivery() for part in parts},
            max_attempts=max_attempts,
            due_at_ms=self.now_ms + GRACE_MS,
            created_at_ms=self.now_ms,
            expires_at_ms=self.now_ms + 86_400_000,
        )
        assert self.store.insert([job]) == [None]
        assert self.store.insert([job]) == [job]
        self.expected[job.job_id] = Expected(due_at_ms=job.due_at_ms, max_attempts=max_attempts)
        self.look()
        return Lead(job_id=job.job_id, due_at_ms=job.due_at_ms, claim_seq=0)

    @rule(span_ms=st.sampled_from([1_000, 30_000, LEASE_MS + 1, GRACE_MS + 30_001]))
    def advance(self, span_ms: int) -> None:
        self.now_ms += span_ms

    @precondition(lambda self: any(row.status is Status.PENDING for row in self.expected.values()))
    @rule(target=leads)
    def drain(self) -> Any:
        return multiple(*self.store.due(due_lane(0), now_ms=self.now_ms, limit=9))

    @precondition(lambda self: self.any_dead())
    @rule(target=dead_leads)
    def reconcile(self) -> Any:
        return multiple(*self.store.due(dead_lane(0), now_ms=self.now_ms, limit=9))

    @rule(targets=(claims, spent_jobs), lead=leads)
    def claim(self, lead: Lead) -> Any:
        """From a hint or from the index; both bundles take the row, and their rules tell which it is for."""
        row = self.expected[lead.job_id]
        may = row.status is Status.PENDING and row.due_at_ms == lead.due_at_ms and row.attempts < row.max_attempts
        may = may and (lead.due_at_ms <= self.now_ms if lead.claim_seq is None else lead.claim_seq == row.claim_seq)
        (answer,) = self.store.claim([lead], now_ms=self.now_ms, lease=LEASE)
        if may:
            row.claim_seq += 1
            row.attempts += 1
            row.due_at_ms = max(row.due_at_ms, self.now_ms + LEASE_MS)
        self.look()
        match answer:
            case Claimed(job=job):
                row.live[job.claim_seq] = job.due_at_ms
                row.spent[row.redrives] += 1
                self.sent_again += sorted(row.sent & set(job.open_deliveries))
                return job
            case Exhausted(job=job):
                return job
        return multiple()

    @rule(job=consumes(claims))
    def crash(self, job: Job) -> None:
        """The worker forgets its claim; only time ends the lease."""

    @rule(target=leads, job=claims, first=st.sampled_from(RESULTS), second=st.sampled_from(RESULTS))
    def settle(self, job: Job, first: settle.Result, second: settle.Result) -> Any:
        results = dict(zip(sorted(job.open_deliveries), (first, second), strict=False))
        end = settle.settle(job, results, now_ms=self.now_ms, dice=fixed_dice(), policy=POLICY)
        sent = {name for name, result in results.items() if isinstance(result, Sent)}
        written = self._settle(job, end)
        if written:
            self.expected[job.job_id].sent |= sent
        elif sent:
            self._record_late(job.job_id, sent)
        self.look()
        if written and end.hint_delay is not None:
            return Lead(job_id=job.job_id, due_at_ms=end.due_at_ms, claim_seq=end.claim_seq)
        return multiple()

    @rule(job=claims, alone=st.booleans())
    def release(self, job: Job, alone: bool) -> None:
        end = settle.release(job, until_ms=self.now_ms, alone=alone, now_ms=self.now_ms, policy=POLICY)
        if end.status is Status.PENDING and self._settle(job, end):
            row = self.expected[job.job_id]
            row.spent[row.redrives] -= 1
        self.look()

    @rule(job=claims)
    def record_late(self, job: Job) -> None:
        """A zombie was sending while its lease ran out."""
        if job.claim_seq not in self.expected[job.job_id].live and job.open_deliveries:
            self._record_late(job.job_id, set(job.open_deliveries))
            self.look()

    @rule(job=spent_jobs)
    def exhaust(self, job: Job) -> None:
        if job.attempts < job.max_attempts:
            return
        row = self.expected[job.job_id]
        seen = (Status.PENDING, row.due_at_ms, row.claim_seq, row.settled_seq)
        may = seen == (row.status, job.due_at_ms, job.claim_seq, job.settled_seq) and job.due_at_ms <= self.now_ms
        if not may and job.due_at_ms > self.now_ms:
            return  # its lease runs: nobody was told that it is exhausted
        death = settle.exhausted(job, now_ms=self.now_ms, policy=POLICY)
        self.store.exhaust(job, death)
        if may:
            row.end(death.status, death.due_at_ms)
        self.look()

    @precondition(lambda self: any(row.live or row.status is Status.DEAD for row in self.first()))
    @rule()
    def cancel(self) -> None:
        """Only the first job, and only in somebody's hands or dead: a cancelled one has no more to show."""
        name, row = next(iter(self.expected.items()))
        if self.store.cancel([name], now_ms=self.now_ms) == [True]:
            row.cancelled = True
            row.end(Status.CANCELLED, row.due_at_ms)
        self.look()

    @precondition(lambda self: self.any_dead())
    @rule(target=deaths)
    def write_letters(self) -> Any:
        """Letters, and revivals, are made from the dead row as it was then."""
        found = self.store.get([name for name, row in self.expected.items() if row.status is Status.DEAD])
        return multiple(*found.values())

    @rule(job=deaths)
    def sight(self, job: Job) -> None:
        row, check_ms = self.expected[job.job_id], self.now_ms + 13 * 86_400_000
        seen = Sight(sent_at_ms=self.now_ms, message_id="m")
        self.store.sight(job.job_id, redrives=job.redrives, nonce="n", sight=seen, due_at_ms=check_ms)
        if row.status is Status.DEAD and row.redrives == job.redrives:
            row.due_at_ms = check_ms
        self.look()

    @rule(lead=dead_leads)
    def rebury(self, lead: Lead) -> None:
        row, check_ms = self.expected[lead.job_id], self.now_ms + 300_000
        self.store.rebury(lead, due_at_ms=check_ms)
        if row.status is Status.DEAD and row.due_at_ms == lead.due_at_ms:
            row.due_at_ms = check_ms
        self.look()

    @rule(job=deaths)
    def revive(self, job: Job) -> None:
        row = self.expected[job.job_id]
        revival = burial.revival_of(job, now_ms=self.now_ms, dice=fixed_dice(0.0), spread=timedelta(0))
        if self.store.revive(revival):
            row.revived[job.redrives] += 1
        if row.status is Status.DEAD and row.redrives == job.redrives:
            row.status, row.due_at_ms, row.attempts = Status.PENDING, self.now_ms, 0
            row.redrives += 1
        self.look()

    def _settle(self, job: Job, end: Settlement) -> bool:
        row = self.expected[job.job_id]
        fresh = job.claim_seq in row.live and job.claim_seq == max(row.live)
        written = self.store.settle([end]) == [Ended.WRITTEN]
        if written and not fresh:
            self.stale_writes.append(f"claim {job.claim_seq} of {job.job_id}")
        if fresh:
            row.end(end.status, end.due_at_ms)
            row.attempts = end.attempts
        return written

    def _record_late(self, job_id: JobId, sent: set[DeliveryId]) -> None:
        self.store.record_late(job_id, sorted(sent))
        self.expected[job_id].sent |= sent

    # ---- What must hold

    @invariant()
    def a_recorded_sent_never_sent_again(self) -> None:
        assert not self.sent_again
        for name, row in self.expected.items():
            assert not row.sent & set(job_of(self.items[name]).open_deliveries)

    @invariant()
    def attempts_bounded(self) -> None:
        assert all(spent <= row.max_attempts for row in self.expected.values() for spent in row.spent.values())

    @invariant()
    def cancel_wins(self) -> None:
        assert all(
            job_of(self.items[name]).status is Status.CANCELLED for name, row in self.expected.items() if row.cancelled
        )

    @invariant()
    def claim_seq_never_falls(self) -> None:
        for name, row in self.expected.items():
            seq = job_of(self.items[name]).claim_seq
            assert seq >= row.highest_seq
            row.highest_seq = seq

    @invariant()
    def dead_has_no_work(self) -> None:
        for job in map(job_of, self.items.values()):
            if job.status is Status.DEAD:
                assert job.settled_seq == job.claim_seq
                assert not job.open_deliveries
                assert self.lanes.get(job.job_id) != due_lane(0)

    @invariant()
    def index_agrees_with_rows(self) -> None:
        lanes = {Status.PENDING: due_lane(0), Status.DEAD: dead_lane(0)}
        for name, item in self.items.items():
            assert self.lanes.get(name) == lanes.get(job_of(item).status)

    @invariant()
    def no_job_lost(self) -> None:
        """Every row is there, and what is pending is not left to TTL."""
        assert self.items.keys() == self.expected.keys()
        assert all("ttl" not in item for item in self.items.values() if job_of(item).status is Status.PENDING)

    @invariant()
    def one_death_revives_once(self) -> None:
        assert all(times == 1 for row in self.expected.values() for times in row.revived.values())

    @invariant()
    def one_live_claim(self) -> None:
        for row in self.expected.values():
            assert sum(until_ms > self.now_ms for until_ms in row.live.values()) <= 1

    @invariant()
    def stale_writer_refused(self) -> None:
        assert not self.stale_writes

    @invariant()
    def the_row_is_as_the_model_has_it(self) -> None:
        """Last, by its name: what none of the others names."""
        for name, row in self.expected.items():
            job = job_of(self.items[name])
            sent = {part for part, delivery in job.deliveries.items() if delivery.status is DeliveryStatus.SENT}
            assert (job.status, job.claim_seq, job.settled_seq, job.attempts, job.redrives, job.due_at_ms, sent) == (
                row.status,
                row.claim_seq,
                row.settled_seq,
                row.attempts,
                row.redrives,
                row.due_at_ms,
                row.sent,
            )


@pytest.fixture(scope="module")
def machine(moto: Any) -> type[JobStoreMachine]:
    """On moto: in this process, so that a step costs a few milliseconds."""
    return type("Machine", (JobStoreMachine,), {"client": moto.client, "table": moto.make_table("jobs")})


def limits(examples: int, **said: Any) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],  # a step is several calls of a real store
        **said,
    )


@pytest.mark.slow
def test_the_store_keeps_its_guarantees_in_any_order_of_writes(machine: type[JobStoreMachine]) -> None:
    run(machine, settings=limits(30))


PLANTED: Mapping[str, Plant] = {mutant.name: mutant.plant for mutant in MUTANTS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "told_by"),
    [
        ("no fence", "stale_writer_refused"),
        ("sequence reset on redrive", "claim_seq_never_falls"),
        ("ttl kept on revive", "no_job_lost"),
        ("cancel leaves settled_seq", "the_row_is_as_the_model_has_it"),
        ("lease not dated forward", "the_row_is_as_the_model_has_it"),
    ],
)
def test_a_planted_bug_is_caught(
    machine: type[JobStoreMachine], monkeypatch: pytest.MonkeyPatch, bug: str, told_by: str
) -> None:
    PLANTED[bug](monkeypatch)
    with pytest.raises(AssertionError) as caught:
        run(machine, settings=limits(200, phases=[Phase.generate], derandomize=True))
    assert told_by in {entry.name for entry in caught.traceback}
