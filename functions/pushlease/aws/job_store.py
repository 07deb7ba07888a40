"""The job rows in DynamoDB: every write is one named conditional statement.

The clauses, along the life of one claim (``due_at`` forward-dated means leased)::

    insert          claim                settle / release            next claim
    ──┬───────────────┬──────────────────────┬──────────────────────────┬──▶ time
      │ claim_seq 0   │ claim_seq 1          │ settled_seq 1            │ claim_seq 2
      │               │◀──── lease ─────────▶│                          │
      │               │   a crash here: nobody settles, due_at passes, the next claim sees claim_seq − settled_seq > 1

    IN_STATUS   status as ``lifecycle`` has it for the event
    UNCHANGED   due_at = :seen [claim_seq = :seen]   the lead still describes the row, so nobody claimed since
    PASSED      due_at <= :now                       the drain claims nothing before its time
    HAS_BUDGET  attempts < max_attempts              a job that kills its workers ends
    FENCE       claim_seq = :mine                    no claim since ours: the lease may have run out, nobody took it
    OPEN        settled_seq < :mine                  our claim was not ended already: by us, a cancel, or a death
    SAME_CLAIM  claim_seq, settled_seq = :seen       nothing was claimed or ended since the row was read
    SAME_DEATH  redrives = :letter                   the death that the letter speaks of
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from botocore.exceptions import ClientError

from pushlease.aws.rows import (
    JobRow,
    deliveries_map,
    history_text,
    job_of,
    lane_of,
    recipient_key,
    row_of,
    sight_text,
    sights_of,
)
from pushlease.aws.statements import (
    Answer,
    Clause,
    Failed,
    Item,
    Malformed,
    NoAnswer,
    Statements,
    Update,
    Value,
    Written,
    number,
    text,
)
from pushlease.errors import StoreUnavailable, Unreadable
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status
from pushlease.jobs.lifecycle import TRANSITIONS, Event
from pushlease.jobs.ports import (
    Accepted,
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

ERASED = "erased"  # stands for a user of whom nothing is kept
CANCEL_TRIES = 8  # a cancel reads, decides and writes; a claim or settle of its job in between costs it one try

HAS_BUDGET = Clause("HAS_BUDGET", '"attempts" < "max_attempts"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long ended rows stay for people to look at; TTL prunes them and decides nothing."""

    done: timedelta = timedelta(days=7)
    dead: timedelta = timedelta(days=30)

    def ttl_s(self, status: Status, now_ms: int) -> int | None:
        """Epoch seconds for an ended job, None while it is pending."""
        if status is Status.PENDING:
            return None
        kept = self.dead if status is Status.DEAD else self.done
        return (now_ms + kept // timedelta(milliseconds=1)) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoJobStore:
    """``JobStore`` on the table of its statements.

    ``lanes``: over how many lanes pending jobs are spread. ``by_recipient``: whether jobs can be found by recipient,
    for one write unit more at each insert.
    """

    statements: Statements
    lanes: int
    retention: Retention = field(default_factory=Retention)
    by_recipient: bool = False

    def insert(self, jobs: Sequence[Job]) -> Sequence[Job | Unavailable | None]:
        """See ``JobStore``."""
        stored = self.statements.insert([self._row(job) for job in jobs])
        # An insert fails on a row that exists, but never shows it; it is read where that happened.
        existing = self.get([job.job_id for job, fresh in zip(jobs, stored, strict=True) if fresh is False])
        return [
            Unavailable(job_id=job.job_id) if fresh is None else existing.get(job.job_id)
            for job, fresh in zip(jobs, stored, strict=True)
        ]

    def _row(self, job: Job) -> Item:
        ttl_s = self.retention.ttl_s(job.status, job.created_at_ms)
        return row_of(job, lanes=self.lanes, ttl_s=ttl_s, by_recipient=self.by_recipient)

    def get(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        """See ``JobStore``."""
        found: dict[JobId, Job] = {}
        for item in self.statements.read(job_ids).values():
            try:
                job = job_of(item)
            except Unreadable:
                continue
            found[job.job_id] = job
        return found

    def remains(self, job_id: JobId) -> Job | None:
        """See ``JobStore``."""
        item = self.statements.read([job_id]).get(job_id)
        return _remains(item, job_id) if item else None

    def claim(self, leads: Sequence[Lead], *, now_ms: int, lease: timedelta) -> Sequence[ClaimAnswer]:
        """See ``JobStore``. Invariants: one live claim; claim_seq never falls; attempts are counted at claim."""
        until_ms = now_ms + lease // timedelta(milliseconds=1)
        updates = [
            Update(
                key=lead.job_id,
                raised=("attempts", "claim_seq"),
                values={"due_at": number(max(lead.due_at_ms, until_ms))},
                clauses=[_in_status(Event.CLAIM), *_as_led(lead, now_ms), HAS_BUDGET],
            )
            for lead in leads
        ]
        answers = self.statements.update(updates)
        return [_claim_answer(lead, answer, now_ms) for lead, answer in zip(leads, answers, strict=True)]

    def settle(self, settlements: Sequence[Settlement], *, deadline_ms: int = 0) -> Sequence[Ended]:
        """See ``JobStore``. Invariants: stale writer refused; a recorded ``sent`` is never overwritten."""
        updates = [
            Update(
                key=end.job_id,
                values=self._ending(end),
                clauses=[
                    Clause("FENCE", '"claim_seq" = ?', (number(end.claim_seq),)),
                    Clause("OPEN", '"settled_seq" < ?', (number(end.claim_seq),)),
                ],
            )
            for end in settlements
        ]
        return [_ended(answer) for answer in self.statements.update(updates, until_ms=deadline_ms)]

    def record_late(self, job_id: JobId, delivery_ids: Sequence[DeliveryId]) -> None:
        """See ``JobStore``. Invariant: a recorded ``sent`` is never sent again. Repeating it changes nothing."""
        self._add(
            job_id,
            "ADD #late :sent",
            "attribute_exists(job_id) AND deliveries <> :scrubbed",  # of whom nothing is kept, no device is either
            {":sent": {"SS": sorted(delivery_ids)}, ":scrubbed": {"M": {}}},
            names={"#late": "sent_late"},
        )

    def exhaust(self, job: Job, death: Settlement) -> bool:
        """See ``JobStore``. Invariants: attempts bounded; dead has no work."""
        return self._write(
            Update(
                key=job.job_id,
                values=self._ending(death),
                clauses=[
                    _in_status(Event.EXHAUST),
                    Clause("UNCHANGED", '"due_at" = ?', (number(job.due_at_ms),)),
                    *_same_claim(job),
                ],
            )
        )

    def condemn(self, job_id: JobId, *, due_at_ms: int, now_ms: int, why: str) -> Job | None:
        """See ``JobStore``. What stands in a due lane counts as pending: the status itself may be unreadable.

        What its burial will need is made whole: ``redrives`` a number, and no sights. A row that reads well by now was
        mended since it was judged, by a person or by the settle of a claim then in hand.
        """
        row = self.statements.read([job_id]).get(job_id, {})
        if _reads_well(row):
            return None
        seen = row.get("claim_id")
        died = self._add(
            job_id,
            "SET #status = :dead, lane = :lane, settled_seq = if_not_exists(claim_seq, :zero), due_at = :check, "
            "died_at = :now, last_error = :why, #ttl = :ttl, redrives = :redrives REMOVE sights",
            f"begins_with(lane, :due) AND {'claim_id = :seen' if seen else 'attribute_not_exists(claim_id)'}",
            {
                ":dead": text(Status.DEAD),
                ":lane": text(lane_of(job_id, Status.DEAD, lanes=self.lanes) or ""),
                ":zero": number(0),
                ":check": number(due_at_ms),
                ":now": number(now_ms),
                ":why": text(f"unreadable: {why}"[:200]),
                ":ttl": number(self.retention.ttl_s(Status.DEAD, now_ms) or 0),
                ":redrives": number(_number(row, "redrives")),
                ":due": text("due#"),
                **({":seen": seen} if seen else {}),
            },
            names={"#status": "status", "#ttl": "ttl"},
        )
        return self.remains(job_id) if died else None

    def cancel(self, job_ids: Sequence[JobId], *, now_ms: int) -> Sequence[bool]:
        """See ``JobStore``. Invariant: cancel wins; what was sent stays recorded."""
        done: dict[JobId, bool] = {}
        left = list(dict.fromkeys(job_ids))
        for _ in range(CANCEL_TRIES):
            found = self.get(left)
            jobs = [job for job in found.values() if job.status in TRANSITIONS[Event.CANCEL].before]
            answers = self.statements.update([self._cancellation(job, now_ms) for job in jobs])
            over = set(left) - {job.job_id for job in jobs}
            done |= dict.fromkeys(over, False)
            done |= {job.job_id: True for job, answer in zip(jobs, answers, strict=True) if isinstance(answer, Written)}
            left = [job_id for job_id in left if job_id not in done]
            if not left:
                return [done[job_id] for job_id in job_ids]
        raise StoreUnavailable(f"{len(left)} jobs could not be cancelled: they changed, or nobody answered")

    def due(self, lane: str, *, now_ms: int, limit: int, after: Lead | None = None) -> Sequence[Lead]:
        """See ``JobStore``."""
        start: Any = (
            {"ExclusiveStartKey": {"job_id": text(after.job_id), "lane": text(lane), "due_at": number(after.due_at_ms)}}
            if after
            else {}
        )
        page = self.statements.client.query(
            TableName=self.statements.table,
            IndexName="due",
            KeyConditionExpression="lane = :lane AND due_at <= :now",
            ExpressionAttributeValues={":lane": text(lane), ":now": number(now_ms)},
            Limit=limit,
            **start,
        )
        return [
            Lead(job_id=JobId(str(item["job_id"]["S"])), due_at_ms=_floored(item["due_at"]["N"]))
            for item in page["Items"]
        ]

    def of_recipient(
        self,
        app_id: str,
        user_id: str,
        *,
        limit: int,
        before_ms: int | None = None,
        after: Accepted | None = None,
    ) -> Sequence[Accepted]:
        """See ``JobStore``."""
        who = text(recipient_key(app_id, user_id))
        before = before_ms if before_ms is not None else 2**52
        start: Any = (
            {
                "ExclusiveStartKey": {
                    "recipient": who,
                    "created_at": number(after.created_at_ms),
                    "job_id": text(after.job_id),
                }
            }
            if after
            else {}
        )
        page = self.statements.client.query(
            TableName=self.statements.table,
            IndexName="recipient",
            KeyConditionExpression="recipient = :who AND created_at < :before",
            ExpressionAttributeValues={":who": who, ":before": number(before)},
            ScanIndexForward=False,
            Limit=limit,
            **start,
        )
        return [
            Accepted(job_id=JobId(str(item["job_id"]["S"])), created_at_ms=_floored(item["created_at"]["N"]))
            for item in page["Items"]
        ]

    def scrub(self, job_id: JobId, *, now_ms: int) -> bool:
        """See ``JobStore``. The row stays until its TTL, so that nobody's old claim finds a new one in its place."""
        self.cancel([job_id], now_ms=now_ms)
        item = self.statements.read([job_id]).get(job_id)
        if item is None:
            return True
        job = _remains(item, job_id)
        gone = ("content_ref", "variables", "history", "last_error", "recipient", "sent_late", "sights")
        values: dict[str, Value | None] = {
            "user_id": text(ERASED),
            "deliveries": {"M": {}},
            "content": text("{}"),
            **{name: None for name in gone if name in item},
        }
        return self._write(Update(key=job_id, values=values, clauses=_same_claim(job)))

    def everywhere(self, app_id: str, user_id: str) -> Iterator[JobId]:
        """A recipient's jobs without an index: by reading the whole table."""
        pages = self.statements.client.get_paginator("scan").paginate(
            TableName=self.statements.table,
            FilterExpression="app_id = :app AND user_id = :user",
            ExpressionAttributeValues={":app": text(app_id), ":user": text(user_id)},
            ProjectionExpression="job_id",
        )
        for page in pages:
            yield from (JobId(str(item["job_id"]["S"])) for item in page["Items"])

    def sight(self, job_id: JobId, *, redrives: int, nonce: str, sight: Sight, due_at_ms: int) -> bool:
        """See ``JobStore``. Invariant: dead is redrivable and has a letter. Repeating it changes nothing."""
        return self._add(
            job_id,
            "ADD sights :sight SET due_at = :check",
            "#status = :dead AND redrives = :letter",
            {
                ":sight": {"SS": [sight_text(nonce, sight)]},
                ":check": number(due_at_ms),
                ":dead": text(Status.DEAD),
                ":letter": number(redrives),
            },
            names={"#status": "status"},
        )

    def rebury(self, lead: Lead, *, due_at_ms: int) -> Job | None:
        """See ``JobStore``. Invariant: overlapping ticks change nothing but timing."""
        row = self._written(
            Update(
                key=lead.job_id,
                values={"due_at": number(due_at_ms)},
                clauses=[_in_status(Event.REBURY), Clause("UNCHANGED", '"due_at" = ?', (number(lead.due_at_ms),))],
            )
        )
        # The row as it was moved: read again, it might be alive, or in a death that has a letter of its own.
        job = _remains(row, lead.job_id) if row else None
        return job if job and job.status is Status.DEAD else None

    def revive(self, revival: Revival) -> bool:
        """See ``JobStore``. Invariants: one death revives once; a fresh budget; claim_seq untouched."""
        lane = lane_of(revival.job_id, Status.PENDING, lanes=self.lanes)
        return self._write(
            Update(
                key=revival.job_id,
                values={
                    "status": text(Status.PENDING),
                    "lane": _optional_text(lane),
                    "due_at": number(revival.due_at_ms),
                    "attempts": number(0),
                    "deliveries": _map(revival.deliveries),
                    "redrives": number(revival.redrives + 1),
                    "expires_at": number(revival.expires_at_ms),
                    "lifetime": number(revival.lifetime_ms),
                    "history": _optional_text(history_text(revival.history)),
                    "sights": None,
                    "alone": None,
                    "died_at": None,
                    "ttl": None,
                },
                clauses=[
                    _in_status(Event.REVIVE),
                    Clause("SAME_DEATH", '"redrives" = ?', (number(revival.redrives),)),
                ],
            )
        )

    def _ending(self, end: Settlement) -> dict[str, Value | None]:
        """What a settle and a death write alike."""
        ttl_s = self.retention.ttl_s(end.status, end.died_at_ms or end.due_at_ms)
        return {
            "status": text(end.status),
            "settled_seq": number(end.claim_seq),
            "attempts": number(end.attempts),
            "alone": _flag(end.alone),
            "deliveries": _map(end.deliveries),
            "due_at": number(end.due_at_ms),
            "lane": _optional_text(lane_of(end.job_id, end.status, lanes=self.lanes)),
            "last_error": _optional_text(end.last_error),
            "died_at": _optional_number(end.died_at_ms),
            "history": _optional_text(history_text(end.history)),
            "ttl": _optional_number(ttl_s),
        }

    def _cancellation(self, job: Job, now_ms: int) -> Update:
        deliveries = {id_: _cancelled(job, id_, delivery) for id_, delivery in job.deliveries.items()}
        return Update(
            key=job.job_id,
            values={
                "status": text(Status.CANCELLED),
                "settled_seq": number(job.claim_seq),
                "deliveries": _map(deliveries),
                "ttl": _optional_number(self.retention.ttl_s(Status.CANCELLED, now_ms)),
                "lane": None,
                "alone": None,
            },
            clauses=[Clause("IN_STATUS", '"status" = ?', (text(job.status),)), *_same_claim(job)],
        )

    def _write(self, update: Update) -> bool:
        """One update alone; False where a clause did not hold. Raises ``StoreUnavailable`` if nobody answers."""
        return self._written(update) is not None

    def _written(self, update: Update) -> Item | None:
        """The row as one update alone left it; None where a clause did not hold. Raises like ``_write``."""
        (answer,) = self.statements.update([update])
        if isinstance(answer, NoAnswer | Malformed):
            raise StoreUnavailable(f"job {update.key}: no answer whether it is written")
        return answer.item if isinstance(answer, Written) else None

    def _add(
        self, job_id: JobId, change: str, condition: str, values: Mapping[str, Any], *, names: Mapping[str, str]
    ) -> bool:
        """One write that may be repeated without harm, and that PartiQL cannot say; False where its condition fails."""
        try:
            self.statements.client.update_item(
                TableName=self.statements.table,
                Key={"job_id": text(job_id)},
                UpdateExpression=change,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
                return False
            raise
        return True


def _in_status(event: Event) -> Clause:
    statuses = sorted(TRANSITIONS[event].before)
    marks = ", ".join("?" * len(statuses))
    return Clause("IN_STATUS", f'"status" IN [{marks}]', tuple(text(status) for status in statuses))


def _as_led(lead: Lead, now_ms: int) -> list[Clause]:
    unchanged = Clause("UNCHANGED", '"due_at" = ?', (number(lead.due_at_ms),))
    if lead.claim_seq is None:
        return [unchanged, Clause("PASSED", '"due_at" <= ?', (number(now_ms),))]
    return [unchanged, Clause("UNCHANGED_SEQ", '"claim_seq" = ?', (number(lead.claim_seq),))]


def _same_claim(job: Job) -> list[Clause]:
    return [
        Clause("SAME_CLAIM_SEQ", '"claim_seq" = ?', (number(job.claim_seq),)),
        Clause("SAME_SETTLED_SEQ", '"settled_seq" = ?', (number(job.settled_seq),)),
    ]


def _claim_answer(lead: Lead, answer: Answer, now_ms: int) -> ClaimAnswer:
    match answer:
        case NoAnswer():
            return Unavailable(job_id=lead.job_id)
        case Malformed():
            return Broken(job_id=lead.job_id, why="attempts or claim_seq: not a number")
        case Written(item=found) | Failed(item=found):
            item, mine = found or {}, isinstance(answer, Written)
    if not item:
        return LostRace(job_id=lead.job_id)
    passed = lead.claim_seq is not None or lead.due_at_ms <= now_ms
    due_at = item.get("due_at", {}).get("N", "")
    # An index row may carry what is no instant of ours; the row is then due, and cannot be read.
    unchanged = passed and (due_at == str(lead.due_at_ms) or not due_at.isdecimal())
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


def _ended(answer: Answer) -> Ended:
    match answer:
        case Written():
            return Ended.WRITTEN
        case Failed():
            return Ended.LEASE_LOST
        case NoAnswer() | Malformed():
            return Ended.UNKNOWN


def _cancelled(job: Job, delivery_id: DeliveryId, delivery: Delivery) -> Delivery:
    if delivery_id not in job.open_deliveries:
        return delivery
    return Delivery(status=DeliveryStatus.CANCELLED, attempts=delivery.attempts, code=delivery.code)


def _reads_well(item: Mapping[str, Any]) -> bool:
    try:
        job_of(item)
    except Unreadable:
        return False
    return True


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
            sights=sights_of(item.get("sights", {}).get("SS", ())),
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


def _floored(number_text: str) -> int:
    """Whole milliseconds, also of what somebody else has written as a fraction."""
    return int(Decimal(number_text))


def _map(deliveries: Mapping[DeliveryId, Delivery]) -> Value:
    return {"M": JobRow.deliveries.serialize(deliveries_map(deliveries))}


def _flag(value: bool) -> Value | None:
    return {"BOOL": True} if value else None


def _optional_text(value: str | None) -> Value | None:
    return text(value) if value else None


def _optional_number(value: int | None) -> Value | None:
    return number(value) if value is not None else None
