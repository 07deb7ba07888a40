"""The tables as PynamoDB models, and how rows become values. A test compares them with the template's tables.

Attributes at their default are left out: every write of a job row is billed by the row's full size.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pynamodb.attributes import (
    BooleanAttribute,
    MapAttribute,
    NumberAttribute,
    UnicodeAttribute,
    UnicodeSetAttribute,
)
from pynamodb.exceptions import AttributeDeserializationError
from pynamodb.indexes import GlobalSecondaryIndex, KeysOnlyProjection
from pynamodb.models import Model

from pushlease.errors import Unreadable
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status, shard_of, with_late

DEAD_LANES = 4


class DueIndex(GlobalSecondaryIndex["JobRow"]):
    """Pending and dead jobs by when they are due. Sparse: only rows with a lane are in it."""

    class Meta:
        index_name = "due"
        projection = KeysOnlyProjection()

    lane = UnicodeAttribute(hash_key=True)
    due_at = NumberAttribute(range_key=True)


class JobRow(Model):
    """A job; see ``pushlease.jobs.job.Job`` for what the attributes mean."""

    class Meta:
        table_name = "jobs"

    due = DueIndex()

    job_id = UnicodeAttribute(hash_key=True)
    app_id = UnicodeAttribute()
    user_id = UnicodeAttribute()
    notification_id = UnicodeAttribute()
    fingerprint = UnicodeAttribute()
    status = UnicodeAttribute()
    lane = UnicodeAttribute(null=True)
    due_at = NumberAttribute()
    attempts = NumberAttribute()
    max_attempts = NumberAttribute()
    claim_seq = NumberAttribute()
    settled_seq = NumberAttribute()
    claim_id = UnicodeAttribute(null=True)
    alone = BooleanAttribute(null=True)
    sent_late = UnicodeSetAttribute(null=True)
    deliveries: MapAttribute[str, Any] = MapAttribute()
    content = UnicodeAttribute(null=True)
    content_ref = UnicodeAttribute(null=True)
    channel = UnicodeAttribute(null=True)
    created_at = NumberAttribute()
    expires_at = NumberAttribute()
    last_error = UnicodeAttribute(null=True)
    redrives = NumberAttribute(null=True)
    died_at = NumberAttribute(null=True)
    sights = UnicodeSetAttribute(null=True)
    history = UnicodeAttribute(null=True)
    ttl = NumberAttribute(null=True)


class PushTokenIndex(GlobalSecondaryIndex["DeviceRow"]):
    """Whose push token this is, so that one that moves to another user moves."""

    class Meta:
        index_name = "push_token"
        projection = KeysOnlyProjection()

    push_token = UnicodeAttribute(hash_key=True)


class DeviceRow(Model):
    """A device of a recipient."""

    class Meta:
        table_name = "devices"

    by_push_token = PushTokenIndex()

    recipient = UnicodeAttribute(hash_key=True)
    device_id = UnicodeAttribute(range_key=True)
    platform = UnicodeAttribute()
    environment = UnicodeAttribute()
    push_token = UnicodeAttribute()
    registered_at = NumberAttribute()
    topic = UnicodeAttribute(null=True)
    locale = UnicodeAttribute(null=True)
    disabled_code = UnicodeAttribute(null=True)


class RecipientRow(Model):
    """A recipient's preferences: channel → {push, in_app} → bool; what is not named is on."""

    class Meta:
        table_name = "recipients"

    recipient = UnicodeAttribute(hash_key=True)
    channels: MapAttribute[str, Any] = MapAttribute(null=True)


class InboxRow(Model):
    """One in-app entry; ``entry`` sorts by time."""

    class Meta:
        table_name = "inbox"

    recipient = UnicodeAttribute(hash_key=True)
    entry = UnicodeAttribute(range_key=True)
    notification_id = UnicodeAttribute()
    content = UnicodeAttribute()
    created_at = NumberAttribute()
    ttl = NumberAttribute(null=True)


class NotificationRow(Model):
    """What several jobs share: content too large to repeat in each, and which jobs there are."""

    class Meta:
        table_name = "notifications"

    notification = UnicodeAttribute(hash_key=True)
    fingerprint = UnicodeAttribute()
    content = UnicodeAttribute(null=True)
    job_ids = UnicodeSetAttribute(null=True)
    created_at = NumberAttribute()
    ttl = NumberAttribute(null=True)


class AppRow(Model):
    """An app and which providers it has."""

    class Meta:
        table_name = "apps"

    app_id = UnicodeAttribute(hash_key=True)
    apns_production: MapAttribute[str, Any] = MapAttribute(null=True)
    apns_sandbox: MapAttribute[str, Any] = MapAttribute(null=True)
    fcm: MapAttribute[str, Any] = MapAttribute(null=True)


def bound[M: Model](model: type[M], table_name: str) -> type[M]:
    """The model bound to a deployment's table; region, endpoint and credentials come from the environment as usual."""
    meta = type("Meta", (), {"table_name": table_name})
    return type(model.__name__, (model,), {"Meta": meta})


def lane_of(job_id: JobId, status: Status, *, lanes: int) -> str | None:
    """The lane that a job of this status stands in; only what is pending or dead has one."""
    if status is Status.PENDING:
        return due_lane(shard_of(job_id, lanes))
    if status is Status.DEAD:
        return dead_lane(shard_of(job_id, DEAD_LANES))
    return None


def due_lane(shard: int) -> str:
    """The lane of pending jobs of one shard."""
    return f"due#{shard:02d}"


def dead_lane(shard: int) -> str:
    """The lane of dead jobs of one shard."""
    return f"dead#{shard}"


def row_of(job: Job, *, lanes: int, ttl_s: int | None) -> dict[str, Any]:
    """A job as a DynamoDB item, typed as the wire has it."""
    row = JobRow(
        job_id=job.job_id,
        app_id=job.app_id,
        user_id=job.user_id,
        notification_id=job.notification_id,
        fingerprint=job.fingerprint,
        status=job.status,
        lane=lane_of(job.job_id, job.status, lanes=lanes),
        due_at=job.due_at_ms,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        claim_seq=job.claim_seq,
        settled_seq=job.settled_seq,
        deliveries=deliveries_map(job.deliveries),
        content=job.content,
        content_ref=job.content_ref,
        channel=job.channel,
        created_at=job.created_at_ms,
        expires_at=job.expires_at_ms,
        redrives=job.redrives,
        history=history_text(job.history),
        ttl=ttl_s,
    )
    return dict(row.serialize())


def job_of(item: Mapping[str, Any]) -> Job:
    """A DynamoDB item as a job; raises ``Unreadable``, naming the attribute at fault and never its value."""
    job_id = item.get("job_id", {}).get("S", "?")
    try:
        row = JobRow.from_raw_data(dict(item))
        sent_late = frozenset(row.sent_late or ())
        return Job(
            job_id=JobId(row.job_id),
            app_id=_text(row.app_id, "app_id"),
            user_id=_text(row.user_id, "user_id"),
            notification_id=_text(row.notification_id, "notification_id"),
            fingerprint=_text(row.fingerprint, "fingerprint"),
            status=Status(row.status),
            deliveries=with_late(
                {DeliveryId(id_): _delivery(part) for id_, part in row.deliveries.as_dict().items()}, sent_late
            ),
            attempts=_whole(row.attempts, "attempts"),
            max_attempts=_whole(row.max_attempts, "max_attempts"),
            due_at_ms=_whole(row.due_at, "due_at"),
            claim_seq=_whole(row.claim_seq, "claim_seq"),
            settled_seq=_whole(row.settled_seq, "settled_seq"),
            claim_id=row.claim_id,
            alone=bool(row.alone),
            sent_late=sent_late,
            content=row.content,
            content_ref=_content_ref(row.content, row.content_ref),
            channel=row.channel,
            created_at_ms=_whole(row.created_at, "created_at"),
            expires_at_ms=_whole(row.expires_at, "expires_at"),
            last_error=row.last_error,
            redrives=_whole(row.redrives or 0, "redrives"),
            died_at_ms=None if row.died_at is None else _whole(row.died_at, "died_at"),
            sights=sights_of(row.sights or ()),
            history=tuple((row.history or "").splitlines()),
        )
    except Unreadable as error:
        raise Unreadable(f"job row {job_id}: {error}") from None
    except AttributeDeserializationError as error:
        raise Unreadable(f"job row {job_id}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unreadable(f"job row {job_id}: {type(error).__name__}") from None


def deliveries_map(deliveries: Mapping[DeliveryId, Delivery]) -> dict[str, Any]:
    """The deliveries as a map of maps, without what is at its default."""
    return {
        id_: {
            name: value
            for name, value in (
                ("status", str(delivery.status)),
                ("attempts", delivery.attempts or None),
                ("code", str(delivery.code) if delivery.code else None),
                ("due_at", delivery.due_at_ms),
                ("provider_id", delivery.provider_id),
                ("sent_at", delivery.sent_at_ms),
            )
            if value is not None
        }
        for id_, delivery in deliveries.items()
    }


def sight_text(nonce: str, sight: Sight) -> str:
    """A sight as an element of the row's set, so that adding it is one write, whatever is there."""
    return f"{nonce} {sight.sent_at_ms} {sight.message_id}"


def sights_of(texts: Iterable[str]) -> dict[str, Sight]:
    """The sights by their letters' nonces; what is none is left out: such a letter is simply sighted again."""
    parts = (text.split(" ") for text in texts)
    return {
        part[0]: Sight(sent_at_ms=int(part[1]), message_id=part[2])
        for part in parts
        if len(part) == 3 and part[1].isdecimal()
    }


def history_text(history: tuple[str, ...]) -> str | None:
    """The timeline, a line an entry."""
    return "\n".join(history) or None


def _delivery(part: Mapping[str, Any]) -> Delivery:
    return Delivery(
        status=DeliveryStatus(part["status"]),
        attempts=_whole(part.get("attempts", 0), "deliveries.attempts"),
        code=_optional(_text, part, "code"),
        due_at_ms=_optional(_whole, part, "due_at"),
        provider_id=_optional(_text, part, "provider_id"),
        sent_at_ms=_optional(_whole, part, "sent_at"),
    )


def _optional[T](read: Callable[[Any, str], T], part: Mapping[str, Any], name: str) -> T | None:
    value = part.get(name)
    return None if value is None else read(value, f"deliveries.{name}")


def _content_ref(content: str | None, ref: str | None) -> str | None:
    """Where the content is, unless it is in the row itself: one of them must be there."""
    return ref if content is not None else _text(ref, "content")


def _text(value: str | None, name: str) -> str:
    if not isinstance(value, str):
        raise Unreadable(f"{name}: missing")
    return value


def _whole(value: float | None, name: str) -> int:
    if value is None or int(value) != value:
        raise Unreadable(f"{name}: not a whole number")
    return int(value)
