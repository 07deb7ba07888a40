"""From a notification and a recipient to a job: who gets it on which devices, when, and if not, why not.

Pure: what was read of the recipient comes in, a job row's values go out. ``send`` plans each recipient so, and so does
the worker of an audience's page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from pushlease.codes import Code
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Status, job_id_of
from pushlease.jobs.retry import MAX_HINT_DELAY
from pushlease.push.device import App, Device, Recipient, UserId
from pushlease.push.notification import Content, Priority
from pushlease.push.preference import Preferences, Transport, zone_of
from pushlease.push.quiet import Stretch, instant_ms

# The delivery to the inbox, and the one that stands for all devices where there is none; others are named by a device.
IN_APP = DeliveryId("in_app")
NO_DEVICE = DeliveryId("push")
RESERVED_IDS = frozenset({IN_APP, NO_DEVICE})

DEFAULT_TTL = timedelta(hours=24)  # every notification has an expiry, so that no backlog is immortal
QUIET_HOURS = "quiet_hours"  # why a delivery waits
DELIVER_AT = "deliver_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A recipient with all devices, or one device of it."""

    user_id: str
    device_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What a caller wants said, and when, the same for all its recipients.

    ``deliver_at_ms`` is an instant, ``deliver_at_local`` what the clock on the recipient's wall reads; the later of
    both counts, without them it is now. ``ttl`` counts from there, unless there is ``expires_at_ms``.
    """

    app: App
    notification_id: str
    fingerprint: str
    content: Content
    transports: frozenset[Transport]
    channel: str | None = None
    deliver_at_ms: int | None = None
    deliver_at_local: datetime | None = None
    ttl: timedelta | None = None
    expires_at_ms: int | None = None
    max_attempts: int

    def ready_ms(self, wishes: Preferences, now_ms: int) -> int:
        """When it may be delivered to somebody at the earliest, quiet hours apart."""
        at_ms = self.deliver_at_ms or 0
        if self.deliver_at_local:
            at_ms = max(at_ms, instant_ms(self.deliver_at_local, zone_of(wishes.zone or self.app.zone)))
        return max(now_ms, at_ms)

    def expiry_ms(self, ready_ms: int) -> int:
        """When nobody wants it any more, if it may be delivered from then on."""
        return self.expires_at_ms or ready_ms + (self.ttl or DEFAULT_TTL) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans jobs. ``grace``: how far a job with a hint is forward-dated; ``spread``: over how long quiet hours end."""

    grace: timedelta
    spread: timedelta

    def job(
        self,
        notification: Notification,
        target: Target,
        *,
        wishes: Preferences,
        devices: Sequence[Device],
        now_ms: int,
        page: int | None = None,
    ) -> Job:
        """The job row of one target, as it is to be inserted. ``devices``: those that may be sent to.

        A job of an audience's ``page`` has no hint: the worker that stores it has it in hand.
        """
        owner = Recipient(app_id=notification.app.app_id, user_id=UserId(target.user_id))
        ready_ms = notification.ready_ms(wishes, now_ms)
        expires_at_ms = notification.expiry_ms(ready_ms)
        deliveries = {
            delivery_id: self._delivery(
                notification, owner, delivery_id, wishes, devices, now_ms=now_ms, expires_at_ms=expires_at_ms
            )
            for delivery_id in _ids(notification, devices)
        }
        queued = [delivery for delivery in deliveries.values() if delivery.status is DeliveryStatus.QUEUED]
        due_at_ms = min((delivery.due_at_ms or now_ms for delivery in queued), default=now_ms)
        return Job(
            job_id=target_job_id(notification.app.app_id, notification.notification_id, target),
            app_id=notification.app.app_id,
            user_id=target.user_id,
            notification_id=notification.notification_id,
            fingerprint=notification.fingerprint,
            status=Status.PENDING if queued else Status.DONE,
            deliveries=deliveries,
            max_attempts=notification.max_attempts,
            due_at_ms=self._forward_dated(due_at_ms, now_ms, page),
            page=page,
            content=notification.content.to_json(),
            channel=notification.channel,
            created_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
        )

    def _delivery(
        self,
        notification: Notification,
        owner: Recipient,
        delivery_id: DeliveryId,
        wishes: Preferences,
        devices: Sequence[Device],
        *,
        now_ms: int,
        expires_at_ms: int,
    ) -> Delivery:
        transport = Transport.IN_APP if delivery_id == IN_APP else Transport.PUSH
        ready_ms = notification.ready_ms(wishes, now_ms)
        if objection := wishes.objection(notification.app.channels, notification.channel, transport, ready_ms):
            return Delivery(status=DeliveryStatus.SUPPRESSED, code=objection)
        if delivery_id == NO_DEVICE:
            return Delivery(status=DeliveryStatus.SKIPPED, code="no_push_token")
        device = {str(device.device_id): device for device in devices}.get(delivery_id)
        if device and notification.app.credentials(device) is None:
            return Delivery(status=DeliveryStatus.SKIPPED, code="unconfigured")
        if expires_at_ms <= ready_ms:
            return Delivery(status=DeliveryStatus.FAILED, code=Code.EXPIRED)
        due_ms = ready_ms
        if transport is Transport.PUSH and (stretch := quiet(notification.content, notification.app, wishes, ready_ms)):
            due_ms = min(released_ms(stretch, owner, said_at_ms=now_ms, spread=self.spread), expires_at_ms)
        return Delivery(due_at_ms=due_ms if due_ms > now_ms else None)

    def _forward_dated(self, due_at_ms: int, now_ms: int, page: int | None) -> int:
        """Later than due if somebody has it in hand, or a hint in his; else when the drain shall find it."""
        in_hand_ms = MAX_HINT_DELAY // timedelta(milliseconds=1) if page is None else 0
        return due_at_ms + (self.grace // timedelta(milliseconds=1) if due_at_ms - now_ms <= in_hand_ms else 0)


def wait_of(job: Job) -> timedelta:
    """How long after a job's acceptance nothing of it is due."""
    dues = [delivery.due_at_ms or job.created_at_ms for delivery in job.open_deliveries.values()]
    return timedelta(milliseconds=min(dues, default=job.created_at_ms) - job.created_at_ms)


def quiet(content: Content, app: App, wishes: Preferences, at_ms: int) -> Stretch | None:
    """The quiet stretch that holds a push back at an instant; what is urgent passes."""
    return None if content.priority is Priority.URGENT else wishes.quiet_at(at_ms, zone=app.zone)


def released_ms(stretch: Stretch, owner: Recipient, *, said_at_ms: int, spread: timedelta) -> int:
    """When what a recipient's quiet hours held back is due."""
    digest = sha256(f"{owner.app_id}\0{owner.user_id}".encode()).digest()
    return stretch.release_ms(share=int.from_bytes(digest[:4]) / 2**32, said_at_ms=said_at_ms, spread=spread)


def target_job_id(app_id: str, notification_id: str, target: Target) -> JobId:
    """The id of a target's job, the same for the same notification and target."""
    return job_id_of(app_id, notification_id, target.user_id, *([target.device_id] if target.device_id else []))


def _ids(notification: Notification, devices: Sequence[Device]) -> Sequence[DeliveryId]:
    ids: list[DeliveryId] = []
    if Transport.PUSH in notification.transports:
        ids += [DeliveryId(device.device_id) for device in devices] or [NO_DEVICE]
    return [*ids, IN_APP] if Transport.IN_APP in notification.transports else ids
