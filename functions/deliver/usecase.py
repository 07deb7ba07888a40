"""Sort a batch of messages: hints and lanes are worked, letters that a person moved here revive, the rest is refused.

Before a claim a fault returns the hint to its queue; after it the row alone decides and the hint is deleted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from deliver.pages import Pages
from pushlease.errors import Unreadable
from pushlease.jobs import burial
from pushlease.jobs.engine import Engine, Report
from pushlease.jobs.job import JobId
from pushlease.jobs.lanes import Lanes
from pushlease.jobs.message import LaneHandOver, Page, Tick, parse
from pushlease.jobs.ports import JobStore, Lead, Letter
from pushlease.records import Record

# A lane that was handed over longer ago has been handed over again since, or has nothing left.
_HAND_OVER_MS = 60_000


@dataclass(slots=True, kw_only=True)
class Delivered:
    """What became of a batch. ``kept``: messages that stay in their queue; ``unreadable``: refused at once, and why."""

    report: Report = field(default_factory=Report)
    kept: list[Record] = field(default_factory=list)
    unreadable: list[tuple[Record, str]] = field(default_factory=list)
    revived: list[Letter] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """The use case. ``on_fault`` is told of exceptions, for the log."""

    engine: Engine
    jobs: JobStore
    clock: Callable[[], int]
    dice: Callable[[], float]
    lanes: Lanes
    pages: Pages
    redrive_spread: timedelta
    on_fault: Callable[[JobId, Exception], None]

    def deliver(self, records: Sequence[Record], *, deadline_ms: int) -> Delivered:
        """Work a batch of one queue's messages."""
        outcome = Delivered()
        hints: list[tuple[Record, Lead]] = []
        lanes: list[str] = []
        for record in records:
            try:
                message = parse(record.body)
            except Unreadable as fault:
                outcome.unreadable.append((record, str(fault)))
                continue
            match message:
                case Lead():
                    hints.append((record, message))
                case Letter():
                    try:
                        if self._revive(message):
                            outcome.revived.append(message)
                    except Unreadable as fault:
                        outcome.unreadable.append((record, str(fault)))
                    except Exception as error:  # one row's fault must not cost its neighbours this batch
                        self.on_fault(message.job_id, error)
                        outcome.kept.append(record)
                case LaneHandOver(lane=lane, at_ms=at_ms):
                    if self.clock() - at_ms <= _HAND_OVER_MS:
                        lanes.append(lane)
                case Page():
                    try:
                        self.pages.work(message, outcome.report, deadline_ms=deadline_ms)
                    except Exception as error:  # the page is met again; what it stored is there by then
                        self.on_fault(JobId(f"page {message.page}"), error)
                        outcome.kept.append(record)
                case Tick():
                    outcome.unreadable.append((record, "message.kind: a tick has no business here"))
        if not self.engine.has_time(deadline_ms):
            outcome.kept += [record for record, _ in hints]
        elif hints:
            report = self.engine.work([lead for _, lead in hints], deadline_ms=deadline_ms)
            outcome.kept += [record for record, lead in hints if lead.job_id in report.unclaimed]
            outcome.report.add(report)
        self.lanes.work(lanes, outcome.report, deadline_ms=deadline_ms)
        return outcome

    def _revive(self, letter: Letter) -> bool:
        """A letter met here was moved by a person: its job runs again, unless it speaks of an old death."""
        job = self.jobs.get([letter.job_id]).get(letter.job_id)
        if job is None:
            if burial.same_death(letter, self.jobs.remains(letter.job_id)):
                raise Unreadable("job row: cannot be read, and moving its letter mends no row")
            return False
        # What is judged is what is revived: a row read again may be in its next death, which nobody asked to revive.
        revival = burial.revival_of(job, now_ms=self.clock(), dice=self.dice, spread=self.redrive_spread)
        return burial.same_death(letter, job) and self.jobs.revive(revival)
