"""Send to an audience: check what is said, store where the list is; pause, resume, and tell how far it is."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pushlease.errors import BadRequest
from pushlease.push.audience import MAX_INLINE, Audience, Entry, Listed, State, listed_text, progress
from pushlease.push.ports import AudienceStore, Lists, NotificationStore, Shared
from pushlease.push.variables import names_in
from send.usecase import Send, Submission, used_before

LONGEST = timedelta(days=14)  # from its first send to its last: what takes longer is given up, and said to be
FAULTS_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AudienceSubmission:
    """A request to send to an audience: a submission without targets, and its list, an object's ``key`` or entries."""

    submission: Submission
    key: str | None = None
    entries: Sequence[Entry] = ()
    rate_per_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAudience:
    """The use case."""

    send: Send
    audiences: AudienceStore
    notifications: NotificationStore
    lists: Lists

    def accept(self, wanted: AudienceSubmission) -> Mapping[str, Any]:
        """Store it for the next tick; raises ``BadRequest`` with nothing stored. A repeat answers with the first."""
        submission, now_ms = wanted.submission, self.send.clock()
        if (wanted.key is None) == (not wanted.entries):
            raise BadRequest("audience", f"must have a key, or recipients: 1 to {MAX_INLINE} of them")
        notification = self.send.notification(submission, now_ms)
        names = names_in(submission.content)
        text = None if wanted.key else listed_text(wanted.entries)
        listed = self.lists.describe(wanted.key) if wanted.key else Listed(size_bytes=len(text or b""))
        said = {
            "transports": sorted(submission.transports),
            "channel": submission.channel,
            "deliver_at_ms": submission.deliver_at_ms,
            "deliver_at_local": submission.deliver_at_local.isoformat() if submission.deliver_at_local else None,
            "ttl_s": submission.ttl_s,
            "expires_at_ms": submission.expires_at_ms,
            "max_attempts": notification.max_attempts,
        }
        where = hashlib.sha256(text).hexdigest() if text else f"{listed.key} {listed.etag}"
        fingerprint = hashlib.sha256(json.dumps([notification.fingerprint, said, where]).encode()).hexdigest()[:16]
        ready_ms = max(now_ms, submission.deliver_at_ms or 0)
        audience = Audience(
            ref=f"{submission.app_id}#{notification.notification_id}",
            state=State.RUNNING,
            listed=listed,
            said=said,
            fingerprint=fingerprint,
            started_at_ms=ready_ms,
            expires_at_ms=submission.expires_at_ms or ready_ms + LONGEST // timedelta(milliseconds=1),
            rate_per_s=wanted.rate_per_s,
        )
        told = {"notification_id": notification.notification_id, "pages": listed.pages, "variables": sorted(names)}
        if submission.dry_run:
            return {"dry_run": True, **told}
        shared = Shared(fingerprint=fingerprint, content=submission.content.to_json())
        if not self.notifications.put(audience.ref, shared, now_ms=now_ms, expires_at_ms=audience.expires_at_ms):
            raise used_before(submission)
        return {**told, "duplicate": not self.audiences.create(audience, text)}

    def tell(self, app_id: str, notification_id: str) -> Mapping[str, Any]:
        """How far an audience is, as of its pages' last counts."""
        audience = self._found(app_id, notification_id)
        tallies = self.audiences.pages(audience.ref)
        faults = [fault for page in sorted(tallies) for fault in tallies[page].faults][:FAULTS_TOLD]
        return {
            "notification_id": notification_id,
            "state": audience.state,
            **({"fault": audience.fault} if audience.fault else {}),
            "pages": audience.listed.pages,
            "pages_stored": len(tallies),
            "recipients": dict(progress(tallies)),
            "faults": [{"at": fault.at, "rule": fault.rule} for fault in faults],
        }

    def pause(self, app_id: str, notification_id: str, *, paused: bool) -> Mapping[str, Any]:
        """Let it wait, or go on: neither its pages nor the jobs that are stored are worked meanwhile."""
        audience = self._found(app_id, notification_id)
        state = State.PAUSED if paused else State.RUNNING
        moved = self.audiences.move(audience.ref, state)
        if moved:
            self.notifications.pause(audience.ref, paused=paused)
        return {"notification_id": notification_id, "state": state if moved else audience.state, "changed": moved}

    def cancel(self, app_id: str, notification_id: str) -> bool:
        """Withdraw it: what was sent stays sent, and nothing more is; whether there was such an audience."""
        ref = f"{app_id}#{notification_id}"
        if self.audiences.get(ref) is None:
            return False
        # First: a page in somebody's hand must not take the missing content for a fault.
        self.audiences.move(ref, State.CANCELLED)
        self.notifications.withdraw(ref)
        return True

    def _found(self, app_id: str, notification_id: str) -> Audience:
        audience = self.audiences.get(f"{app_id}#{notification_id}")
        if audience is None:
            raise BadRequest("notification_id", "no audience was sent under it")
        return audience
