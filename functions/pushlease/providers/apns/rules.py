"""Apple's rules for a payload, beyond those that a request cannot do without: what ``aps`` may hold, by push type.

A payload that breaks them is refused, delayed, or accepted and never shown.
"""

from collections.abc import Iterator, Mapping

from pushlease.errors import BadRequest
from pushlease.providers.apns.protocol import PUSH_TYPES, check_collapse_id, form, oversize
from pushlease.providers.rules import (
    BOOLEAN,
    COUNT,
    OBJECT,
    TEXT,
    TEXTS,
    Finding,
    Kind,
    broken,
    nearly_full,
    needless,
    number,
    one_of,
    shaped,
    whole,
)
from pushlease.push.notification import Content

SENDING = "Apple, Sending notification requests to APNs"
PAYLOAD = "Apple, Generating a remote notification"
LIVE_ACTIVITIES = "Apple, Starting and updating Live Activities with ActivityKit push notifications"
WIDGETS = "Apple, Updating widgets with WidgetKit push notifications"
_APS = "content.apns.payload.aps"

_ONE = Kind(rule="1", fits=lambda value: whole(value) and value == 1)
_SECONDS = Kind(rule="whole UNIX seconds", fits=lambda value: whole(value) and number(value, 0, 10**11))
_SCORE = Kind(rule="a number", fits=number)
_SOUND = Kind(
    rule="a file's name, or an object with name, critical and volume",
    fits=lambda value: TEXT.fits(value) or isinstance(value, Mapping),
)
_ALERT = Kind(rule="a string or an object", fits=lambda value: isinstance(value, str | Mapping))

APS: Mapping[str, Kind] = {
    "alert": _ALERT,
    "badge": COUNT,
    "sound": _SOUND,
    "thread-id": TEXT,
    "category": TEXT,
    "content-available": _ONE,
    "mutable-content": _ONE,
    "target-content-id": TEXT,
    "interruption-level": one_of("passive", "active", "time-sensitive", "critical"),
    "relevance-score": _SCORE,
    "filter-criteria": TEXT,
    "content-changed": BOOLEAN,
    "url-args": TEXTS,
    "timestamp": _SECONDS,
    "event": one_of("start", "update", "end"),
    "content-state": OBJECT,
    "attributes-type": TEXT,
    "attributes": OBJECT,
    "stale-date": _SECONDS,
    "dismissal-date": _SECONDS,
    "input-push-channel": TEXT,
    "input-push-token": _ONE,
}
ALERT: Mapping[str, Kind] = {
    "title": TEXT,
    "subtitle": TEXT,
    "body": TEXT,
    "launch-image": TEXT,
    "title-loc-key": TEXT,
    "title-loc-args": TEXTS,
    "subtitle-loc-key": TEXT,
    "subtitle-loc-args": TEXTS,
    "loc-key": TEXT,
    "loc-args": TEXTS,
    "summary-arg": TEXT,
    "summary-arg-count": COUNT,
}
SOUND: Mapping[str, Kind] = {
    "name": TEXT,
    "critical": Kind(rule="0 or 1", fits=lambda value: whole(value) and value in (0, 1)),
    "volume": Kind(rule="a number from 0 to 1", fits=lambda value: number(value, 0, 1)),
}

_ARGS = {"title-loc-args": "title-loc-key", "subtitle-loc-args": "subtitle-loc-key", "loc-args": "loc-key"}
# Of a Live Activity, by event, beside event and timestamp. A start without an alert is one that nobody learns of.
_NEEDED = {"start": ("attributes-type", "attributes", "content-state", "alert"), "update": ("content-state",)}


def findings(content: Content) -> Iterator[Finding]:
    """All that Apple's rules find in a content; of what keeps it from being a request at all, the first."""
    try:
        ready = form(content)
    except BadRequest as error:
        yield broken(error, source=SENDING)
        return
    if fault := oversize(ready):
        yield Finding(field="content", rule=fault, source=SENDING)
    yield from nearly_full(len(ready.body), PUSH_TYPES[ready.push_type].limit_bytes, source=SENDING)
    if content.collapse_key is not None:
        try:
            check_collapse_id(content.collapse_key, field="content.collapse_key")
        except BadRequest as error:
            yield broken(error, source=SENDING)
    aps, alert, sound = ready.aps, ready.aps.get("alert"), ready.aps.get("sound")
    yield from shaped(aps, APS, at=_APS, source=PAYLOAD)
    if isinstance(alert, Mapping):
        yield from shaped(alert, ALERT, at=f"{_APS}.alert", source=PAYLOAD)
        yield from needless(alert, _ARGS, at=f"{_APS}.alert", source=PAYLOAD)
    if isinstance(sound, Mapping):
        yield from shaped(sound, SOUND, at=f"{_APS}.sound", source=PAYLOAD)
    yield from needless(aps, {"mutable-content": "alert"}, at=_APS, source=PAYLOAD, fatal=False)
    yield from _attention(aps, sound, ready.push_type)
    match ready.push_type:
        case "liveactivity":
            yield from _live_activity(aps)
        case "widgets" | "controls" if aps.get("content-changed") is not True:
            yield Finding(field=f"{_APS}.content-changed", rule=f"{ready.push_type} needs true", source=WIDGETS)


def _attention(aps: Mapping[str, object], sound: object, push_type: str) -> Iterator[Finding]:
    if aps.get("interruption-level") == "critical" or (isinstance(sound, Mapping) and sound.get("critical") == 1):
        rule = "critical needs an entitlement of Apple's; without it the device treats it as an ordinary alert"
        yield Finding(field=f"{_APS}.interruption-level", rule=rule, source=PAYLOAD, fatal=False)
    score = aps.get("relevance-score")
    if push_type != "liveactivity" and number(score) and not number(score, 0, 1):
        yield Finding(field=f"{_APS}.relevance-score", rule="must be a number from 0 to 1", source=PAYLOAD)


def _live_activity(aps: Mapping[str, object]) -> Iterator[Finding]:
    event = str(aps.get("event"))
    for key in ("event", "timestamp", *_NEEDED.get(event, ())):
        if key not in aps:
            yield Finding(field=f"{_APS}.{key}", rule=f"liveactivity, event {event}, needs it", source=LIVE_ACTIVITIES)
    if event != "end" and "dismissal-date" in aps:
        rule = "means nothing before the end"
        yield Finding(field=f"{_APS}.dismissal-date", rule=rule, source=LIVE_ACTIVITIES, fatal=False)
