"""What the results of an attempt make of a job: a pure decision, from values to the values of one conditional write."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from pushlease.codes import CHURN, Code
from pushlease.jobs.job import HISTORY_LIMIT, Delivery, DeliveryId, DeliveryStatus, Job, JobId, Status
from pushlease.jobs.retry import MAX_HINT_DELAY, RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The provider accepted it; ``provider_id`` only if it differs from the id that we sent."""

    provider_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The in-app inbox has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It was tried and failed. ``reason`` is for people; ``retry_after`` is the provider's floor."""

    code: Code
    reason: str = ""
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """The recipient does not want it; ``why`` in one word."""

    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """It was not tried, and shall not be before ``until_ms``: nothing is spent.

    ``why``: only what a person would ask for.
    """

    until_ms: int
    why: str | None = None


type Result = Sent | Delivered | Failed | Suppressed | Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The notification was deleted: the job is to be cancelled, and nothing was sent in this attempt."""


# Failures that we decide ourselves, before any provider is asked: no attempt is spent, and the last error stays.
_NOT_TRIED = frozenset({Code.EXPIRED, Code.DEVICE_DELETED})

type Attempted = Mapping[DeliveryId, Result] | Withdrawn


# What a person should see, unless a deployment says otherwise; of the retried ones, those with their attempts spent.
DEAD_CODES = frozenset(Code) - CHURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of a deployment that decide how jobs go on and end.

    ``lease``: how long a claim holds. ``grace``: how long a hint may take before the drain takes over.
    ``burial_check``: how soon after a death its letter must have been seen. ``dead_codes``: which failures a person
    should see.
    """

    retry: RetryPolicy
    lease: timedelta
    grace: timedelta
    burial_check: timedelta = timedelta(minutes=5)
    dead_codes: frozenset[Code] = DEAD_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The values that end one claim.

    ``hint_delay`` is set if a hint shall say when the job is due again; otherwise the row alone does. ``released``:
    nothing was tried, so no attempt is spent.
    """

    job_id: JobId
    claim_seq: int
    status: Status
    deliveries: Mapping[DeliveryId, Delivery]
    attempts: int
    due_at_ms: int
    alone: bool
    last_error: str | None
    died_at_ms: int | None
    history: tuple[str, ...]
    hint_delay: timedelta | None
    released: bool


def settle(
    job: Job,
    results: Mapping[DeliveryId, Result],
    *,
    now_ms: int,
    dice: Callable[[], float],
    policy: Policy,
    may_hint: bool = True,
) -> Settlement:
    """Decide what a claimed job becomes, given a result for each delivery that was tried, or is held.

    A queued delivery's own count rises by the claims that crashed before this one if it was due, and by one if it was
    tried now, so that one provider's failures never spend another's attempts.
    """
    last_error = job.last_error
    words: list[str] = []
    told = False  # whether this attempt's last_error is one for a person
    deliveries: dict[DeliveryId, Delivery] = {}
    tried = told_why = False
    for delivery_id, delivery in job.deliveries.items():
        if delivery.status is not DeliveryStatus.QUEUED:
            deliveries[delivery_id] = delivery
            continue
        counted = _charged(delivery, job.crashed_claims, now_ms)
        result = results.get(delivery_id)
        # What a person should see is not hidden behind a device's death that came with it.
        if isinstance(result, Failed) and result.code not in (CHURN if told else _NOT_TRIED):
            told = result.code not in CHURN
            last_error = f"{result.code}: {result.reason}" if result.reason else str(result.code)
        tried = tried or not isinstance(result, Held | None)
        deliveries[delivery_id] = _delivery(job, counted, result, now_ms=now_ms, dice=dice, policy=policy)
        held = result.why if isinstance(result, Held) else None
        told_why = told_why or bool(held)
        words.append(held or deliveries[delivery_id].code or deliveries[delivery_id].status)

    queued = [delivery for delivery in deliveries.values() if delivery.status is DeliveryStatus.QUEUED]
    retry_at_ms = max(now_ms, min((d.due_at_ms or now_ms for d in queued), default=now_ms))
    wait = timedelta(milliseconds=retry_at_ms - now_ms)
    status = _ending(deliveries, policy)
    may_hint = may_hint and job.page is None
    hinted = status is Status.PENDING and may_hint and tried and wait <= MAX_HINT_DELAY
    due_at_ms = retry_at_ms
    if hinted:
        due_at_ms += _ms(policy.grace)
    elif status is Status.DEAD:
        due_at_ms = now_ms + _ms(policy.burial_check)
    return Settlement(
        job_id=job.job_id,
        claim_seq=job.claim_seq,
        status=status,
        deliveries=deliveries,
        attempts=max((d.attempts for d in queued), default=job.attempts),
        due_at_ms=due_at_ms,
        alone=job.taken_over and not tried,
        last_error=last_error,
        died_at_ms=now_ms if status is Status.DEAD else None,
        history=noted(job.history, now_ms, f"#{job.claim_seq} {_tally(words)}") if tried or told_why else job.history,
        hint_delay=wait if hinted else None,
        released=not tried,
    )


def release(job: Job, *, until_ms: int, alone: bool, now_ms: int, policy: Policy) -> Settlement:
    """Give a claim back with nothing tried: the attempt is not spent, and no hint is sent."""
    given_back = settle(job, {}, now_ms=now_ms, dice=lambda: 0.0, policy=policy)
    return replace(given_back, due_at_ms=until_ms, alone=alone)


def exhausted(job: Job, *, now_ms: int, policy: Policy) -> Settlement:
    """What becomes of a job whose attempts are spent, the last of them by a claim that nobody ended.

    The crash is charged to what was due, even if a neighbour caused it: a job that kills its worker must end. What has
    attempts left goes on, alone, so that one provider's failures cost another's deliveries nothing.
    """
    crashes = job.claim_seq - job.settled_seq
    deliveries: dict[DeliveryId, Delivery] = dict(job.deliveries)
    for delivery_id, delivery in job.open_deliveries.items():
        counted = _charged(delivery, crashes, now_ms)
        if counted.attempts >= job.max_attempts:
            code = delivery.code or Code.LOST
            counted = replace(counted, status=DeliveryStatus.FAILED, code=code, due_at_ms=None)
        deliveries[delivery_id] = counted
    lost = [id_ for id_ in job.open_deliveries if deliveries[id_].status is DeliveryStatus.FAILED]
    queued = [delivery for delivery in deliveries.values() if delivery.status is DeliveryStatus.QUEUED]
    status = _ending(deliveries, policy)
    dead = status is Status.DEAD
    return Settlement(
        job_id=job.job_id,
        claim_seq=job.claim_seq,
        status=status,
        deliveries=deliveries,
        attempts=max((delivery.attempts for delivery in queued), default=job.attempts),
        due_at_ms=now_ms + (_ms(policy.burial_check) if dead else 0),
        alone=status is Status.PENDING,
        last_error=f"{Code.LOST}: claimed {job.attempts} times, the last one never settled" if lost else job.last_error,
        died_at_ms=now_ms if dead else None,
        history=noted(job.history, now_ms, f"#{job.claim_seq} {_exhaustion(lost, queued)}"),
        hint_delay=None,
        released=False,
    )


def _exhaustion(lost: Sequence[DeliveryId], queued: Sequence[Delivery]) -> str:
    if lost:
        return str(Code.LOST)
    return "crashed" if queued else "sent late"


def _charged(delivery: Delivery, crashes: int, now_ms: int) -> Delivery:
    """The delivery with the claims that crashed on it: on all that were due, since nobody knows which it was."""
    due = (delivery.due_at_ms or 0) <= now_ms
    return replace(delivery, attempts=delivery.attempts + crashes) if due else delivery


def noted(history: tuple[str, ...], now_ms: int, what: str) -> tuple[str, ...]:
    """The timeline with one entry more, without its oldest where it would grow past its limit."""
    return (*history, f"{now_ms} {what}")[-HISTORY_LIMIT:]


def _delivery(
    job: Job, delivery: Delivery, result: Result | None, *, now_ms: int, dice: Callable[[], float], policy: Policy
) -> Delivery:
    spent = replace(delivery, attempts=delivery.attempts + 1, due_at_ms=None)
    match result:
        case Failed(code=code) if code in _NOT_TRIED:
            return replace(delivery, status=DeliveryStatus.FAILED, code=code, due_at_ms=None)
        case None:
            return delivery
        case Held(until_ms=until_ms):
            return replace(delivery, due_at_ms=min(until_ms, job.expires_at_ms))
        case Sent(provider_id=provider_id):
            return replace(spent, status=DeliveryStatus.SENT, code=None, provider_id=provider_id, sent_at_ms=now_ms)
        case Delivered():
            return replace(spent, status=DeliveryStatus.DELIVERED, code=None, sent_at_ms=now_ms)
        case Suppressed(why=why):
            return replace(delivery, status=DeliveryStatus.SUPPRESSED, code=why or delivery.code, due_at_ms=None)
        case Failed(code=code, retry_after=retry_after):
            if not code.retried or spent.attempts >= job.max_attempts:
                return replace(spent, status=DeliveryStatus.FAILED, code=code)
            wait = policy.retry.delay(spent.attempts, dice=dice(), retry_after=retry_after)
            retry_at_ms = now_ms + _ms(wait)
            if retry_at_ms >= job.expires_at_ms:
                return replace(spent, status=DeliveryStatus.FAILED, code=Code.EXPIRED)
            return replace(spent, code=code, due_at_ms=retry_at_ms)
        case _:
            assert_never(result)


def _ending(deliveries: Mapping[DeliveryId, Delivery], policy: Policy) -> Status:
    if any(delivery.status is DeliveryStatus.QUEUED for delivery in deliveries.values()):
        return Status.PENDING
    failed = {delivery.code for delivery in deliveries.values() if delivery.status is DeliveryStatus.FAILED}
    return Status.DEAD if failed & policy.dead_codes else Status.DONE


def _tally(words: list[str]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _ms(span: timedelta) -> int:
    """Whole milliseconds, rounded up: a floor must not be undercut by a fraction."""
    return -(-span // timedelta(milliseconds=1))
