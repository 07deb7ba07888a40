"""What a person may see of a deployment: the one port that the command line and the studio read. It changes nothing.

Counts come from the index, key by key, and never from reading every row; one that would take too long to count ends
with ``complete`` false and is a lower bound. All instants are epoch milliseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pushlease.jobs.job import Job, JobId
from pushlease.push.device import Device, Recipient
from pushlease.push.flow import Breaker, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One lane of pending jobs.

    ``due``: could be claimed now. ``waiting``: leased, deferred or between two attempts, until ``next_due_at_ms``.
    ``oldest_due_at_ms``: since when the oldest due job waits for somebody to claim it.
    """

    name: str
    due: int
    waiting: int
    oldest_due_at_ms: int | None = None
    next_due_at_ms: int | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead jobs: all conditions that are given hold.

    ``code``: why the job died, or why one of its deliveries failed. ``platform``: of a delivery that failed.
    ``died_from_ms``: that instant or later, ``died_until_ms``: before that instant.
    """

    app_id: str | None = None
    notification_id: str | None = None
    platform: str | None = None
    code: str | None = None
    died_from_ms: int | None = None
    died_until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """Dead jobs, newest death first; the counts are over all that the filter met, not over those shown.

    ``by_app`` and ``by_code``: how many of each. ``sighted``: how many have a letter in the dead-letter queue.
    """

    jobs: Sequence[Job]
    matched: int
    by_app: Mapping[str, int]
    by_code: Mapping[str, int]
    sighted: int
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How much a queue holds, as SQS estimates it: to be received, being worked, and delayed."""

    name: str
    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The last run of a drain. ``kind``: ``schedule`` or ``delayed``; ``unfinished``: lanes that had more."""

    kind: str
    at_ms: int
    jobs: int
    reburied: int
    unfinished: int


class Inspector(Protocol):
    """Reads a deployment. Raises ``PushleaseError`` where nobody answers."""

    def lanes(self) -> Sequence[Lane]:
        """Every lane that pending jobs may stand in, by name."""
        ...

    def job(self, job_id: JobId) -> Job | None:
        """One job with its deliveries and its history; None if there is none, or it cannot be read."""
        ...

    def of_notification(self, app_id: str, notification_id: str, *, user_id: str | None = None) -> Sequence[Job]:
        """A notification's jobs; of one with a single recipient, and of an audience, only if ``user_id`` is given."""
        ...

    def of_recipient(self, recipient: Recipient, *, limit: int) -> Sequence[Job]:
        """A recipient's latest jobs, the newest first; none where the deployment keeps no index of recipients."""
        ...

    def devices(self, recipient: Recipient) -> Sequence[Device]:
        """A recipient's devices."""
        ...

    def dead(self, wanted: DeadFilter, *, limit: int) -> Dead:
        """The dead jobs that the filter meets, ``limit`` of them shown."""
        ...

    def queues(self) -> Sequence[QueueDepth]:
        """The deployment's queues, in the order in which work passes through them."""
        ...

    def breakers(self) -> Mapping[Way, Breaker]:
        """Every way whose breaker has ever opened, or which a provider asked to pause, in the last 30 days."""
        ...

    def ticks(self) -> Sequence[Tick]:
        """The drain's last run of each kind, the newest first; none if it never ran."""
        ...
