"""The doors through which the attempt reaches the world; their real forms are in ``aws`` and ``providers``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
    """The devices of recipients."""

    def register(self, device: Device) -> None:
        """Store or refresh a device; its push token leaves whoever had it before."""
        ...

    def remove(self, recipient: Recipient, device_id: DeviceId) -> bool:
        """Forget a device; whether there was one."""
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
