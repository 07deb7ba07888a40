"""Tell what became of a notification: by its name, by recipient, by delivery, with the timeline of decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pushlease.errors import BadRequest
from pushlease.jobs.job import Delivery, DeliveryStatus, Job, JobId
from pushlease.jobs.ports import JobStore
from pushlease.push.plan import Target, target_job_id
from pushlease.push.ports import NotificationStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whose jobs: of a notification, of a recipient, or of both; ``device_id``: that delivery alone.

    ``before_ms``: accepted before then, to go on where the last answer ended.
    """

    app_id: str
    notification_id: str | None = None
    user_id: str | None = None
    device_id: str | None = None
    limit: int = 20
    before_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statuses:
    """The use case. ``by_recipient``: whether the deployment keeps the index that finds a recipient's jobs."""

    jobs: JobStore
    notifications: NotificationStore
    by_recipient: bool

    def tell(self, question: Question) -> Mapping[str, Any]:
        """The jobs asked for, newest first, and where to go on; raises ``BadRequest``."""
        job_ids, following = self._job_ids(question)
        found = self.jobs.get(job_ids)
        jobs = [found[job_id] for job_id in job_ids if job_id in found]
        told = [_told(job, question.device_id) for job in jobs]
        return {"jobs": told} | ({"next_before_ms": following} if following else {})

    def _job_ids(self, question: Question) -> tuple[Sequence[JobId], int | None]:
        if question.notification_id is not None and question.user_id is not None:
            # One that was sent to a device by its name has a job of its own.
            devices = [None, question.device_id] if question.device_id else [None]
            targets = [Target(user_id=question.user_id, device_id=device) for device in devices]
            return [target_job_id(question.app_id, question.notification_id, target) for target in targets], None
        if question.notification_id is not None:
            shared = self.notifications.get([f"{question.app_id}#{question.notification_id}"])
            if not shared:
                raise BadRequest("user_id", "must name whom, for a notification with a single recipient")
            (row,) = shared.values()
            if not row.job_ids:
                raise BadRequest("user_id", "must name whom; of an audience as a whole audience_status tells")
            return [JobId(job_id) for job_id in row.job_ids][: question.limit], None
        if question.user_id is None:
            raise BadRequest("user_id", "must be given, unless notification_id is")
        if not self.by_recipient:
            raise BadRequest("notification_id", "must be given: this deployment keeps no RecipientIndex")
        page = self.jobs.of_recipient(
            question.app_id, question.user_id, before_ms=question.before_ms, limit=question.limit
        )
        following = page[-1].created_at_ms if len(page) == question.limit else None
        return [job.job_id for job in page], following


def _told(job: Job, device_id: str | None) -> Mapping[str, Any]:
    wanted = {id_: part for id_, part in job.deliveries.items() if device_id in (None, id_)}
    ended = {"died_at_ms": job.died_at_ms, "last_error": job.last_error}
    return {
        "job_id": job.job_id,
        "notification_id": job.notification_id,
        "user_id": job.user_id,
        "status": job.status,
        "attempts": job.attempts,
        "redrives": job.redrives,
        "created_at_ms": job.created_at_ms,
        "expires_at_ms": job.expires_at_ms,
        **{name: value for name, value in ended.items() if value},
        "deliveries": {id_: _told_delivery(part) for id_, part in wanted.items()},
        "timeline": timeline(job),
    }


def _told_delivery(part: Delivery) -> Mapping[str, Any]:
    waits = part.due_at_ms if part.status is DeliveryStatus.QUEUED else None
    said = {
        "code": part.code,
        "provider_id": part.provider_id,
        "sent_at_ms": part.sent_at_ms,
        "not_before_ms": waits,
    }
    return {
        "status": part.status,
        "attempts": part.attempts,
        **{name: value for name, value in said.items() if value},
    }


def timeline(job: Job) -> Sequence[Mapping[str, Any]]:
    """What was decided about a job, in order: its acceptance, then an entry an attempt, a deferral, a redrive."""
    entries = [{"at_ms": job.created_at_ms, "what": "accepted"}]
    for line in job.history:
        at_ms, _, what = line.partition(" ")
        entries.append({"at_ms": int(at_ms) if at_ms.isdecimal() else 0, "what": what})
    return entries
