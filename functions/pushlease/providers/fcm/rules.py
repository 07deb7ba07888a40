"""Google's rules for a message, beyond those that a request cannot do without: what each block may hold."""

import re
from collections.abc import Iterator, Mapping

from pushlease.errors import BadRequest
from pushlease.providers.fcm.protocol import LIMIT_BYTES, TTL_MAX_S, form, oversize
from pushlease.providers.rules import (
    BOOLEAN,
    COUNT,
    OBJECT,
    STRINGS,
    TEXT,
    TEXTS,
    Finding,
    Kind,
    broken,
    nearly_full,
    needless,
    one_of,
    shaped,
)
from pushlease.push.notification import Content

MESSAGE = "Firebase, REST reference, projects.messages"
_LABEL = re.compile(r"[a-zA-Z0-9_.~%-]{1,50}", re.ASCII)
_DURATION = re.compile(r"[0-9]{1,10}(\.[0-9]{1,9})?s", re.ASCII)
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


def _written(pattern: re.Pattern[str], rule: str) -> Kind:
    return Kind(rule=rule, fits=lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None)


_SPAN = _written(_DURATION, 'seconds such as "3.5s"')
_TTL = Kind(
    rule=f'seconds such as "3600s", at most {TTL_MAX_S}',
    fits=lambda value: isinstance(value, str) and _SPAN.fits(value) and float(value[:-1]) <= TTL_MAX_S,
)
_SPANS = Kind(
    rule='a list of seconds such as "3.5s"',
    fits=lambda value: isinstance(value, list) and all(_SPAN.fits(part) for part in value),
)
_NOTE: Mapping[str, Kind] = {"title": TEXT, "body": TEXT, "image": TEXT}
_OPTIONS: Mapping[str, Kind] = {
    "analytics_label": _written(_LABEL, "1 to 50 letters, digits and any of _ . ~ % -"),
}
ANDROID: Mapping[str, Kind] = {
    "collapse_key": TEXT,
    "priority": one_of("NORMAL", "HIGH", "normal", "high"),
    "ttl": _TTL,
    "restricted_package_name": TEXT,
    "data": STRINGS,
    "notification": OBJECT,
    "fcm_options": OBJECT,
    "direct_boot_ok": BOOLEAN,
    "bandwidth_constrained_ok": BOOLEAN,
    "restricted_satellite_ok": BOOLEAN,
}
ANDROID_NOTE: Mapping[str, Kind] = {
    **_NOTE,
    "icon": TEXT,
    "color": _written(_COLOUR, "a colour as #rrggbb"),
    "sound": TEXT,
    "tag": TEXT,
    "click_action": TEXT,
    "title_loc_key": TEXT,
    "title_loc_args": TEXTS,
    "body_loc_key": TEXT,
    "body_loc_args": TEXTS,
    "channel_id": TEXT,
    "ticker": TEXT,
    "sticky": BOOLEAN,
    "event_time": _written(_INSTANT, 'an instant such as "2026-01-31T12:00:00Z"'),
    "local_only": BOOLEAN,
    "notification_priority": one_of(
        "PRIORITY_UNSPECIFIED", "PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT", "PRIORITY_HIGH", "PRIORITY_MAX"
    ),
    "default_sound": BOOLEAN,
    "default_vibrate_timings": BOOLEAN,
    "default_light_settings": BOOLEAN,
    "vibrate_timings": _SPANS,
    "visibility": one_of("VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"),
    "notification_count": COUNT,
    "light_settings": OBJECT,
    "proxy": one_of("PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"),
}
APNS: Mapping[str, Kind] = {
    "headers": STRINGS,
    "payload": OBJECT,
    "fcm_options": OBJECT,
    "live_activity_token": TEXT,
}
WEBPUSH: Mapping[str, Kind] = {"headers": STRINGS, "data": STRINGS, "notification": OBJECT, "fcm_options": OBJECT}
MESSAGE_BLOCKS: Mapping[str, Kind] = {
    "notification": OBJECT,
    "data": STRINGS,
    "android": OBJECT,
    "apns": OBJECT,
    "webpush": OBJECT,
    "fcm_options": OBJECT,
}
# Where each further block lies, and what it may hold.
BLOCKS: Mapping[tuple[str, ...], Mapping[str, Kind]] = {
    ("notification",): _NOTE,
    ("android",): ANDROID,
    ("android", "notification"): ANDROID_NOTE,
    ("android", "fcm_options"): _OPTIONS,
    ("apns",): APNS,
    ("apns", "fcm_options"): {**_OPTIONS, "image": TEXT},
    ("webpush",): WEBPUSH,
    ("webpush", "fcm_options"): {**_OPTIONS, "link": TEXT},
    ("fcm_options",): _OPTIONS,
}

_ARGS = {"title_loc_args": "title_loc_key", "body_loc_args": "body_loc_key"}


def findings(content: Content) -> Iterator[Finding]:
    """All that Google's rules find in a content; of what keeps it from being a request at all, the first."""
    try:
        ready = form(content)
    except BadRequest as error:
        yield broken(error, source=MESSAGE)
        return
    if fault := oversize(ready):
        yield Finding(field="content", rule=fault, source=MESSAGE)
    yield from nearly_full(ready.size_bytes, LIMIT_BYTES, source=MESSAGE)
    yield from shaped(ready.message, MESSAGE_BLOCKS, at="content.fcm", source=MESSAGE)
    for path, kinds in BLOCKS.items():
        block = _at(ready.message, path)
        if isinstance(block, Mapping):
            yield from shaped(block, kinds, at=".".join(("content.fcm", *path)), source=MESSAGE)
    note = _at(ready.message, ("android", "notification"))
    yield from needless(note, _ARGS, at="content.fcm.android.notification", source=MESSAGE)
    yield from _iphones(ready.message)


def _iphones(message: Mapping[str, object]) -> Iterator[Finding]:
    """Behind FCM Apple's own rule holds: what shows nothing may not ask to be delivered at once."""
    shown = "notification" in message or isinstance(_at(message, ("apns", "payload", "aps", "alert")), str | Mapping)
    if not shown and _at(message, ("apns", "headers", "apns-priority")) == "10":
        field = "content.fcm.apns.headers.apns-priority"
        yield Finding(field=field, rule="a message that only carries data allows 5 alone", source=MESSAGE)


def _at(block: object, path: tuple[str, ...]) -> object:
    for key in path:
        block = block.get(key) if isinstance(block, Mapping) else None
    return block
