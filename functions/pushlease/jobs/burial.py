"""Dead jobs on their way into the dead-letter queue, and back.

A letter sent straight to a dead-letter queue cannot be redriven to its source from the console, so SQS itself must move
it: a dead job's letter goes to the ``burial`` queue, whose consumer refuses it until SQS has had enough::

    death ──letter──▶ burial ──refused maxReceiveCount times──▶ dead-letters
      ▲                 │  ▲                                        │
      │  first sight recorded on the row                            │ a person, the console's button, a script
      │                 │  └────────────────────────────────────────┘
      └── job dies again ◀── revived: the letter came back as a newer message

Elapsed time decides nothing. What tells a redriven letter from one that is merely refused again: a newer SentTimestamp,
another messageId, or a receive count beyond the queue's own maximum. (Systems differ in which of these change.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto

from pushlease.codes import CHURN, Code
from pushlease.jobs.job import Delivery, DeliveryStatus, Job, Status
from pushlease.jobs.ports import Letter, Revival
from pushlease.jobs.settle import noted

# A letter that was seen is in the dead-letter queue, which keeps it 14 days: a day before that another is sent.
SEEN_LETTER_CHECK = timedelta(days=13)
LONGEST_CHECK = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What SQS says of one receive: when the message was sent, as which message, and how often it was received."""

    sent_at_ms: int
    message_id: str
    receive_count: int


class Burial(Enum):
    """What is to be done with a letter met on the burial queue."""

    DISCARD = auto()  # that death is over
    SIGHT = auto()  # seen for the first time: record it, then refuse
    REFUSE = auto()  # on its way into the dead-letter queue
    REVIVE = auto()  # it came back from there: a person wants the job to run again


def judge(letter: Letter, receipt: Receipt, job: Job | None, *, max_receive_count: Callable[[], int]) -> Burial:
    """Decide what a letter met on the burial queue means, from the letter, its receipt and the row.

    ``max_receive_count``: the burial queue's own, asked for only where it decides.
    """
    if not same_death(letter, job):
        return Burial.DISCARD
    sight = job.sights.get(letter.nonce) if job else None
    if sight is None:
        return Burial.SIGHT
    redriven = (
        receipt.sent_at_ms > sight.sent_at_ms
        or receipt.message_id != sight.message_id
        or receipt.receive_count > max_receive_count()
    )
    return Burial.REVIVE if redriven else Burial.REFUSE


def same_death(letter: Letter, job: Job | None) -> bool:
    """Whether the letter speaks of the death that the job is in now."""
    return job is not None and job.status is Status.DEAD and job.redrives == letter.redrives


def next_check(job: Job, *, now_ms: int, least: timedelta) -> timedelta:
    """How long another letter may take to be seen: the longer the longer nobody has seen one, a day at most.

    A burial queue that nobody reads must not fill with the letters of one death.
    """
    dead_for = timedelta(milliseconds=max(0, now_ms - (job.died_at_ms or now_ms)))
    return min(max(least, dead_for), LONGEST_CHECK)


def letter_of(job: Job, *, nonce: str) -> Letter:
    """A new letter for a dead job; ``nonce`` is fresh for every send."""
    return Letter(
        job_id=job.job_id,
        redrives=job.redrives,
        nonce=nonce,
        app_id=job.app_id,
        code=code_of(job),
        died_at_ms=job.died_at_ms or 0,
    )


def code_of(job: Job) -> str:
    """Why a job is dead: its last error, unless that was a device's death beside a failure that a fix can cure."""
    last = (job.last_error or Code.UNREADABLE).split(":")[0]
    if last not in CHURN:
        return last
    failed = (delivery.code for delivery in job.deliveries.values() if delivery.status is DeliveryStatus.FAILED)
    return next((code for code in failed if code and code not in CHURN), last)


def revival_of(job: Job, *, now_ms: int, dice: Callable[[], float], spread: timedelta) -> Revival:
    """The values that give a dead job a fresh budget: what a fix can cure is queued again, what was sent stays sent.

    The expiry is extended by its original span, counted from now. ``spread``: over how long a mass redrive is spread.
    """
    lifetime_ms = job.lifetime_ms or job.expires_at_ms - job.created_at_ms
    return Revival(
        job_id=job.job_id,
        redrives=job.redrives,
        deliveries={delivery_id: _revived(delivery) for delivery_id, delivery in job.deliveries.items()},
        due_at_ms=now_ms + int(spread / timedelta(milliseconds=1) * dice()),
        expires_at_ms=max(job.expires_at_ms, now_ms + lifetime_ms),
        lifetime_ms=lifetime_ms,
        history=noted(job.history, now_ms, f"redrive {job.redrives + 1}"),
    )


def _revived(delivery: Delivery) -> Delivery:
    curable = delivery.status is DeliveryStatus.FAILED and delivery.code not in CHURN
    # A row that died unreadable and was mended by hand has deliveries queued still: they start anew as well.
    return Delivery() if curable or delivery.status is DeliveryStatus.QUEUED else delivery
