"""The job rows in DynamoDB: every write is one named conditional statement.

The clauses, along the life of one claim (``due_at`` forward-dated means leased)::

    insert          claim                settle / release            next claim
    ──┬───────────────┬──────────────────────┬──────────────────────────┬──▶ time
      │ claim_seq 0   │ claim_seq 1          │ settled_seq 1            │ claim_seq 2
      │               │◀──── lease ─────────▶│                          │
      │               │   a crash here: nobody settles, due_at passes, the next claim sees claim_seq − settled_seq > 1

    UNCHANGED   due_at = :seen [claim_seq = :seen]   the lead still describes the row, so nobody claimed since
    PASSED      due_at <= :now                       without a hint to vouch for it, the lease must have run out
    HAS_BUDGET  attempts < max_attempts              a job that kills its workers ends
    FENCE       claim_seq = :mine                    no claim since ours: the lease may have run out, nobody took it
    OPEN        settled_seq < :mine                  our claim was not ended already: by us, a cancel, or a death

``claim_id`` is fresh for every statement: a failed condition whose row carries it was our own earlier try, repeated by
the SDK after a lost answer. Batches go through BatchExecuteStatement, 25 statements each, where each statement fails
for itself: throttled ones are repeated here with backoff, and never counted as lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.exceptions import AttributeDeserializationError, PutError, UpdateError

from pushlease.aws.rows import (
    JobRow,
    bound,
    deliveries_map,
    history_text,
    job_of,
    lane_of,
    row_of,
)
from pushlease.errors import Unreadable
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status
from pushlease.jobs.lifecycle import TRANSITIONS, Event
from pushlease.jobs.ports import (
    Broken,
    ClaimAnswer,
    Claimed,
    Ended,
    Exhausted,
    Lead,
    LostRace,
    Revival,
    Unavailable,
)
from pushlease.jobs.settle import Settlement

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchStatementRequestTypeDef, BatchStatementResponseTypeDef
    from pynamodb.attributes import Attribute
    from pynamodb.expressions.condition import Condition
    from pynamodb.expressions.update import Action

BATCH = 25  # statements of one BatchExecuteStatement, keys of one page of reads; DynamoDB's own limit
TRIES = 6  # of a throttled statement: 50 ms doubling, about 3 s in all, far within a lease
FIRST_PAUSE_S = 0.05
CANCEL_TRIES = 8  # a cancel reads, decides and writes; each claim or settle in between costs it one try

_CLAIM = (
    'SET "attempts" = "attempts" + 1 SET "claim_seq" = "claim_seq" + 1 SET "claim_id" = ? SET "due_at" = ? '
    """WHERE "job_id" = ? AND "status" = 'pending' AND "attempts" < "max_attempts" AND "due_at" = ?"""
)
_CLAIM_SEQ_SEEN = ' AND "claim_seq" = ?'
_PASSED = ' AND "due_at" <= ?'
_FENCE = 'WHERE "job_id" = ? AND "claim_seq" = ? AND "settled_seq" < ?'


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long ended rows stay for people to look at; TTL prunes them and decides nothing."""

    done: timedelta = timedelta(days=7)
    dead: timedelta = timedelta(days=30)

    def ttl_s(self, status: Status, now_ms: int) -> int | None:
        """Epoch seconds for an ended job, None while it is pending."""
        if status is Status.PENDING:
            return None
        return (now_ms + self._span(status) // timedelta(milliseconds=1)) // 1000

    def _span(self, status: Status) -> timedelta:
        return self.dead if status is Status.DEAD else self.done


class _Statement:
    """A PartiQL statement under construction, its parameters in the order of their marks."""

    def __init__(self, table: str) -> None:
        self.text = f'UPDATE "{table}"'
        self.parameters: list[Any] = []

    def set(self, name: str, value: Mapping[str, Any] | None) -> None:
        """Set an attribute, or remove it where the value is None."""
        if value is None:
            self.text += f' REMOVE "{name}"'
        else:
            self.text += f' SET "{name}" = ?'
            self.parameters.append(value)

    def end(self, clause: str, *parameters: Mapping[str, Any]) -> BatchStatementRequestTypeDef:
        """The statement with its condition; a failed one answers with the row as it stands."""
        return {
            "Statement": f"{self.text} {clause}",
            "Parameters": [*self.parameters, *parameters],
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


@dataclass(slots=True, kw_only=True)
class DynamoJobStore:
    """``JobStore`` on one table.

    ``new_id``: a fresh random id a call. ``pause``: waits so many seconds. ``dice``: uniform in [0, 1).
    """

    client: DynamoDBClient
    table: str
    lanes: int
    new_id: Callable[[], str]
    pause: Callable[[float], None]
    dice: Callable[[], float]
    retention: Retention = field(default_factory=Retention)
    throttled: int = 0  # statements that had to be repeated, for the metrics
    _rows: type[JobRow] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = bound(JobRow, self.table)

    def insert(self, jobs: Sequence[Job]) -> Sequence[Job | None]:
        """See ``JobStore``. Raises what botocore raises: a caller that got no answer sends again."""
        # INSERT fails on a row that exists, but never shows it; it is read where that happened.
        statements: list[BatchStatementRequestTypeDef] = []
        for job in jobs:
            item = row_of(job, lanes=self.lanes, ttl_s=self.retention.ttl_s(job.status, job.created_at_ms))
            marks = ", ".join(f"'{name}': ?" for name in item)
            statements.append(
                {"Statement": f'INSERT INTO "{self.table}" VALUE {{{marks}}}', "Parameters": list(item.values())}
            )
        answers = self._execute(statements, raising=True)
        duplicates = [
            job.job_id
            for job, answer in zip(jobs, answers, strict=True)
            if answer and answer.get("Error", {}).get("Code") == "DuplicateItem"
        ]
        for answer in answers:
            if answer and answer.get("Error") and answer["Error"].get("Code") != "DuplicateItem":
                raise ClientError({"Error": dict(answer["Error"])}, "BatchExecuteStatement")  # type: ignore[typeddict-item]
        existing = self.get(duplicates)
        return [existing.get(job.job_id) for job in jobs]

    def get(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """See ``JobStore``."""
        found: dict[JobId, Job] = {}
        for item in self._read(job_ids).values():
            try:
                job = job_of(item)
            except Unreadable:
                continue
            found[job.job_id] = job
        return found

    def remains(self, job_id: JobId) -> Job | None:
        """See ``JobStore``."""
        item = self._read([job_id]).get(job_id)
        return _remains(item, job_id) if item else None

    def claim(self, leads: Sequence[Lead], *, now_ms: int, lease: timedelta) -> Sequence[ClaimAnswer]:
        """See ``JobStore``. Invariants: one live claim; claim_seq never falls; attempts are counted at claim."""
        lease_ms = now_ms + lease // timedelta(milliseconds=1)
        claim_ids = [self.new_id() for _ in leads]
        statements: list[BatchStatementRequestTypeDef] = []
        for lead, claim_id in zip(leads, claim_ids, strict=True):
            seen = _n(lead.due_at_ms)
            parameters = [_s(claim_id), _n(max(lead.due_at_ms, lease_ms)), _s(lead.job_id), seen]
            clause = _CLAIM
            if lead.claim_seq is None:
                clause += _PASSED
                parameters.append(_n(now_ms))
            else:
                clause += _CLAIM_SEQ_SEEN
                parameters.append(_n(lead.claim_seq))
            statements.append(_Statement(self.table).end(f"{clause} RETURNING ALL NEW *", *parameters))
        answers = self._execute(statements)
        return [
            self._claim_answer(lead, claim_id, answer, now_ms)
            for lead, claim_id, answer in zip(leads, claim_ids, answers, strict=True)
        ]

    def settle(self, settlements: Sequence[Settlement]) -> Sequence[Ended]:
        """See ``JobStore``. Invariants: stale writer refused; a recorded ``sent`` is never overwritten."""
        write_ids = [self.new_id() for _ in settlements]
        statements = [
            self._settle_statement(settlement, write_id)
            for settlement, write_id in zip(settlements, write_ids, strict=True)
        ]
        return [_ended(write_id, answer) for write_id, answer in zip(write_ids, self._execute(statements), strict=True)]

    def record_late(self, job_id: JobId, delivery_ids: Sequence[DeliveryId]) -> None:
        """See ``JobStore``. Invariant: a recorded ``sent`` is never sent again."""
        self._update(
            job_id, [self._rows.sent_late.add(set(delivery_ids))], self._rows.job_id.exists(), event=Event.RECORD_LATE
        )

    def exhaust(self, job: Job, death: Settlement) -> bool:
        """See ``JobStore``. Invariants: attempts bounded; dead has no work."""
        row = self._rows
        unchanged = (
            (row.due_at == job.due_at_ms) & (row.claim_seq == job.claim_seq) & (row.settled_seq == job.settled_seq)
        )
        return self._update(
            job.job_id,
            [
                row.status.set(Status.DEAD),
                _put(row.lane, lane_of(job.job_id, Status.DEAD, lanes=self.lanes)),
                row.settled_seq.set(job.claim_seq),
                row.deliveries.set(deliveries_map(death.deliveries)),
                row.due_at.set(death.due_at_ms),
                _put(row.died_at, death.died_at_ms),
                _put(row.last_error, death.last_error),
                _put(row.history, history_text(death.history)),
                _put(row.ttl, self.retention.ttl_s(Status.DEAD, death.died_at_ms or 0)),
                row.alone.remove(),
            ],
            unchanged,
            event=Event.EXHAUST,
        )

    def condemn(self, job_id: JobId, *, due_at_ms: int, now_ms: int, why: str) -> Job | None:
        """See ``JobStore``. What stands in a due lane counts as pending: the status itself may be unreadable."""
        row = self._rows
        died = self._update(
            job_id,
            [
                row.status.set(Status.DEAD),
                _put(row.lane, lane_of(job_id, Status.DEAD, lanes=self.lanes)),
                row.settled_seq.set(row.claim_seq | 0),
                row.due_at.set(due_at_ms),
                row.died_at.set(now_ms),
                row.last_error.set(f"unreadable: {why}"[:200]),
                _put(row.ttl, self.retention.ttl_s(Status.DEAD, now_ms)),
            ],
            row.lane.startswith("due#"),
            event=None,
        )
        if not died:
            return None
        return self.remains(job_id)

    def cancel(self, job_ids: Sequence[JobId], *, now_ms: int) -> Sequence[bool]:
        """See ``JobStore``. Invariant: cancel wins; what was sent stays recorded."""
        return [self._cancel(job_id, now_ms) for job_id in job_ids]

    def due(self, lane: str, *, now_ms: int, limit: int, after: Lead | None = None) -> Sequence[Lead]:
        """See ``JobStore``."""
        start = {"job_id": _s(after.job_id), "lane": _s(lane), "due_at": _n(after.due_at_ms)} if after else None
        page = self._rows.due.query(
            lane, self._rows.due_at <= now_ms, limit=limit, page_size=limit, last_evaluated_key=start
        )
        return [Lead(job_id=JobId(row.job_id), due_at_ms=int(row.due_at)) for row in page]

    def sight(self, job_id: JobId, *, redrives: int, nonce: str, sight: Sight, due_at_ms: int) -> bool:
        """See ``JobStore``. Invariant: dead is redrivable and has a letter."""
        row = self._rows
        seen = {"sent_at": sight.sent_at_ms, "message_id": sight.message_id}
        same_death = row.redrives == redrives if redrives else row.redrives.does_not_exist()
        # DynamoDB sets no path inside a map that is not there yet: the first sight makes the map.
        first = self._update(
            job_id,
            [row.sights.set({nonce: seen}), row.due_at.set(due_at_ms)],
            same_death & row.sights.does_not_exist(),
            event=Event.SIGHT,
        )
        return first or self._update(
            job_id,
            [row.sights[nonce].set(seen), row.due_at.set(due_at_ms)],
            same_death & row.sights.exists(),
            event=Event.SIGHT,
        )

    def rebury(self, lead: Lead, *, due_at_ms: int) -> Job | None:
        """See ``JobStore``. Invariant: overlapping ticks change nothing but timing."""
        row = self._rows
        moved = self._update(lead.job_id, [row.due_at.set(due_at_ms)], row.due_at == lead.due_at_ms, event=Event.REBURY)
        return self.remains(lead.job_id) if moved else None

    def revive(self, revival: Revival) -> bool:
        """See ``JobStore``. Invariants: one death revives once; a fresh budget; claim_seq untouched."""
        row = self._rows
        return self._update(
            revival.job_id,
            [
                row.status.set(Status.PENDING),
                _put(row.lane, lane_of(revival.job_id, Status.PENDING, lanes=self.lanes)),
                row.due_at.set(revival.due_at_ms),
                row.attempts.set(0),
                row.deliveries.set(deliveries_map(revival.deliveries)),
                row.redrives.set(revival.redrives + 1),
                row.expires_at.set(revival.expires_at_ms),
                _put(row.history, history_text(revival.history)),
                row.sights.remove(),
                row.alone.remove(),
                row.died_at.remove(),
                row.ttl.remove(),
            ],
            row.redrives == revival.redrives if revival.redrives else row.redrives.does_not_exist(),
            event=Event.REVIVE,
        )

    def _settle_statement(self, settlement: Settlement, write_id: str) -> BatchStatementRequestTypeDef:
        ttl_s = self.retention.ttl_s(settlement.status, settlement.died_at_ms or settlement.due_at_ms)
        lane = lane_of(settlement.job_id, settlement.status, lanes=self.lanes)
        history = history_text(settlement.history)
        statement = _Statement(self.table)
        statement.set("status", _s(settlement.status))
        statement.set("settled_seq", _n(settlement.claim_seq))
        statement.set("claim_id", _s(write_id))
        statement.set("deliveries", {"M": self._rows.deliveries.serialize(deliveries_map(settlement.deliveries))})
        statement.set("attempts", _n(settlement.attempts))
        statement.set("due_at", _n(settlement.due_at_ms))
        statement.set("lane", _s(lane) if lane else None)
        statement.set("ttl", _n(ttl_s) if ttl_s else None)
        statement.set("alone", {"BOOL": True} if settlement.alone else None)
        statement.set("last_error", _s(settlement.last_error) if settlement.last_error else None)
        statement.set("died_at", _n(settlement.died_at_ms) if settlement.died_at_ms else None)
        statement.set("history", _s(history) if history else None)
        mine = _n(settlement.claim_seq)
        return statement.end(_FENCE, _s(settlement.job_id), mine, mine)

    def _claim_answer(
        self, lead: Lead, claim_id: str, answer: BatchStatementResponseTypeDef | None, now_ms: int
    ) -> ClaimAnswer:
        if answer is None:
            return Unavailable(job_id=lead.job_id)
        error = answer.get("Error")
        if error and error.get("Code") == "ValidationError":
            # Arithmetic on an attribute that is missing or no number: the row is not what we wrote.
            return Broken(job_id=lead.job_id, why="attempts or claim_seq: not a number")
        item: Mapping[str, Any] = answer.get("Item") or (error or {}).get("Item") or {}
        if not item:  # some engines do not show the row that failed a condition
            item = self._read([lead.job_id]).get(lead.job_id, {})
        if not item:
            return LostRace(job_id=lead.job_id)
        mine = not error or item.get("claim_id") == _s(claim_id)
        passed = lead.claim_seq is not None or lead.due_at_ms <= now_ms
        unchanged = passed and item.get("due_at") == _n(lead.due_at_ms)
        try:
            job = job_of(item)
        except Unreadable as fault:
            waits = mine or (unchanged and item.get("lane", {}).get("S", "").startswith("due#"))
            return Broken(job_id=lead.job_id, why=str(fault)) if waits else LostRace(job_id=lead.job_id)
        if mine:
            # A repeat may find our claim ended already, by a cancel.
            still_open = job.status is Status.PENDING and job.settled_seq < job.claim_seq
            return Claimed(job=job) if still_open else LostRace(job_id=lead.job_id)
        spent = job.status is Status.PENDING and job.attempts >= job.max_attempts
        if spent and unchanged and lead.claim_seq in (None, job.claim_seq):
            return Exhausted(job=job)
        return LostRace(job_id=lead.job_id)

    def _cancel(self, job_id: JobId, now_ms: int) -> bool:
        row = self._rows
        for _ in range(CANCEL_TRIES):
            job = self.get([job_id]).get(job_id)
            if job is None or job.status not in TRANSITIONS[Event.CANCEL].before:
                return False
            deliveries = {id_: _cancelled(job, id_, delivery) for id_, delivery in job.deliveries.items()}
            unchanged = (row.claim_seq == job.claim_seq) & (row.settled_seq == job.settled_seq)
            if self._update(
                job_id,
                [
                    row.status.set(Status.CANCELLED),
                    row.settled_seq.set(job.claim_seq),
                    row.deliveries.set(deliveries_map(deliveries)),
                    _put(row.ttl, self.retention.ttl_s(Status.CANCELLED, now_ms)),
                    row.lane.remove(),
                    row.alone.remove(),
                ],
                unchanged & (row.status == job.status),
                event=Event.CANCEL,
            ):
                return True
        raise RuntimeError(f"job {job_id}: could not be cancelled, it changed {CANCEL_TRIES} times meanwhile")

    def _update(self, job_id: JobId, actions: list[Action], condition: Condition, *, event: Event | None) -> bool:
        """One conditional write; False where its condition failed. The event's statuses are part of the condition."""
        if event and TRANSITIONS[event].before != frozenset(Status):
            condition = condition & self._rows.status.is_in(*sorted(TRANSITIONS[event].before))
        try:
            self._rows(job_id).update(actions=actions, condition=condition)
        except (UpdateError, PutError) as error:
            if error.cause_response_code == "ConditionalCheckFailedException":
                return False
            raise
        except AttributeDeserializationError:
            return True  # written; it is PynamoDB that reads the new row back, and some rows cannot be read
        return True

    def _read(self, job_ids: Sequence[JobId]) -> dict[JobId, Mapping[str, Any]]:
        found: dict[JobId, Mapping[str, Any]] = {}
        for chunk in batched(dict.fromkeys(job_ids), BATCH, strict=False):
            wanted: Any = {self.table: {"Keys": [{"job_id": _s(id_)} for id_ in chunk], "ConsistentRead": True}}
            for try_ in range(TRIES):
                answer = self.client.batch_get_item(RequestItems=wanted)
                for item in answer["Responses"].get(self.table, []):
                    found[JobId(str(item["job_id"]["S"]))] = item
                wanted = answer.get("UnprocessedKeys")
                if not wanted:
                    break
                self._back_off(try_)
        return found

    def _execute(
        self, statements: Sequence[BatchStatementRequestTypeDef], *, raising: bool = False
    ) -> list[BatchStatementResponseTypeDef | None]:
        """One answer a statement, in order; None where there is none after all tries."""
        answers: list[BatchStatementResponseTypeDef | None] = [None] * len(statements)
        for chunk in batched(range(len(statements)), BATCH, strict=False):
            open_: Sequence[int] = chunk
            for try_ in range(TRIES):
                if try_:
                    self._back_off(try_)
                    self.throttled += len(open_)
                try:
                    batch = self.client.batch_execute_statement(Statements=[statements[at] for at in open_])
                except (ClientError, BotoCoreError):
                    if raising:
                        raise
                    break  # botocore has retried already; whether it was done is for the rows to tell
                for at, answer in zip(open_, batch["Responses"], strict=True):
                    answers[at] = None if _is_throttle(answer) else answer
                open_ = [at for at in open_ if answers[at] is None]
                if not open_:
                    break
        return answers

    def _back_off(self, try_: int) -> None:
        self.pause(FIRST_PAUSE_S * 2**try_ * (0.5 + 0.5 * self.dice()))


_PASSING = frozenset(
    {
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "InternalServerError",
        "TransactionConflict",
    }
)


def _put(attribute: Attribute[Any], value: object) -> Action:
    """Set an attribute, or remove it where the value is None."""
    return attribute.remove() if value is None else attribute.set(value)


def _is_throttle(answer: BatchStatementResponseTypeDef) -> bool:
    return answer.get("Error", {}).get("Code") in _PASSING


def _ended(write_id: str, answer: BatchStatementResponseTypeDef | None) -> Ended:
    if answer is None:
        return Ended.UNKNOWN
    error = answer.get("Error")
    if not error or error.get("Item", {}).get("claim_id") == _s(write_id):
        return Ended.WRITTEN
    return Ended.LEASE_LOST if error.get("Code") == "ConditionalCheckFailed" else Ended.UNKNOWN


def _cancelled(job: Job, delivery_id: DeliveryId, delivery: Delivery) -> Delivery:
    if delivery_id not in job.open_deliveries:
        return delivery
    return Delivery(status=DeliveryStatus.CANCELLED, attempts=delivery.attempts, code=delivery.code)


def _remains(item: Mapping[str, Any], job_id: JobId) -> Job:
    """A row as a job; one that cannot be read as far as its letter needs it."""
    try:
        return job_of(item)
    except Unreadable:
        return Job(
            job_id=job_id,
            app_id=_text(item, "app_id"),
            user_id="",
            notification_id=_text(item, "notification_id"),
            fingerprint="",
            status=Status.DEAD if _text(item, "status") == Status.DEAD else Status.PENDING,
            deliveries={},
            max_attempts=0,
            due_at_ms=0,
            created_at_ms=0,
            expires_at_ms=0,
            last_error=_text(item, "last_error") or "unreadable",
            redrives=_number(item, "redrives"),
            died_at_ms=_number(item, "died_at"),
            sights={
                nonce: Sight(sent_at_ms=_number(seen["M"], "sent_at"), message_id=_text(seen["M"], "message_id"))
                for nonce, seen in item.get("sights", {}).get("M", {}).items()
                if "M" in seen
            },
        )


def _text(item: Mapping[str, Any], name: str) -> str:
    return str(item.get(name, {}).get("S", ""))


def _number(item: Mapping[str, Any], name: str) -> int:
    digits = item.get(name, {}).get("N", "")
    return int(digits) if digits.isdigit() else 0


def _s(text: str) -> dict[str, str]:
    return {"S": str(text)}


def _n(number: int) -> dict[str, str]:
    return {"N": str(number)}
