"""The doors through which the engine reaches the store, the queues and the world. Real forms: ``pushlease.aws``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Protocol

from pushlease.jobs.job import Delivery, DeliveryId, Job, JobId, Sight
from pushlease.jobs.settle import Attempted, Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Why we believe a job to be due: a hint (then ``claim_seq`` is what the row had) or an index row (then None).

    ``due_at_ms`` is what the row had when the lead was made; a claim holds only if it still has it. ``hops`` counts how
    many times in a row a hint led to a hint.
    """

    job_id: JobId
    due_at_ms: int
    claim_seq: int | None = None
    hops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The lease is ours; ``job`` is the row as our claim left it."""

    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """The lead is right, but the row has no attempts left; ``job`` is the row as it stands."""

    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The row is there, pending, and cannot be read; ``why`` names what is wrong, never a value."""

    job_id: JobId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRace:
    """Somebody else has it, or it is no longer due. Ordinary."""

    job_id: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """The store gave no answer, throttled or out of reach: the lead is as good as before."""

    job_id: JobId


type ClaimAnswer = Claimed | Exhausted | Broken | LostRace | Unavailable


class Ended(Enum):
    """What became of a settlement."""

    WRITTEN = auto()
    LEASE_LOST = auto()  # somebody else claimed, cancelled or buried the job meanwhile; nothing was written
    UNKNOWN = auto()  # the store gave no answer: written or not, the lease runs out by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Revival:
    """The values that bring one death back to life; ``redrives`` is what the dead row must have."""

    job_id: JobId
    redrives: int
    deliveries: Mapping[DeliveryId, Delivery]
    due_at_ms: int
    expires_at_ms: int
    lifetime_ms: int
    history: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A job as the index of recipients has it."""

    job_id: JobId
    created_at_ms: int


class JobStore(Protocol):
    """The job rows. Every write is one conditional statement of ``lifecycle.TRANSITIONS``."""

    def insert(self, jobs: Sequence[Job]) -> Sequence[Job | Unavailable | None]:
        """Store what is not there yet: None where it was stored, the existing row where there was one, in order.

        ``Unavailable`` where nobody answered: the same call again meets the rows that there are by then.
        """
        ...

    def get(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """The rows that exist and can be read, as of now."""
        ...

    def remains(self, job_id: JobId) -> Job | None:
        """What can be told of a row as far as a letter needs it, even of one that cannot be read (no deliveries)."""
        ...

    def claim(self, leads: Sequence[Lead], *, now_ms: int, lease: timedelta) -> Sequence[ClaimAnswer]:
        """Take the leases that the leads promise, in order; a lead may stand only once in a call."""
        ...

    def settle(self, settlements: Sequence[Settlement], *, deadline_ms: int = 0) -> Sequence[Ended]:
        """End claims under their fence, in order; what gets no answer is repeated until ``deadline_ms``."""
        ...

    def record_late(self, job_id: JobId, delivery_ids: Sequence[DeliveryId]) -> None:
        """The lease was lost, yet these were sent: remember that much, and nothing else; of a scrubbed row nothing."""
        ...

    def exhaust(self, job: Job, death: Settlement) -> bool:
        """End a job that has no attempts left, or what of it has none, if it is still as it was seen; whether so."""
        ...

    def condemn(self, job_id: JobId, *, due_at_ms: int, now_ms: int, why: str) -> Job | None:
        """End a pending job whose row cannot be read; what can be told of it, None if it is so no more.

        ``due_at_ms`` is its next burial check.
        """
        ...

    def cancel(self, job_ids: Sequence[JobId], *, now_ms: int) -> Sequence[bool]:
        """Nothing more leaves these jobs; False where the job is over already, or unknown."""
        ...

    def of_recipient(
        self,
        app_id: str,
        user_id: str,
        *,
        limit: int,
        before_ms: int | None = None,
        after: Accepted | None = None,
    ) -> Sequence[Accepted]:
        """A recipient's jobs, the latest first, as far as the deployment's index knows them.

        Those accepted before an instant, or those that come ``after`` one in this order.
        """
        ...

    def everywhere(self, app_id: str, user_id: str) -> Iterator[JobId]:
        """A recipient's jobs, found by reading every row there is: slow, and complete."""
        ...

    def scrub(self, job_id: JobId, *, now_ms: int) -> bool:
        """Leave nothing of a person in a row but its fence; what is not over is cancelled. False if it changed."""
        ...

    def due(self, lane: str, *, now_ms: int, limit: int, after: Lead | None = None) -> Sequence[Lead]:
        """One page of a lane's rows that are due, oldest first; a hint only, since an index may lag."""
        ...

    def sight(self, job_id: JobId, *, redrives: int, nonce: str, sight: Sight, due_at_ms: int) -> bool:
        """Record that a dead job's letter was seen; False if that death is over."""
        ...

    def rebury(self, lead: Lead, *, due_at_ms: int) -> Job | None:
        """Move a dead job's burial check on; the row if it is to be buried again, None if it was not as seen."""
        ...

    def revive(self, revival: Revival) -> bool:
        """Bring one death back to life; False if that death is over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A message saying "this job is due"; losing or doubling one is harmless. ``app_id`` is its fairness group."""

    job_id: JobId
    claim_seq: int
    due_at_ms: int
    app_id: str
    hops: int = 0
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What a dead job sends to the burial queue: enough to find the row and to tell this death from the next.

    ``nonce`` is fresh for every send, so that a doubled letter is not taken for a redriven one.
    """

    job_id: JobId
    redrives: int
    nonce: str
    app_id: str
    code: str
    died_at_ms: int


class HintSender(Protocol):
    """Publishes hints. Never raises: a hint that is lost costs only time."""

    def publish(self, hints: Sequence[Hint]) -> int:
        """How many could not be published."""
        ...


class LetterSender(Protocol):
    """Sends letters to the burial queue. Never raises: the reconciler sends another."""

    def bury(self, letters: Sequence[Letter]) -> int:
        """How many could not be sent."""
        ...


class LaneSender(Protocol):
    """Hands lanes to other workers. Never raises: the next tick hands them over again."""

    def hand_over(self, lanes: Sequence[str], *, now_ms: int) -> int:
        """How many could not be handed over."""
        ...


class Attempter(Protocol):
    """Tries the open deliveries of claimed jobs."""

    def attempt(self, jobs: Sequence[Job], *, now_ms: int, deadline_ms: int) -> Mapping[JobId, Attempted]:
        """Results for every job, back by ``deadline_ms``. One job's fault is its own: never raises for it."""
        ...
