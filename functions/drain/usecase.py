"""Claim, attempt and settle what is due, lane by lane, until done or short of time; then see to unburied dead.

Ticks may be doubled, late or overlapping: every claim is conditional on what the index said, so that they change
nothing but timing. Lanes are taken in shuffled order and a page's claims too, so that competing drains do not fight
over the same heads; within a lane the oldest page comes first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pushlease.jobs import burial
from pushlease.jobs.engine import Engine, Report
from pushlease.jobs.ports import JobStore, Lead, LetterSender


@dataclass(slots=True, kw_only=True)
class Drained:
    """What a drain did. ``reports``: one a page; ``reburied``: letters sent again; ``finished``: no lane was left."""

    reports: list[Report] = field(default_factory=list)
    reburied: int = 0
    finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The use case. ``shuffle``: the items in random order. ``page``: the most jobs in flight at once."""

    engine: Engine
    jobs: JobStore
    letters: LetterSender
    clock: Callable[[], int]
    new_id: Callable[[], str]
    shuffle: Callable[[Sequence[str | Lead]], Sequence[str | Lead]]
    due_lanes: Sequence[str]
    dead_lanes: Sequence[str]
    page: int
    burial_check: timedelta

    def drain(self, *, deadline_ms: int) -> Drained:
        """Work every lane."""
        drained = Drained()
        for lane in self.shuffle(self.due_lanes):
            self._work(str(lane), drained, deadline_ms=deadline_ms)
        for lane in self.shuffle(self.dead_lanes):
            self._rebury(str(lane), drained, deadline_ms=deadline_ms)
        return drained

    def _work(self, lane: str, drained: Drained, *, deadline_ms: int) -> None:
        after: Lead | None = None
        while self.engine.has_time(deadline_ms):
            page = self.jobs.due(lane, now_ms=self.clock(), limit=self.page, after=after)
            if page:
                # What this page's claims lose stays in the index for a moment: the next page starts behind it.
                after = page[-1]
                leads = [lead for lead in self.shuffle(page) if isinstance(lead, Lead)]
                drained.reports.append(self.engine.work(leads, deadline_ms=deadline_ms))
            if len(page) < self.page:
                return
        drained.finished = False

    def _rebury(self, lane: str, drained: Drained, *, deadline_ms: int) -> None:
        """Send a new letter for each dead job whose letter was not seen in time, or has left the dead-letter queue."""
        while self.engine.has_time(deadline_ms):
            now_ms = self.clock()
            page = self.jobs.due(lane, now_ms=now_ms, limit=self.page)
            check_at_ms = now_ms + self.burial_check // timedelta(milliseconds=1)
            dead = [job for lead in page if (job := self.jobs.rebury(lead, due_at_ms=check_at_ms))]
            self.letters.bury([burial.letter_of(job, nonce=self.new_id()) for job in dead])
            drained.reburied += len(dead)
            if len(page) < self.page or not dead:
                return
        drained.finished = False
