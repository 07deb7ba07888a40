"""Show recipients' inboxes, and keep what was read of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pushlease.push.device import Recipient
from pushlease.push.ports import Inbox, InboxEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Inboxes:
    """The use case. ``clock``: epoch ms."""

    inbox: Inbox
    clock: Callable[[], int]

    def entries(self, recipient: Recipient, *, limit: int, after: str | None) -> Mapping[str, Any]:
        """Some entries, newest first, and how many are unread of all that there are."""
        now_ms = self.clock()
        page = self.inbox.page(recipient, now_ms=now_ms, limit=limit, after=after)
        return {
            "entries": [_shown(entry) for entry in page.entries],
            "unread": self.inbox.unread(recipient, now_ms=now_ms),
            "next": page.next,
        }

    def mark_read(self, recipient: Recipient, entries: Sequence[str]) -> Mapping[str, Any]:
        """Mark entries as read; those that are read already, or gone, change nothing."""
        now_ms = self.clock()
        marked = self.inbox.mark_read(recipient, entries, now_ms=now_ms)
        return {"marked": marked, "unread": self.inbox.unread(recipient, now_ms=now_ms)}

    def mark_all_read(self, recipient: Recipient) -> Mapping[str, Any]:
        """Mark all entries as read; one that comes meanwhile may stay unread."""
        now_ms = self.clock()
        marked = self.inbox.mark_all_read(recipient, now_ms=now_ms)
        return {"marked": marked, "unread": self.inbox.unread(recipient, now_ms=now_ms)}

    def unread_count(self, recipient: Recipient) -> Mapping[str, Any]:
        """How many entries are unread: what an app's badge shows."""
        return {"unread": self.inbox.unread(recipient, now_ms=self.clock())}


def _shown(entry: InboxEntry) -> Mapping[str, Any]:
    return {
        "entry": entry.entry,
        "notification_id": entry.notification_id,
        "created_at_ms": entry.created_at_ms,
        "read": entry.read_at_ms is not None,
        "content": json.loads(entry.content),
    }
