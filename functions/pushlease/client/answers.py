"""What the functions answer, typed. Fields that a later version adds are passed over; words stay plain text.

All instants are epoch milliseconds. A job's ``status`` is one of ``pushlease.jobs.job.Status``, a delivery's one of
``DeliveryStatus``, a ``code`` one of ``pushlease.codes.Code``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification bound for one device, or for the in-app inbox.

    ``code``: the last error, or why nothing is sent. ``not_before_ms``: what it waits for, and ``why``.
    ``provider_id``: the provider's name for what it accepted.
    """

    status: str
    code: str | None = None
    attempts: int = 0
    not_before_ms: int | None = None
    why: str | None = None
    sent_at_ms: int | None = None
    provider_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was accepted for one recipient. ``duplicate``: it was there, perhaps by an earlier try of the same call."""

    job_id: str
    user_id: str
    status: str
    expires_at_ms: int
    duplicate: bool
    deliveries: Mapping[str, Delivery]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A send's answer: a job for each recipient. ``dry_run``: what it would be, and nothing is stored."""

    notification_id: str
    jobs: tuple[Job, ...]
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One entry of a job's timeline."""

    at_ms: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """What became of a job; ``last_error`` and ``died_at_ms`` only where there are any."""

    job_id: str
    notification_id: str
    user_id: str
    status: str
    attempts: int
    redrives: int
    created_at_ms: int
    expires_at_ms: int
    died_at_ms: int | None = None
    last_error: str | None = None
    deliveries: Mapping[str, Delivery] = field(default_factory=dict)
    timeline: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statuses:
    """A page of jobs. ``next_before_ms``: the next page's ``before_ms``; None where there is no more."""

    jobs: tuple[JobStatus, ...]
    next_before_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledJob:
    """Whether this call withdrew it: not if it was over, as after an earlier try of the same call."""

    job_id: str
    cancelled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A cancel's answer: the jobs that it was about."""

    notification_id: str
    jobs: tuple[CancelledJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A device that is registered, since when."""

    device_id: str
    registered_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Whether all of a recipient is gone; if not, the same call again goes on."""

    complete: bool


def accepted(said: Mapping[str, Any]) -> Accepted:
    """From an answer to ``send``."""
    return _made(Accepted, said, jobs=tuple(_made(Job, job, deliveries=_deliveries(job)) for job in said["jobs"]))


def statuses(said: Mapping[str, Any]) -> Statuses:
    """From an answer to ``status``."""
    return _made(Statuses, said, jobs=tuple(_status(job) for job in said["jobs"]))


def cancelled(said: Mapping[str, Any]) -> Cancelled:
    """From an answer to ``cancel``."""
    return _made(Cancelled, said, jobs=tuple(_made(CancelledJob, job) for job in said["jobs"]))


def registered(said: Mapping[str, Any]) -> Registered:
    """From an answer to ``register_device``."""
    return _made(Registered, said)


def removed(said: Mapping[str, Any]) -> bool:
    """From an answer to ``remove_device``."""
    return bool(said["removed"])


def erased(said: Mapping[str, Any]) -> Erased:
    """From an answer to ``erase_recipient``."""
    return _made(Erased, said)


def _status(said: Mapping[str, Any]) -> JobStatus:
    timeline = tuple(_made(Moment, entry) for entry in said.get("timeline", ()))
    return _made(JobStatus, said, deliveries=_deliveries(said), timeline=timeline)


def _deliveries(said: Mapping[str, Any]) -> Mapping[str, Delivery]:
    return {name: _made(Delivery, part) for name, part in said["deliveries"].items()}


def _made[T](kind: type[T], said: Mapping[str, Any], **parts: Any) -> T:
    """A value of what is said of its fields; raises ``TypeError`` if one is missing."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    return kind(**{name: value for name, value in said.items() if name in known} | parts)
