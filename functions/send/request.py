"""What callers send, as pydantic models: the edge's only job is to refuse what breaks a rule, by the field's name."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from pushlease.edge import (
    AppIdText,
    ChannelText,
    DeviceIdText,
    LocaleText,
    NotificationIdText,
    Request,
    UserIdText,
)
from pushlease.push.audience import MAX_INLINE, Entry
from pushlease.push.notification import MAX_BADGE, MAX_TEXT, Content, Priority
from pushlease.push.plan import Target
from pushlease.push.preference import Transport
from pushlease.push.variables import MAX_VALUE, MAX_VARIABLES
from send.audience import AudienceSubmission
from send.status import Question
from send.usecase import Cancellation, Submission


def _encodable(text: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must be text: no lone surrogates")
    return text


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Instant = Annotated[int, Field(ge=0, lt=2**48)]  # epoch milliseconds, until the year 10889
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
VariableText = Annotated[str, StringConstraints(max_length=MAX_VALUE), AfterValidator(_encodable)]
MAX_RECIPIENTS = 500
# No provider carries a quarter of it; it is what an app without providers may put into its inbox.
MAX_OVERRIDES_BYTES = 16_384
MAX_TTL_S = 28 * 86_400  # FCM's longest; APNs keeps at most 30 days
MAX_LOCALES = 50
# Years that every zone's arithmetic can bear.
_WALL_TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?")


def _wall_time(said: object) -> datetime:
    if not isinstance(said, str) or not _WALL_TIME.fullmatch(said):
        raise ValueError("must be a wall time without a zone, such as 2026-12-24T09:00")
    return datetime.fromisoformat(said)


WallTime = Annotated[
    datetime,
    BeforeValidator(_wall_time),
    WithJsonSchema({"type": "string", "pattern": f"^{_WALL_TIME.pattern}$"}),
]


class LocalTextsModel(Request):
    """The texts of one language, in place of the content's own; what is left out stays."""

    title: Text | None = None
    subtitle: Text | None = None
    body: Text | None = None

    @model_validator(mode="after")
    def _some_text(self) -> Self:
        if not self.texts():
            raise ValueError("must give a title, a subtitle or a body")
        return self

    def texts(self) -> dict[str, str]:
        """Those that are given."""
        return self.model_dump(exclude_none=True)


class ContentModel(Request):
    """What is said: the words and the switches of one notification. See docs/content.md."""

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
    locales: Annotated[dict[LocaleText, LocalTextsModel], Field(max_length=MAX_LOCALES)] = {}
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
        said = {name: getattr(self, name) for name in type(self).model_fields}
        return Content(**said | {"locales": {tag: local.texts() for tag, local in self.locales.items()}})


class DeviceTarget(Request):
    """One device of one user."""

    user_id: UserIdText
    device_id: DeviceIdText


class SaidModel(Request):
    """What is said, when and how, whoever gets it."""

    version: Literal[1] = 1
    app_id: AppIdText
    content: ContentModel
    transports: Annotated[
        list[Annotated[Transport, Field(strict=False)]], Field(min_length=1, max_length=len(Transport))
    ] = [Transport.PUSH]
    notification_id: NotificationIdText | None = None
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    channel: ChannelText | None = None
    ttl_s: Annotated[int, Field(ge=1, le=MAX_TTL_S)] | None = None
    expires_at_ms: Instant | None = None
    deliver_at_ms: Instant | None = None
    deliver_at_local: WallTime | None = None
    max_attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    dry_run: bool = False

    def said(self, targets: Sequence[Target], invocation_id: str | None) -> Submission:
        """As the use case's value."""
        return Submission(
            app_id=self.app_id,
            content=self.content.content(),
            targets=targets,
            transports=frozenset(self.transports),
            notification_id=self.notification_id,
            idempotency_key=self.idempotency_key,
            channel=self.channel,
            ttl_s=self.ttl_s,
            expires_at_ms=self.expires_at_ms,
            invocation_id=invocation_id,
            deliver_at_ms=self.deliver_at_ms,
            deliver_at_local=self.deliver_at_local,
            max_attempts=self.max_attempts,
            dry_run=self.dry_run,
        )


class SendModel(SaidModel):
    """One notification for one or many recipients, or for explicit devices."""

    action: Literal["send"] = "send"
    recipients: Annotated[list[UserIdText], Field(max_length=MAX_RECIPIENTS)] = []
    devices: Annotated[list[DeviceTarget], Field(max_length=MAX_RECIPIENTS)] = []

    def submission(self, invocation_id: str | None = None) -> Submission:
        """As the use case's value."""
        return self.said(_targets(self.recipients, self.devices), invocation_id)


class EntryModel(Request):
    """One recipient of an audience, with what is filled into the content's {{ names }} for it."""

    user_id: UserIdText
    variables: Annotated[dict[VariableName, VariableText], Field(max_length=MAX_VARIABLES)] = {}

    def entry(self) -> Entry:
        """As the domain's value."""
        return Entry(user_id=self.user_id, variables=self.variables)


class AudienceModel(Request):
    """Where an audience's list is: an object of the deployment's bucket, or here."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    recipients: Annotated[list[EntryModel], Field(max_length=MAX_INLINE)] = []
    rate_per_s: Annotated[int, Field(ge=1, le=100_000)] | None = None


class SendAudienceModel(SaidModel):
    """One notification for a long list of recipients, sent page by page."""

    action: Literal["send_audience"]
    audience: AudienceModel

    def submission(self, invocation_id: str | None = None) -> AudienceSubmission:
        """As the use case's value."""
        return AudienceSubmission(
            submission=self.said((), invocation_id),
            key=self.audience.key,
            entries=[entry.entry() for entry in self.audience.recipients],
            rate_per_s=self.audience.rate_per_s,
        )


class OfNotification(Request):
    """A request about one notification."""

    app_id: AppIdText
    notification_id: NotificationIdText


class AudienceStatusModel(OfNotification):
    """How far an audience is."""

    action: Literal["audience_status"]


class PauseModel(OfNotification):
    """Let an audience wait."""

    action: Literal["pause_audience"]


class ResumeModel(OfNotification):
    """Let a paused audience go on."""

    action: Literal["resume_audience"]


class StatusModel(Request):
    """What became of a notification, of a recipient's notifications, or of one delivery."""

    action: Literal["status"]
    app_id: AppIdText
    notification_id: NotificationIdText | None = None
    user_id: UserIdText | None = None
    device_id: DeviceIdText | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_RECIPIENTS)] = 20
    before_ms: Instant | None = None

    def question(self) -> Question:
        """As the use case's value."""
        return Question(**self.model_dump(exclude={"action"}))


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
