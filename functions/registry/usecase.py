"""Keep apps, devices and preferences."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pushlease.errors import BadRequest
from pushlease.push.device import (
    FCM_STALE_AFTER,
    MAX_DEVICES,
    Address,
    App,
    Device,
    DeviceId,
    Environment,
    Platform,
    Recipient,
    surplus,
)
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
    app_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The use case.

    ``checked``: the device as its provider writes it, or ``BadRequest``; ``check_secret`` likewise. ``max_devices``: of
    one recipient. ``fcm_stale_after``: see ``Device.stale``.
    """

    apps: AppStore
    devices: DeviceStore
    recipients: RecipientStore
    checked: Callable[[Device], Device]
    check_secret: Callable[[str, str], None]
    clock: Callable[[], int]
    max_devices: int = MAX_DEVICES
    fcm_stale_after: timedelta = FCM_STALE_AFTER

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
        """Store or refresh a device: a new push token replaces the old, a dead one lives again.

        ``superseded``: somebody registered the device, or its push token, later than this call began; that stands.
        ``retired``: the recipient's oldest registrations beyond the limit, which are forgotten.
        """
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
            zone=registration.zone,
            app_version=registration.app_version,
        )
        stands = self.devices.register(self.checked(device))
        if stands:
            self.recipients.locate(device.recipient, zone=registration.zone, locale=registration.locale)
        return {
            "device_id": device.device_id,
            "registered_at_ms": device.registered_at_ms,
            "superseded": not stands,
            "retired": self._retired(device) if stands else [],
        }

    def _retired(self, newest: Device) -> list[DeviceId]:
        """Forget the recipient's oldest registrations beyond the limit; one that registers again meanwhile stays."""
        beyond = surplus(self.devices.of(newest.recipient), newest.device_id, self.max_devices)
        return [device.device_id for device in beyond if self.devices.retire(device)]

    def remove(self, recipient: Recipient, device_id: DeviceId) -> Mapping[str, Any]:
        """Forget a device; deliveries that still wait for it end as ``device_deleted``."""
        return {"device_id": device_id, "removed": self.devices.remove(recipient, device_id)}

    def list_devices(self, recipient: Recipient) -> Mapping[str, Any]:
        """A recipient's devices, without their whole push tokens. Nothing is sent to one that is stale or disabled."""
        now_ms = self.clock()
        return {
            "devices": [
                {
                    "device_id": device.device_id,
                    "platform": device.platform,
                    "environment": device.environment,
                    "address": device.address,
                    "push_token": f"…{device.push_token[-6:]}",
                    "registered_at_ms": device.registered_at_ms,
                    "app_version": device.app_version,
                    "locale": device.locale,
                    "zone": device.zone,
                    "stale": device.stale(now_ms, self.fcm_stale_after),
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
