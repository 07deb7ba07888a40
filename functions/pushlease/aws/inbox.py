"""The in-app inbox in DynamoDB: a recipient's entries in order of time, and how many of them are unread.

    recipient   entry
    shop#ada    #                     unread, last_put_at      the counter: it sorts before every digit
    shop#ada    1799990000000#n1      content, created_at, read_at, ttl
    shop#ada    1799999000000#n2      …

``unread`` is the number of unread rows that have not expired, whatever was repeated, raced or pruned:

* What changes an entry changes the counter in the same transaction, under the condition that the entry is as the change
  needs it. A repeat meets a condition that fails, and changes neither.
* All entries live for one span R, so those that have expired stand first, and each call removes them before all else.
* TTL only prunes, at 3R, and tells no counter:

        now − 3R         now − 2R         now − R            now
    ───────┼────────────────┼────────────────┼────────────────┼──▶ created_at
     TTL may prune            expired: swept        alive

  A row that it prunes unswept was younger than R at the last call of all. So that call is more than 2R ago, nothing was
  put since, and all that there is has expired. Hence: once the last put is older than R and no row is left, ``unread``
  is set to 0, on condition that ``last_put_at`` is as seen. The spare R is for clocks that differ, and for slow calls.
* A query may see one half of a transaction that is being committed, but not for long: whoever sees a counter without
  its rows either finds the last put to be recent, and leaves it, or (``erase``) looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from pushlease.aws.rows import COUNTER, inbox_entry, recipient_key
from pushlease.aws.statements import number, text
from pushlease.errors import StoreUnavailable
from pushlease.push.device import Recipient
from pushlease.push.ports import InboxEntry, InboxPage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

type Item = Mapping[str, Any]  # as the wire has it

BATCH = 25  # entries of one transaction: DynamoDB takes 100 writes of 4 MB together, but large ones meet more conflicts
TRIES = 8  # of a transaction that met another one: 25 ms doubling, about 3 s in all
FIRST_PAUSE_S = 0.025
TTL_SPANS = 3

_UNREAD = "attribute_exists(entry) AND attribute_not_exists(read_at)"
_NOT_UNREAD = "attribute_not_exists(entry) OR attribute_exists(read_at)"
# Reasons of a cancelled transaction that pass.
_PASSING = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoInbox:
    """``Inbox`` on the inbox table.

    ``kept``: how long an entry lives. ``pause``: waits so many seconds. ``dice``: uniform in [0, 1).
    """

    client: DynamoDBClient
    table: str
    kept: timedelta
    pause: Callable[[float], None]
    dice: Callable[[], float]

    def put(self, recipient: Recipient, *, notification_id: str, content: str, created_at_ms: int, now_ms: int) -> None:
        """See ``Inbox``. The key is made from what never changes, so that a repeat meets the same row."""
        key, since_ms = self._start(recipient, now_ms)
        self._swept(key, since_ms)
        if created_at_ms < since_ms:
            return
        row = {
            "recipient": text(key),
            "entry": text(inbox_entry(created_at_ms, notification_id)),
            "notification_id": text(notification_id),
            "content": text(content),
            "created_at": number(created_at_ms),
            "ttl": number((created_at_ms + TTL_SPANS * self._kept_ms) // 1000),
        }
        insert: TransactWriteItemTypeDef = {
            "Put": {"TableName": self.table, "Item": row, "ConditionExpression": "attribute_not_exists(entry)"}
        }
        added = {":added": number(1), ":now": number(now_ms)}
        self._transact([insert, self._update(key, COUNTER, "SET last_put_at = :now ADD unread :added", added)])

    def page(self, recipient: Recipient, *, now_ms: int, limit: int, after: str | None = None) -> InboxPage:
        """See ``Inbox``."""
        key, since_ms = self._start(recipient, now_ms)
        self._swept(key, since_ms)
        since = inbox_entry(since_ms)
        if after is not None and after < since:  # outside of what is asked for: DynamoDB would refuse it
            return InboxPage(entries=(), next=None)
        start = {"recipient": text(key), "entry": text(after)} if after is not None else None
        entries: list[InboxEntry] = []
        while len(entries) <= limit:
            rows, start = self._query(key, "entry >= :bound", since, newest=True, limit=limit + 1, start=start)
            entries += map(_entry, rows)
            if start is None:
                break
        return InboxPage(
            entries=tuple(entries[:limit]), next=entries[limit - 1].entry if len(entries) > limit else None
        )

    def unread(self, recipient: Recipient, *, now_ms: int) -> int:
        """See ``Inbox``. One small read, unless something has expired."""
        return self._swept(*self._start(recipient, now_ms))

    def mark_read(self, recipient: Recipient, entries: Sequence[str], *, now_ms: int) -> int:
        """See ``Inbox``."""
        key, since_ms = self._start(recipient, now_ms)
        self._swept(key, since_ms)
        alive = [entry for entry in dict.fromkeys(entries) if entry >= inbox_entry(since_ms)]
        return self._mark(key, alive, now_ms)

    def mark_all_read(self, recipient: Recipient, *, now_ms: int) -> int:
        """See ``Inbox``. Page by page: cut short, what is marked stays so, and the count is right."""
        key, since_ms = self._start(recipient, now_ms)
        if not self._swept(key, since_ms):
            return 0
        marked, start = 0, None
        while True:
            rows, start = self._query(key, "entry >= :bound", inbox_entry(since_ms), start=start, bare=True)
            marked += self._mark(key, [row["entry"]["S"] for row in rows if "read_at" not in row], now_ms)
            if start is None:
                return marked

    def erase(self, recipient: Recipient) -> None:
        """See ``Inbox``. The counter goes last, and only if nothing was put since it was seen."""
        key = recipient_key(recipient.app_id, recipient.user_id)
        looks = 0
        while True:
            counter, rows = self._oldest(key)
            if rows:
                self._remove(key, rows)
            elif counter is None:
                return
            elif _whole(counter, "unread") and looks < TRIES:  # pruned rows; or a put of which one half is seen
                self._back_off(looks)
                looks += 1
            else:
                seen = {":seen": counter["last_put_at"]}
                self._transact([self._delete(key, COUNTER, "last_put_at = :seen", seen)])

    def _start(self, recipient: Recipient, now_ms: int) -> tuple[str, int]:
        """The recipient's key, and since when an entry must have been created not to have expired."""
        return recipient_key(recipient.app_id, recipient.user_id), max(0, now_ms - self._kept_ms + 1)

    @property
    def _kept_ms(self) -> int:
        return self.kept // timedelta(milliseconds=1)

    def _swept(self, key: str, since_ms: int) -> int:
        """Remove what has expired; how many entries are unread then."""
        while True:
            counter, rows = self._oldest(key, before=inbox_entry(since_ms))
            if rows:
                self._remove(key, rows)
                continue
            if counter is None:
                return 0
            unread = _whole(counter, "unread")
            if not unread or _whole(counter, "last_put_at") >= since_ms or self._oldest(key)[1]:
                return unread
            values = {":none": number(0), ":seen": counter["last_put_at"]}
            if not self._transact([self._update(key, COUNTER, "SET unread = :none", values, "last_put_at = :seen")]):
                return 0

    def _oldest(self, key: str, *, before: str = ":") -> tuple[Item | None, Sequence[Item]]:
        """The counter, and the first entries below a bound; ``:`` follows the digits."""
        rows, _ = self._query(key, "entry < :bound", before, limit=BATCH, bare=True)
        counter = next((row for row in rows if row["entry"]["S"] == COUNTER), None)
        return counter, [row for row in rows if row is not counter]

    def _remove(self, key: str, rows: Sequence[Item]) -> None:
        """Remove entries, and count. Nothing is done if one is not as it was seen: the caller looks again."""
        unread = [row["entry"]["S"] for row in rows if "read_at" not in row]
        read = [row["entry"]["S"] for row in rows if "read_at" in row]
        self._transact(
            [
                *(self._delete(key, entry, _UNREAD) for entry in unread),
                *(self._delete(key, entry, _NOT_UNREAD) for entry in read),
                *([self._fewer(key, len(unread))] if unread else []),
            ]
        )

    def _mark(self, key: str, entries: Sequence[str], now_ms: int) -> int:
        """Mark those that are unread; how many were. What a condition refuses is read or gone, and stays so."""
        marked = 0
        for chunk in batched(entries, BATCH, strict=False):
            open_: Sequence[str] = chunk
            while open_:
                values = {":now": number(now_ms)}
                writes = [self._update(key, entry, "SET read_at = :now", values, _UNREAD) for entry in open_]
                refused = self._transact([*writes, self._fewer(key, len(open_))])
                if not refused:
                    marked += len(open_)
                    break
                open_ = [entry for at, entry in enumerate(open_) if at not in refused]
        return marked

    def _fewer(self, key: str, count: int) -> TransactWriteItemTypeDef:
        return self._update(key, COUNTER, "ADD unread :fewer", {":fewer": number(-count)})

    def _update(
        self, key: str, entry: str, expression: str, values: Mapping[str, Any], condition: str = ""
    ) -> TransactWriteItemTypeDef:
        values = {"UpdateExpression": expression, "ExpressionAttributeValues": values}
        return {"Update": self._write(key, entry, condition) | values}

    def _delete(
        self, key: str, entry: str, condition: str, values: Mapping[str, Any] | None = None
    ) -> TransactWriteItemTypeDef:
        return {
            "Delete": self._write(key, entry, condition) | ({"ExpressionAttributeValues": values} if values else {})
        }

    def _write(self, key: str, entry: str, condition: str) -> Any:
        """What every write of a transaction says: which row, and under which condition if there is one."""
        row = {"recipient": text(key), "entry": text(entry)}
        conditions = {"ConditionExpression": condition} if condition else {}
        return {"TableName": self.table, "Key": row, **conditions}

    def _transact(self, writes: Sequence[TransactWriteItemTypeDef]) -> frozenset[int]:
        """All of the writes or none: the places of those whose condition failed, no place if all are written.

        The SDK gives each call a token, so that one it repeats after a lost answer counts once.
        """
        for try_ in range(TRIES):
            if try_:
                self._back_off(try_ - 1)
            try:
                self.client.transact_write_items(TransactItems=writes)
            except ClientError as error:
                reasons = [reason.get("Code") for reason in _reasons(error)]
                refused = frozenset(at for at, reason in enumerate(reasons) if reason == "ConditionalCheckFailed")
                if refused:
                    return refused
                if not _PASSING.intersection(reasons):
                    raise StoreUnavailable(f"inbox: {error.response['Error']['Code']}") from error
            except BotoCoreError as error:
                raise StoreUnavailable(f"inbox: {type(error).__name__}") from error
            else:
                return frozenset()
        raise StoreUnavailable(f"inbox: still in conflict after {TRIES} tries")

    def _query(
        self,
        key: str,
        condition: str,
        bound: str,
        *,
        limit: int | None = None,
        newest: bool = False,
        bare: bool = False,
        start: Any = None,
    ) -> tuple[Sequence[Item], Any]:
        """One page of rows, and where the next one starts. ``bare``: without the contents."""
        wanted: Any = {
            "Limit": limit,
            "ProjectionExpression": "entry, read_at, unread, last_put_at" if bare else None,
            "ExclusiveStartKey": start,
        }
        try:
            answer = self.client.query(
                TableName=self.table,
                KeyConditionExpression=f"recipient = :recipient AND {condition}",
                ExpressionAttributeValues={":recipient": text(key), ":bound": text(bound)},
                ConsistentRead=True,
                ScanIndexForward=not newest,
                **{name: value for name, value in wanted.items() if value is not None},
            )
        except (ClientError, BotoCoreError) as error:
            raise StoreUnavailable(f"inbox: {type(error).__name__}") from error
        return answer["Items"], answer.get("LastEvaluatedKey")

    def _back_off(self, try_: int) -> None:
        self.pause(FIRST_PAUSE_S * 2**try_ * (0.5 + 0.5 * self.dice()))


def _reasons(error: ClientError) -> Sequence[Mapping[str, Any]]:
    """Why each write of a transaction was cancelled, in order; nothing if it was no such answer."""
    response: Mapping[str, Any] = error.response
    reasons: Sequence[Mapping[str, Any]] = response.get("CancellationReasons", ())
    return reasons


def _whole(item: Item, name: str) -> int:
    return int(item[name]["N"]) if name in item else 0


def _entry(item: Item) -> InboxEntry:
    return InboxEntry(
        entry=item["entry"]["S"],
        notification_id=item["notification_id"]["S"],
        content=item["content"]["S"],
        created_at_ms=_whole(item, "created_at"),
        read_at_ms=_whole(item, "read_at") if "read_at" in item else None,
    )
