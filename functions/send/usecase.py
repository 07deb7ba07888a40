"""Accept a notification: check everything first, then store each recipient's job once, then hint that it is due."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pushlease.errors import BadRequest
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Status, job_id_of
from pushlease.jobs.ports import Hint, HintSender, JobStore
from pushlease.jobs.retry import MAX_HINT_DELAY
from pushlease.push.attempt import IN_APP, NO_DEVICE
from pushlease.push.device import App, AppId, Device, DeviceId, Recipient, UserId
from pushlease.push.notification import Content
from pushlease.push.ports import AppStore, DeviceStore, NotificationStore, RecipientStore, Shared
from pushlease.push.preference import Preferences, Transport

DEFAULT_TTL = timedelta(hours=24)  # every notification has an expiry, so that no backlog is immortal
# A job row is billed by the kilobyte at every write. Beside its ids and its content it takes some 380 bytes once it is
# settled, and a device some 90.
INLINE_ROW_BYTES = 1024
ROW_BASE_BYTES = 410
ROW_DELIVERY_BYTES = 110
# Their job ids stand in one row, which DynamoDB limits to 400 KB and bills whole at every call that adds to it.
MAX_RECIPIENTS_OF_ONE = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A recipient with all devices, or one device of it."""

    user_id: str
    device_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to send; see ``send.request`` for its fields' rules."""

    app_id: str
    content: Content
    targets: Sequence[Target]
    transports: frozenset[Transport] = frozenset({Transport.PUSH})
    notification_id: str | None = None
    idempotency_key: str | None = None
    channel: str | None = None
    ttl_s: int | None = None
    expires_at_ms: int | None = None
    deliver_at_ms: int | None = None
    max_attempts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """A request to withdraw a notification, as it was targeted; no ``targets``: for everybody."""

    app_id: str
    notification_id: str
    targets: Sequence[Target] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """The use case.

    ``preflight`` raises ``BadRequest`` for content that a provider of the app would refuse. ``unhinted`` is told how
    many hints could not be published: their jobs wait for the drain.
    """

    apps: AppStore
    devices: DeviceStore
    recipients: RecipientStore
    notifications: NotificationStore
    jobs: JobStore
    hints: HintSender
    preflight: Callable[[Content, App], None]
    unhinted: Callable[[int], None]
    clock: Callable[[], int]
    new_id: Callable[[], str]
    grace: timedelta
    max_attempts: int

    def send(self, submission: Submission) -> Mapping[str, Any]:
        """What will happen to each delivery of each target. Raises ``BadRequest`` with nothing stored."""
        now_ms = self.clock()
        if not submission.targets:
            raise BadRequest("recipients", "at least one recipient, or one device in devices")
        if submission.notification_id is not None and submission.idempotency_key is not None:
            raise BadRequest("idempotency_key", "not together with notification_id: each names the notification")
        app = self.apps.get(AppId(submission.app_id))
        if app is None:
            raise BadRequest("app_id", "no such app; configure it with the registry function first")
        self.preflight(submission.content, app)
        jobs = list(self._jobs(submission, app, now_ms))
        ref = f"{submission.app_id}#{jobs[0].notification_id}"
        # What the caller named may be added to and withdrawn by that name, and must not be said with other content.
        named = submission.notification_id is not None or submission.idempotency_key is not None
        if named:
            self._refuse_what_was_used_before(submission, ref, jobs)
        if named or len(jobs) > 1 or not _fits(jobs[0]):
            shared = Shared(
                fingerprint=jobs[0].fingerprint,
                content=jobs[0].content or "",
                job_ids=[job.job_id for job in jobs],
            )
            if not self.notifications.put(ref, shared, now_ms=now_ms, expires_at_ms=jobs[0].expires_at_ms):
                raise _used_before(submission)
        jobs = [job if _fits(job) else replace(job, content=None, content_ref=ref) for job in jobs]
        existing = self.jobs.insert(jobs)
        wait = _wait(submission, now_ms)
        hints = [
            _hint(there or job, wait)
            for job, there in zip(jobs, existing, strict=True)
            if wait <= MAX_HINT_DELAY and (there is None or self._may_lack_its_hint(there))
            if (there or job).status is Status.PENDING
        ]
        if failed := self.hints.publish(hints):
            self.unhinted(failed)
        return {
            "notification_id": jobs[0].notification_id,
            "jobs": [
                _answer(there or job, target, duplicate=there is not None)
                for target, job, there in zip(submission.targets, jobs, existing, strict=True)
            ],
        }

    def cancel(self, cancellation: Cancellation) -> Mapping[str, Any]:
        """Withdraw: what was sent stays sent, and nothing more is."""
        ref = f"{cancellation.app_id}#{cancellation.notification_id}"
        job_ids = [
            _job_id(cancellation.app_id, cancellation.notification_id, target) for target in cancellation.targets
        ]
        shared = self.notifications.get([ref]).get(ref)
        if not job_ids:
            if shared is None:
                raise BadRequest("recipients", "must name whom, for a notification with a single recipient")
            job_ids = [JobId(job_id) for job_id in shared.job_ids]
            self.notifications.withdraw(ref)
        cancelled = self.jobs.cancel(job_ids, now_ms=self.clock())
        return {
            "notification_id": cancellation.notification_id,
            "jobs": [{"job_id": job_id, "cancelled": done} for job_id, done in zip(job_ids, cancelled, strict=True)],
        }

    def _may_lack_its_hint(self, job: Job) -> bool:
        """A row that was there and due at once, and that nobody claimed: it may be this very call's, repeated."""
        return job.claim_seq == 0 and job.due_at_ms - job.created_at_ms == self.grace // timedelta(milliseconds=1)

    def _jobs(self, submission: Submission, app: App, now_ms: int) -> Iterator[Job]:
        notification_id = _notification_id(submission, self.new_id)
        expires_at_ms = _expiry(submission, now_ms)
        wait = _wait(submission, now_ms)
        if now_ms + wait // timedelta(milliseconds=1) >= expires_at_ms:
            raise BadRequest("deliver_at_ms", f"must be before the notification expires, at {expires_at_ms}")
        content = submission.content.to_json()
        fingerprint = _fingerprint(submission, content)
        owners = [_recipient(submission, target) for target in submission.targets]
        wishes = self.recipients.get(owners) if submission.channel else {}
        for target, owner in zip(submission.targets, owners, strict=True):
            deliveries = self._deliveries(submission, target, app, owner, wishes.get(owner, Preferences()))
            pending = any(delivery.status is DeliveryStatus.QUEUED for delivery in deliveries.values())
            yield Job(
                job_id=_job_id(submission.app_id, notification_id, target),
                app_id=submission.app_id,
                user_id=target.user_id,
                notification_id=notification_id,
                fingerprint=fingerprint,
                status=Status.PENDING if pending else Status.DONE,
                deliveries=deliveries,
                max_attempts=submission.max_attempts or self.max_attempts,
                due_at_ms=now_ms + _due_in(wait, self.grace) // timedelta(milliseconds=1),
                content=content,
                channel=submission.channel,
                created_at_ms=now_ms,
                expires_at_ms=expires_at_ms,
            )

    def _deliveries(
        self, submission: Submission, target: Target, app: App, owner: Recipient, wishes: Preferences
    ) -> Mapping[DeliveryId, Delivery]:
        deliveries: dict[DeliveryId, Delivery] = {}
        if Transport.PUSH in submission.transports:
            devices = self._devices(target, owner)
            allowed = wishes.allow(submission.channel, Transport.PUSH)
            for device in devices:
                deliveries[DeliveryId(device.device_id)] = _planned(app, device, allowed=allowed)
            if not devices:
                deliveries[NO_DEVICE] = Delivery(status=DeliveryStatus.SKIPPED, code="no_push_token")
        if Transport.IN_APP in submission.transports:
            allowed = wishes.allow(submission.channel, Transport.IN_APP)
            deliveries[IN_APP] = Delivery() if allowed else Delivery(status=DeliveryStatus.SUPPRESSED)
        return deliveries

    def _devices(self, target: Target, owner: Recipient) -> Sequence[Device]:
        if target.device_id is None:
            return [device for device in self.devices.of(owner) if not device.disabled_code]
        key = (owner, DeviceId(target.device_id))
        device = self.devices.get([key]).get(key)
        return [device] if device and not device.disabled_code else []

    def _refuse_what_was_used_before(self, submission: Submission, ref: str, jobs: Sequence[Job]) -> None:
        """A name that the caller chose may have been used before: then it must have been for the same content."""
        shared = self.notifications.get([ref]).get(ref)
        stored = self.jobs.get([job.job_id for job in jobs])
        known = [job.fingerprint for job in stored.values()] + ([shared.fingerprint] if shared else [])
        if any(fingerprint != jobs[0].fingerprint for fingerprint in known):
            raise _used_before(submission)
        if len({*(shared.job_ids if shared else ()), *(job.job_id for job in jobs)}) > MAX_RECIPIENTS_OF_ONE:
            raise BadRequest("recipients", f"one notification takes at most {MAX_RECIPIENTS_OF_ONE}, in several calls")


def _used_before(submission: Submission) -> BadRequest:
    field = "notification_id" if submission.notification_id else "idempotency_key"
    return BadRequest(field, "was used before with other content; a new notification needs a new one")


def _planned(app: App, device: Device, *, allowed: bool) -> Delivery:
    if not allowed:
        return Delivery(status=DeliveryStatus.SUPPRESSED)
    if app.credentials(device) is None:
        return Delivery(status=DeliveryStatus.SKIPPED, code="unconfigured")
    return Delivery()


def _job_id(app_id: str, notification_id: str, target: Target) -> JobId:
    return job_id_of(app_id, notification_id, target.user_id, *([target.device_id] if target.device_id else []))


def _notification_id(submission: Submission, new_id: Callable[[], str]) -> str:
    if submission.notification_id:
        return submission.notification_id
    if submission.idempotency_key:
        return hashlib.sha256(f"{submission.app_id}\0{submission.idempotency_key}".encode()).hexdigest()[:32]
    return new_id()


def _fingerprint(submission: Submission, content: str) -> str:
    """What must be the same for a repeat to be a repeat. Recipients may be added: each has a job of its own."""
    said = "\0".join([content, submission.channel or "", *sorted(submission.transports)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _expiry(submission: Submission, now_ms: int) -> int:
    if submission.ttl_s and submission.expires_at_ms:
        raise BadRequest("ttl_s", "not together with expires_at_ms")
    expires_at_ms = submission.expires_at_ms
    if expires_at_ms is None:
        span = timedelta(seconds=submission.ttl_s) if submission.ttl_s else DEFAULT_TTL
        return max(now_ms, submission.deliver_at_ms or 0) + span // timedelta(milliseconds=1)
    if expires_at_ms <= now_ms:
        raise BadRequest("expires_at_ms", f"must be later than now, {now_ms}")
    return expires_at_ms


def _wait(submission: Submission, now_ms: int) -> timedelta:
    """How long nothing must be sent yet."""
    return timedelta(milliseconds=max(0, (submission.deliver_at_ms or 0) - now_ms))


def _due_in(wait: timedelta, grace: timedelta) -> timedelta:
    """Forward-dated where a hint is sent, so that the claim need not move it; else when the drain shall find it."""
    return wait + grace if wait <= MAX_HINT_DELAY else wait


def _hint(job: Job, wait: timedelta) -> Hint:
    return Hint(job_id=job.job_id, claim_seq=0, due_at_ms=job.due_at_ms, app_id=job.app_id, delay=wait)


def _fits(job: Job) -> bool:
    words = (job.app_id, job.user_id, job.notification_id, job.channel or "", job.content or "", *job.deliveries)
    size = ROW_BASE_BYTES + ROW_DELIVERY_BYTES * len(job.deliveries) + sum(len(word.encode()) for word in words)
    return size <= INLINE_ROW_BYTES


def _recipient(submission: Submission, target: Target) -> Recipient:
    return Recipient(app_id=AppId(submission.app_id), user_id=UserId(target.user_id))


def _answer(job: Job, target: Target, *, duplicate: bool) -> Mapping[str, Any]:
    return {
        "job_id": job.job_id,
        "user_id": target.user_id,
        "status": job.status,
        "expires_at_ms": job.expires_at_ms,
        "duplicate": duplicate,
        "deliveries": {
            delivery_id: {"status": delivery.status} | ({"code": delivery.code} if delivery.code else {})
            for delivery_id, delivery in job.deliveries.items()
        },
    }
