"""What the registry can be asked for, as pydantic models."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from pushlease.edge import AppIdText, ChannelText, DeviceIdText, Request, UserIdText
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
from pushlease.push.preference import Preferences, Transport
from registry.usecase import Registration

TenLetters = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9]{10}$")]  # Apple's team and key ids
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/_+=.@-]{1,512}$")]  # Secrets Manager's rule
TopicText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]{1,155}$")]  # a bundle ID
ProjectId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{4,30}$")]  # a Google project's id or number

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
    push_token: Annotated[str, StringConstraints(min_length=1, max_length=2048)]  # an index key holds no more
    environment: Annotated[Environment, Field(strict=False)] | None = None
    topic: Annotated[str, StringConstraints(max_length=255)] | None = None
    address: Annotated[Address, Field(strict=False)] = Address.PUSH_TOKEN
    locale: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{2,35}$")] | None = None

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
        )


class RemoveDeviceModel(OfRecipient):
    """A device that is no more."""

    action: Literal["remove_device"]
    device_id: DeviceIdText


class ListDevicesModel(OfRecipient):
    """Which devices a recipient has."""

    action: Literal["list_devices"]


class SetPreferencesModel(OfRecipient):
    """What a recipient wants: channel → transport → whether; replaces what was set."""

    action: Literal["set_preferences"]
    channels: Annotated[dict[ChannelText, dict[Annotated[Transport, Field(strict=False)], bool]], Field(max_length=100)]

    def preferences(self) -> Preferences:
        """As the domain's value."""
        return Preferences(channels=self.channels)
