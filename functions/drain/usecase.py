"""See to unburied dead, then to every lane's oldest due jobs, and hand the lanes that have more to other workers.

Ticks may be doubled, late or overlapping: every claim is conditional on what the index said, so that they change
nothing but timing. Lanes are taken in shuffled order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from drain.audiences import Audiences
from pushlease.jobs import burial
from pushlease.jobs.engine import Report
from pushlease.jobs.job import Job, JobId
from pushlease.jobs.lanes import Lanes, failed
from pushlease.jobs.ports import JobStore, LaneSender, LetterSender


@dataclass(slots=True, kw_only=True)
class Drained:
    """What a drain did.

    ``reburied``: letters sent again; ``unfinished``: lanes with more due jobs than it took; ``pages``: of audiences,
    given to workers.
    """

    report: Report = field(default_factory=Report)
    reburied: int = 0
    pages: int = 0
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """The use case. ``shuffle``: the lanes in random order. ``page``: how many dead rows of a lane a tick sees to."""

    lanes: Lanes
    hand_overs: LaneSender
    jobs: JobStore
    letters: LetterSender
    clock: Callable[[], int]
    new_id: Callable[[], str]
    shuffle: Callable[[Sequence[str]], Sequence[str]]
    due_lanes: Sequence[str]
    dead_lanes: Sequence[str]
    page: int
    burial_check: timedelta
    audiences: Audiences

    def drain(self, *, deadline_ms: int, hand_over: bool) -> Drained:
        """Work one read of every lane; ``hand_over`` the lanes that have more.

        Only the schedule's own tick hands lanes over, so that a lane is rarely in two hands: a worker's time is shorter
        than the minute between two such ticks.
        """
        drained = Drained(pages=self.audiences.tick())
        # First, and a page each: a long backlog would leave them no time, just when letters are most likely lost.
        for lane in self.shuffle(self.dead_lanes):
            try:
                self._rebury(lane, drained)
            except Exception as error:  # what the others did is still to be told; the next tick comes by again
                drained.report.decisions.append(failed("lane_failed", JobId(lane), error))
        due_lanes = self.shuffle(self.due_lanes)
        drained.unfinished = self.lanes.work(due_lanes, drained.report, deadline_ms=deadline_ms, reads=1)
        if hand_over and drained.unfinished:
            self.hand_overs.hand_over(drained.unfinished, now_ms=self.clock())
        return drained

    def _rebury(self, lane: str, drained: Drained) -> None:
        """Send a new letter for each dead job whose letter was not seen in time, or has left the dead-letter queue."""
        now_ms = self.clock()
        dead: list[Job] = []
        for lead in self.jobs.due(lane, now_ms=now_ms, limit=self.page):
            if remains := self.jobs.remains(lead.job_id):
                wait = burial.next_check(remains, now_ms=now_ms, least=self.burial_check)
                due_at_ms = now_ms + wait // timedelta(milliseconds=1)
                dead += [job for job in [self.jobs.rebury(lead, due_at_ms=due_at_ms)] if job]
        self.letters.bury([burial.letter_of(job, nonce=self.new_id()) for job in dead])
        drained.reburied += len(dead)
