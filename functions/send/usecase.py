"""Accept a notification: check everything first, then store each recipient's job once, then hint that it is due."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from pushlease.errors import BadRequest, PushleaseError
from pushlease.jobs.job import Delivery, DeliveryStatus, Job, JobId, Status
from pushlease.jobs.ports import Hint, HintSender, JobStore, Unavailable
from pushlease.jobs.retry import MAX_HINT_DELAY
from pushlease.push.device import FCM_STALE_AFTER, App, AppId, Device, DeviceId, Recipient, UserId
from pushlease.push.notification import Content
from pushlease.push.plan import DELIVER_AT, QUIET_HOURS, Notification, Planner, Target, target_job_id, wait_of
from pushlease.push.ports import AppStore, DeviceStore, NotificationStore, RecipientStore, Shared
from pushlease.push.preference import Preferences, Transport, Unknown
from pushlease.push.quiet import instant_ms

FARTHEST = timedelta(
    days=36_500
)  # some hundred years: an instant beyond it was given in a finer unit than milliseconds
# A job row is billed by the kilobyte at every write. Beside its ids and its content it takes some 380 bytes once it is
# settled, and a device some 90.
INLINE_ROW_BYTES = 1024
ROW_BASE_BYTES = 420
ROW_DELIVERY_BYTES = 110
# Their job ids stand in one row, which DynamoDB limits to 400 KB and bills whole at every call that adds to it.
MAX_RECIPIENTS_OF_ONE = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to send; see ``send.request`` for its fields' rules.

    ``invocation_id`` names what the caller does not: the platform repeats an invocation under the same id.
    """

    app_id: str
    content: Content
    targets: Sequence[Target]
    transports: frozenset[Transport] = frozenset({Transport.PUSH})
    notification_id: str | None = None
    idempotency_key: str | None = None
    invocation_id: str | None = None
    channel: str | None = None
    ttl_s: int | None = None
    expires_at_ms: int | None = None
    deliver_at_ms: int | None = None
    deliver_at_local: datetime | None = None
    max_attempts: int | None = None
    dry_run: bool = False

    @property
    def named(self) -> bool:
        """Whether the caller named it: then it may be added to and withdrawn by that name."""
        return self.notification_id is not None or self.idempotency_key is not None


class PartlyAccepted(PushleaseError):
    """Some of a request's jobs may not be stored: the same call again completes it. ``answer``: as ``send`` gives it.

    Raised, since the platform repeats what raises, and must not take half an acceptance for one.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        missing = [at for at, job in enumerate(answer["jobs"]) if not job["accepted"]]
        told = {"notification_id": answer["notification_id"], "not_accepted": missing, "of": len(answer["jobs"])}
        super().__init__(json.dumps(told))
        self.answer = answer


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
    many hints could not be published: their jobs wait for the drain. ``fcm_stale_after``: see ``Device.stale``.
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
    planner: Planner
    max_attempts: int
    fcm_stale_after: timedelta = FCM_STALE_AFTER

    def send(self, submission: Submission) -> Mapping[str, Any]:
        """What will happen to each delivery of each target.

        Raises ``BadRequest`` with nothing stored, and ``PartlyAccepted`` where a table did not answer for some.
        """
        now_ms = self.clock()
        if not submission.targets:
            raise BadRequest("recipients", "at least one recipient, or one device in devices")
        notification = self.notification(submission, now_ms)
        jobs = self._jobs(notification, submission.targets, now_ms)
        ref = f"{submission.app_id}#{notification.notification_id}"
        if submission.named:
            self._refuse_what_was_used_before(submission, ref, jobs)
        if submission.dry_run:
            there = self.jobs.get([job.job_id for job in jobs])
            return {"dry_run": True, **_answer(notification, jobs, [there.get(job.job_id) for job in jobs])}
        if submission.named or len(jobs) > 1 or not _fits(jobs[0]):
            shared = Shared(
                fingerprint=notification.fingerprint,
                content=jobs[0].content or "",
                job_ids=[job.job_id for job in jobs],
            )
            expires_at_ms = max(job.expires_at_ms for job in jobs)
            if not self.notifications.put(ref, shared, now_ms=now_ms, expires_at_ms=expires_at_ms):
                raise used_before(submission)
        jobs = [job if _fits(job) else replace(job, content=None, content_ref=ref) for job in jobs]
        existing = self.jobs.insert(jobs)
        self._hint(jobs, existing)
        answer = _answer(notification, jobs, existing)
        if any(isinstance(there, Unavailable) for there in existing):
            raise PartlyAccepted(answer)
        return answer

    def notification(self, submission: Submission, now_ms: int) -> Notification:
        """What a request says, checked; raises ``BadRequest``."""
        if submission.notification_id is not None and submission.idempotency_key is not None:
            raise BadRequest("idempotency_key", "not together with notification_id: each names the notification")
        app = self.apps.get(AppId(submission.app_id))
        if app is None:
            raise BadRequest("app_id", "no such app; configure it with the registry function first")
        if not app.channels.knows(submission.channel) and app.channels.unknown is Unknown.REFUSE:
            raise BadRequest("channel", f"must be one of the app's: {', '.join(sorted(app.channels.defaults))}")
        notification = Notification(
            app=app,
            notification_id=_notification_id(submission, self.new_id),
            fingerprint=_fingerprint(submission),
            content=submission.content,
            transports=submission.transports,
            channel=submission.channel,
            deliver_at_ms=submission.deliver_at_ms,
            deliver_at_local=submission.deliver_at_local,
            ttl=timedelta(seconds=submission.ttl_s) if submission.ttl_s else None,
            expires_at_ms=submission.expires_at_ms,
            max_attempts=submission.max_attempts or self.max_attempts,
        )
        _check_times(submission, notification, now_ms)
        self._check_content(notification)
        return notification

    def _check_content(self, notification: Notification) -> None:
        # Beside an inbox's entry the pushes carry its name.
        both = Transport.IN_APP in notification.transports
        for where, content in notification.content.variants():
            try:
                self.preflight(content.linked(notification.notification_id) if both else content, notification.app)
            except BadRequest as error:
                raise BadRequest(error.field.replace("content", where, 1), error.rule) from None

    def _jobs(self, notification: Notification, targets: Sequence[Target], now_ms: int) -> list[Job]:
        owners = [Recipient(app_id=notification.app.app_id, user_id=UserId(target.user_id)) for target in targets]
        wishes = self.recipients.get(owners)
        pushes = Transport.PUSH in notification.transports
        return [
            self.planner.job(
                notification,
                target,
                wishes=wishes.get(owner, Preferences()),
                devices=self._devices(target, owner, now_ms) if pushes else [],
                now_ms=now_ms,
            )
            for target, owner in zip(targets, owners, strict=True)
        ]

    def _hint(self, jobs: Sequence[Job], existing: Sequence[Job | Unavailable | None]) -> None:
        hints: list[Hint] = []
        for planned, there in zip(jobs, existing, strict=True):
            job = planned if there is None else there
            if isinstance(job, Unavailable) or job.status is not Status.PENDING:
                continue
            if (wait := wait_of(job)) <= MAX_HINT_DELAY and (there is None or self._may_lack_its_hint(job, wait)):
                hints.append(
                    Hint(job_id=job.job_id, claim_seq=0, due_at_ms=job.due_at_ms, app_id=job.app_id, delay=wait)
                )
        if failed := self.hints.publish(hints):
            self.unhinted(failed)

    def _may_lack_its_hint(self, job: Job, wait: timedelta) -> bool:
        """A row that was there as it is inserted, and that nobody claimed: it may be this very call's, repeated."""
        forward = timedelta(milliseconds=job.due_at_ms - job.created_at_ms)
        return job.claim_seq == 0 and forward == wait + self.planner.grace

    def cancel(self, cancellation: Cancellation) -> Mapping[str, Any]:
        """Withdraw: what was sent stays sent, and nothing more is."""
        ref = f"{cancellation.app_id}#{cancellation.notification_id}"
        job_ids = [
            target_job_id(cancellation.app_id, cancellation.notification_id, target) for target in cancellation.targets
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

    def _devices(self, target: Target, owner: Recipient, now_ms: int) -> Sequence[Device]:
        if target.device_id is None:
            devices = self.devices.of(owner)
        else:
            devices = [*self.devices.get([(owner, DeviceId(target.device_id))]).values()]
        return [device for device in devices if device.reachable(now_ms, self.fcm_stale_after)]

    def _refuse_what_was_used_before(self, submission: Submission, ref: str, jobs: Sequence[Job]) -> None:
        """A name that the caller chose may have been used before: then it must have been for the same content."""
        shared = self.notifications.get([ref]).get(ref)
        stored = self.jobs.get([job.job_id for job in jobs])
        known = [job.fingerprint for job in stored.values()] + ([shared.fingerprint] if shared else [])
        if any(fingerprint != jobs[0].fingerprint for fingerprint in known):
            raise used_before(submission)
        if len({*(shared.job_ids if shared else ()), *(job.job_id for job in jobs)}) > MAX_RECIPIENTS_OF_ONE:
            raise BadRequest("recipients", f"one notification takes at most {MAX_RECIPIENTS_OF_ONE}, in several calls")


def used_before(submission: Submission) -> BadRequest:
    """The refusal of a name that stands for other content."""
    field = "notification_id" if submission.notification_id else "idempotency_key"
    return BadRequest(field, "was used before with other content; a new notification needs a new one")


def _notification_id(submission: Submission, new_id: Callable[[], str]) -> str:
    if submission.notification_id:
        return submission.notification_id
    if submission.idempotency_key:
        return _named(submission, submission.idempotency_key)
    if submission.invocation_id:
        return _named(submission, f"invocation\0{submission.invocation_id}")
    return new_id()


def _named(submission: Submission, name: str) -> str:
    return hashlib.sha256(f"{submission.app_id}\0{name}".encode()).hexdigest()[:32]


def _fingerprint(submission: Submission) -> str:
    """What must be the same for a repeat to be a repeat. Recipients may be added: each has a job of its own."""
    said = "\0".join([submission.content.to_json(), submission.channel or "", *sorted(submission.transports)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _check_times(submission: Submission, notification: Notification, now_ms: int) -> None:
    if submission.ttl_s and submission.expires_at_ms:
        raise BadRequest("ttl_s", "not together with expires_at_ms")
    if submission.deliver_at_ms and submission.deliver_at_local:
        raise BadRequest("deliver_at_local", "not together with deliver_at_ms")
    for field, at_ms in _instants(submission):
        if at_ms > now_ms + FARTHEST // timedelta(milliseconds=1):
            raise BadRequest(field, f"must be within {FARTHEST.days} days of now, {now_ms} ms")
    if submission.expires_at_ms is None:
        return
    if submission.expires_at_ms <= now_ms:
        raise BadRequest("expires_at_ms", f"must be later than now, {now_ms}")
    if (notification.deliver_at_ms or 0) >= submission.expires_at_ms:
        raise BadRequest("deliver_at_ms", f"must be before the notification expires, at {submission.expires_at_ms}")


def _instants(submission: Submission) -> Iterator[tuple[str, int]]:
    """What a request says of the future, by its field; a wall time as the last zone on earth would read it."""
    yield "deliver_at_ms", submission.deliver_at_ms or 0
    yield "expires_at_ms", submission.expires_at_ms or 0
    if submission.deliver_at_local:
        yield "deliver_at_local", instant_ms(submission.deliver_at_local, timezone(-timedelta(hours=12)))


def _fits(job: Job) -> bool:
    recipient = (job.app_id, job.user_id)  # stand there twice: the second time as the key of an index
    words = (*recipient, *recipient, job.notification_id, job.channel or "", job.content or "", *job.deliveries)
    size = ROW_BASE_BYTES + ROW_DELIVERY_BYTES * len(job.deliveries) + sum(len(word.encode()) for word in words)
    return size <= INLINE_ROW_BYTES


def _answer(
    notification: Notification, jobs: Sequence[Job], existing: Sequence[Job | Unavailable | None]
) -> Mapping[str, Any]:
    """Of each job what is stored, or will be: where there was one already, that one as it is now."""
    return {
        "notification_id": notification.notification_id,
        "jobs": [_told(job, there, notification) for job, there in zip(jobs, existing, strict=True)],
    }


def _told(planned: Job, there: Job | Unavailable | None, notification: Notification) -> Mapping[str, Any]:
    job = there if isinstance(there, Job) else planned
    return {
        "job_id": job.job_id,
        "user_id": job.user_id,
        "status": job.status,
        "expires_at_ms": job.expires_at_ms,
        "duplicate": isinstance(there, Job),
        "accepted": not isinstance(there, Unavailable),
        "deliveries": {id_: _told_delivery(part, notification) for id_, part in job.deliveries.items()},
    }


def _told_delivery(delivery: Delivery, notification: Notification) -> Mapping[str, Any]:
    told: dict[str, Any] = {"status": delivery.status}
    if delivery.code:
        told["code"] = delivery.code
    if delivery.status is DeliveryStatus.QUEUED and delivery.due_at_ms:
        said = notification.deliver_at_local or notification.deliver_at_ms == delivery.due_at_ms
        told |= {"not_before_ms": delivery.due_at_ms, "why": DELIVER_AT if said else QUIET_HOURS}
    return told
