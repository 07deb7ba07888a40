"""Planted bugs: small changes of the real code, each the kind that a plain reading would let pass.

Replacing attributes of the code under test is allowed here and nowhere else: what is tested is the simulation itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pushlease.aws import queue, rows, statements
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.statements import Clause, Failed, Statements, Update
from pushlease.jobs import burial, settle
from pushlease.jobs.engine import Engine
from pushlease.jobs.job import Job
from pushlease.jobs.ports import Letter
from pushlease.jobs.retry import RetryPolicy
from redrive import usecase as redrive_usecase

type Plant = Callable[[pytest.MonkeyPatch], None]

# The clauses of every conditional write. A test holds this list against what the store really says.
CLAUSES: Mapping[str, tuple[str, ...]] = {
    "claim": ("IN_STATUS", "UNCHANGED", "PASSED", "UNCHANGED_SEQ", "HAS_BUDGET"),
    "settle": ("FENCE", "OPEN"),
    "exhaust": ("IN_STATUS", "UNCHANGED", "SAME_CLAIM_SEQ", "SAME_SETTLED_SEQ"),
    "cancel": ("IN_STATUS", "SAME_CLAIM_SEQ", "SAME_SETTLED_SEQ"),
    "rebury": ("IN_STATUS", "UNCHANGED"),
    "revive": ("IN_STATUS", "SAME_DEATH"),
}
# Clauses that another one of the same write implies, so that no run can miss them; together they are missed.
#   claim from a hint   claim_seq tells the due_at: a hint is sent by the write that gave the row both
#   claim from a drain  due_at is as the index had it when it had passed, so it still has passed
#   exhaust             with no attempts left nobody claims, and whatever ends the last claim raises settled_seq
#   cancel              a status changes with settled_seq, but for a revive, which a cancel may overwrite
SPARE: Mapping[str, tuple[str, ...]] = {
    "claim": ("UNCHANGED", "PASSED"),
    "exhaust": ("IN_STATUS", "UNCHANGED", "SAME_CLAIM_SEQ", "SAME_SETTLED_SEQ"),
    "cancel": ("IN_STATUS",),
}
TOGETHER = (
    ("claim", ("UNCHANGED", "PASSED")),
    ("claim", ("UNCHANGED", "UNCHANGED_SEQ")),
    ("exhaust", ("IN_STATUS", "UNCHANGED", "SAME_CLAIM_SEQ", "SAME_SETTLED_SEQ")),
    ("cancel", ("IN_STATUS", "SAME_CLAIM_SEQ", "SAME_SETTLED_SEQ")),
)
CONDITIONS = {
    "record late": ("attribute_exists(job_id) AND ", ""),
    "sight, dead": ("#status = :dead AND redrives = :letter", "redrives = :letter"),
    "sight, same death": ("#status = :dead AND redrives = :letter", "#status = :dead"),
    "condemn, due": ("begins_with(lane, :due) AND ", ""),
    "condemn, as judged": (" AND claim_id = :seen", ""),
}

_ALWAYS = Clause("ALWAYS", '"claim_seq" = "claim_seq"')


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug."""

    name: str
    plant: Plant


def event_of(update: Update) -> str:
    """Which of the store's writes this is, by what it changes."""
    if update.raised:
        return "claim"
    if set(update.values) == {"due_at"}:
        return "rebury"
    if "redrives" in update.values:
        return "revive"
    if "due_at" not in update.values:
        return "cancel"
    return "settle" if any(clause.name == "FENCE" for clause in update.clauses) else "exhaust"


def _updates(change: Callable[[Update], Update]) -> Plant:
    """Change every update on its way."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = Statements.update

        def changed(self: Statements, updates: Sequence[Update], **until: int) -> Any:
            return real(self, [change(update) for update in updates], **until)

        patch.setattr(Statements, "update", changed)

    return plant


def _without_condition(part: str, weaker: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        real = DynamoJobStore._add

        def add(self: DynamoJobStore, job_id: Any, change: str, said: str, values: Any, *, names: Any) -> bool:
            return real(self, job_id, change, said.replace(part, weaker), values, names=names)

        patch.setattr(DynamoJobStore, "_add", add)

    return plant


def _values(event: str, change: Callable[[dict[str, Any]], None]) -> Plant:
    """Change what one kind of write writes."""

    def changed(update: Update) -> Update:
        if event_of(update) != event:
            return update
        values = dict(update.values)
        change(values)
        return replace(update, values=values)

    return _updates(changed)


def _without_clauses(event: str, *names: str) -> Plant:
    """Take clauses away; where none is left, one stands there that always holds."""

    def changed(update: Update) -> Update:
        if event_of(update) != event:
            return update
        left = [clause for clause in update.clauses if clause.name not in names]
        return replace(update, clauses=left or [_ALWAYS])

    return _updates(changed)


def _counted_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """The claim counts nothing; the settle counts what it tried."""
    real = settle.settle

    def late(job: Job, *args: Any, **said: Any) -> Any:
        return real(replace(job, settled_seq=job.claim_seq - 1), *args, **said)

    _updates(lambda update: replace(update, raised=[name for name in update.raised if name != "attempts"]))(patch)
    patch.setattr(settle, "settle", late)


def _lease_not_dated_forward(patch: pytest.MonkeyPatch) -> None:
    real = DynamoJobStore.claim
    patch.setattr(
        DynamoJobStore,
        "claim",
        lambda self, leads, *, now_ms, lease: real(self, leads, now_ms=now_ms, lease=timedelta(0)),
    )


def _delay_of_901(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settle, "MAX_HINT_DELAY", timedelta(hours=1))


def _jitter_before_retry_after(patch: pytest.MonkeyPatch) -> None:
    def delay(self: RetryPolicy, attempt: int, *, dice: float, retry_after: timedelta | None = None) -> timedelta:
        span = max(self.schedule(attempt), retry_after or timedelta(0))
        return min(span * (self.least + (self.most - self.least) * dice), max(self.cap, retry_after or self.cap))

    patch.setattr(RetryPolicy, "delay", delay)


def _failed_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A failed condition whose row carries my own claim_id is taken for somebody else's."""
    real = Statements._answer

    def answer(self: Statements, update: Update, write_id: str, said: Any) -> Any:
        found = real(self, update, write_id, said)
        if said and said.get("Error") and isinstance(found, statements.Written):
            return Failed(item=found.item)
        return found

    patch.setattr(Statements, "_answer", answer)


def _published_first(patch: pytest.MonkeyPatch) -> None:
    """The retries' hints go out before what was sent is settled."""
    real = Engine._settle

    def settle_late(self: Engine, decided: Any, report: Any, **until: int) -> Any:
        self._publish(decided, {}, report)
        return real(self, decided, report, **until)

    patch.setattr(Engine, "_settle", settle_late)


def _late_sent_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Rows are read as their map says, without what was recorded late: the next settle sends it again."""
    patch.setattr(rows, "with_late", lambda deliveries, _sent_late: dict(deliveries))


def _release_applied_twice(patch: pytest.MonkeyPatch) -> None:
    """A release is repeated without asking whether it was applied."""
    real = DynamoJobStore.settle

    def twice(self: DynamoJobStore, settlements: Sequence[Any], **until: int) -> Any:
        answers = real(self, settlements, **until)
        released = [end for end in settlements if end.released]
        if released:
            with pytest.MonkeyPatch.context() as patch:
                _without_clauses("settle", "OPEN")(patch)
                real(self, released)
        return answers

    patch.setattr(DynamoJobStore, "settle", twice)


def _elapsed_time_is_a_redrive(patch: pytest.MonkeyPatch) -> None:
    """A letter met again a minute after its first sight is taken for a redriven one."""
    real_judge, real_bury = burial.judge, redrive_usecase.Redrive.bury
    clocks: list[Callable[[], int]] = []

    def judge(letter: Letter, receipt: Any, job: Job | None, *, max_receive_count: Callable[[], int]) -> burial.Burial:
        found = real_judge(letter, receipt, job, max_receive_count=max_receive_count)
        old = job is not None and clocks[-1]() > job.due_at_ms - 13 * 86_400_000 + 60_000
        return burial.Burial.REVIVE if found is burial.Burial.REFUSE and old else found

    def bury(self: redrive_usecase.Redrive, records: Any) -> Any:
        clocks.append(self.clock)
        return real_bury(self, records)

    patch.setattr(redrive_usecase.Redrive, "bury", bury)
    patch.setattr(burial, "judge", judge)


def _rerun_together(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "taken_over", property(lambda _job: False))


def _revive_unconditionally(patch: pytest.MonkeyPatch) -> None:
    _without_clauses("revive", "IN_STATUS", "SAME_DEATH")(patch)
    patch.setattr(burial, "same_death", lambda _letter, job: job is not None)


def _judged_by_one_reading(patch: pytest.MonkeyPatch) -> None:
    """A letter is judged by one reading of its row, and the row revived as another reading has it."""
    careless = SimpleNamespace(**vars(burial) | {"same_death": lambda _letter, _job: True})
    patch.setattr(redrive_usecase, "burial", careless)


def _letters_repeated(patch: pytest.MonkeyPatch) -> None:
    """A letter is sent once more with its nonce where the first call seemed to fail."""
    real = queue.SqsLetters.bury

    def bury(self: queue.SqsLetters, letters: Any) -> int:
        return real(self, letters) and real(self, letters)

    patch.setattr(queue.SqsLetters, "bury", bury)


def _no_reconciler(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DynamoJobStore, "rebury", lambda self, lead, *, due_at_ms: None)


def _never_refused(patch: pytest.MonkeyPatch) -> None:
    """A letter that was seen is deleted: it never comes to the dead-letter queue."""
    real = burial.judge

    def judge(*args: Any, **said: Any) -> burial.Burial:
        found = real(*args, **said)
        return burial.Burial.DISCARD if found is burial.Burial.REFUSE else found

    patch.setattr(burial, "judge", judge)


def _expiry_ignored(patch: pytest.MonkeyPatch) -> None:
    real = Engine._attempt

    def attempt(self: Engine, jobs: Any, *args: Any, **said: Any) -> None:
        real(self, [replace(job, expires_at_ms=2**52) for job in jobs], *args, **said)

    patch.setattr(Engine, "_attempt", attempt)


def _one_count_for_all(patch: pytest.MonkeyPatch) -> None:
    """Every queued delivery is counted as tried whenever one is."""
    real = settle._delivery

    def count(job: Job, delivery: Any, result: Any, **said: Any) -> Any:
        found = real(job, delivery, result, **said)
        return replace(found, attempts=found.attempts + 1) if result is None else found

    patch.setattr(settle, "_delivery", count)


def _throttled_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A statement that was throttled once, or murky, counts as a lost race."""
    real = Statements._execute

    def execute(self: Statements, given: Any, **until: int) -> Any:
        lost = {"Error": {"Code": "ConditionalCheckFailed", "Item": {"claim_id": {"S": "somebody"}}}}
        return [lost if answer is None else answer for answer in real(self, given, **until)]

    patch.setattr(statements, "TRIES", 1)
    patch.setattr(Statements, "_execute", execute)


MUTANTS: Sequence[Mutant] = (
    Mutant("no fence", _without_clauses("settle", "FENCE", "OPEN")),
    Mutant("attempts counted at the end", _counted_at_the_end),
    Mutant("sequence reset on redrive", _values("revive", lambda v: v.update(claim_seq=_n(0), settled_seq=_n(0)))),
    Mutant("revive without condition", _revive_unconditionally),
    Mutant("lease not dated forward", _lease_not_dated_forward),
    Mutant("delay of 901", _delay_of_901),
    Mutant("jitter earlier than Retry-After", _jitter_before_retry_after),
    Mutant("a failed condition is always a loss", _failed_is_lost),
    Mutant("retries published before successes are settled", _published_first),
    Mutant("fence on claim_seq without settled_seq", _without_clauses("settle", "OPEN")),
    Mutant("a settle overwrites a recorded sent", _values("settle", lambda v: v.update(sent_late=None))),
    Mutant("sent_late not folded into the row", _late_sent_forgotten),
    Mutant("a release applied twice", _release_applied_twice),
    Mutant("a sight kept across a revive", _values("revive", lambda v: v.pop("sights"))),
    Mutant("elapsed time taken for a redrive", _elapsed_time_is_a_redrive),
    Mutant("jobs taken over from a crash run again together", _rerun_together),
    Mutant("ttl kept on revive", _values("revive", lambda v: v.pop("ttl"))),
    Mutant("a letter judged by one reading, revived by another", _judged_by_one_reading),
    Mutant("a letter repeated with its nonce", _letters_repeated),
    Mutant("no reconciler", _no_reconciler),
    Mutant("letters deleted once seen", _never_refused),
    Mutant("expiry ignored", _expiry_ignored),
    Mutant("one delivery's failure counted for all", _one_count_for_all),
    Mutant("throttled taken for lost", _throttled_is_lost),
    Mutant("death leaves settled_seq", _values("exhaust", lambda v: v.pop("settled_seq"))),
    Mutant("cancel leaves settled_seq", _values("cancel", lambda v: v.pop("settled_seq"))),
    *(
        Mutant(f"{event} without {name}", _without_clauses(event, name))
        for event, names in CLAUSES.items()
        for name in names
        if name not in SPARE.get(event, ())
    ),
    *(Mutant(f"{event} without {' and '.join(names)}", _without_clauses(event, *names)) for event, names in TOGETHER),
    *(Mutant(f"{name} without its condition", _without_condition(*pair)) for name, pair in CONDITIONS.items()),
)


def _n(number: int) -> dict[str, str]:
    return {"N": str(number)}
