"""Contents by push type, typed: for those who would rather not know which key of ``aps`` means what.

Each function returns a plain ``Content``; whatever it does not offer can be added by ``dataclasses.replace``. Instants
are UNIX seconds, as Apple has them.

Facts: Apple, "Generating a remote notification", "Sending notification requests to APNs", "Starting and updating Live
Activities with ActivityKit push notifications", "Deploying MDM"; Firebase, reference of projects.messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pushlease.push.notification import Content, Priority


class Interruption(StrEnum):
    """How much an alert may disturb; ``CRITICAL`` needs an entitlement of Apple's."""

    PASSIVE = "passive"
    ACTIVE = "active"
    TIME_SENSITIVE = "time-sensitive"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Localised:
    """A text that the app has in its own tables, by key, with what fills its gaps."""

    key: str
    args: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Android:
    """What only Android knows. ``channel``: the app's notification channel. ``tag``: what replaces what on the screen.

    ``direct_boot``: deliver before the device is unlocked for the first time.
    """

    channel: str | None = None
    tag: str | None = None
    colour: str | None = None
    icon: str | None = None
    direct_boot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What is shown. A text is given as it is, or ``Localised``; ``relevance``: from 0 to 1, for a summary's order."""

    title: str | Localised | None = None
    subtitle: str | Localised | None = None
    body: str | Localised | None = None
    sound: str | None = None
    badge: int | None = None
    image: str | None = None
    link: str | None = None
    category: str | None = None
    thread: str | None = None
    interruption: Interruption | None = None
    relevance: float | None = None
    mutable: bool = False  # let the app's extension change it
    android: Android = field(default_factory=Android)


def alert(shown: Alert, *, data: Mapping[str, str] | None = None, priority: Priority = Priority.NORMAL) -> Content:
    """A notification that people see."""
    texts: dict[str, Any] = {}
    apple: dict[str, object] = {}
    google: dict[str, object] = {}
    for name, prefix, android in (
        ("title", "title-", "title_"),
        ("subtitle", "subtitle-", None),
        ("body", "", "body_"),
    ):
        text = getattr(shown, name)
        if isinstance(text, Localised):
            apple |= {f"{prefix}loc-key": text.key, f"{prefix}loc-args": list(text.args)}
            if android:
                google |= {f"{android}loc_key": text.key, f"{android}loc_args": list(text.args)}
        elif text is not None:
            texts[name] = text
    aps = _without_none(
        {
            "alert": apple or None,
            "interruption-level": shown.interruption and str(shown.interruption),
            "relevance-score": shown.relevance,
            "mutable-content": 1 if shown.mutable else None,
        }
    )
    named = {"channel_id": shown.android.channel, "tag": shown.android.tag, "icon": shown.android.icon}
    google |= _without_none({**named, "color": shown.android.colour})
    block = ({"notification": google} if google else {}) | (
        {"direct_boot_ok": True} if shown.android.direct_boot else {}
    )
    return Content(
        **texts,
        sound=shown.sound,
        badge=shown.badge,
        image=shown.image,
        link=shown.link,
        category=shown.category,
        thread=shown.thread,
        data=data or {},
        priority=priority,
        apns={"push_type": "alert"} | ({"payload": {"aps": aps}} if aps else {}),
        fcm={"android": block} if block else {},
    )


def background(data: Mapping[str, str]) -> Content:
    """Wakes the app to fetch something; nothing is shown. Apple lets through two or three an hour."""
    return Content(data=data, priority=Priority.LOW)


def voip(payload: Mapping[str, object]) -> Content:
    """An incoming call, for PushKit: 5,120 bytes at most, delivered now or never."""
    return _typed("voip", payload)


def push_to_talk(payload: Mapping[str, object]) -> Content:
    """Somebody speaks, for the Push to Talk framework: delivered now or never."""
    return _typed("pushtotalk", payload)


def location_query() -> Content:
    """Asks a location push extension where the device is."""
    return _typed("location", {})


def complication(payload: Mapping[str, object]) -> Content:
    """Fresh data for a watch's face."""
    return _typed("complication", payload)


def file_provider(*, container: str, domain: str | None = None) -> Content:
    """A container of a File Provider extension has changed."""
    return _typed("fileprovider", _without_none({"container-identifier": container, "domain": domain}))


def mdm(push_magic: str) -> Content:
    """Asks a managed device to call its server; the device's topic is the one in the MDM certificate."""
    return _typed("mdm", {"mdm": push_magic})


def widgets_changed() -> Content:
    """The app's widgets shall be drawn anew."""
    return _typed("widgets", {"aps": {"content-changed": True}})


def controls_changed() -> Content:
    """The app's controls shall be drawn anew."""
    return _typed("controls", {"aps": {"content-changed": True}})


def live_activity_start(
    *,
    attributes_type: str,
    attributes: Mapping[str, object],
    state: Mapping[str, object],
    title: str,
    body: str,
    at_s: int,
    stale_at_s: int | None = None,
    channel: str | None = None,
) -> Content:
    """Begins a Live Activity; ``channel``: the broadcast channel that it shall follow."""
    said = {
        "attributes-type": attributes_type,
        "attributes": attributes,
        "alert": {"title": title, "body": body},
        "input-push-channel": channel,
    }
    return _live_activity("start", at_s, state, stale_at_s, said)


def live_activity_update(
    *,
    state: Mapping[str, object],
    at_s: int,
    title: str | None = None,
    body: str | None = None,
    stale_at_s: int | None = None,
    relevance: float | None = None,
    priority: Priority = Priority.NORMAL,
) -> Content:
    """Changes a Live Activity, with an alert if it has words; the later ``at_s`` wins."""
    words = _without_none({"title": title, "body": body})
    return _live_activity(
        "update", at_s, state, stale_at_s, {"alert": words or None, "relevance-score": relevance}, priority
    )


def live_activity_end(
    *, at_s: int, state: Mapping[str, object] | None = None, dismissed_at_s: int | None = None
) -> Content:
    """Ends a Live Activity; ``dismissed_at_s``: when it leaves the screen, by itself after four hours."""
    return _live_activity("end", at_s, state, None, {"dismissal-date": dismissed_at_s})


def _live_activity(
    event: str,
    at_s: int,
    state: Mapping[str, object] | None,
    stale_at_s: int | None,
    said: Mapping[str, object],
    priority: Priority = Priority.NORMAL,
) -> Content:
    aps = {"event": event, "timestamp": at_s, "content-state": state, "stale-date": stale_at_s, **said}
    return _typed("liveactivity", {"aps": _without_none(aps)}, priority)


def _typed(push_type: str, payload: Mapping[str, object], priority: Priority = Priority.NORMAL) -> Content:
    return Content(apns={"push_type": push_type, **({"payload": dict(payload)} if payload else {})}, priority=priority)


def _without_none(said: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in said.items() if value is not None}
