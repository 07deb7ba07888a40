"""Apps, their providers, and the devices of their recipients."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NewType, Self

AppId = NewType("AppId", str)
UserId = NewType("UserId", str)
DeviceId = NewType("DeviceId", str)


class Platform(StrEnum):
    """The provider that reaches a device."""

    APNS = "apns"
    FCM = "fcm"


class Environment(StrEnum):
    """Which of Apple's two hosts issued a push token; it cannot be read off the token, so it is stored."""

    PRODUCTION = "production"
    SANDBOX = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """A user of an app."""

    app_id: AppId
    user_id: UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One install of an app that can receive.

    ``topic`` is the APNs bundle ID (None for FCM). ``registered_at_ms`` is the last registration, which a 410 is
    compared with. ``disabled_code`` is set once a provider disowned the push token, and cleared by a registration.
    """

    device_id: DeviceId
    recipient: Recipient
    platform: Platform
    environment: Environment
    push_token: str
    registered_at_ms: int
    topic: str | None = None
    locale: str | None = None
    disabled_code: str | None = None

    def __repr__(self) -> str:
        """Without the whole push token, which is personal data."""
        return f"Device({self.device_id}, {self.platform}, …{self.push_token[-6:]})"

    def disabled(self, code: str) -> Self:
        return replace(self, disabled_code=code)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApnsCredentials:
    """Where the key of one Apple team is: ``secret`` names the secret that holds the p8 PEM."""

    team_id: str
    key_id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FcmCredentials:
    """Which Firebase project, and the name of the secret that holds its service-account JSON."""

    project_id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An app and the providers configured for it; a provider left out is not configured."""

    app_id: AppId
    apns_production: ApnsCredentials | None = None
    apns_sandbox: ApnsCredentials | None = None
    fcm: FcmCredentials | None = None

    def credentials(self, platform: Platform, environment: Environment) -> ApnsCredentials | FcmCredentials | None:
        """The credentials that reach this kind of device, None if the app has none."""
        if platform is Platform.FCM:
            return self.fcm
        return self.apns_production if environment is Environment.PRODUCTION else self.apns_sandbox
