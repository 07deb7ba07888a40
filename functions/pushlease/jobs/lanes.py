"""The due jobs of lanes, oldest first, in full pages: for the drain, and for the worker that a lane was handed to.

An index read is a hint only. What a page's claims lose stays in a lagging index for a moment, so that the next read
starts behind it: nothing is starved by rows that nobody can claim.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import batched

from pushlease.jobs.engine import Decision, Engine, Report
from pushlease.jobs.job import JobId
from pushlease.jobs.ports import JobStore, Lead

# An index read is a call, whatever it holds. Larger ones would save little more, and their leads grow old unworked.
PAGES_A_READ = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Works lanes. ``shuffle``: the leads in random order, so that competitors do not fight over the same heads.

    ``page``: the most jobs in flight at once. A page takes from as many lanes as it needs to be full, since a page of
    twelve costs as many calls as one of fifty.
    """

    engine: Engine
    jobs: JobStore
    clock: Callable[[], int]
    shuffle: Callable[[Sequence[Lead]], Sequence[Lead]]
    page: int

    def work(self, lanes: Sequence[str], report: Report, *, deadline_ms: int, reads: int | None = None) -> list[str]:
        """Claim, attempt and settle what is due in the lanes; those that may have more.

        It ends after so many ``reads`` of each (None: without limit), at the lanes' ends, or when an attempt might take
        too long. A fault in one read or one page stays there: the others are worked all the same.
        """
        unfinished = list(lanes)
        for page in batched(self._leads(unfinished, report, deadline_ms, reads), self.page, strict=False):
            if not self.engine.has_time(deadline_ms):
                return list(lanes)
            try:
                report.add(self.engine.work(page, deadline_ms=deadline_ms))
            except Exception as error:  # the store's own kinds of fault are not ours to know
                report.decisions += [failed("page_failed", lead.job_id, error) for lead in page]
        return unfinished

    def _leads(self, unfinished: list[str], report: Report, deadline_ms: int, reads: int | None) -> Iterator[Lead]:
        """Read only as fast as the pages are worked, so that no lead grows old; takes off ``unfinished`` what ended."""
        limit = self.page * PAGES_A_READ
        for lane in list(unfinished):
            after: Lead | None = None
            done = 0
            while self.engine.has_time(deadline_ms) and done != reads:
                try:
                    leads = self.jobs.due(lane, now_ms=self.clock(), limit=limit, after=after)
                except Exception as error:  # as above
                    report.decisions.append(failed("lane_failed", JobId(lane), error))
                    break
                yield from self.shuffle(leads)
                if len(leads) < limit:
                    unfinished.remove(lane)
                    break
                after, done = leads[-1], done + 1


def failed(event: str, what: JobId, error: Exception) -> Decision:
    """A decision that could not be taken: the rows are as they were."""
    return Decision(event=event, job_id=what, detail=type(error).__name__)
