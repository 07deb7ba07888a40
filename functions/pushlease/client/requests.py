"""What is asked of the functions, as they take it. Pure; what no request could say is refused here, by its field."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pushlease.client.answers import QuietHours
from pushlease.client.errors import Fault, Refused, TooLarge
from pushlease.push.notification import Content
from pushlease.push.plan import Target

MAX_TARGETS = 500  # of one call, as send.request has it
MAX_TARGETS_OF_ONE = 5000  # of one notification, as send.usecase has it
MAX_PAYLOAD_BYTES = 6_291_456  # 6 MB, Lambda's limit for a synchronous invocation


def given(**said: Any) -> dict[str, Any]:
    """What is said, without what is left out."""
    return {name: value for name, value in said.items() if value is not None}


def window_of(window: QuietHours) -> Mapping[str, Any]:
    """As it stands under ``quiet_hours``."""
    return given(start=window.start, end=window.end, days=window.days and list(window.days))


def content_of(content: Content) -> Any:
    """As it stands under ``content``."""
    try:
        return json.loads(content.to_json())
    except (TypeError, ValueError, RecursionError):
        raise Refused([Fault(field="content", rule="must be JSON")]) from None  # the error may show the text


def targets_of(recipients: Iterable[str], devices: Iterable[Target]) -> Sequence[Target]:
    """Each target once, in the caller's order, recipients first; who is named whole gets no device named as well."""
    if isinstance(recipients, str):
        raise Refused([Fault(field="recipients", rule="must be a list of user ids, not a text")])
    named = dict.fromkeys(recipients)
    others = [device for device in devices if device.user_id not in named]
    targets = list(dict.fromkeys([*(Target(user_id=user_id) for user_id in named), *others]))
    if len(targets) > MAX_TARGETS_OF_ONE:
        raise Refused([Fault(field="recipients", rule=f"one notification takes at most {MAX_TARGETS_OF_ONE}")])
    return targets


def audience_of(
    key: str | None, recipients: Iterable[str] | Mapping[str, Mapping[str, str]], rate_per_s: int | None
) -> Mapping[str, Any]:
    """Where an audience's list is; recipients with their variables, or by their ids alone."""
    if isinstance(recipients, str):
        raise Refused([Fault(field="recipients", rule="must be user ids, not a text")])
    entries = (
        [given(user_id=user_id, variables=dict(filled) or None) for user_id, filled in recipients.items()]
        if isinstance(recipients, Mapping)
        else [{"user_id": user_id} for user_id in recipients]
    )
    return given(key=key, recipients=entries or None, rate_per_s=rate_per_s)


def addressed(targets: Sequence[Target]) -> Mapping[str, Any]:
    """The fields that name them."""
    devices = [
        {"user_id": target.user_id, "device_id": target.device_id} for target in targets if target.device_id is not None
    ]
    recipients = [target.user_id for target in targets if target.device_id is None]
    return given(recipients=recipients or None, devices=devices or None)


def parts_of(targets: Sequence[Target]) -> Sequence[tuple[int, Sequence[Target]]]:
    """As many as one call takes at a time, and where they begin; without any, one call that names nobody."""
    return [(first, targets[first : first + MAX_TARGETS]) for first in range(0, max(len(targets), 1), MAX_TARGETS)]


def instant_ms(field: str, moment: datetime | None) -> int | None:
    """Epoch milliseconds of an instant; one without a zone is refused."""
    if moment is None:
        return None
    if moment.utcoffset() is None:
        raise Refused([Fault(field=field, rule="must have a time zone")])
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def deliver_at_of(moment: datetime | None) -> Mapping[str, Any]:
    """An instant, or, without a zone, what the clock on the recipient's wall shall read."""
    if moment is None or moment.utcoffset() is not None:
        return given(deliver_at_ms=instant_ms("deliver_at", moment))
    return {"deliver_at_local": moment.replace(tzinfo=None).isoformat(timespec="seconds")}


def seconds_of(span: timedelta | None) -> int | None:
    """Whole seconds; a fraction is dropped."""
    return None if span is None else span // timedelta(seconds=1)


def encoded(request: Mapping[str, Any]) -> bytes:
    """A request as Lambda takes it; raises ``TooLarge``, and ``Refused`` for what is no JSON."""
    try:
        payload = json.dumps(request, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise Refused([Fault(field="request", rule="must be JSON")]) from None  # the error may show the text
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise TooLarge(len(payload), MAX_PAYLOAD_BYTES)
    return payload
