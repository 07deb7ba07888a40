"""Work a page of an audience: store a job for each recipient and send to those who are due; later, count the outcomes.

A page may be worked twice, at once or after a crash: every job is inserted if it is not there, so each recipient has
one. Its row in the store is written once its jobs are, before anything is sent: whoever meets the page again counts.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import batched
from typing import Any

from pushlease.errors import BadRequest, StoreUnavailable, Unreadable
from pushlease.jobs.engine import Engine, Report
from pushlease.jobs.job import Job, JobId, Status
from pushlease.jobs.message import Page
from pushlease.jobs.ports import JobStore, Lead, Unavailable
from pushlease.push.audience import (
    FAULTS_KEPT,
    Audience,
    Entry,
    Fault,
    State,
    Tally,
    counts_of,
    entries_of,
    span_of,
)
from pushlease.push.device import App, AppId, Recipient, UserId
from pushlease.push.notification import Content
from pushlease.push.plan import Notification, Planner, Target, wait_of
from pushlease.push.ports import AppStore, AudienceStore, DeviceStore, Lists, NotificationStore, RecipientStore
from pushlease.push.preference import Preferences, Transport
from pushlease.push.variables import filled, names_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The use case. ``preflight`` as in ``Send``; ``in_hand``: how many jobs are attempted at once."""

    audiences: AudienceStore
    lists: Lists
    apps: AppStore
    devices: DeviceStore
    recipients: RecipientStore
    notifications: NotificationStore
    jobs: JobStore
    engine: Engine
    planner: Planner
    preflight: Callable[[Content, App], None]
    clock: Callable[[], int]
    fcm_stale_after: timedelta
    in_hand: int

    def work(self, page: Page, report: Report, *, deadline_ms: int) -> None:
        """Store and send, or count. Raises what the stores raise: the page is met again."""
        audience = self.audiences.get(page.ref)
        if audience is None or audience.state is not State.RUNNING:
            return
        if (job_ids := self.audiences.job_ids(page.ref, page.page)) is not None:
            self._count(page, job_ids)
            return
        try:
            notification = self._notification(audience)
            entries = list(self._entries(audience, page.page))
        except Unreadable as fault:
            # A list that came in the request is dropped page by page, as somebody else may have done just now.
            if self.audiences.job_ids(page.ref, page.page) is None:  # no repetition mends it: a person sees why
                self.audiences.move(audience.ref, State.FAILED, fault=str(fault))
            return
        fresh = self._store(audience, notification, entries, page)
        now_ms = self.clock()
        leads = [Lead(job_id=job.job_id, due_at_ms=job.due_at_ms, claim_seq=0) for job in fresh if _due(job, now_ms)]
        for chunk in batched(leads, self.in_hand, strict=False):
            if not self.engine.has_time(deadline_ms):
                break  # the rows are forward-dated: a drain goes on
            report.add(self.engine.work(chunk, deadline_ms=deadline_ms))

    def _entries(self, audience: Audience, page: int) -> Sequence[Entry | Fault]:
        start, end = span_of(page, audience.listed)
        key = audience.listed.key
        read = self.lists.read(audience.listed, start, end) if key else self.audiences.listed(audience.ref, page)
        return list(entries_of(read, page))

    def _notification(self, audience: Audience) -> Notification:
        shared = self.notifications.get([audience.ref]).get(audience.ref)
        app = self.apps.get(AppId(audience.ref.partition("#")[0]))
        if shared is None or shared.content is None:
            raise Unreadable("audience: its notification is gone")
        if app is None:
            raise Unreadable("audience: its app is not configured any more")
        return notification_of(audience, app, Content.from_json(shared.content))

    def _store(
        self, audience: Audience, notification: Notification, found: Sequence[Entry | Fault], page: Page
    ) -> Sequence[Job]:
        """Store the page's jobs and what became of its lines; the jobs that were not there."""
        faults = [line for line in found if isinstance(line, Fault)]
        entries = {line.user_id: line for line in found if isinstance(line, Entry)}
        repeated = Counter(line.user_id for line in found if isinstance(line, Entry))
        app_id = notification.app.app_id
        owners = {user: Recipient(app_id=app_id, user_id=UserId(user)) for user in entries}
        wishes = self.recipients.get(list(owners.values()))
        first = self.audiences.take_numbers(audience.ref, len(entries)) if audience.rate_per_s else 0
        filling = bool(names_in(notification.content))
        now_ms = self.clock()
        jobs: list[Job] = []
        for number, (user, entry) in enumerate(entries.items(), start=first):
            if filling and (fault := self._unfit(notification, entry)):
                faults.append(fault)
                continue
            due_ms = max(audience.due_ms(number), notification.deliver_at_ms or 0)
            pushes = Transport.PUSH in notification.transports
            known = self.devices.of(owners[user]) if pushes else []
            devices = [device for device in known if device.reachable(now_ms, self.fcm_stale_after)]
            job = self.planner.job(
                replace(notification, deliver_at_ms=due_ms),
                Target(user_id=user),
                wishes=wishes.get(owners[user], Preferences()),
                devices=devices,
                now_ms=now_ms,
                page=page.page,
            )
            variables = json.dumps(dict(entry.variables), ensure_ascii=False) if filling else None
            jobs.append(replace(job, content=None, content_ref=audience.ref, variables=variables))
        stored = self.jobs.insert(jobs)
        if lost := sum(isinstance(there, Unavailable) for there in stored):
            raise StoreUnavailable(f"{lost} of a page's {len(jobs)} jobs: no answer whether they are stored")
        there = [job if other is None else other for job, other in zip(jobs, stored, strict=True)]
        # A recipient named twice stands there twice, and is counted so.
        named = [job for job in there if isinstance(job, Job) for _ in range(repeated[job.user_id])]
        counts = counts_of(named, page.page)
        counts.update(invalid=len(faults))
        tally = Tally(counts=counts, counted_at_ms=now_ms, faults=tuple(faults[:FAULTS_KEPT]))
        self.audiences.put_page(audience.ref, page.page, tally, [job.job_id for job in named])
        return [job for job, other in zip(jobs, stored, strict=True) if other is None]

    def _unfit(self, notification: Notification, entry: Entry) -> Fault | None:
        """What is wrong with the content as it is filled for somebody."""
        try:
            for _, content in filled(notification.content, entry.variables).variants():
                self.preflight(content, notification.app)
        except BadRequest as error:
            return Fault(at=-1, rule=f"{entry.user_id}: {error.field}: {error.rule}")
        return None

    def _count(self, page: Page, job_ids: Sequence[JobId]) -> None:
        before = self.audiences.pages(page.ref).get(page.page)
        found = self.jobs.get(list(dict.fromkeys(job_ids)))
        counts = counts_of([found[job_id] for job_id in job_ids if job_id in found], page.page)
        kept = before.counts if before else {}
        counts.update(invalid=kept.get("invalid", 0))
        faults = before.faults if before else ()
        self.audiences.put_page(page.ref, page.page, Tally(counts=counts, counted_at_ms=self.clock(), faults=faults))


def notification_of(audience: Audience, app: App, content: Content) -> Notification:
    """What an audience's request said, as it is planned for each recipient."""
    said: Mapping[str, Any] = audience.said
    local, ttl_s = said.get("deliver_at_local"), said.get("ttl_s")
    return Notification(
        app=app,
        notification_id=audience.ref.partition("#")[2],
        fingerprint=audience.fingerprint,
        content=content,
        transports=frozenset(map(Transport, said["transports"])),
        channel=said.get("channel"),
        deliver_at_ms=said.get("deliver_at_ms"),
        deliver_at_local=datetime.fromisoformat(local) if local else None,
        ttl=timedelta(seconds=ttl_s) if ttl_s else None,
        expires_at_ms=said.get("expires_at_ms"),
        max_attempts=said["max_attempts"],
    )


def _due(job: Job, now_ms: int) -> bool:
    return job.status is Status.PENDING and wait_of(job) <= timedelta(milliseconds=now_ms - job.created_at_ms)
