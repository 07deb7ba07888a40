"""The doors through which the attempt reaches the world; their real forms are in ``aws`` and ``providers``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pushlease.jobs.job import JobId
from pushlease.push.audience import Audience, Listed, State, Tally
from pushlease.push.device import App, AppId, Device, DeviceId, Environment, Recipient
from pushlease.push.flow import Breaker, Way
from pushlease.push.notification import Content
from pushlease.push.outcome import Verdict
from pushlease.push.preference import Preferences


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One delivery to one device, ready for a provider.

    ``push_id``: a canonical lower-case UUID, the same at every attempt of this delivery (APNs calls it apns-id).
    ``collapse_id``: at most 64 bytes. ``expires_at_ms``: epoch ms, after which nobody wants it any more.
    """

    push_id: str
    app: App
    device: Device
    content: Content
    collapse_id: str
    expires_at_ms: int


class Pusher(Protocol):
    """Sends pushes to their providers."""

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        """One verdict a push, in order, by ``deadline_ms`` (epoch ms); never raises for one push's sake."""
        ...


class FlowStore(Protocol):
    """What the fleet shares of how fast pushes may leave. Every write is one conditional write of one row."""

    def read(self, ways: Sequence[Way]) -> Mapping[Way, Breaker]:
        """The breakers that were ever opened or paused, as they were a moment ago."""
        ...

    def open(self, way: Way, *, now_ms: int) -> bool:
        """Open a closed breaker; False if it is open."""
        ...

    def take_probe(self, way: Way, breaker: Breaker, *, now_ms: int) -> bool:
        """Take the right to probe, if the open ``breaker`` still is as it was seen; whether so."""
        ...

    def close(self, way: Way, breaker: Breaker, *, now_ms: int) -> bool:
        """Close it, if it still is open since the same instant; whether so."""
        ...

    def pause(self, way: Way, *, until_ms: int) -> None:
        """Let nothing leave until then; a longer pause stays."""
        ...

    def reserve(self, quota: str, *, window: int, count: int) -> int:
        """Take so much of a quota's window, or give it back (negative); how much the fleet had taken before."""
        ...

    def reserved(self, quota: str, *, window: int) -> int:
        """How much the fleet took of a window."""
        ...


class DeviceStore(Protocol):
    """The devices of recipients. At no moment a push token is two devices'."""

    def register(self, device: Device) -> bool:
        """Store or refresh a device; in the same moment its push token leaves whoever had it before.

        False, and nothing is written, if it, or the device that has its push token, registered later.
        """
        ...

    def remove(self, recipient: Recipient, device_id: DeviceId) -> bool:
        """Forget a device; whether there was one."""
        ...

    def retire(self, device: Device) -> bool:
        """Forget a device, unless it registered again since it was read; whether so."""
        ...

    def of(self, recipient: Recipient) -> Sequence[Device]:
        """All devices of a recipient, disabled ones too, oldest registration first."""
        ...

    def get(self, keys: Sequence[tuple[Recipient, DeviceId]]) -> Mapping[tuple[Recipient, DeviceId], Device]:
        """The devices that exist, in one batch of reads."""
        ...

    def disable(self, device: Device, *, code: str, before_ms: int) -> bool:
        """Disable it if it still has this push token and its registration is older than ``before_ms``; whether so."""
        ...

    def move(self, device: Device, *, environment: Environment) -> bool:
        """Correct its environment, if it still has this push token; whether so."""
        ...


class AppStore(Protocol):
    """The apps and which providers each has."""

    def put(self, app: App) -> None: ...

    def get(self, app_id: AppId) -> App | None: ...


class RecipientStore(Protocol):
    """The preferences of recipients."""

    def put(self, recipient: Recipient, preferences: Preferences) -> None:
        """Replace a recipient's preferences; zone and locale stay where none is said."""
        ...

    def locate(self, recipient: Recipient, *, zone: str | None, locale: str | None) -> None:
        """Note where a recipient's device says that they are; None leaves it as it is."""
        ...

    def get(self, recipients: Sequence[Recipient]) -> Mapping[Recipient, Preferences]:
        """The preferences of those recipients who set any."""
        ...

    def erase(self, recipient: Recipient) -> None:
        """Forget all that a recipient said; repeatable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxEntry:
    """What an inbox shows of one notification. ``entry``: its key, which sorts by ``created_at_ms`` (epoch ms)."""

    entry: str
    notification_id: str
    content: str = field(repr=False)  # a message's text is personal
    created_at_ms: int
    read_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPage:
    """Some entries, newest first. ``next``: the entry to go on after, None if these were the last."""

    entries: Sequence[InboxEntry]
    next: str | None


class Inbox(Protocol):
    """The in-app inbox of recipients. An entry that is older than the inbox keeps any is there for nobody."""

    def put(self, recipient: Recipient, *, notification_id: str, content: str, created_at_ms: int, now_ms: int) -> None:
        """Add an unread entry; the same notification again changes nothing."""
        ...

    def page(self, recipient: Recipient, *, now_ms: int, limit: int, after: str | None = None) -> InboxPage:
        """At most ``limit`` entries, those older than the entry ``after`` if it is given; it need not exist."""
        ...

    def unread(self, recipient: Recipient, *, now_ms: int) -> int:
        """How many entries are unread."""
        ...

    def mark_read(self, recipient: Recipient, entries: Sequence[str], *, now_ms: int) -> int:
        """Mark these entries as read, as far as they exist and are unread; how many were."""
        ...

    def mark_all_read(self, recipient: Recipient, *, now_ms: int) -> int:
        """Mark every entry as read; how many were unread. Repeatable."""
        ...

    def erase(self, recipient: Recipient) -> None:
        """Forget all entries; repeatable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the jobs of one notification share: its content, None once it is withdrawn, and which jobs there are.

    ``paused``: none of them is attempted until it is resumed. Of an audience the jobs are not listed here.
    """

    fingerprint: str
    content: str | None
    job_ids: Sequence[str] = ()
    paused: bool = False


class AudienceStore(Protocol):
    """Audience sends and their progress. ``ref`` names the notification."""

    def create(self, audience: Audience, text: bytes | None) -> bool:
        """Store an audience, with its list if that came in the request; False if there is one of this name."""
        ...

    def get(self, ref: str) -> Audience | None: ...

    def running(self) -> Sequence[Audience]:
        """Those that are not over."""
        ...

    def move(self, ref: str, state: State, *, fault: str | None = None) -> bool:
        """Change its state; False if it is over, or unknown."""
        ...

    def advance(self, audience: Audience, *, cursor: int, swept_at_ms: int) -> None:
        """Note that pages were given to workers, if nobody else did meanwhile."""
        ...

    def take_numbers(self, ref: str, count: int) -> int:
        """The first of so many numbers, which no other recipient has."""
        ...

    def listed(self, ref: str, page: int) -> bytes:
        """A span of the list that came in the request; raises ``Unreadable`` if it is gone."""
        ...

    def put_page(self, ref: str, page: int, tally: Tally, job_ids: Sequence[JobId] | None = None) -> None:
        """Store what became of a page; with the ``job_ids``, once, when its jobs are stored."""
        ...

    def job_ids(self, ref: str, page: int) -> Sequence[JobId] | None:
        """The jobs of a page, None if it is not stored yet."""
        ...

    def pages(self, ref: str) -> Mapping[int, Tally]:
        """The pages whose jobs are stored."""
        ...


class Lists(Protocol):
    """The objects that hold lists."""

    def describe(self, key: str) -> Listed:
        """The list of this key as it is now; raises ``BadRequest`` if there is none that can be read."""
        ...

    def read(self, listed: Listed, start: int, end: int) -> bytes:
        """A span of it; raises ``Unreadable`` if it is not what it was."""
        ...


class PageSender(Protocol):
    """Gives pages to workers. Never raises: the next tick gives them again."""

    def hand_out(self, ref: str, pages: Sequence[int]) -> int:
        """How many could not be given."""
        ...


class NotificationStore(Protocol):
    """Notifications with several recipients, or with content too large for a job's row. ``ref`` is the row's key."""

    def put(self, ref: str, shared: Shared, *, now_ms: int, expires_at_ms: int) -> bool:
        """Store it, or add its jobs to those there are; False if other content is stored under ``ref``.

        It outlives the last job that may want it.
        """
        ...

    def get(self, refs: Sequence[str]) -> Mapping[str, Shared]:
        """Those that exist."""
        ...

    def pause(self, ref: str, *, paused: bool) -> bool:
        """Let its jobs wait, or go on; False if there is none, or it was withdrawn."""
        ...

    def withdraw(self, ref: str) -> None:
        """Forget its content: jobs that read it here are cancelled when they are attempted."""
        ...
