"""The durable row that sees one recipient's deliveries of one notification through."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NewType

JobId = NewType("JobId", str)
DeliveryId = NewType("DeliveryId", str)

# A timeline that grows without bound would grow the price of every write of the row; the oldest entries go first.
HISTORY_LIMIT = 12


class Status(StrEnum):
    """Where a job stands. There is no "leased": the lease is ``due_at`` moved into the future."""

    PENDING = "pending"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class DeliveryStatus(StrEnum):
    """Where one delivery stands; all but ``queued`` are final until a redrive."""

    QUEUED = "queued"
    SENT = "sent"
    FAILED = "failed"
    SUPPRESSED = "suppressed"
    SKIPPED = "skipped"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification bound for one device, or for the in-app inbox.

    ``attempts`` counts this delivery's own tries, crashed ones included. ``due_at_ms``: not to be tried before; None
    means at once. ``code`` is the last error, or why it was skipped. ``provider_id`` is the provider's name for what
    it accepted.
    """

    status: DeliveryStatus = DeliveryStatus.QUEUED
    attempts: int = 0
    code: str | None = None
    due_at_ms: int | None = None
    provider_id: str | None = None
    sent_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """When and as which message a letter was first seen on the burial queue."""

    sent_at_ms: int
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job row.

    ``due_at_ms`` is when the job may be claimed next: lease expiry, retry time and, once dead, the next burial check.
    ``claim_seq`` rises by one at every claim and never falls; ``settled_seq`` is the last claim that was ended, so a
    claim is open while it is smaller. ``alone``: taken over from a crash, to be attempted with nothing else in hand.
    ``sent_late``: an attempt whose lease was lost recorded its successes there; a store folds them into ``deliveries``
    whenever it reads a row (``with_late``), whatever the row's map says.
    ``lifetime_ms``: once redriven, the span from creation to expiry that every redrive grants anew.
    ``content`` is the notification's stored JSON, or None if it lives in the shared row that ``content_ref`` names.
    ``variables``: what is filled into it for this recipient, as JSON. ``page``: the part of an audience's list that it
    comes from; such a job sends no hints, so that it delays nobody else's, and the row alone says when it is due.
    """

    job_id: JobId
    app_id: str
    user_id: str
    notification_id: str
    fingerprint: str
    status: Status
    deliveries: Mapping[DeliveryId, Delivery]
    attempts: int = 0
    max_attempts: int
    due_at_ms: int
    claim_seq: int = 0
    settled_seq: int = 0
    claim_id: str | None = None
    alone: bool = False
    sent_late: frozenset[str] = frozenset()
    content: str | None = None
    content_ref: str | None = None
    variables: str | None = None
    page: int | None = None
    channel: str | None = None
    created_at_ms: int
    expires_at_ms: int
    lifetime_ms: int | None = None
    last_error: str | None = None
    redrives: int = 0
    died_at_ms: int | None = None
    sights: Mapping[str, Sight] = field(default_factory=dict)
    history: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the message's text, which is personal data."""
        return f"Job({self.job_id}, {self.status}, attempts={self.attempts}, claim_seq={self.claim_seq})"

    @property
    def crashed_claims(self) -> int:
        """Claims before the open one that nobody ended: each is an attempt that may have killed its worker."""
        return max(0, self.claim_seq - self.settled_seq - 1)

    @property
    def taken_over(self) -> bool:
        """Whether this claim follows a crash, so that the job may be what crashed its worker."""
        return self.alone or self.crashed_claims > 0

    @property
    def open_deliveries(self) -> Mapping[DeliveryId, Delivery]:
        """What is still to be delivered."""
        return {
            delivery_id: delivery
            for delivery_id, delivery in self.deliveries.items()
            if delivery.status is DeliveryStatus.QUEUED
        }


def with_late(deliveries: Mapping[DeliveryId, Delivery], sent_late: frozenset[str]) -> dict[DeliveryId, Delivery]:
    """The deliveries with what was recorded late: a delivery in ``sent_late`` is sent."""
    return {
        delivery_id: replace(delivery, status=DeliveryStatus.SENT, code=None, due_at_ms=None)
        if delivery_id in sent_late
        else delivery
        for delivery_id, delivery in deliveries.items()
    }


def job_id_of(*identity: str) -> JobId:
    """The id that the same identity always gets, so that a repeat of a send meets the same row.

    ``identity``: app, notification and user, or app, notification and device. 160 bits in hex: no two identities meet.
    """
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()
    return JobId(digest[:40])


def shard_of(job_id: JobId, shards: int) -> int:
    """Which of ``shards`` equal parts a job belongs to: the leading digits of its id, which is a hash already."""
    try:
        return int(job_id[:8], 16) % shards
    except ValueError:  # a key that we did not make; its row must be buried all the same
        return int(job_id_of(job_id)[:8], 16) % shards


def push_id_of(job_id: JobId, delivery_id: DeliveryId) -> str:
    """A canonical UUID, the same at every attempt of one delivery (RFC 9562 version 8: our own hash)."""
    digest = bytearray(hashlib.sha256(f"{job_id}\0{delivery_id}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
