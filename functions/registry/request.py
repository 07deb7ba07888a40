"""What the registry can be asked for, as pydantic models."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from pushlease.edge import AppIdText, ChannelText, DeviceIdText, LocaleText, Request, UserIdText, ZoneText
from pushlease.push.device import (
    Address,
    ApnsCredentials,
    ApnsTopicKey,
    App,
    AppId,
    DeviceId,
    Environment,
    FcmCredentials,
    Platform,
    Recipient,
    UserId,
)
from pushlease.push.preference import Channels, Preferences, Transport, Unknown
from pushlease.push.quiet import Window, free_minutes
from registry.usecase import DAYS, Registration

TenLetters = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9]{10}$")]  # Apple's team and key ids
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/_+=.@-]{1,512}$")]  # Secrets Manager's rule
TopicText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,155}$")]  # a bundle ID
ProjectId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{4,30}$")]  # a Google project's id or number

Switches = Annotated[dict[ChannelText, dict[Annotated[Transport, Field(strict=False)], bool]], Field(max_length=100)]
TimeOfDay = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
MutedText = Annotated[str, StringConstraints(pattern=r"^([*]|[A-Za-z0-9._-]{1,64})$")]  # a channel, or all of them

# An inbox entry's key, as list_inbox answers it.
EntryText = Annotated[str, StringConstraints(pattern=r"^[0-9]{13}#[A-Za-z0-9._:-]{1,64}$")]

MAX_ENTRIES = 100  # of one answer, and of one request to mark them
MAX_WINDOWS = 21  # three a day
LEAST_FREE_MINUTES = 60  # of a week: what is deferred must find a time
MAX_TOPIC_KEYS = 100
MAX_TOPICS = 1000  # of an app: each attempt reads its row, which is billed by size


class ApnsModel(Request):
    """See ``ApnsCredentials``."""

    team_id: TenLetters
    key_id: TenLetters
    secret: SecretName

    def credentials(self) -> ApnsCredentials:
        """As the domain's value."""
        return ApnsCredentials(team_id=self.team_id, key_id=self.key_id, secret=self.secret)


class ApnsTopicKeyModel(ApnsModel):
    """See ``ApnsTopicKey``."""

    environment: Annotated[Environment, Field(strict=False)]
    topics: Annotated[list[TopicText], Field(min_length=1, max_length=400)]  # Apple's limit for one key

    def topic_key(self) -> ApnsTopicKey:
        """As the domain's value."""
        return ApnsTopicKey(environment=self.environment, topics=frozenset(self.topics), credentials=self.credentials())


class FcmModel(Request):
    """See ``FcmCredentials``."""

    project_id: ProjectId
    secret: SecretName

    def credentials(self) -> FcmCredentials:
        """As the domain's value."""
        return FcmCredentials(project_id=self.project_id, secret=self.secret)


class ConfigureAppModel(Request):
    """An app and the providers it has; replaces what was configured."""

    action: Literal["configure_app"]
    app_id: AppIdText
    apns_production: ApnsModel | None = None
    apns_sandbox: ApnsModel | None = None
    apns_topic_keys: Annotated[list[ApnsTopicKeyModel], Field(max_length=MAX_TOPIC_KEYS)] = []
    fcm: FcmModel | None = None
    channels: Switches = {}
    unknown_channels: Annotated[Unknown, Field(strict=False)] = Unknown.ALLOW
    zone: ZoneText | None = None

    @field_validator("apns_topic_keys")
    @classmethod
    def _one_key_a_topic(cls, keys: list[ApnsTopicKeyModel]) -> list[ApnsTopicKeyModel]:
        named = [(key.environment, topic) for key in keys for topic in key.topics]
        if len(set(named)) < len(named):
            raise ValueError("must name each topic of an environment once")
        if len(named) > MAX_TOPICS:
            raise ValueError(f"must name at most {MAX_TOPICS} topics together")
        return keys

    def app(self) -> App:
        """As the domain's value."""
        return App(
            app_id=AppId(self.app_id),
            apns_production=self.apns_production.credentials() if self.apns_production else None,
            apns_sandbox=self.apns_sandbox.credentials() if self.apns_sandbox else None,
            apns_topic_keys=tuple(key.topic_key() for key in self.apns_topic_keys),
            fcm=self.fcm.credentials() if self.fcm else None,
            channels=Channels(defaults=self.channels, unknown=self.unknown_channels),
            zone=self.zone,
        )


class OfRecipient(Request):
    """A request about one recipient."""

    app_id: AppIdText
    user_id: UserIdText

    def recipient(self) -> Recipient:
        """As the domain's value."""
        return Recipient(app_id=AppId(self.app_id), user_id=UserId(self.user_id))


class RegisterDeviceModel(OfRecipient):
    """A device that registers, or registers again. ``environment`` must be said: it cannot be told from the token."""

    action: Literal["register_device"]
    device_id: DeviceIdText
    platform: Annotated[Platform, Field(strict=False)]
    push_token: Annotated[str, StringConstraints(min_length=1, max_length=2048)]  # each provider has rules of its own
    environment: Annotated[Environment, Field(strict=False)] | None = None
    topic: Annotated[str, StringConstraints(max_length=255)] | None = None
    address: Annotated[Address, Field(strict=False)] = Address.PUSH_TOKEN
    locale: LocaleText | None = None
    zone: ZoneText | None = None
    app_version: Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{1,64}$")] | None = None

    def registration(self) -> Registration:
        """As the use case's value."""
        return Registration(
            recipient=self.recipient(),
            device_id=DeviceId(self.device_id),
            platform=self.platform,
            push_token=self.push_token,
            environment=self.environment,
            topic=self.topic,
            address=self.address,
            locale=self.locale,
            zone=self.zone,
            app_version=self.app_version,
        )


class RemoveDeviceModel(OfRecipient):
    """A device that is no more."""

    action: Literal["remove_device"]
    device_id: DeviceIdText


class ListDevicesModel(OfRecipient):
    """Which devices a recipient has."""

    action: Literal["list_devices"]


class WindowModel(Request):
    """Quiet from one time of day to another, on the days on which it starts; past midnight if it ends earlier."""

    days: Annotated[list[Literal[DAYS]], Field(min_length=1, max_length=7)] = [*DAYS]  # type: ignore[valid-type]
    start: TimeOfDay
    end: TimeOfDay

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.start == self.end:
            raise ValueError("must not start and end at the same time")
        return self

    def window(self) -> Window:
        """As the domain's value."""
        days = frozenset(DAYS.index(day) for day in self.days)
        return Window(days=days, start=_minutes(self.start), end=_minutes(self.end))


class SetPreferencesModel(OfRecipient):
    """What a recipient wants. Replaces what was set; but ``zone`` and ``locale`` stay as they are if left out."""

    action: Literal["set_preferences"]
    channels: Switches = {}
    muted_until_ms: Annotated[dict[MutedText, Annotated[int, Field(ge=0, lt=2**48)]], Field(max_length=101)] = {}
    quiet_hours: Annotated[list[WindowModel], Field(max_length=MAX_WINDOWS)] = []
    zone: ZoneText | None = None
    locale: LocaleText | None = None

    @field_validator("quiet_hours")
    @classmethod
    def _not_always(cls, windows: list[WindowModel]) -> list[WindowModel]:
        if free_minutes([window.window() for window in windows]) < LEAST_FREE_MINUTES:
            raise ValueError(f"must leave {LEAST_FREE_MINUTES} minutes of a week; muted_until_ms holds back everything")
        return windows

    def preferences(self) -> Preferences:
        """As the domain's value."""
        return Preferences(
            channels=self.channels,
            muted_until_ms=self.muted_until_ms,
            quiet=tuple(window.window() for window in self.quiet_hours),
            zone=self.zone,
            locale=self.locale,
        )


class EraseRecipientModel(OfRecipient):
    """Forget all that is known of a recipient."""

    action: Literal["erase_recipient"]


class GetPreferencesModel(OfRecipient):
    """What a recipient wants, as it was set."""

    action: Literal["get_preferences"]


class ListInboxModel(OfRecipient):
    """A recipient's inbox, newest first. ``after``: the last answer's ``next``, to go on."""

    action: Literal["list_inbox"]
    limit: Annotated[int, Field(ge=1, le=MAX_ENTRIES)] = 20
    after: EntryText | None = None


class MarkReadModel(OfRecipient):
    """Entries that the recipient has seen."""

    action: Literal["mark_read"]
    entries: Annotated[list[EntryText], Field(min_length=1, max_length=MAX_ENTRIES)]


class MarkAllReadModel(OfRecipient):
    """The recipient has seen everything."""

    action: Literal["mark_all_read"]


class UnreadCountModel(OfRecipient):
    """How many entries the recipient has not seen."""

    action: Literal["unread_count"]


def _minutes(time_of_day: str) -> int:
    hours, minutes = time_of_day.split(":")
    return int(hours) * 60 + int(minutes)
