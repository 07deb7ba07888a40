"""Apple's rules for a payload, beyond those that a request cannot do without: what ``aps`` may hold, by push type.

A payload that breaks them is refused, delayed, or accepted and never shown.
"""

from collections.abc import Iterator, Mapping

from pushlease.errors import BadRequest
from pushlease.providers.apns.protocol import (
    PUSH_TYPES,
    Form,
    check_collapse_id,
    form,
    oversize,
    payload_of,
)
from pushlease.providers.rules import (
    BOOLEAN,
    COUNT,
    OBJECT,
    TEXT,
    TEXTS,
    Finding,
    Kind,
    broken,
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
NEARLY_FULL = 0.9  # of the limit: the next longer name breaks it

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


def findings(content: Content) -> Iterator[Finding]:
    """All that Apple's rules find in a content; of what keeps it from being a request at all, the first."""
    try:
        ready, payload = form(content), payload_of(content)
    except BadRequest as error:
        yield broken(error, source=SENDING)
        return
    yield from _size(ready)
    if content.collapse_key is not None:
        try:
            check_collapse_id(content.collapse_key, field="content.collapse_key")
        except BadRequest as error:
            yield broken(error, source=SENDING)
    aps = payload.get("aps", {})
    if not isinstance(aps, Mapping):  # a request says so too; here for the types
        return
    yield from shaped(aps, APS, at=_APS, source=PAYLOAD)
    yield from _alert(aps)
    yield from _attention(aps, ready.push_type)
    match ready.push_type:
        case "liveactivity":
            yield from _live_activity(aps)
        case "widgets" | "controls" if aps.get("content-changed") is not True:
            yield Finding(field=f"{_APS}.content-changed", rule=f"{ready.push_type} needs true", source=WIDGETS)


def _size(ready: Form) -> Iterator[Finding]:
    if fault := oversize(ready):
        yield Finding(field="content", rule=fault, source=SENDING)
    elif len(ready.body) > NEARLY_FULL * (limit := PUSH_TYPES[ready.push_type].limit_bytes):
        rule = f"its APNs payload has {len(ready.body)} of {limit} bytes: little is left for longer texts"
        yield Finding(field="content", rule=rule, source=SENDING, fatal=False)


def _alert(aps: Mapping[str, object]) -> Iterator[Finding]:
    alert = aps.get("alert")
    if not isinstance(alert, Mapping):
        return
    yield from shaped(alert, ALERT, at=f"{_APS}.alert", source=PAYLOAD)
    for part in ("title-loc", "subtitle-loc", "loc"):
        if f"{part}-args" in alert and f"{part}-key" not in alert:
            field = f"{_APS}.alert.{part}-args"
            yield Finding(field=field, rule=f"means nothing without {part}-key", source=PAYLOAD)


def _attention(aps: Mapping[str, object], push_type: str) -> Iterator[Finding]:
    sound, score = aps.get("sound"), aps.get("relevance-score")
    if isinstance(sound, Mapping):
        yield from shaped(sound, SOUND, at=f"{_APS}.sound", source=PAYLOAD)
    critical = isinstance(sound, Mapping) and sound.get("critical") == 1
    if aps.get("interruption-level") == "critical" or critical:
        rule = "critical needs an entitlement of Apple's; without it the device treats it as an ordinary alert"
        yield Finding(field=f"{_APS}.interruption-level", rule=rule, source=PAYLOAD, fatal=False)
    if push_type != "liveactivity" and number(score) and not number(score, 0, 1):
        yield Finding(field=f"{_APS}.relevance-score", rule="must be a number from 0 to 1", source=PAYLOAD)
    if aps.get("mutable-content") == 1 and "alert" not in aps:
        rule = "an extension is only asked about an alert"
        yield Finding(field=f"{_APS}.mutable-content", rule=rule, source=PAYLOAD, fatal=False)


def _live_activity(aps: Mapping[str, object]) -> Iterator[Finding]:
    event = aps.get("event")
    wanted = ["event", "timestamp"]
    wanted += {"start": ["attributes-type", "attributes", "content-state"], "update": ["content-state"]}.get(
        event if isinstance(event, str) else "", []
    )
    for key in wanted:
        if key not in aps:
            what = f"liveactivity {event}" if key not in ("event", "timestamp") else "liveactivity"
            yield Finding(field=f"{_APS}.{key}", rule=f"{what} needs it", source=LIVE_ACTIVITIES)
    if event == "start" and "alert" not in aps:
        rule = "a start needs an alert, or nobody learns of it"
        yield Finding(field=f"{_APS}.alert", rule=rule, source=LIVE_ACTIVITIES)
    if event == "start" and "stale-date" in aps and "dismissal-date" in aps:
        rule = "means nothing before the end"
        yield Finding(field=f"{_APS}.dismissal-date", rule=rule, source=LIVE_ACTIVITIES, fatal=False)
