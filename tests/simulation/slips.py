"""More planted bugs: no single write shows these, but its cause does, or its time, its cost, or the end of the run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from deliver.usecase import Deliver
from pushlease.aws import job_store, statements
from pushlease.aws.job_store import DynamoJobStore, Retention
from pushlease.aws.statements import Failed, Statements, Update
from pushlease.jobs import burial, settle
from pushlease.jobs.engine import Engine
from pushlease.jobs.job import Delivery, DeliveryStatus, Job, Status
from pushlease.jobs.ports import Letter
from pushlease.jobs.retry import RetryPolicy
from pushlease.push import attempt
from pushlease.push.attempt import PushAttempter
from simulation.mutants import Mutant, Plant

HOUR_MS = 3_600_000
MINUTE = timedelta(minutes=1)


def _ended_as(change: Callable[[settle.Settlement], settle.Settlement]) -> Plant:
    """Change what an attempt decides."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = settle.settle
        patch.setattr(settle, "settle", lambda *args, **said: change(real(*args, **said)))

    return plant


def _jobs_attempted_as(change: Callable[[Job, int], Job]) -> Plant:
    """Change what an attempt is told of its jobs; the second argument is the time."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = Engine._attempt

        def attempt(self: Engine, jobs: Sequence[Job], *args: Any, **said: Any) -> None:
            real(self, [change(job, self.clock()) for job in jobs], *args, **said)

        patch.setattr(Engine, "_attempt", attempt)

    return plant


def _judged_of(change: Callable[[Any, Job | None], Any]) -> Plant:
    """Judge letters by another receipt than the queue's."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = burial.judge

        def judge(letter: Letter, receipt: Any, job: Job | None, **said: Any) -> burial.Burial:
            seen = job.sights.get(letter.nonce) if job else None
            return real(letter, change(receipt, seen), job, **said)

        patch.setattr(burial, "judge", judge)

    return plant


def _revived_as(change: Callable[[Any], Any]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        real = burial.revival_of
        patch.setattr(burial, "revival_of", lambda job, **said: change(real(job, **said)))

    return plant


def _kept_for(status: Status, seconds: int | None) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        real = Retention.ttl_s

        def ttl_s(self: Retention, of: Status, now_ms: int) -> int | None:
            asked = real(self, of, now_ms)
            return asked if of is not status else None if seconds is None else now_ms // 1000 + seconds

        patch.setattr(Retention, "ttl_s", ttl_s)

    return plant


def _set(target: Any, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(target, name, value)


def _around(target: Any, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Put a function around another."""
    return lambda patch: patch.setattr(target, name, change(getattr(target, name)))


def _hints_deleted_unclaimed(real: Callable[..., Any]) -> Callable[..., Any]:
    def deliver(self: Deliver, records: Any, *, deadline_ms: int) -> Any:
        delivered = real(self, records, deadline_ms=deadline_ms)
        delivered.kept = []
        return delivered

    return deliver


def _one_app_unserved(real: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(self: PushAttempter, jobs: Sequence[Job], **said: int) -> Any:
        rest = [job for job in jobs if job.app_id != "bank"]
        muted = {job.job_id: dict.fromkeys(job.open_deliveries, settle.Suppressed()) for job in jobs}
        return muted | (dict(real(self, rest, **said)) if rest else {})

    return attempt


def _first_claims_released(real: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(self: Engine, jobs: Sequence[Job], *args: Any, deadline_ms: int) -> None:
        for job in jobs:
            real(self, [job], *args, deadline_ms=deadline_ms if job.claim_seq > 1 else 0)

    return attempt


def _mine_by_number(real: Callable[..., Any]) -> Callable[..., Any]:
    """A claim is taken for one's own by its number, not by its id."""

    def answer(self: Statements, update: Update, write_id: str, said: Any) -> Any:
        found = real(self, update, write_id, said)
        if isinstance(found, Failed) and found.item and "claim_seq" in update.raised:
            before = [int(clause.parameters[0]["N"]) for clause in update.clauses if clause.name == "UNCHANGED_SEQ"]
            if before and found.item["claim_seq"]["N"] == str(before[0] + 1):
                return statements.Written(item=found.item)
        return found

    return answer


def _never_revives(real: Callable[..., burial.Burial]) -> Callable[..., burial.Burial]:
    def judge(*args: Any, **said: Any) -> burial.Burial:
        found = real(*args, **said)
        return burial.Burial.REFUSE if found is burial.Burial.REVIVE else found

    return judge


def _cancelled_unless_sent(_job: Job, _id: str, delivery: Delivery) -> Delivery:
    """As it was read: what is recorded as sent late is overwritten."""
    return delivery if delivery.status is DeliveryStatus.SENT else Delivery(status=DeliveryStatus.CANCELLED)


def _expires_now(job: Job, now_ms: int) -> Job:
    return replace(job, expires_at_ms=now_ms - 1)


SLIPS: Sequence[Mutant] = (
    Mutant(
        "expired an hour early",
        _jobs_attempted_as(lambda job, now: _expires_now(job, now) if job.expires_at_ms - now < HOUR_MS else job),
    ),
    Mutant(
        "expired once a worker crashed",
        _jobs_attempted_as(lambda job, now: _expires_now(job, now) if job.taken_over else job),
    ),
    Mutant(
        "one attempt fewer", _jobs_attempted_as(lambda job, _: replace(job, max_attempts=max(1, job.max_attempts - 1)))
    ),
    Mutant("one app unserved, and ended", _around(PushAttempter, "attempt", _one_app_unserved)),
    Mutant(
        "large contents not found",
        _around(attempt, "_content", lambda real: lambda job, batch: None if job.content_ref else real(job, batch)),
    ),
    Mutant("late successes forgotten", _set(DynamoJobStore, "record_late", lambda *_: None)),
    Mutant(
        "only the first late success recorded",
        _around(DynamoJobStore, "record_late", lambda real: lambda self, job_id, sent: real(self, job_id, sent[:1])),
    ),
    Mutant("a late success is cancelled", _set(job_store, "_cancelled", _cancelled_unless_sent)),
    Mutant("no retry's hint sent", _set(Engine, "_publish", lambda *_: None)),
    Mutant(
        "hints for the retries within a minute only",
        _ended_as(lambda end: replace(end, hint_delay=None) if (end.hint_delay or MINUTE) > MINUTE else end),
    ),
    Mutant(
        "hints a second beside their rows",
        _around(
            Engine,
            "_publish",
            lambda real: (
                lambda self, settled, *rest: real(
                    self, [(job, replace(end, due_at_ms=end.due_at_ms - 1000)) for job, end in settled], *rest
                )
            ),
        ),
    ),
    Mutant("hints deleted though their claims got no answer", _around(Deliver, "deliver", _hints_deleted_unclaimed)),
    Mutant(
        "hops never counted",
        _around(
            Engine,
            "work",
            lambda real: lambda self, leads, **said: real(self, [replace(lead, hops=0) for lead in leads], **said),
        ),
    ),
    Mutant(
        "no jitter",
        _around(
            RetryPolicy, "delay", lambda real: lambda self, attempt, **said: real(self, attempt, **said | {"dice": 0.5})
        ),
    ),
    Mutant(
        "only the first of a page worked",
        _around(Engine, "work", lambda real: lambda self, leads, **said: real(self, leads[:1], **said)),
    ),
    Mutant("always time for one attempt more", _set(Engine, "has_time", lambda *_: True)),
    Mutant("the first claim always released", _around(Engine, "_attempt", _first_claims_released)),
    Mutant(
        "a job stays alone once it was",
        _around(
            settle,
            "settle",
            lambda real: lambda job, *args, **said: replace(real(job, *args, **said), alone=job.taken_over),
        ),
    ),
    Mutant(
        "alone forgotten when released",
        _around(settle, "release", lambda real: lambda job, **said: replace(real(job, **said), alone=False)),
    ),
    Mutant("no reason left", _ended_as(lambda end: replace(end, last_error=None))),
    Mutant("no history left", _set(settle, "noted", lambda *_: ())),
    Mutant("done rows kept for ever", _kept_for(Status.DONE, None)),
    Mutant("cancelled rows kept for ever", _kept_for(Status.CANCELLED, None)),
    Mutant("dead rows deleted at once", _kept_for(Status.DEAD, 0)),
    Mutant("letters never revive", _around(burial, "judge", _never_revives)),
    Mutant(
        "a new message id is no redrive",
        _judged_of(lambda at, seen: replace(at, message_id=seen.message_id) if seen else at),
    ),
    Mutant("a receive count from one again is no redrive", _judged_of(lambda at, _: replace(at, receive_count=1))),
    Mutant("a letter sent anew is no redrive", _judged_of(lambda at, _: replace(at, sent_at_ms=0))),
    Mutant(
        "revived for ten hours later", _revived_as(lambda life: replace(life, due_at_ms=life.due_at_ms + 10 * HOUR_MS))
    ),
    Mutant(
        "each life longer than the last",
        _around(burial, "revival_of", lambda real: lambda job, **said: real(replace(job, lifetime_ms=None), **said)),
    ),
    Mutant(
        "the letter's check at once", _ended_as(lambda end: replace(end, due_at_ms=end.died_at_ms or end.due_at_ms))
    ),
    Mutant("a seen letter looked at after its deletion", _set(burial, "SEEN_LETTER_CHECK", timedelta(days=15))),
    Mutant(
        "another letter every second",
        _around(
            DynamoJobStore,
            "rebury",
            lambda real: lambda self, lead, *, due_at_ms: real(self, lead, due_at_ms=due_at_ms - 299_000),
        ),
    ),
    Mutant("a claim is mine by its number", _around(Statements, "_answer", _mine_by_number)),
)
