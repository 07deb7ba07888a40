"""The ports in memory, as strict as the real ones: what DynamoDB or SQS would refuse, these refuse.

``tests/contract`` holds the stores here and in ``pushlease.aws`` to the same behaviour, so that what a test shows on a
fake holds for the deployed system.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from itertools import count
from urllib.parse import urlsplit

from builders import NOW_MS
from pushlease.aws.job_store import Retention
from pushlease.aws.rows import inbox_entry, lane_of
from pushlease.errors import BadRequest, StoreUnavailable, Unreadable
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Sight, Status, with_late
from pushlease.jobs.lifecycle import TRANSITIONS, Event
from pushlease.jobs.message import LaneHandOver, Page
from pushlease.jobs.ports import (
    Accepted,
    Broken,
    ClaimAnswer,
    Claimed,
    Ended,
    Exhausted,
    Hint,
    Lead,
    Letter,
    LostRace,
    Revival,
    Unavailable,
)
from pushlease.jobs.settle import Attempted, Settlement
from pushlease.push import outcome
from pushlease.push.audience import Audience, Listed, State, Tally, span_of
from pushlease.push.device import App, AppId, Device, DeviceId, Environment, Recipient
from pushlease.push.flow import PROBE_MS, Breaker, Way
from pushlease.push.outcome import Verdict
from pushlease.push.ports import InboxEntry, InboxPage, Push, Shared
from pushlease.push.preference import Preferences

MAX_GROUP_ID = 128  # characters of an SQS MessageGroupId


class FakeClock:
    """A clock that stands until it is moved."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, **span: float) -> int:
        """Move by a ``timedelta``'s arguments; the new instant."""
        self.now_ms += timedelta(**span) // timedelta(milliseconds=1)
        return self.now_ms


def fixed_dice(value: float = 0.5) -> Callable[[], float]:
    """Dice that always fall the same."""
    return lambda: value


def counting_ids(prefix: str = "id") -> Callable[[], str]:
    """Ids in order, none twice."""
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers)}"


class FakeJobStore:
    """``JobStore`` in memory.

    ``broken``: rows that cannot be read, and why. ``unavailable``: jobs for which the store gives no answer.
    ``written``: every write that succeeded, in order. ``before_write`` is called ahead of each write, so that a test
    can let somebody else be faster.
    """

    def __init__(self, *jobs: Job, lanes: int = 16) -> None:
        self.rows: dict[JobId, Job] = {job.job_id: job for job in jobs}
        self.ttl_s: dict[JobId, int] = {}
        self.broken: dict[JobId, str] = {}
        self.unavailable: set[JobId] = set()
        self.written: list[tuple[Event, JobId]] = []
        self.before_write: Callable[[Event, JobId], None] = lambda _event, _job_id: None
        self.lanes = lanes
        self._retention = Retention()
        self._claim_ids = counting_ids("claim")

    def insert(self, jobs: Sequence[Job]) -> Sequence[Job | Unavailable | None]:
        _once([job.job_id for job in jobs])
        existing: list[Job | Unavailable | None] = []
        for job in jobs:
            if job.job_id in self.unavailable:
                existing.append(Unavailable(job_id=job.job_id))
                continue
            self.before_write(Event.INSERT, job.job_id)
            existing.append(self.rows.get(job.job_id))
            if job.job_id not in self.rows:
                self._put(Event.INSERT, job, job.created_at_ms)
        return existing

    def get(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        return {id_: self.rows[id_] for id_ in job_ids if id_ in self.rows and id_ not in self.broken}

    def remains(self, job_id: JobId) -> Job | None:
        job = self.rows.get(job_id)
        return replace(job, deliveries={}) if job and job_id in self.broken else job

    def claim(self, leads: Sequence[Lead], *, now_ms: int, lease: timedelta) -> Sequence[ClaimAnswer]:
        _once([lead.job_id for lead in leads])
        return [self._claim(lead, now_ms, now_ms + lease // timedelta(milliseconds=1)) for lead in leads]

    def settle(self, settlements: Sequence[Settlement], *, deadline_ms: int = 0) -> Sequence[Ended]:
        _once([settlement.job_id for settlement in settlements])
        return [self._settle(settlement) for settlement in settlements]

    def record_late(self, job_id: JobId, delivery_ids: Sequence[DeliveryId]) -> None:
        if (job := self._to_write(Event.RECORD_LATE, job_id)) and job.deliveries:
            self._put(Event.RECORD_LATE, replace(job, sent_late=job.sent_late | set(delivery_ids)))

    def exhaust(self, job: Job, death: Settlement) -> bool:
        row = self._to_write(Event.EXHAUST, job.job_id)
        if row is None or _version(row) != _version(job):
            return False
        ended = replace(
            row,
            status=death.status,
            settled_seq=job.claim_seq,
            attempts=death.attempts,
            deliveries=death.deliveries,
            due_at_ms=death.due_at_ms,
            died_at_ms=death.died_at_ms,
            last_error=death.last_error,
            history=death.history,
            alone=death.alone,
        )
        return self._put(Event.EXHAUST, ended, death.died_at_ms or death.due_at_ms)

    def condemn(self, job_id: JobId, *, due_at_ms: int, now_ms: int, why: str) -> Job | None:
        row = self._to_write(Event.CONDEMN, job_id)
        if row is None or job_id not in self.broken:
            return None
        dead = replace(
            row,
            status=Status.DEAD,
            settled_seq=row.claim_seq,
            due_at_ms=due_at_ms,
            died_at_ms=now_ms,
            last_error=f"unreadable: {why}",
        )
        self._put(Event.CONDEMN, dead, now_ms)
        return dead

    def cancel(self, job_ids: Sequence[JobId], *, now_ms: int) -> Sequence[bool]:
        return [self._cancel(job_id, now_ms) for job_id in job_ids]

    def due(self, lane: str, *, now_ms: int, limit: int, after: Lead | None = None) -> Sequence[Lead]:
        start = (after.due_at_ms, after.job_id) if after else (-1, "")
        found = sorted(
            (job.due_at_ms, job.job_id)
            for job in self.rows.values()
            if self.lane(job.job_id) == lane and job.due_at_ms <= now_ms and (job.due_at_ms, job.job_id) > start
        )
        return [Lead(job_id=job_id, due_at_ms=due_at_ms) for due_at_ms, job_id in found[:limit]]

    def of_recipient(
        self,
        app_id: str,
        user_id: str,
        *,
        limit: int,
        before_ms: int | None = None,
        after: Accepted | None = None,
    ) -> Sequence[Accepted]:
        found = [
            Accepted(job_id=job.job_id, created_at_ms=job.created_at_ms)
            for job in self.rows.values()
            if (job.app_id, job.user_id) == (app_id, user_id) and job.created_at_ms < (before_ms or 2**52)
        ]
        found.sort(key=_newest_first)
        return [accepted for accepted in found if after is None or _newest_first(accepted) > _newest_first(after)][
            :limit
        ]

    def everywhere(self, app_id: str, user_id: str) -> Iterator[JobId]:
        yield from [job.job_id for job in self.rows.values() if (job.app_id, job.user_id) == (app_id, user_id)]

    def scrub(self, job_id: JobId, *, now_ms: int) -> bool:
        self.cancel([job_id], now_ms=now_ms)
        if row := self.rows.get(job_id):
            self.rows[job_id] = replace(
                row,
                user_id="erased",
                deliveries={},
                content="{}",
                content_ref=None,
                variables=None,
                history=(),
                last_error=None,
                sent_late=frozenset(),
                sights={},
            )
        return True

    def sight(self, job_id: JobId, *, redrives: int, nonce: str, sight: Sight, due_at_ms: int) -> bool:
        row = self._to_write(Event.SIGHT, job_id)
        if row is None or row.redrives != redrives:
            return False
        return self._put(Event.SIGHT, replace(row, sights={**row.sights, nonce: sight}, due_at_ms=due_at_ms))

    def rebury(self, lead: Lead, *, due_at_ms: int) -> Job | None:
        row = self._to_write(Event.REBURY, lead.job_id)
        if row is None or row.due_at_ms != lead.due_at_ms:
            return None
        self._put(Event.REBURY, replace(row, due_at_ms=due_at_ms))
        return self.rows[lead.job_id]

    def revive(self, revival: Revival) -> bool:
        row = self._to_write(Event.REVIVE, revival.job_id)
        if row is None or row.redrives != revival.redrives:
            return False
        alive = replace(
            row,
            status=Status.PENDING,
            due_at_ms=revival.due_at_ms,
            attempts=0,
            deliveries=revival.deliveries,
            redrives=revival.redrives + 1,
            expires_at_ms=revival.expires_at_ms,
            lifetime_ms=revival.lifetime_ms,
            history=revival.history,
            sights={},
            alone=False,
            died_at_ms=None,
        )
        return self._put(Event.REVIVE, alive)

    def lane(self, job_id: JobId) -> str | None:
        """Where the index has this row."""
        job = self.rows[job_id]
        return lane_of(job_id, job.status, lanes=self.lanes)

    def _claim(self, lead: Lead, now_ms: int, leased_until_ms: int) -> ClaimAnswer:
        if lead.job_id in self.unavailable:
            return Unavailable(job_id=lead.job_id)
        row = self._to_write(Event.CLAIM, lead.job_id)
        seen_seq = (lead.claim_seq,) if lead.claim_seq is not None else (row.claim_seq if row else 0,)
        if row is None or row.due_at_ms != lead.due_at_ms or row.claim_seq not in seen_seq:
            return LostRace(job_id=lead.job_id)
        if lead.claim_seq is None and lead.due_at_ms > now_ms:
            return LostRace(job_id=lead.job_id)
        if lead.job_id in self.broken:
            return Broken(job_id=lead.job_id, why=self.broken[lead.job_id])
        if row.attempts >= row.max_attempts:
            return Exhausted(job=row)
        mine = replace(
            row,
            attempts=row.attempts + 1,
            claim_seq=row.claim_seq + 1,
            claim_id=self._claim_ids(),
            due_at_ms=max(row.due_at_ms, leased_until_ms),
        )
        self._put(Event.CLAIM, mine)
        return Claimed(job=mine)

    def _settle(self, end: Settlement) -> Ended:
        if end.job_id in self.unavailable:
            return Ended.UNKNOWN
        event = Event.RELEASE if end.released and end.status is Status.PENDING else Event.SETTLE
        row = self._to_write(event, end.job_id)
        if row is None or not row.settled_seq < end.claim_seq == row.claim_seq:
            return Ended.LEASE_LOST
        settled = replace(
            row,
            status=end.status,
            settled_seq=end.claim_seq,
            claim_id=self._claim_ids(),
            deliveries=end.deliveries,
            attempts=end.attempts,
            due_at_ms=end.due_at_ms,
            alone=end.alone,
            last_error=end.last_error,
            died_at_ms=end.died_at_ms,
            history=end.history,
        )
        self._put(event, settled, end.died_at_ms or end.due_at_ms)
        return Ended.WRITTEN

    def _cancel(self, job_id: JobId, now_ms: int) -> bool:
        row = self._to_write(Event.CANCEL, job_id)
        if row is None or job_id in self.broken:
            return False
        left = {id_: _cancelled(row, id_, delivery) for id_, delivery in row.deliveries.items()}
        cancelled = replace(row, status=Status.CANCELLED, settled_seq=row.claim_seq, deliveries=left, alone=False)
        return self._put(Event.CANCEL, cancelled, now_ms)

    def _to_write(self, event: Event, job_id: JobId) -> Job | None:
        """The row, if its status lets the event happen."""
        self.before_write(event, job_id)
        row = self.rows.get(job_id)
        return row if row and row.status in TRANSITIONS[event].before else None

    def _put(self, event: Event, job: Job, ended_at_ms: int | None = None) -> bool:
        if job.status not in TRANSITIONS[event].after:
            raise AssertionError(f"{event} must not lead to {job.status}")
        self.rows[job.job_id] = replace(job, deliveries=with_late(job.deliveries, job.sent_late))
        self.written.append((event, job.job_id))
        if job.status is Status.PENDING:
            self.ttl_s.pop(job.job_id, None)
        elif ended_at_ms is not None:
            self.ttl_s[job.job_id] = self._retention.ttl_s(job.status, ended_at_ms) or 0
        return True


def _newest_first(accepted: Accepted) -> tuple[int, str]:
    return -accepted.created_at_ms, accepted.job_id


def _once(job_ids: Sequence[JobId]) -> None:
    """DynamoDB refuses a whole batch in which an item stands twice."""
    if len(set(job_ids)) != len(job_ids):
        raise ValueError("a job stands twice in one call")


def _version(job: Job) -> tuple[int, int, int]:
    return job.due_at_ms, job.claim_seq, job.settled_seq


def _cancelled(job: Job, delivery_id: DeliveryId, delivery: Delivery) -> Delivery:
    if delivery_id not in job.open_deliveries:
        return delivery
    return Delivery(status=DeliveryStatus.CANCELLED, attempts=delivery.attempts, code=delivery.code)


@dataclass(slots=True, kw_only=True)
class FakeHints:
    """``HintSender`` that keeps what it is given; ``failing``: SQS is out of reach."""

    published: list[Hint] = field(default_factory=list)
    failing: bool = False

    def publish(self, hints: Sequence[Hint]) -> int:
        for hint in hints:
            if not timedelta(0) <= hint.delay <= timedelta(seconds=900):
                raise AssertionError(f"SQS refuses a DelaySeconds of {hint.delay}")
            if not 1 <= len(hint.app_id) <= MAX_GROUP_ID:
                raise AssertionError("SQS refuses such a MessageGroupId")
        if self.failing:
            return len(hints)
        self.published += hints
        return 0


class FakeLanes:
    """``LaneSender`` that keeps what is handed over."""

    def __init__(self) -> None:
        self.handed: list[LaneHandOver] = []

    def hand_over(self, lanes: Sequence[str], *, now_ms: int) -> int:
        self.handed += [LaneHandOver(lane=lane, at_ms=now_ms) for lane in lanes]
        return 0


@dataclass(slots=True, kw_only=True)
class FakeLetters:
    """``LetterSender`` that keeps what it is given; a nonce must never come twice."""

    sent: list[Letter] = field(default_factory=list)
    failing: bool = False

    def bury(self, letters: Sequence[Letter]) -> int:
        if self.failing:
            return len(letters)
        self.sent += letters
        if len({letter.nonce for letter in self.sent}) != len(self.sent):
            raise AssertionError("two letters with one nonce")
        return 0


@dataclass(slots=True, kw_only=True)
class FakeAttempter:
    """``Attempter`` by script: what a job's deliveries get, or an exception. Without a script a job gets nothing.

    ``batches``: which jobs were in hand together, attempt by attempt. ``during`` is called while jobs are attempted.
    """

    script: dict[JobId, Attempted | Exception] = field(default_factory=dict)
    otherwise: Callable[[Job], Attempted] = lambda _: {}
    batches: list[list[JobId]] = field(default_factory=list)
    during: Callable[[], None] = lambda: None

    def attempt(self, jobs: Sequence[Job], *, now_ms: int, deadline_ms: int) -> Mapping[JobId, Attempted]:
        self.batches.append([job.job_id for job in jobs])
        self.during()
        attempted: dict[JobId, Attempted] = {}
        for job in jobs:
            answer = self.script.get(job.job_id) or self.otherwise(job)
            if isinstance(answer, Exception):
                raise answer
            attempted[job.job_id] = answer
        return attempted


@dataclass(slots=True, kw_only=True)
class FakePusher:
    """``Pusher`` by script: verdicts by push token, accepted otherwise. ``pushed``: all pushes, in order."""

    script: dict[str, Verdict] = field(default_factory=dict)
    pushed: list[Push] = field(default_factory=list)
    during: Callable[[Push], None] = lambda _: None

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        verdicts: list[Verdict] = []
        for push in pushes:
            self.pushed.append(push)
            self.during(push)
            verdicts.append(self.script.get(push.device.push_token) or outcome.Accepted(provider_id=push.push_id))
        return verdicts


class FakeFlow:
    """``FlowStore``. ``unavailable``: it answers nothing."""

    def __init__(self) -> None:
        self.breakers: dict[Way, Breaker] = {}
        self.taken: Counter[tuple[str, int]] = Counter()
        self.asked = 0
        self.unavailable = False

    def read(self, ways: Sequence[Way]) -> Mapping[Way, Breaker]:
        self._answer()
        return {way: self.breakers[way] for way in ways if way in self.breakers}

    def open(self, way: Way, *, now_ms: int) -> bool:
        self._answer()
        before = self.breakers.get(way, Breaker())
        if before.open:
            return False
        self.breakers[way] = replace(before, opened_at_ms=now_ms, probe_at_ms=now_ms + PROBE_MS, closed_at_ms=None)
        return True

    def take_probe(self, way: Way, breaker: Breaker, *, now_ms: int) -> bool:
        self._answer()
        now = self.breakers.get(way)
        if now is None or now.closed_at_ms is not None or now.probe_at_ms != breaker.probe_at_ms:
            return False
        self.breakers[way] = replace(now, probe_at_ms=now_ms + PROBE_MS)
        return True

    def close(self, way: Way, breaker: Breaker, *, now_ms: int) -> bool:
        self._answer()
        now = self.breakers.get(way)
        if now is None or not now.open or now.opened_at_ms != breaker.opened_at_ms:
            return False
        self.breakers[way] = replace(now, closed_at_ms=now_ms)
        return True

    def pause(self, way: Way, *, until_ms: int) -> None:
        self._answer()
        before = self.breakers.get(way, Breaker())
        self.breakers[way] = replace(before, paused_until_ms=max(before.paused_until_ms, until_ms))

    def reserve(self, quota: str, *, window: int, count: int) -> int:
        self._answer()
        before = self.taken[quota, window]
        self.taken[quota, window] += count
        return before

    def reserved(self, quota: str, *, window: int) -> int:
        self._answer()
        return self.taken[quota, window]

    def _answer(self) -> None:
        self.asked += 1
        if self.unavailable:
            raise StoreUnavailable("flow: no answer")


class FakeDeviceStore:
    """``DeviceStore`` in memory. ``poisoned``: recipients whose devices cannot be read."""

    def __init__(self, *devices: Device) -> None:
        self.rows = {(device.recipient, device.device_id): device for device in devices}
        self.poisoned: set[Recipient] = set()
        self.reads: list[int] = []  # how many keys each batch read asked for

    def register(self, device: Device) -> bool:
        key = (device.recipient, device.device_id)
        touched = [at for at, row in self.rows.items() if at == key or row.push_token == device.push_token]
        if any(self.rows[at].registered_at_ms > device.registered_at_ms for at in touched):
            return False
        for at in touched:
            del self.rows[at]
        self.rows[key] = replace(device, disabled_code=None)
        return True

    def remove(self, recipient: Recipient, device_id: DeviceId) -> bool:
        return self.rows.pop((recipient, device_id), None) is not None

    def retire(self, device: Device) -> bool:
        row = self.rows.get((device.recipient, device.device_id))
        if row is None or (row.push_token, row.registered_at_ms) != (device.push_token, device.registered_at_ms):
            return False
        return self.remove(device.recipient, device.device_id)

    def of(self, recipient: Recipient) -> Sequence[Device]:
        devices = [device for device in self.rows.values() if device.recipient == recipient]
        return sorted(devices, key=lambda device: (device.registered_at_ms, device.device_id))

    def get(self, keys: Sequence[tuple[Recipient, DeviceId]]) -> Mapping[tuple[Recipient, DeviceId], Device]:
        self.reads.append(len(keys))
        if any(recipient in self.poisoned for recipient, _ in keys):
            raise RuntimeError("a device's row cannot be read")
        return {key: self.rows[key] for key in keys if key in self.rows}

    def disable(self, device: Device, *, code: str, before_ms: int) -> bool:
        key = (device.recipient, device.device_id)
        row = self.rows.get(key)
        if row is None or row.push_token != device.push_token or row.registered_at_ms >= before_ms:
            return False
        self.rows[key] = row.disabled(code)
        return True

    def move(self, device: Device, *, environment: Environment) -> bool:
        key = (device.recipient, device.device_id)
        row = self.rows.get(key)
        if row is None or (row.push_token, row.registered_at_ms) != (device.push_token, device.registered_at_ms):
            return False
        self.rows[key] = row.moved(environment)
        return True


class FakeAppStore:
    """``AppStore`` in memory."""

    def __init__(self, *apps: App) -> None:
        self.rows = {app.app_id: app for app in apps}

    def put(self, app: App) -> None:
        self.rows[app.app_id] = app

    def get(self, app_id: AppId) -> App | None:
        return self.rows.get(app_id)


class FakeRecipientStore:
    """``RecipientStore`` in memory."""

    def __init__(self) -> None:
        self.rows: dict[Recipient, Preferences] = {}

    def put(self, recipient: Recipient, preferences: Preferences) -> None:
        before = self.rows.get(recipient, Preferences())
        self.rows[recipient] = replace(
            preferences, zone=preferences.zone or before.zone, locale=preferences.locale or before.locale
        )

    def locate(self, recipient: Recipient, *, zone: str | None, locale: str | None) -> None:
        before = self.rows.get(recipient, Preferences())
        if zone or locale:
            self.rows[recipient] = replace(before, zone=zone or before.zone, locale=locale or before.locale)

    def erase(self, recipient: Recipient) -> None:
        self.rows.pop(recipient, None)

    def get(self, recipients: Sequence[Recipient]) -> Mapping[Recipient, Preferences]:
        return {recipient: self.rows[recipient] for recipient in recipients if recipient in self.rows}


class FakeInbox:
    """``Inbox`` in memory: entries by recipient and key. Nothing is counted: what is there is looked at."""

    def __init__(self, kept: timedelta = timedelta(days=90)) -> None:
        self.rows: dict[Recipient, dict[str, InboxEntry]] = {}
        self._kept_ms = kept // timedelta(milliseconds=1)

    def put(self, recipient: Recipient, *, notification_id: str, content: str, created_at_ms: int, now_ms: int) -> None:
        there = self._swept(recipient, now_ms)
        key = inbox_entry(created_at_ms, notification_id)
        if created_at_ms > now_ms - self._kept_ms and key not in there:
            there[key] = InboxEntry(
                entry=key, notification_id=notification_id, content=content, created_at_ms=created_at_ms
            )

    def page(self, recipient: Recipient, *, now_ms: int, limit: int, after: str | None = None) -> InboxPage:
        there = self._swept(recipient, now_ms)
        keys = sorted((key for key in there if after is None or key < after), reverse=True)
        entries = tuple(there[key] for key in keys[:limit])
        return InboxPage(entries=entries, next=entries[-1].entry if len(keys) > limit else None)

    def unread(self, recipient: Recipient, *, now_ms: int) -> int:
        return sum(entry.read_at_ms is None for entry in self._swept(recipient, now_ms).values())

    def mark_read(self, recipient: Recipient, entries: Sequence[str], *, now_ms: int) -> int:
        there = self._swept(recipient, now_ms)
        unread = {key for key in entries if key in there and there[key].read_at_ms is None}
        there |= {key: replace(there[key], read_at_ms=now_ms) for key in unread}
        return len(unread)

    def mark_all_read(self, recipient: Recipient, *, now_ms: int) -> int:
        return self.mark_read(recipient, list(self.rows.get(recipient, ())), now_ms=now_ms)

    def erase(self, recipient: Recipient) -> None:
        self.rows.pop(recipient, None)

    def entries(self, recipient: Recipient) -> Sequence[tuple[str, str]]:
        """(notification, content) of one recipient, oldest first, whatever has expired."""
        there = self.rows.get(recipient, {})
        return [(entry.notification_id, entry.content) for _, entry in sorted(there.items())]

    def _swept(self, recipient: Recipient, now_ms: int) -> dict[str, InboxEntry]:
        """What there is once the expired is removed."""
        there = self.rows.setdefault(recipient, {})
        for key in [key for key, entry in there.items() if entry.created_at_ms <= now_ms - self._kept_ms]:
            del there[key]
        return there


class FakeAudienceStore:
    """``AudienceStore`` in memory."""

    def __init__(self) -> None:
        self.heads: dict[str, Audience] = {}
        self.texts: dict[tuple[str, int], bytes] = {}
        self.jobs: dict[tuple[str, int], Sequence[JobId]] = {}
        self.tallies: dict[tuple[str, int], Tally] = {}
        self.taken: Counter[str] = Counter()

    def create(self, audience: Audience, text: bytes | None) -> bool:
        if audience.ref in self.heads:
            return False
        for page in range(audience.listed.pages if text is not None else 0):
            start, end = span_of(page, audience.listed)
            self.texts[audience.ref, page] = (text or b"")[start:end]
        self.heads[audience.ref] = audience
        return True

    def get(self, ref: str) -> Audience | None:
        return self.heads.get(ref)

    def running(self) -> Sequence[Audience]:
        return [audience for audience in self.heads.values() if not audience.state.over]

    def move(self, ref: str, state: State, *, fault: str | None = None) -> bool:
        audience = self.heads.get(ref)
        if audience is None or audience.state.over:
            return False
        self.heads[ref] = replace(audience, state=state, fault=fault or audience.fault)
        return True

    def advance(self, audience: Audience, *, cursor: int, swept_at_ms: int) -> None:
        now = self.heads[audience.ref]
        if (now.cursor, now.swept_at_ms) == (audience.cursor, audience.swept_at_ms):
            self.heads[audience.ref] = replace(now, cursor=cursor, swept_at_ms=swept_at_ms)

    def take_numbers(self, ref: str, count: int) -> int:
        self.taken[ref] += count
        return self.taken[ref] - count

    def listed(self, ref: str, page: int) -> bytes:
        if (ref, page) not in self.texts:
            raise Unreadable(f"audience: page {page} of its list is gone")
        return self.texts[ref, page]

    def put_page(self, ref: str, page: int, tally: Tally, job_ids: Sequence[JobId] | None = None) -> None:
        self.tallies[ref, page] = tally
        if job_ids is not None:
            self.jobs[ref, page] = list(job_ids)
            self.texts.pop((ref, page), None)

    def job_ids(self, ref: str, page: int) -> Sequence[JobId] | None:
        return self.jobs.get((ref, page))

    def pages(self, ref: str) -> Mapping[int, Tally]:
        return {page: tally for (of, page), tally in self.tallies.items() if of == ref}


class FakeLists:
    """``Lists`` in memory, by key."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def describe(self, key: str) -> Listed:
        if key not in self.objects:
            raise BadRequest("audience.key", "no object of the deployment's bucket that can be read")
        return Listed(size_bytes=len(self.objects[key]), key=key, etag=self._etag(key))

    def read(self, listed: Listed, start: int, end: int) -> bytes:
        key = listed.key or ""
        if key not in self.objects or self._etag(key) != listed.etag:
            raise Unreadable("audience: its list was changed or deleted since it was accepted")
        return self.objects[key][start:end]

    def _etag(self, key: str) -> str:
        return sha256(self.objects[key]).hexdigest()


class FakePages:
    """``PageSender`` that keeps what is given out."""

    def __init__(self) -> None:
        self.given: list[Page] = []

    def hand_out(self, ref: str, pages: Sequence[int]) -> int:
        self.given += [Page(ref=ref, page=page) for page in pages]
        return 0


class FakeNotificationStore:
    """``NotificationStore`` in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Shared] = {}

    def put(self, ref: str, shared: Shared, *, now_ms: int, expires_at_ms: int) -> bool:
        there = self.rows.get(ref)
        if there and there.fingerprint != shared.fingerprint:
            return False
        known = there.job_ids if there else []
        paused = bool(there and there.paused)
        self.rows[ref] = replace(shared, job_ids=sorted({*known, *shared.job_ids}), paused=paused)
        return True

    def get(self, refs: Sequence[str]) -> Mapping[str, Shared]:
        return {ref: self.rows[ref] for ref in refs if ref in self.rows}

    def pause(self, ref: str, *, paused: bool) -> bool:
        there = self.rows.get(ref)
        if there is None or there.content is None:
            return False
        self.rows[ref] = replace(there, paused=paused)
        return True

    def withdraw(self, ref: str) -> None:
        if ref in self.rows:
            self.rows[ref] = replace(self.rows[ref], content=None)


@dataclass(frozen=True)
class FakeCallerIdentity:
    """``CallerIdentity`` whose signature is none, and says what it would cover."""

    def region(self) -> str:
        return "eu-west-1"

    def signed(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        plain = {"host": urlsplit(url).netloc, "x-amz-date": "20270115T080000Z", **headers}
        scope = f"20270115/{self.region()}/sts/aws4_request"
        covered = f"Credential=ASIAFAKE/{scope}, SignedHeaders={';'.join(sorted(plain))}, Signature={'0' * 64}"
        return {**plain, "authorization": f"AWS4-HMAC-SHA256 {covered}"}
