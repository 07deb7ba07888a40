"""What callers send, as pydantic models: the edge's only job is to refuse what breaks a rule, by the field's name."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pushlease.edge import AppIdText, ChannelText, DeviceIdText, NotificationIdText, Request, UserIdText
from pushlease.push.notification import MAX_BADGE, MAX_TEXT, Content, Priority
from pushlease.push.preference import Transport
from send.usecase import Cancellation, Submission, Target

Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Instant = Annotated[int, Field(ge=0, lt=2**48)]  # epoch milliseconds, until the year 10889
MAX_RECIPIENTS = 500
# No provider carries a quarter of it; it is what an app without providers may put into its inbox.
MAX_OVERRIDES_BYTES = 16_384
MAX_TTL_S = 28 * 86_400  # FCM's longest; APNs keeps at most 30 days


class ContentModel(Request):
    """See ``Content``."""

    title: Text | None = None
    body: Text | None = None
    subtitle: Text | None = None
    image: Text | None = None
    link: Text | None = None
    badge: Annotated[int, Field(ge=0, le=MAX_BADGE)] | None = None
    sound: Text | None = None
    category: Text | None = None
    thread: Text | None = None
    data: dict[str, str] = {}
    apns: dict[str, Any] = {}
    fcm: dict[str, Any] = {}
    priority: Annotated[Priority, Field(strict=False)] = Priority.NORMAL
    collapse_key: Text | None = None

    @model_validator(mode="after")
    def _encodable(self) -> Self:
        try:
            size = len(json.dumps([self.data, self.apns, self.fcm], allow_nan=False, ensure_ascii=False).encode())
        except (ValueError, RecursionError):
            raise ValueError(
                "data, apns and fcm must be JSON: no NaN, no lone surrogates, no endless nesting"
            ) from None
        if size > MAX_OVERRIDES_BYTES:
            raise ValueError(f"data, apns and fcm have {size} bytes of JSON together, at most {MAX_OVERRIDES_BYTES}")
        return self

    def content(self) -> Content:
        """As the domain's value."""
        return Content(**{name: getattr(self, name) for name in type(self).model_fields})


class DeviceTarget(Request):
    """One device of one user."""

    user_id: UserIdText
    device_id: DeviceIdText


class SendModel(Request):
    """One notification for one or many recipients, or for explicit devices."""

    action: Literal["send"] = "send"
    app_id: AppIdText
    content: ContentModel
    recipients: Annotated[list[UserIdText], Field(max_length=MAX_RECIPIENTS)] = []
    devices: Annotated[list[DeviceTarget], Field(max_length=MAX_RECIPIENTS)] = []
    transports: Annotated[
        list[Annotated[Transport, Field(strict=False)]], Field(min_length=1, max_length=len(Transport))
    ] = [Transport.PUSH]
    notification_id: NotificationIdText | None = None
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    channel: ChannelText | None = None
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | None = None
    expires_at_ms: Instant | None = None
    deliver_at_ms: Instant | None = None
    max_attempts: Annotated[int, Field(ge=1, le=100)] | None = None

    def submission(self) -> Submission:
        """As the use case's value."""
        return Submission(
            app_id=self.app_id,
            content=self.content.content(),
            targets=_targets(self.recipients, self.devices),
            transports=frozenset(self.transports),
            notification_id=self.notification_id,
            idempotency_key=self.idempotency_key,
            channel=self.channel,
            ttl_s=self.ttl_s,
            expires_at_ms=self.expires_at_ms,
            deliver_at_ms=self.deliver_at_ms,
            max_attempts=self.max_attempts,
        )


class CancelModel(Request):
    """Withdraw a notification, for some of its recipients or for all."""

    action: Literal["cancel"]
    app_id: AppIdText
    notification_id: NotificationIdText
    recipients: Annotated[list[UserIdText], Field(max_length=MAX_RECIPIENTS)] = []
    devices: Annotated[list[DeviceTarget], Field(max_length=MAX_RECIPIENTS)] = []

    def cancellation(self) -> Cancellation:
        """As the use case's value."""
        return Cancellation(
            app_id=self.app_id,
            notification_id=self.notification_id,
            targets=_targets(self.recipients, self.devices),
        )


def _targets(recipients: Sequence[str], devices: Sequence[DeviceTarget]) -> tuple[Target, ...]:
    """Each target once, in the caller's order."""
    named = [Target(user_id=user_id) for user_id in recipients]
    # Who is named whole has that device anyway, and should not get it twice.
    named += [
        Target(user_id=device.user_id, device_id=device.device_id)
        for device in devices
        if device.user_id not in recipients
    ]
    return tuple(dict.fromkeys(named))
