"""The rules of one FCM message: its shape, its fields, its size; answers with field paths as Google does.

Source: Firebase's reference of projects.messages; sizes and reserved keys from its ErrorCode page.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

TARGETS = ("token", "fid", "topic", "condition")
MAX_BYTES = 4096
MAX_TOPIC_BYTES = 2048
MAX_TTL_S = 2_419_200  # 28 days

_FIELDS = frozenset({"name", "data", "notification", "android", "apns", "webpush", "fcm_options", *TARGETS})
_RESERVED_KEY = re.compile(r"from|message_type|gcm|(google\.|gcm\.notification\.).*")
_TOPIC = re.compile(r"[A-Za-z0-9\-_.~%]+")
_TTL = re.compile(r"(\d{1,12})(\.\d{1,9})?s", re.ASCII)

type Fault = tuple[str, str]  # field path, description


def get(fields: dict[str, Any], name: str) -> Any:
    """Read a field by its snake_case name; Google's JSON takes camelCase as well."""
    head, *rest = name.split("_")
    return fields.get(name, fields.get(head + "".join(word.capitalize() for word in rest)))


def target_names(message: dict[str, Any]) -> list[str]:
    """Which of the four targets a message names."""
    return [name for name in TARGETS if message.get(name)]


def measured_bytes(message: dict[str, Any]) -> int:
    """Size a message: keys and values of data and notifications, or its APNs payload if that is larger."""
    texts = (
        message.get("data"),
        message.get("notification"),
        get(message.get("android", {}), "notification"),
    )
    payload = message.get("apns", {}).get("payload")
    apns_bytes = len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()) if payload else 0
    return max(sum(_bytes(text) for text in texts), apns_bytes)


def field_faults(body: dict[str, Any]) -> list[Fault]:
    """List what is wrong with a request body, field by field; empty when FCM would parse it."""
    message = body.get("message")
    if not isinstance(message, dict):
        return [("message", "Message is not set.")]
    return list(_message_faults(message))


def _message_faults(message: dict[str, Any]) -> Iterator[Fault]:
    for name in message:
        if _snake(name) not in _FIELDS:
            yield f"message.{name}", f"Unknown name \"{name}\" at 'message': Cannot find field."
    targets = target_names(message)
    if not targets:
        yield "message", "Recipient of the message is not set."
    elif len(targets) > 1:
        yield f"message.{targets[1]}", "Exactly one target of the message must be set."
    elif targets == ["topic"] and not _TOPIC.fullmatch(str(message["topic"])):
        yield "message.topic", "Invalid topic name."
    for name in ("notification", "android", "apns", "webpush"):
        if not isinstance(message.get(name, {}), dict):
            yield f"message.{name}", f"Invalid value at 'message.{name}'"
            return
    yield from _data_faults("message.data", message.get("data", {}))
    yield from _android_faults(message.get("android", {}))
    yield from _string_map_faults("message.apns.headers", message.get("apns", {}).get("headers", {}))
    if not isinstance(message.get("apns", {}).get("payload", {}), dict):
        yield "message.apns.payload", "Invalid value at 'message.apns.payload'"


def _android_faults(android: dict[str, Any]) -> Iterator[Fault]:
    yield from _data_faults("message.android.data", android.get("data", {}))
    if str(android.get("priority", "NORMAL")).upper() not in {"NORMAL", "HIGH"}:
        yield "message.android.priority", "Invalid value at 'message.android.priority'"
    ttl = android.get("ttl", "0s")
    duration = _TTL.fullmatch(ttl) if isinstance(ttl, str) else None
    if duration is None:
        yield "message.android.ttl", "Illegal duration format; duration must end with 's'"
    elif int(duration[1]) > MAX_TTL_S:
        yield "message.android.ttl", "Invalid value: the longest time to live is 28 days"


def _data_faults(path: str, data: Any) -> Iterator[Fault]:
    yield from _string_map_faults(path, data)
    for key in data if isinstance(data, dict) else ():
        if _RESERVED_KEY.fullmatch(key):
            yield path, f"Invalid data payload key: {key}"


def _string_map_faults(path: str, fields: Any) -> Iterator[Fault]:
    if not isinstance(fields, dict):
        yield path, f"Invalid value at '{path}'"
        return
    for index, value in enumerate(fields.values()):
        if not isinstance(value, str):
            yield f"{path}[{index}].value", f"Invalid value at '{path}[{index}].value' (TYPE_STRING), {value}"


def _bytes(value: Any) -> int:
    match value:
        case None:
            return 0
        case dict():
            return sum(len(key.encode()) + _bytes(item) for key, item in value.items())
        case list():
            return sum(_bytes(item) for item in value)
        case _:
            return len(str(value).encode())


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
