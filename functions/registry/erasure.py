"""Erase a recipient: devices, inbox, preferences, and of every job the content, the deliveries and the timeline.

Complete and repeatable: devices go first, so that nothing more is sent, and each step does nothing where it was done.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pushlease.jobs.job import JobId
from pushlease.jobs.ports import Accepted, JobStore
from pushlease.push.device import Recipient
from pushlease.push.ports import DeviceStore, Inbox, NotificationStore, RecipientStore

PAGE = 100  # jobs looked up at once
MOST_JOBS = 2_000  # of one call: some seconds each; what is left is told, and the same call goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The use case. ``by_recipient``: whether an index finds a recipient's jobs; without it every row is read."""

    devices: DeviceStore
    inbox: Inbox
    recipients: RecipientStore
    jobs: JobStore
    notifications: NotificationStore
    by_recipient: bool
    clock: Callable[[], int]

    def erase(self, recipient: Recipient) -> Mapping[str, Any]:
        """Forget all that is known of a recipient; ``complete`` unless the same call must be made again."""
        devices = self.devices.of(recipient)
        for device in devices:
            self.devices.remove(recipient, device.device_id)
        self.recipients.erase(recipient)
        erased, kept = 0, 0
        for job_id in self._jobs(recipient):
            if erased + kept >= MOST_JOBS:
                kept += 1
                break
            if self._scrub(job_id):
                erased += 1
            else:
                kept += 1
        # Last: a job in somebody's hand may have put an entry until it was cancelled.
        self.inbox.erase(recipient)
        return {"complete": not kept, "devices": len(devices), "jobs": erased}

    def _jobs(self, recipient: Recipient) -> Iterator[JobId]:
        if not self.by_recipient:
            yield from self.jobs.everywhere(recipient.app_id, recipient.user_id)
            return
        after: Accepted | None = None
        while page := self.jobs.of_recipient(recipient.app_id, recipient.user_id, after=after, limit=PAGE):
            yield from (accepted.job_id for accepted in page)
            after = page[-1]

    def _scrub(self, job_id: JobId) -> bool:
        """Scrub one job; and the notification's own row, if it was for this recipient alone."""
        job = self.jobs.get([job_id]).get(job_id)
        if not self.jobs.scrub(job_id, now_ms=self.clock()):
            return False
        if job:
            ref = f"{job.app_id}#{job.notification_id}"
            shared = self.notifications.get([ref]).get(ref)
            if shared and list(shared.job_ids) == [job_id]:
                self.notifications.withdraw(ref)
        return True
