"""The tables as PynamoDB models, and how rows become values. A test compares them with the template's tables.

Attributes at their default are left out: every write of a job row is billed by the row's full size.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from pynamodb.attributes import (
    BinaryAttribute,
    BooleanAttribute,
    JSONAttribute,
    MapAttribute,
    NumberAttribute,
    UnicodeAttribute,
    UnicodeSetAttribute,
)
from pynamodb.connection import Connection
from pynamodb.indexes import GlobalSecondaryIndex, KeysOnlyProjection
from pynamodb.models import Model

from pushlease.errors import Unreadable
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status, shard_of, with_late

DEAD_LANES = 4
OWNER = "owner"
COUNTER = "#"  # of a recipient's unread entries, in place of an entry's key: it sorts before them all

# A call that hangs must not eat the lease; by itself PynamoDB would wait for two minutes.
_CONNECTION = {"connect_timeout_seconds": 2, "read_timeout_seconds": 3, "max_retry_attempts": 2}


class RecipientIndex(GlobalSecondaryIndex["JobRow"]):
    """A recipient's jobs by when they were accepted. Sparse: rows have the attribute only where a deployment asks."""

    class Meta:
        index_name = "recipient"
        projection = KeysOnlyProjection()

    recipient = UnicodeAttribute(hash_key=True)
    created_at = NumberAttribute(range_key=True)


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
    by_recipient = RecipientIndex()

    job_id = UnicodeAttribute(hash_key=True)
    app_id = UnicodeAttribute()
    user_id = UnicodeAttribute()
    recipient = UnicodeAttribute(null=True)
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
    variables = UnicodeAttribute(null=True)
    page = NumberAttribute(null=True)
    channel = UnicodeAttribute(null=True)
    created_at = NumberAttribute()
    expires_at = NumberAttribute()
    lifetime = NumberAttribute(null=True)
    last_error = UnicodeAttribute(null=True)
    redrives = NumberAttribute(null=True)
    died_at = NumberAttribute(null=True)
    sights = UnicodeSetAttribute(null=True)
    history = UnicodeAttribute(null=True)
    ttl = NumberAttribute(null=True)


class DeviceRow(Model):
    """A device of a recipient."""

    class Meta:
        table_name = "devices"

    recipient = UnicodeAttribute(hash_key=True)
    device_id = UnicodeAttribute(range_key=True)
    platform = UnicodeAttribute()
    environment = UnicodeAttribute()
    push_token = UnicodeAttribute()
    registered_at = NumberAttribute()
    topic = UnicodeAttribute(null=True)
    address = UnicodeAttribute(null=True)  # missing: a push token, as most are
    locale = UnicodeAttribute(null=True)
    zone = UnicodeAttribute(null=True)
    app_version = UnicodeAttribute(null=True)
    disabled_code = UnicodeAttribute(null=True)
    ttl = NumberAttribute(null=True)


class OwnerRow(Model):
    """Whose a push token is, in the devices' own table. No recipient's key begins as these rows' do."""

    class Meta:
        table_name = "devices"

    recipient = UnicodeAttribute(hash_key=True)  # "#" and the push token's SHA-256
    device_id = UnicodeAttribute(range_key=True)  # always OWNER
    owner = UnicodeAttribute()
    ttl = NumberAttribute(null=True)


class RecipientRow(Model):
    """What a recipient said; see ``Preferences``. ``quiet``: lists of days, start and end."""

    class Meta:
        table_name = "recipients"

    recipient = UnicodeAttribute(hash_key=True)
    channels: MapAttribute[str, Any] = MapAttribute(null=True)
    muted_until: MapAttribute[str, Any] = MapAttribute(null=True)
    quiet = JSONAttribute(null=True)
    zone = UnicodeAttribute(null=True)
    locale = UnicodeAttribute(null=True)


class InboxRow(Model):
    """One in-app entry; ``entry`` sorts by time. Or, where that is ``COUNTER``, how many are unread."""

    class Meta:
        table_name = "inbox"

    recipient = UnicodeAttribute(hash_key=True)
    entry = UnicodeAttribute(range_key=True)
    notification_id = UnicodeAttribute(null=True)
    content = UnicodeAttribute(null=True)
    created_at = NumberAttribute(null=True)
    read_at = NumberAttribute(null=True)
    unread = NumberAttribute(null=True)
    last_put_at = NumberAttribute(null=True)
    ttl = NumberAttribute(null=True)


class NotificationRow(Model):
    """What several jobs share: content too large to repeat in each, and which jobs there are."""

    class Meta:
        table_name = "notifications"

    notification = UnicodeAttribute(hash_key=True)
    fingerprint = UnicodeAttribute()
    content = UnicodeAttribute(null=True)
    job_ids = UnicodeSetAttribute(null=True)
    paused = BooleanAttribute(null=True)
    created_at = NumberAttribute()
    ttl = NumberAttribute(null=True)


class AudienceRow(Model):
    """A part of an audience send; see ``audience_store`` for which there are."""

    class Meta:
        table_name = "audiences"

    ref = UnicodeAttribute(hash_key=True)
    part = UnicodeAttribute(range_key=True)
    state = UnicodeAttribute(null=True)
    listed = JSONAttribute(null=True)
    said = JSONAttribute(null=True)
    fingerprint = UnicodeAttribute(null=True)
    started_at = NumberAttribute(null=True)
    expires_at = NumberAttribute(null=True)
    rate = NumberAttribute(null=True)
    cursor = NumberAttribute(null=True)
    swept_at = NumberAttribute(null=True)
    taken = NumberAttribute(null=True)
    fault = UnicodeAttribute(null=True)
    text = BinaryAttribute(null=True, legacy_encoding=False)
    counts = JSONAttribute(null=True)
    counted_at = NumberAttribute(null=True)
    faults = JSONAttribute(null=True)
    ttl = NumberAttribute(null=True)


class FlowRow(Model):
    """A breaker, by its way, or what was taken of one window of a quota."""

    class Meta:
        table_name = "flow"

    name = UnicodeAttribute(hash_key=True)
    opened_at = NumberAttribute(null=True)
    probe_at = NumberAttribute(null=True)
    closed_at = NumberAttribute(null=True)
    paused_until = NumberAttribute(null=True)
    taken = NumberAttribute(null=True)
    ttl = NumberAttribute(null=True)


class AppRow(Model):
    """An app and which providers it has."""

    class Meta:
        table_name = "apps"

    app_id = UnicodeAttribute(hash_key=True)
    apns_production: MapAttribute[str, Any] = MapAttribute(null=True)
    apns_sandbox: MapAttribute[str, Any] = MapAttribute(null=True)
    apns_topic_keys = JSONAttribute(null=True)
    fcm: MapAttribute[str, Any] = MapAttribute(null=True)
    channels = JSONAttribute(null=True)
    unknown_channels = UnicodeAttribute(null=True)
    zone = UnicodeAttribute(null=True)


def bound[M: Model](model: type[M], table_name: str, **connection: float) -> type[M]:
    """The model bound to a deployment's table; region, endpoint and credentials come from the environment as usual.

    ``connection``: PynamoDB's settings of a connection, such as ``read_timeout_seconds``, other than usual.
    """
    meta = type("Meta", (), {"table_name": table_name, **_CONNECTION, **connection})
    return type(model.__name__, (model,), {"Meta": meta})


def connection() -> Connection:
    """A connection for writes of several rows at once, as patient as those of single tables."""
    return Connection(
        connect_timeout_seconds=_CONNECTION["connect_timeout_seconds"],
        read_timeout_seconds=_CONNECTION["read_timeout_seconds"],
        max_retry_attempts=_CONNECTION["max_retry_attempts"],
    )


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


def recipient_key(app_id: str, user_id: str) -> str:
    """One string for a recipient; an app's id holds no ``#``, so no two recipients share one."""
    return f"{app_id}#{user_id}"


def owner_key(push_token: str) -> str:
    """Where it stands whose a push token is; hashed, since a key must not be personal data, nor longer than 2 KB."""
    return f"#{sha256(push_token.encode()).hexdigest()}"


def owner_text(recipient: str, device_id: str) -> str:
    """A device as an owner; a device's id holds no ``#``, so no two devices share one."""
    return f"{device_id}#{recipient}"


def device_keys(owner: str) -> tuple[str, str]:
    """The keys of an owner's row: its recipient and its device id."""
    device_id, _, recipient = owner.partition("#")
    return recipient, device_id


def inbox_entry(created_at_ms: int, notification_id: str | None = None) -> str:
    """An entry's key, which sorts by time; without a notification, what all keys from that instant on follow."""
    return f"{created_at_ms:013d}" if notification_id is None else f"{created_at_ms:013d}#{notification_id}"


def row_of(job: Job, *, lanes: int, ttl_s: int | None, by_recipient: bool = False) -> dict[str, Any]:
    """A job as a DynamoDB item, typed as the wire has it; ``by_recipient``: to be found by its recipient too."""
    row = JobRow(
        job_id=job.job_id,
        app_id=job.app_id,
        user_id=job.user_id,
        recipient=recipient_key(job.app_id, job.user_id) if by_recipient else None,
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
        variables=job.variables,
        page=job.page,
        channel=job.channel,
        created_at=job.created_at_ms,
        expires_at=job.expires_at_ms,
        redrives=job.redrives,
        history=history_text(job.history),
        ttl=ttl_s,
    )
    return dict(row.serialize())


def job_of(item: Mapping[str, Any]) -> Job:
    """A DynamoDB item as a job; raises ``Unreadable``, naming the attribute at fault and never its value.

    Read off the wire's own types: every claim reads its row, and a model would cost several times the processor time.
    """
    read = _Reader(item)
    try:
        sent_late = frozenset(read.texts("sent_late"))
        # The content is in the row, or somewhere else: one of the two must be there.
        content = read.text_if_there("content")
        content_ref = read.text("content_ref") if content is None else read.text_if_there("content_ref")
        return Job(
            job_id=JobId(read.text("job_id")),
            app_id=read.text("app_id"),
            user_id=read.text("user_id"),
            notification_id=read.text("notification_id"),
            fingerprint=read.text("fingerprint"),
            status=Status(read.text("status")),
            deliveries=with_late(
                {DeliveryId(id_): _delivery(part["M"]) for id_, part in item["deliveries"]["M"].items()}, sent_late
            ),
            attempts=read.whole("attempts"),
            max_attempts=read.whole("max_attempts"),
            due_at_ms=read.whole("due_at"),
            claim_seq=read.whole("claim_seq"),
            settled_seq=read.whole("settled_seq"),
            claim_id=read.text_if_there("claim_id"),
            alone=read.flag("alone"),
            sent_late=sent_late,
            content=content,
            content_ref=content_ref,
            variables=read.text_if_there("variables"),
            page=read.whole_if_there("page"),
            channel=read.text_if_there("channel"),
            created_at_ms=read.whole("created_at"),
            expires_at_ms=read.whole("expires_at"),
            lifetime_ms=read.whole_if_there("lifetime"),
            last_error=read.text_if_there("last_error"),
            redrives=read.whole_if_there("redrives") or 0,
            died_at_ms=read.whole_if_there("died_at"),
            sights=sights_of(read.texts("sights")),
            history=tuple((read.text_if_there("history") or "").splitlines()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = read.name or "status or deliveries"
        raise Unreadable(f"{where}: missing or of another type ({type(error).__name__})") from None


class _Reader:
    """Reads attributes by their wire type, and remembers which one it was at."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._item = item
        self.name = ""

    def text(self, name: str) -> str:
        self.name = name
        text: str = self._item[name]["S"]
        self.name = ""
        return text

    def whole(self, name: str) -> int:
        self.name = name
        number = int(self._item[name]["N"])
        self.name = ""
        return number

    def text_if_there(self, name: str) -> str | None:
        return self.text(name) if name in self._item else None

    def whole_if_there(self, name: str) -> int | None:
        return self.whole(name) if name in self._item else None

    def flag(self, name: str) -> bool:
        self.name = name
        raised: bool = self._item[name]["BOOL"] if name in self._item else False
        self.name = ""
        return raised

    def texts(self, name: str) -> Sequence[str]:
        self.name = name
        texts: Sequence[str] = self._item[name]["SS"] if name in self._item else ()
        self.name = ""
        return texts


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
    read = _Reader(part)
    return Delivery(
        status=DeliveryStatus(read.text("status")),
        attempts=read.whole_if_there("attempts") or 0,
        code=read.text_if_there("code"),
        due_at_ms=read.whole_if_there("due_at"),
        provider_id=read.text_if_there("provider_id"),
        sent_at_ms=read.whole_if_there("sent_at"),
    )
