"""Keep apps, devices and preferences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pushlease.errors import BadRequest
from pushlease.push.device import Address, App, Device, DeviceId, Environment, Platform, Recipient
from pushlease.push.ports import AppStore, DeviceStore, RecipientStore
from pushlease.push.preference import Preferences

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PLATFORM_OF = {Address.FID: Platform.FCM, Address.CHANNEL: Platform.APNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a device says of itself; see ``registry.request`` for the fields' rules."""

    recipient: Recipient
    device_id: DeviceId
    platform: Platform
    push_token: str
    environment: Environment | None = None
    topic: str | None = None
    address: Address = Address.PUSH_TOKEN
    locale: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The use case. ``checked``: the device as its provider writes it, or ``BadRequest``; ``check_secret`` likewise."""

    apps: AppStore
    devices: DeviceStore
    recipients: RecipientStore
    checked: Callable[[Device], Device]
    check_secret: Callable[[str, str], None]
    clock: Callable[[], int]

    def configure_app(self, app: App) -> Mapping[str, Any]:
        """Store an app's providers. Its secrets are named, never sent."""
        for field in ("apns_production", "apns_sandbox", "fcm"):
            credentials = getattr(app, field)
            if credentials:
                self.check_secret(f"{field}.secret", credentials.secret)
        for index, key in enumerate(app.apns_topic_keys):
            self.check_secret(f"apns_topic_keys.{index}.secret", key.credentials.secret)
        self.apps.put(app)
        return {"app_id": app.app_id}

    def register(self, registration: Registration) -> Mapping[str, Any]:
        """Store or refresh a device: a new push token replaces the old, a dead one lives again."""
        environment = registration.environment
        topic = registration.topic
        if registration.platform is Platform.APNS:
            if environment is None:
                raise BadRequest("environment", "must be production or sandbox: a push token does not tell which")
            if topic is None:
                raise BadRequest("topic", "must be the app's bundle ID")
        elif topic is not None:
            raise BadRequest("topic", "only for apns devices")
        only = _PLATFORM_OF.get(registration.address, registration.platform)
        if registration.platform is not only:
            raise BadRequest("address", f"{registration.address}: only for {only} devices")
        device = Device(
            device_id=registration.device_id,
            recipient=registration.recipient,
            platform=registration.platform,
            environment=environment or Environment.PRODUCTION,  # FCM has only one
            push_token=registration.push_token,
            registered_at_ms=self.clock(),
            topic=topic,
            address=registration.address,
            locale=registration.locale,
        )
        self.devices.register(self.checked(device))
        self.recipients.locate(device.recipient, zone=registration.zone, locale=registration.locale)
        return {"device_id": device.device_id, "registered_at_ms": device.registered_at_ms}

    def remove(self, recipient: Recipient, device_id: DeviceId) -> Mapping[str, Any]:
        """Forget a device; deliveries that still wait for it end as ``device_deleted``."""
        return {"device_id": device_id, "removed": self.devices.remove(recipient, device_id)}

    def list_devices(self, recipient: Recipient) -> Mapping[str, Any]:
        """A recipient's devices, without their whole push tokens."""
        return {
            "devices": [
                {
                    "device_id": device.device_id,
                    "platform": device.platform,
                    "environment": device.environment,
                    "address": device.address,
                    "push_token": f"…{device.push_token[-6:]}",
                    "registered_at_ms": device.registered_at_ms,
                    "disabled_code": device.disabled_code,
                }
                for device in self.devices.of(recipient)
            ]
        }

    def set_preferences(self, recipient: Recipient, preferences: Preferences) -> Mapping[str, Any]:
        """Replace what a recipient wants."""
        self.recipients.put(recipient, preferences)
        return {"user_id": recipient.user_id}

    def get_preferences(self, recipient: Recipient) -> Mapping[str, Any]:
        """What a recipient wants, in the form in which it is set."""
        wishes = self.recipients.get([recipient]).get(recipient, Preferences())
        return {
            "user_id": recipient.user_id,
            "channels": wishes.channels,
            "muted_until_ms": wishes.muted_until_ms,
            "quiet_hours": [
                {
                    "days": [DAYS[day] for day in sorted(window.days)],
                    "start": _time_of_day(window.start),
                    "end": _time_of_day(window.end),
                }
                for window in wishes.quiet
            ],
            "zone": wishes.zone,
            "locale": wishes.locale,
        }


def _time_of_day(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
