"""Bury dead jobs' letters, and revive the jobs whose letters come back or whom a person names."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

from pushlease.errors import Unreadable
from pushlease.jobs import burial
from pushlease.jobs.burial import Burial
from pushlease.jobs.job import DeliveryStatus, Job, JobId, Sight, Status
from pushlease.jobs.message import parse
from pushlease.jobs.ports import JobStore, Lead, Letter
from pushlease.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead jobs: all conditions that are given hold. ``limit``: at most so many."""

    job_ids: Sequence[JobId] = ()
    app_id: str | None = None
    notification_id: str | None = None
    code: str | None = None
    limit: int
    dry_run: bool = False


@dataclass(slots=True, kw_only=True)
class Buried:
    """What became of a batch of the burial queue.

    ``refused`` go back at once, until SQS moves them; ``kept`` for the visibility timeout: something failed.
    """

    refused: list[Record] = field(default_factory=list)
    kept: list[Record] = field(default_factory=list)
    unreadable: list[tuple[Record, str]] = field(default_factory=list)
    revived: list[Letter] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """The dead jobs that the filter met, and which of them run again."""

    matched: Sequence[Job]
    revived: Sequence[JobId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The use case. ``max_receive_count``: the burial queue's, as of now. ``on_fault`` is told of exceptions."""

    jobs: JobStore
    clock: Callable[[], int]
    dice: Callable[[], float]
    dead_lanes: Sequence[str]
    max_receive_count: Callable[[], int]
    spread: timedelta
    on_fault: Callable[[JobId, Exception], None]

    def bury(self, records: Sequence[Record]) -> Buried:
        """See each letter of a batch on its way: into the dead-letter queue, or back to life."""
        outcome = Buried()
        for record in records:
            try:
                message = parse(record.body)
            except Unreadable as fault:
                outcome.unreadable.append((record, str(fault)))
                continue
            if not isinstance(message, Letter):
                continue  # a hint met here says what its row says too: it is deleted
            try:
                self._bury(message, record, outcome)
            except Exception as error:  # one row's fault must not send its neighbours' letters round again
                self.on_fault(message.job_id, error)
                outcome.kept.append(record)
        return outcome

    def redrive(self, wanted: Filter) -> Redriven:
        """Revive the dead jobs that the filter meets; their letters become stale, and harmless."""
        matched = list(islice(self._dead(wanted), wanted.limit))
        if wanted.dry_run:
            return Redriven(matched=matched, revived=[])
        return Redriven(matched=matched, revived=[job.job_id for job in matched if self._revive(job)])

    def _bury(self, letter: Letter, record: Record, outcome: Buried) -> None:
        job = self.jobs.remains(letter.job_id)
        match burial.judge(letter, record.receipt, job, max_receive_count=self.max_receive_count):
            case Burial.DISCARD:
                return
            case Burial.REFUSE:
                outcome.refused.append(record)
            case Burial.SIGHT:
                due_at_ms = self.clock() + burial.SEEN_LETTER_CHECK // timedelta(milliseconds=1)
                sight = Sight(sent_at_ms=record.receipt.sent_at_ms, message_id=record.receipt.message_id)
                if self.jobs.sight(
                    letter.job_id, redrives=letter.redrives, nonce=letter.nonce, sight=sight, due_at_ms=due_at_ms
                ):
                    outcome.refused.append(record)
            case Burial.REVIVE:
                readable = self.jobs.get([letter.job_id]).get(letter.job_id)
                if readable is None:
                    outcome.refused.append(record)  # moving its letter mends no row: back to the person
                # Read again, it may have been revived and died again, which nobody has asked to revive.
                elif burial.same_death(letter, readable) and self._revive(readable):
                    outcome.revived.append(letter)

    def _revive(self, job: Job) -> bool:
        return self.jobs.revive(burial.revival_of(job, now_ms=self.clock(), dice=self.dice, spread=self.spread))

    def _dead(self, wanted: Filter) -> Iterator[Job]:
        for page in self._pages(wanted):
            for job in self.jobs.get(page).values():
                if job.status is Status.DEAD and _meets(job, wanted):
                    yield job

    def _pages(self, wanted: Filter) -> Iterator[Sequence[JobId]]:
        if wanted.job_ids:
            yield wanted.job_ids
            return
        for lane in self.dead_lanes:
            after: Lead | None = None
            while page := self.jobs.due(lane, now_ms=_FOREVER_MS, limit=100, after=after):
                yield [lead.job_id for lead in page]
                after = page[-1]


# Dead rows wait for their next burial check, which lies in the future: all of them are wanted.
_FOREVER_MS = 2**52


def _meets(job: Job, wanted: Filter) -> bool:
    return (
        wanted.app_id in (None, job.app_id)
        and wanted.notification_id in (None, job.notification_id)
        and (wanted.code is None or wanted.code in _codes(job))
    )


def _codes(job: Job) -> set[str]:
    """Every reason for which one of the job's deliveries failed, and the one that its letter names."""
    failed = {str(part.code) for part in job.deliveries.values() if part.status is DeliveryStatus.FAILED}
    return failed | {burial.code_of(job)}
