"""What the functions answer, typed. Fields that a later version adds are passed over; words stay plain text.

All instants are epoch milliseconds. A job's ``status`` is one of ``pushlease.jobs.job.Status``, a delivery's one of
``DeliveryStatus``, a ``code`` one of ``pushlease.codes.Code``.
"""

from collections.abc import Mapping, Sequence
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
    """A cancel's answer: the jobs that it was about; of an audience as a whole its ``state``, and no jobs."""

    notification_id: str
    jobs: tuple[CancelledJob, ...]
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AudienceAccepted:
    """An audience that is stored. ``variables``: the names that the content has for its recipients to fill.

    ``duplicate``: it was there, perhaps by an earlier try of the same call. ``dry_run``: nothing is stored.
    """

    notification_id: str
    pages: int
    variables: tuple[str, ...]
    duplicate: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFault:
    """What is wrong with a line of an audience's list. ``at``: the byte where it begins; -1, it names the user."""

    at: int
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AudienceStatus:
    """How far an audience is. ``state``: one of ``pushlease.push.audience.State``; ``fault``: why it failed.

    ``recipients``: how many were ``accepted`` and how their jobs stand (``sent``, ``failed``, …).
    """

    notification_id: str
    state: str
    pages: int
    pages_stored: int
    recipients: Mapping[str, int]
    faults: tuple[ListFault, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AudienceMoved:
    """Where an audience stands after a pause or a resume. ``changed``: not if it was over."""

    notification_id: str
    state: str
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A device that is registered, since when.

    ``superseded``: a later registration of its push token stands, and this one does not. ``retired``: the oldest
    devices, which had to go because the recipient has as many as one may.
    """

    device_id: str
    registered_at_ms: int
    superseded: bool = False
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A registered device, with the end of its push token. Nothing is sent to one that is stale or disabled."""

    device_id: str
    platform: str
    push_token: str
    registered_at_ms: int
    stale: bool
    environment: str | None = None
    address: str | None = None
    app_version: str | None = None
    locale: str | None = None
    zone: str | None = None
    disabled_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietHours:
    """Quiet from ``start`` to ``end``, as 22:00 and 07:00, on the ``days`` on which it starts (mon … sun), or daily."""

    start: str
    end: str
    days: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a recipient wants, as it was set; ``channels``: channel → transport → wanted."""

    user_id: str
    channels: Mapping[str, Mapping[str, bool]]
    muted_until_ms: Mapping[str, int]
    quiet_hours: tuple[QuietHours, ...]
    zone: str | None = None
    locale: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEntry:
    """One notification in the in-app inbox; ``entry`` is its key, ``content`` as it was sent."""

    entry: str
    notification_id: str
    created_at_ms: int
    read: bool
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPage:
    """Entries, newest first. ``unread``: of all there are. ``next``: the next page's ``after``; None at the end."""

    entries: tuple[InboxEntry, ...]
    unread: int
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """How many entries this call marked as read, and how many are unread now."""

    marked: int
    unread: int


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


def audience_accepted(said: Mapping[str, Any]) -> AudienceAccepted:
    """From an answer to ``send_audience``."""
    return _made(AudienceAccepted, said, variables=tuple(said["variables"]))


def audience_status(said: Mapping[str, Any]) -> AudienceStatus:
    """From an answer to ``audience_status``."""
    return _made(AudienceStatus, said, faults=tuple(_made(ListFault, fault) for fault in said.get("faults", ())))


def audience_moved(said: Mapping[str, Any]) -> AudienceMoved:
    """From an answer to ``pause_audience`` and ``resume_audience``."""
    return _made(AudienceMoved, said)


def registered(said: Mapping[str, Any]) -> Registered:
    """From an answer to ``register_device``."""
    return _made(Registered, said, retired=tuple(said.get("retired", ())))


def devices(said: Mapping[str, Any]) -> tuple[Device, ...]:
    """From an answer to ``list_devices``."""
    return tuple(_made(Device, device) for device in said["devices"])


def preferences(said: Mapping[str, Any]) -> Preferences:
    """From an answer to ``get_preferences``."""
    return _made(Preferences, said, quiet_hours=tuple(_made(QuietHours, window) for window in said["quiet_hours"]))


def inbox_page(said: Mapping[str, Any]) -> InboxPage:
    """From an answer to ``list_inbox``."""
    return _made(InboxPage, said, entries=tuple(_made(InboxEntry, entry) for entry in said["entries"]))


def marked(said: Mapping[str, Any]) -> Marked:
    """From an answer to ``mark_read`` and ``mark_all_read``."""
    return _made(Marked, said)


def unread(said: Mapping[str, Any]) -> int:
    """From an answer to ``unread_count``."""
    return int(said["unread"])


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
