"""One lane's due jobs, oldest page first: for the drain, and for the worker that a lane was handed to.

An index read is a hint only. What a page's claims lose stays in a lagging index for a moment, so that the next page
starts behind it: nothing is starved by a page that nobody can claim.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pushlease.jobs.engine import Decision, Engine, Report
from pushlease.jobs.job import JobId
from pushlease.jobs.ports import JobStore, Lead


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Works lanes. ``shuffle``: the leads in random order, so that competitors do not fight over the same heads.

    ``page``: the most jobs in flight at once.
    """

    engine: Engine
    jobs: JobStore
    clock: Callable[[], int]
    shuffle: Callable[[Sequence[Lead]], Sequence[Lead]]
    page: int

    def work(self, lane: str, report: Report, *, deadline_ms: int, pages: int | None = None) -> bool:
        """Claim, attempt and settle a lane's due jobs; whether none was left when it ended.

        It ends after ``pages`` (None: without limit), at the lane's end, or when an attempt might take too long. What
        fails in one lane stays there: the others are worked all the same.
        """
        try:
            return self._work(lane, report, deadline_ms=deadline_ms, pages=pages)
        except Exception as error:  # the store's own kinds of fault are not ours to know
            report.decisions.append(Decision(event="lane_failed", job_id=JobId(lane), detail=type(error).__name__))
            return False

    def _work(self, lane: str, report: Report, *, deadline_ms: int, pages: int | None) -> bool:
        after: Lead | None = None
        worked = 0
        while (pages is None or worked < pages) and self.engine.has_time(deadline_ms):
            page = self.jobs.due(lane, now_ms=self.clock(), limit=self.page, after=after)
            if page:
                after = page[-1]
                report.add(self.engine.work(self.shuffle(page), deadline_ms=deadline_ms))
            if len(page) < self.page:
                return True
            worked += 1
        return False
