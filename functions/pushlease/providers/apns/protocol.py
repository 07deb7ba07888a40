"""APNs, sans-I/O: what a push looks like on the wire, what breaks Apple's rules, what an answer means.

Facts: Apple, "Sending notification requests to APNs" and "Handling notification responses from APNs".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from pushlease.errors import BadRequest
from pushlease.providers.http import Request, Response, compact, merged, retry_after, said
from pushlease.providers.meaning import Circumstances, apns_meaning, refusal
from pushlease.push.device import Address
from pushlease.push.notification import Content, Priority
from pushlease.push.outcome import Accepted, Verdict
from pushlease.push.ports import Push

COLLAPSE_ID_BYTES = 64
_BUNDLE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,254}", re.ASCII)
_PUSH_TOKEN = re.compile(r"(?:[0-9a-f]{2}){1,200}", re.ASCII)  # opaque, so no length is assumed within reason
_CHANNEL = re.compile(r"[A-Za-z0-9+/_-]{1,200}={0,2}", re.ASCII)
_PUSH_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushType:
    """One row of Apple's table: topic suffix, allowed priorities (the first is the default), bytes of payload.

    ``stored`` False: worthless later, so it is sent with expiration 0, one try and no storage.
    """

    suffix: str = ""
    priorities: tuple[int, ...] = (10, 5, 1)
    limit_bytes: int = 4096
    stored: bool = True


PUSH_TYPES: Mapping[str, PushType] = {
    "alert": PushType(),
    "background": PushType(priorities=(5,)),
    "location": PushType(suffix=".location-query", priorities=(10, 5)),
    "voip": PushType(suffix=".voip", priorities=(10,), limit_bytes=5120, stored=False),
    "complication": PushType(suffix=".complication"),
    "fileprovider": PushType(suffix=".pushkit.fileprovider"),
    "mdm": PushType(),
    "liveactivity": PushType(suffix=".push-type.liveactivity", priorities=(10, 5)),
    "pushtotalk": PushType(suffix=".voip-ptt", priorities=(10,), stored=False),
    "widgets": PushType(suffix=".push-type.widgets", priorities=(5,)),
    "controls": PushType(suffix=".push-type.controls"),
}

_PRIORITIES = {Priority.URGENT: 10, Priority.NORMAL: 10, Priority.LOW: 5}
_SHOWN = ("alert", "badge", "sound")
_OVERRIDES = ("payload", "priority", "push_type", "storage")


class Storage(StrEnum):
    """How long Apple keeps a push for a device that is off: until it expires, as Apple sees fit, or not at all."""

    UNTIL_EXPIRY = "until_expiry"
    APPLE = "apple"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What of a push is the same for every device: its type, priority, storage and body; ``aps`` as the body has it."""

    push_type: str
    priority: int
    storage: Storage
    aps: Mapping[str, object]
    body: bytes


def form(content: Content) -> Form:
    """Shape and check ``content``; raises ``BadRequest`` with the field of the content that breaks a rule."""
    overrides = content.apns
    for key in overrides:
        if key not in _OVERRIDES:
            raise BadRequest(f"content.apns.{key}", f"is no override; there are {', '.join(_OVERRIDES)}")
    named = overrides.get("push_type")
    if named is not None and (not isinstance(named, str) or named not in PUSH_TYPES):
        raise BadRequest("content.apns.push_type", f"must be one of {', '.join(PUSH_TYPES)}")
    payload = _payload(content, named)
    aps = payload.get("aps", {})
    if not isinstance(aps, Mapping):
        raise BadRequest("content.apns.payload.aps", "must be an object")
    push_type = named or _type_of(aps)
    rules = PUSH_TYPES[push_type]
    _check_shown(push_type, aps)
    try:
        body = compact(payload)
    except (ValueError, TypeError):
        raise BadRequest("content.apns.payload", "must be JSON: no NaN, no lone surrogates") from None
    return Form(
        push_type=push_type,
        priority=_priority(content, push_type, rules),
        storage=_storage(content, rules),
        aps=aps,
        body=body,
    )


def oversize(ready: Form) -> str | None:
    """What is wrong with the payload's size, None if nothing is."""
    limit = PUSH_TYPES[ready.push_type].limit_bytes
    if len(ready.body) <= limit:
        return None
    return f"its APNs payload has {len(ready.body)} bytes of UTF-8 JSON; {ready.push_type} allows {limit}"


def request(push: Push, ready: Form, *, bearer: str) -> Request:
    """The request for one device. Raises ``BadRequest`` for what must not reach a header or the path."""
    if push.device.address is Address.CHANNEL:
        return _broadcast(push, ready, bearer=bearer)
    rules = PUSH_TYPES[ready.push_type]
    push_token = normalise_push_token(push.device.push_token)
    topic = check_topic(push.device.topic) + rules.suffix
    if not _PUSH_ID.fullmatch(push.push_id):
        raise BadRequest("push_id", "must be a lower-case UUID")
    check_collapse_id(push.collapse_id, field="collapse_id")
    return Request(
        path=f"/3/device/{push_token}",
        headers={
            "authorization": f"bearer {bearer}",
            "apns-topic": topic,
            **_manner(push, ready),
            "apns-id": push.push_id,
            "apns-collapse-id": push.collapse_id,
        },
        body=ready.body,
    )


def _manner(push: Push, ready: Form) -> dict[str, str]:
    manner = {"apns-push-type": ready.push_type, "apns-priority": str(ready.priority)}
    if ready.storage is not Storage.APPLE:
        manner["apns-expiration"] = "0" if ready.storage is Storage.NONE else str(push.expires_at_ms // 1000)
    return manner


def _broadcast(push: Push, ready: Form, *, bearer: str) -> Request:
    """To all who follow a channel: Apple, "Sending broadcast push notification requests to APNs"."""
    if ready.push_type != "liveactivity":
        raise BadRequest("push_type", f"a broadcast channel takes liveactivity alone, not {ready.push_type}")
    return Request(
        path=f"/4/broadcasts/apps/{check_topic(push.device.topic)}",
        headers={
            "authorization": f"bearer {bearer}",
            "apns-channel-id": check_channel(push.device.push_token),
            **_manner(push, ready),
        },
        body=ready.body,
    )


def interpret(response: Response, circumstances: Circumstances, *, floor: timedelta) -> Verdict:
    """What the answer means: exactly one verdict for any bytes, never an exception.

    ``floor`` is the least wait after a 5xx (Apple advises 15 minutes).
    """
    if 200 <= response.status < 300:
        return Accepted(provider_id=said(response.headers.get("apns-id"), otherwise="") or None)
    body = response.json_object()
    reason = said(body.get("reason"), otherwise=f"HTTP {response.status}")
    wait = retry_after(response, now_ms=circumstances.now_ms)
    if response.status >= 500:
        wait = max(wait or floor, floor)
    meaning = apns_meaning(response.status, reason)
    return refusal(
        meaning,
        reason,
        circumstances,
        retry_after=wait if meaning.code.retried else None,
        invalid_since_ms=_timestamp_ms(body, circumstances.now_ms) if response.status == 410 else None,
    )


def calls_push_token_bad(response: Response) -> bool:
    """Whether the answer is one that a wrong key, host or topic would draw as well."""
    return response.status == 400 and apns_meaning(400, str(response.json_object().get("reason"))).guarded


def normalise_push_token(push_token: str) -> str:
    """In lower case; raises ``BadRequest`` unless it is an even number of hex digits, 2 to 400."""
    lowered = push_token.lower()
    if not _PUSH_TOKEN.fullmatch(lowered):
        raise BadRequest("push_token", "APNs: an even number of hex digits, 2 to 400")
    return lowered


def check_channel(channel: str) -> str:
    """The broadcast channel itself; raises ``BadRequest`` unless it is Base64, as Apple's are."""
    if not _CHANNEL.fullmatch(channel):
        raise BadRequest("push_token", "APNs channel: Base64, at most 200 characters")
    return channel


def check_topic(topic: str | None) -> str:
    """The bundle ID itself; raises ``BadRequest`` if it is missing or malformed."""
    if topic is None or not _BUNDLE_ID.fullmatch(topic):
        raise BadRequest("topic", "APNs: a bundle ID of letters, digits, dots and dashes, at most 255")
    return topic


def check_collapse_id(collapse_id: str, *, field: str) -> None:
    """Raise ``BadRequest`` unless it fits a header of 64 bytes."""
    if not collapse_id.isprintable() or collapse_id != collapse_id.strip() or not collapse_id:
        raise BadRequest(field, "must be printable, not empty, without spaces around it")
    if (size := len(collapse_id.encode())) > COLLAPSE_ID_BYTES:
        raise BadRequest(field, f"has {size} bytes of UTF-8; APNs allows {COLLAPSE_ID_BYTES}")


def _payload(content: Content, named: str | None) -> dict[str, object]:
    """The payload with the raw overrides on top; only a push of no other ``named`` type wakes the app by itself."""
    if "aps" in content.data:
        raise BadRequest("content.data.aps", "is Apple's own key; use content.apns.payload")
    texts = {"title": content.title, "subtitle": content.subtitle, "body": content.body}
    alert = {key: text for key, text in texts.items() if text}
    waking = content.silent and named in (None, "background")
    aps: dict[str, object] = {"content-available": 1} if waking else {}
    if not waking:
        shown = {
            "alert": alert or None,
            "badge": content.badge,
            "sound": content.sound,
            "category": content.category,
            "thread-id": content.thread,
            "mutable-content": 1 if content.image else None,  # lets the app's extension fetch the image
        }
        aps = {key: value for key, value in shown.items() if value is not None}
    beside = {key: value for key, value in (("link", content.link), ("image", content.image)) if value}
    over = content.apns.get("payload", {})
    if not isinstance(over, Mapping):
        raise BadRequest("content.apns.payload", "must be an object")
    return merged({**({"aps": aps} if aps else {}), **content.data, **beside}, over)


def _type_of(aps: Mapping[str, object]) -> str:
    return "alert" if any(key in aps for key in _SHOWN) else "background"


def _check_shown(push_type: str, aps: Mapping[str, object]) -> None:
    """Apple delays or drops, without a word, a push whose type does not match what it holds."""
    shown = [key for key in _SHOWN if key in aps]
    if push_type == "alert" and not shown:
        raise BadRequest("content.apns.push_type", "alert needs a title, body, badge or sound")
    if push_type == "background" and (shown or aps.get("content-available") != 1):
        raise BadRequest("content.apns.push_type", "background needs content-available 1, and no alert, badge or sound")


def _storage(content: Content, rules: PushType) -> Storage:
    chosen = content.apns.get("storage")
    if chosen is None:
        return Storage.UNTIL_EXPIRY if rules.stored else Storage.NONE
    if not isinstance(chosen, str) or chosen not in set(Storage):
        raise BadRequest("content.apns.storage", f"must be one of {', '.join(Storage)}")
    return Storage(chosen)


def _priority(content: Content, push_type: str, rules: PushType) -> int:
    chosen = content.apns.get("priority")
    if chosen is None:
        wished = _PRIORITIES[content.priority]
        return wished if wished in rules.priorities else rules.priorities[0]
    if type(chosen) is not int or chosen not in rules.priorities:
        allowed = ", ".join(map(str, rules.priorities))
        raise BadRequest("content.apns.priority", f"{push_type} allows {allowed}")
    return chosen


def _timestamp_ms(body: Mapping[str, object], now_ms: int) -> int | None:
    """Apple's instant in ms, not later than now, so that a later registration counts; None for what can be none."""
    value = body.get("timestamp")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        return None
    return min(value, now_ms)
