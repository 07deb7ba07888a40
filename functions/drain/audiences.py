"""See running audiences through: give their pages to workers, look for pages that got lost, notice the end.

Only the tick gives pages out, so that no chain of messages keeps itself alive, and a message that was lost costs time
alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pushlease.push.audience import Audience, State, Tally
from pushlease.push.ports import AudienceStore, PageSender

PAGES_A_TICK = 100  # of one audience: about what its workers see through until the next tick
SWEEP_MS = 60_000  # between two looks at all pages of an audience
RECOUNTS_A_SWEEP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Audiences:
    """The use case. ``on_end`` is told of audiences that are over, ``on_fault`` of exceptions."""

    audiences: AudienceStore
    pages: PageSender
    clock: Callable[[], int]
    on_end: Callable[[Audience, State], None]
    on_fault: Callable[[Exception], None]

    def tick(self) -> int:
        """Give out what is to be worked now; how many pages."""
        try:
            running = self.audiences.running()
        except Exception as error:  # the drain's own work is done; the next tick comes by again
            self.on_fault(error)
            return 0
        given = 0
        for audience in running:
            try:
                given += self._see_to(audience)
            except Exception as error:  # one audience's fault is its own
                self.on_fault(error)
        return given

    def _see_to(self, audience: Audience) -> int:
        now_ms = self.clock()
        if audience.state is State.PAUSED:
            return 0
        if now_ms >= audience.expires_at_ms:
            self._end(audience, State.FAILED, fault="expired before all of it was sent")
            return 0
        cursor = min(audience.cursor + PAGES_A_TICK, audience.listed.pages)
        wanted = list(range(audience.cursor, cursor))
        swept_at_ms = audience.swept_at_ms
        if not wanted and now_ms - swept_at_ms >= SWEEP_MS:
            swept_at_ms = now_ms
            tallies = self.audiences.pages(audience.ref)
            wanted = _unfinished(audience, tallies)
            if not wanted:
                self._end(audience, State.FINISHED)
                return 0
        if wanted:
            self.pages.hand_out(audience.ref, wanted)
            # After they are given: a crash in between gives them twice, which changes nothing.
            self.audiences.advance(audience, cursor=cursor, swept_at_ms=swept_at_ms)
        return len(wanted)

    def _end(self, audience: Audience, state: State, *, fault: str | None = None) -> None:
        if self.audiences.move(audience.ref, state, fault=fault):
            self.on_end(audience, state)


def _unfinished(audience: Audience, tallies: Mapping[int, Tally]) -> list[int]:
    """Pages that are not stored, and then those with recipients to be served, counted longest ago first."""
    missing = [page for page in range(audience.listed.pages) if page not in tallies]
    still_open = [page for page, tally in tallies.items() if tally.open]
    still_open.sort(key=lambda page: tallies[page].counted_at_ms)
    return missing[:PAGES_A_TICK] + still_open[:RECOUNTS_A_SWEEP]
