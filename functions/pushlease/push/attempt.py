"""One attempt: from claimed jobs to pushes, and from the providers' verdicts back to results.

Everything is read again at the attempt: push tokens are fresh, a deleted device is noticed, a channel switched off
meanwhile is respected. One job's fault stays its own.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pushlease.codes import Code
from pushlease.errors import BadRequest, StoreUnavailable, Unreadable
from pushlease.jobs.job import DeliveryId, Job, JobId, push_id_of
from pushlease.jobs.settle import Attempted, Delivered, Failed, Held, Result, Sent, Suppressed, Withdrawn
from pushlease.push.device import FCM_STALE_AFTER, App, AppId, Device, DeviceId, Environment, Recipient, UserId
from pushlease.push.notification import Content
from pushlease.push.outcome import Accepted, NotTried, Refused, Scope, Verdict
from pushlease.push.plan import IN_APP, QUIET_HOURS, quiet, released_ms
from pushlease.push.ports import AppStore, DeviceStore, Inbox, NotificationStore, Push, Pusher, RecipientStore, Shared
from pushlease.push.preference import Channels, Preferences, Transport
from pushlease.push.variables import filled

HOLD_MS = 30_000  # on the average, while one of our tables does not answer: about a tick
PAUSE_MS = 300_000  # on the average, while an audience is paused: each look costs a claim and a release


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What was read for the jobs of one attempt."""

    apps: Mapping[str, App | None]
    shared: Mapping[str, Shared]
    devices: Mapping[tuple[Recipient, DeviceId], Device]
    preferences: Mapping[Recipient, Preferences]

    def paused(self, job: Job) -> bool:
        """Whether somebody paused the notification."""
        shared = self.shared.get(job.content_ref or "")
        return shared is not None and shared.paused


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAttempter:
    """``Attempter`` for push notifications.

    ``dice``: uniform in [0, 1). ``spread``: over how long quiet hours end. ``fcm_stale_after``: see ``Device.stale``.
    ``on_fault`` is told of exceptions, for the log; ``on_alarm`` of refusals that a person must look into, with the
    app, the platform and the provider's word.
    """

    apps: AppStore
    devices: DeviceStore
    recipients: RecipientStore
    inbox: Inbox
    notifications: NotificationStore
    pusher: Pusher
    dice: Callable[[], float]
    spread: timedelta
    on_fault: Callable[[JobId, Exception], None]
    on_alarm: Callable[[str, str, str], None]
    fcm_stale_after: timedelta = FCM_STALE_AFTER

    def attempt(self, jobs: Sequence[Job], *, now_ms: int, deadline_ms: int) -> Mapping[JobId, Attempted]:
        """See ``Attempter``."""
        attempted: dict[JobId, Attempted] = {}
        pushes: list[tuple[JobId, DeliveryId, Push]] = []
        results: dict[JobId, dict[DeliveryId, Result]] = {}
        for job, batch in self._read(jobs):
            try:
                if isinstance(batch, Exception):
                    raise batch  # noqa: TRY301  (one place turns a job's fault into its result)
                content = _content(job, batch)
                if content is None:
                    attempted[job.job_id] = Withdrawn()
                    continue
                if batch.paused(job):
                    attempted[job.job_id] = dict.fromkeys(_due(job, now_ms), self._held(now_ms, PAUSE_MS))
                    continue
                decided, to_push = self._prepare(job, content, batch, now_ms=now_ms)
            except BadRequest as error:  # what its variables make of the content
                attempted[job.job_id] = dict.fromkeys(
                    _due(job, now_ms), Failed(code=Code.REJECTED, reason=f"{error.field}: {error.rule}")
                )
                continue
            except StoreUnavailable as error:
                self.on_fault(job.job_id, error)
                attempted[job.job_id] = dict.fromkeys(_due(job, now_ms), self._held(now_ms))
                continue
            except Exception as error:  # our own fault, or a row's: this job's alone
                self.on_fault(job.job_id, error)
                attempted[job.job_id] = _internal_error(job, error, now_ms)
                continue
            attempted[job.job_id] = results[job.job_id] = decided
            pushes += [(job.job_id, delivery_id, push) for delivery_id, push in to_push]

        verdicts = self.pusher.push([push for _, _, push in pushes], deadline_ms=deadline_ms) if pushes else []
        alarms = {
            (push.app.app_id, push.device.platform, verdict.reason)
            for (_, _, push), verdict in zip(pushes, verdicts, strict=True)
            if isinstance(verdict, Refused) and verdict.alarm
        }
        for alarm in sorted(alarms):  # once a batch: the fault strikes every device alike
            self.on_alarm(*alarm)
        for (job_id, delivery_id, push), verdict in zip(pushes, verdicts, strict=True):
            self._learn(job_id, push.device, verdict)
            results[job_id][delivery_id] = _result(push, verdict, now_ms)
        return attempted

    def _read(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, _Batch | Exception]]:
        """Read for all jobs at once; where that fails, for each alone, so that it fails only for the one at fault."""
        try:
            batch = self._read_batch(jobs)
        except Exception as error:  # nothing has been sent yet: reading again is safe
            if isinstance(error, StoreUnavailable):  # no row's fault: asking for each alone would only ask more
                yield from ((job, error) for job in jobs)
                return
            if len(jobs) == 1:
                yield jobs[0], error
                return
            for job in jobs:
                yield from self._read([job])
            return
        for job in jobs:
            yield job, batch

    def _read_batch(self, jobs: Sequence[Job]) -> _Batch:
        refs = [job.content_ref for job in jobs if job.content_ref]
        wanted = [
            (_recipient(job), DeviceId(delivery_id))
            for job in jobs
            for delivery_id in job.open_deliveries
            if delivery_id != IN_APP
        ]
        return _Batch(
            apps={app_id: self.apps.get(AppId(app_id)) for app_id in {job.app_id for job in jobs}},
            shared=self.notifications.get(refs) if refs else {},
            devices=self.devices.get(wanted) if wanted else {},
            preferences=self.recipients.get([_recipient(job) for job in jobs]),
        )

    def _prepare(
        self, job: Job, content: Content, batch: _Batch, *, now_ms: int
    ) -> tuple[dict[DeliveryId, Result], list[tuple[DeliveryId, Push]]]:
        recipient = _recipient(job)
        wishes = batch.preferences.get(recipient, Preferences())
        app = batch.apps[job.app_id]
        channels = app.channels if app else Channels()
        stretch = quiet(content, app, wishes, now_ms) if app else None
        decided: dict[DeliveryId, Result] = {}
        to_push: list[tuple[DeliveryId, Push]] = []
        for delivery_id in _due(job, now_ms):
            transport = Transport.IN_APP if delivery_id == IN_APP else Transport.PUSH
            device = batch.devices.get((recipient, DeviceId(delivery_id)))
            if objection := wishes.objection(channels, job.channel, transport, now_ms):
                decided[delivery_id] = Suppressed(why=objection)
            elif transport is Transport.IN_APP:
                decided[delivery_id] = self._put(job, content.localised(wishes.locale), now_ms)
            elif stretch:
                until_ms = released_ms(stretch, recipient, said_at_ms=job.created_at_ms, spread=self.spread)
                decided[delivery_id] = Held(until_ms=until_ms, why=QUIET_HOURS)
            elif device is None:
                decided[delivery_id] = Failed(code=Code.DEVICE_DELETED)
            elif device.disabled_code:
                decided[delivery_id] = Failed(code=Code(device.disabled_code), reason="disabled meanwhile")
            elif device.stale(now_ms, self.fcm_stale_after):
                reason = f"not registered again for {self.fcm_stale_after.days} days"
                decided[delivery_id] = Failed(code=Code.EXPIRED_TOKEN, reason=reason)
            elif app is None:
                decided[delivery_id] = Failed(code=Code.PROVIDER_ERROR, reason="the app is not configured any more")
            else:
                shown = content.localised(device.locale or wishes.locale)
                if IN_APP in job.deliveries:  # so that whoever opens the push can mark the inbox's entry as read
                    shown = shown.linked(job.notification_id)
                to_push.append((delivery_id, _push(job, delivery_id, app, device, shown)))
        return decided, to_push

    def _put(self, job: Job, content: Content, now_ms: int) -> Result:
        try:
            self.inbox.put(
                _recipient(job),
                notification_id=job.notification_id,
                content=content.to_json(),
                created_at_ms=job.created_at_ms,
                now_ms=now_ms,
            )
        except StoreUnavailable as error:  # the pushes of the job go out all the same
            self.on_fault(job.job_id, error)
            return self._held(now_ms)
        return Delivered()

    def _held(self, now_ms: int, span_ms: int = HOLD_MS) -> Held:
        """A store of ours does not answer, or somebody asked to wait: that is no attempt."""
        return Held(until_ms=now_ms + round(span_ms * (0.5 + self.dice())))

    def _learn(self, job_id: JobId, device: Device, verdict: Verdict) -> None:
        """Keep what the verdict tells of the device."""
        try:
            match verdict:
                case Refused(disable_before_ms=int() as before_ms):
                    self.devices.disable(device, code=verdict.code, before_ms=before_ms)
                case Accepted(environment=Environment() as environment):
                    self.devices.move(device, environment=environment)
        except Exception as error:  # what was sent must be settled; a device that is dead or elsewhere is met again
            self.on_fault(job_id, error)


def _push(job: Job, delivery_id: DeliveryId, app: App, device: Device, content: Content) -> Push:
    return Push(
        push_id=push_id_of(job.job_id, delivery_id),
        app=app,
        device=device,
        content=content,
        collapse_id=content.collapse_key or job.notification_id,
        expires_at_ms=job.expires_at_ms,
    )


def _result(push: Push, verdict: Verdict, now_ms: int) -> Result:
    if isinstance(verdict, Accepted):
        return Sent(provider_id=None if verdict.provider_id == push.push_id else verdict.provider_id)
    if isinstance(verdict, NotTried):
        return Held(until_ms=max(now_ms, verdict.until_ms))
    # In a burst of bad push tokens the fault is in our key, topic or host: it can be fixed, so the job must live on.
    burst = verdict.alarm and verdict.code is Code.REJECTED and verdict.scope is Scope.CREDENTIALS
    return Failed(
        code=Code.PROVIDER_ERROR if burst else verdict.code,
        # A provider may quote what it was sent.
        reason=f"{push.device.platform}: {verdict.reason.replace(push.device.push_token, push.device.push_token[-6:])}",
        retry_after=verdict.retry_after,
    )


def _content(job: Job, batch: _Batch) -> Content | None:
    """The notification's content, None if it was withdrawn; raises ``Unreadable`` if it is not to be had."""
    text = job.content
    if text is None:
        shared = batch.shared.get(job.content_ref or "")
        if shared is None:
            raise Unreadable("content: the notification's row is gone")
        text = shared.content
    if text is None:
        return None
    content = Content.from_json(text)
    if job.variables is not None:
        content = filled(content, json.loads(job.variables))
    return content


def _recipient(job: Job) -> Recipient:
    return Recipient(app_id=AppId(job.app_id), user_id=UserId(job.user_id))


def _due(job: Job, now_ms: int) -> list[DeliveryId]:
    """The open deliveries whose time has come; a neighbour may have been due earlier than the others."""
    return [id_ for id_, delivery in job.open_deliveries.items() if (delivery.due_at_ms or 0) <= now_ms]


def _internal_error(job: Job, error: Exception, now_ms: int) -> Mapping[DeliveryId, Result]:
    unreadable = isinstance(error, Unreadable)  # no retry can help it
    fault = Failed(
        code=Code.UNREADABLE if unreadable else Code.INTERNAL_ERROR,
        reason=str(error) if unreadable else type(error).__name__,
    )
    return dict.fromkeys(_due(job, now_ms), fault)
