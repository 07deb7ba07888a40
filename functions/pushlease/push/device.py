"""Apps, their providers, and the devices of their recipients."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import NewType, Self

from pushlease.push.preference import Channels

# Printable and without spaces, so that it reads the same in keys, logs and command lines.
USER_ID = re.compile(r"[\x21-\x7e\u00a1-\ud7ff\ue000-\ufffd]{1,128}")

AppId = NewType("AppId", str)
UserId = NewType("UserId", str)
DeviceId = NewType("DeviceId", str)


# FCM expires a registration that was idle for so long (Android 270 days; Firebase, "Manage FCM registration tokens").
FCM_STALE_AFTER = timedelta(days=270)
MAX_DEVICES = 20


class Platform(StrEnum):
    """The provider that reaches a device."""

    APNS = "apns"
    FCM = "fcm"


class Environment(StrEnum):
    """Which of Apple's two hosts issued a push token; it cannot be read off the token, so it is stored."""

    PRODUCTION = "production"
    SANDBOX = "sandbox"

    @property
    def other(self) -> "Environment":
        return Environment.SANDBOX if self is Environment.PRODUCTION else Environment.PRODUCTION


class Address(StrEnum):
    """What a device's ``push_token`` names.

    An install, by its push token or by its Firebase installation ID; or a broadcast channel of Apple's, which reaches
    everybody who follows a Live Activity.
    """

    PUSH_TOKEN = "push_token"  # noqa: S105  (the word, not a secret)
    FID = "fid"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A user of an app."""

    app_id: AppId
    user_id: UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One install of an app that can receive.

    ``topic`` is the APNs bundle ID (None for FCM). ``registered_at_ms`` is the last registration, which a 410 is
    compared with. ``zone``: an IANA time zone. ``disabled_code`` is set once a provider disowned the push token, and
    cleared by a registration.
    """

    device_id: DeviceId
    recipient: Recipient
    platform: Platform
    environment: Environment
    push_token: str
    registered_at_ms: int
    topic: str | None = None
    address: Address = Address.PUSH_TOKEN
    locale: str | None = None
    zone: str | None = None
    app_version: str | None = None
    disabled_code: str | None = None

    def __repr__(self) -> str:
        """Without the whole push token, which is personal data."""
        return f"Device({self.device_id}, {self.platform}, …{self.push_token[-6:]})"

    def stale(self, now_ms: int, fcm_stale_after: timedelta) -> bool:
        """Whether it is FCM's and has not registered for so long that its registration counts as expired."""
        idle_ms = now_ms - self.registered_at_ms
        return self.platform is Platform.FCM and idle_ms >= fcm_stale_after // timedelta(milliseconds=1)

    def reachable(self, now_ms: int, fcm_stale_after: timedelta) -> bool:
        """Whether anything may be sent to it: it is neither disabled nor stale."""
        return not self.disabled_code and not self.stale(now_ms, fcm_stale_after)

    def disabled(self, code: str) -> Self:
        return replace(self, disabled_code=code)

    def moved(self, environment: Environment) -> Self:
        return replace(self, environment=environment)


def surplus(devices: Sequence[Device], newest: DeviceId, limit: int) -> Sequence[Device]:
    """A recipient's oldest registrations beyond ``limit``; never ``newest``, which has just registered.

    ``devices``: all of them, oldest registration first.
    """
    others = [device for device in devices if device.device_id != newest]
    return others[: max(0, len(devices) - limit)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApnsCredentials:
    """Where the key of one Apple team is: ``secret`` names the secret that holds the p8 PEM."""

    team_id: str
    key_id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApnsTopicKey:
    """A key of Apple's that is good for some topics (bundle IDs) of one environment alone."""

    environment: Environment
    topics: frozenset[str]
    credentials: ApnsCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class FcmCredentials:
    """Which Firebase project, and the name of the secret that holds the JSON of an account that may send for it.

    That is a service account's key, or a credential configuration of type ``external_account``, which is no secret.
    """

    project_id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An app and the providers configured for it; a provider left out is not configured.

    ``apns_topic_keys`` come before the environment's own key, for their topics. ``zone``: of recipients who have none.
    """

    app_id: AppId
    apns_production: ApnsCredentials | None = None
    apns_sandbox: ApnsCredentials | None = None
    apns_topic_keys: tuple[ApnsTopicKey, ...] = ()
    fcm: FcmCredentials | None = None
    channels: Channels = field(default_factory=Channels)
    zone: str | None = None

    def credentials(self, device: Device) -> ApnsCredentials | FcmCredentials | None:
        """The credentials that reach the device, None if the app has none."""
        if device.platform is Platform.FCM:
            return self.fcm
        for key in self.apns_topic_keys:
            if key.environment is device.environment and device.topic in key.topics:
                return key.credentials
        return self.apns_production if device.environment is Environment.PRODUCTION else self.apns_sandbox

    @property
    def has_apns(self) -> bool:
        """Whether any iPhone can be reached."""
        return bool(self.apns_production or self.apns_sandbox or self.apns_topic_keys)
