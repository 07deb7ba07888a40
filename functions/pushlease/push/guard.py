"""Holds back what would only fail: while a provider takes nothing, one push at a time asks whether it does again.

What is held back comes back as ``NotTried`` and spends no attempt. The fleet's view is read at most once in three
seconds a way; a store that does not answer holds nobody back.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pushlease.codes import Code
from pushlease.push.flow import CLOSED, Breaker, Way, got_through
from pushlease.push.outcome import NotTried, Refused, Scope, Verdict
from pushlease.push.ports import FlowStore, Push, Pusher

READ_EVERY_MS = 3_000
LEAST_PAUSE = timedelta(seconds=60)  # Google, of a project's 429 without Retry-After
LONGEST_PAUSE = timedelta(hours=1)  # then one push asks again: a single odd answer must not silence a project


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """``Pusher``: what may leave goes to ``pusher``.

    ``open_after``: so many pushes in a row, none of which got through, open the breaker. ``on_change`` is told of each
    that this process opened or closed, ``on_fault`` of a store that did not answer.
    """

    pusher: Pusher
    flow: FlowStore
    clock: Callable[[], int]
    dice: Callable[[], float]
    open_after: int
    on_change: Callable[[Way, str], None]
    on_fault: Callable[[Exception], None]
    _known: dict[Way, tuple[int, Breaker]] = field(default_factory=dict, init=False)  # and when it was read
    _failures: Counter[Way] = field(default_factory=Counter, init=False)  # in a row

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        """See ``Pusher``."""
        now_ms = self.clock()
        ways = [way_of(push) for push in pushes]
        breakers = self._read(dict.fromkeys(ways), now_ms)
        probes = {
            way: ways.index(way)
            for way, breaker in breakers.items()
            if breaker.may_probe(now_ms) and self._take_probe(way, breaker, now_ms)
        }
        leaving = [
            index
            for index, way in enumerate(ways)
            if probes.get(way) == index or self.dice() < breakers[way].share(now_ms)
        ]
        answers = self.pusher.push([pushes[index] for index in leaving], deadline_ms=deadline_ms) if leaving else []
        verdicts = dict(zip(leaving, answers, strict=True))

        now_ms = self.clock()
        for way, breaker in breakers.items():
            self._learn(way, breaker, [verdict for index, verdict in verdicts.items() if ways[index] == way], now_ms)
        for index in probes.values():
            if got_through(verdicts[index]) is False:  # what it asked was known; the attempt is not to be spent for it
                del verdicts[index]
        return [
            verdicts.get(index) or NotTried(until_ms=breakers[way].held_until_ms(now_ms, dice=self.dice()))
            for index, way in enumerate(ways)
        ]

    def _learn(self, way: Way, breaker: Breaker, verdicts: Sequence[Verdict], now_ms: int) -> None:
        """Open, close or pause, as what came back tells."""
        told = [told for verdict in verdicts if (told := got_through(verdict)) is not None]
        if any(told):
            del self._failures[way]
            if breaker.open and self._asked(lambda: self.flow.close(way, breaker, now_ms=now_ms), otherwise=False):
                self._changed(way, "closed")
        elif told and not breaker.open:
            self._failures[way] += len(told)
            if self._failures[way] >= self.open_after:
                del self._failures[way]
                if self._asked(lambda: self.flow.open(way, now_ms=now_ms), otherwise=False):
                    self._changed(way, "opened")
        pauses = [
            min(verdict.retry_after or LEAST_PAUSE, LONGEST_PAUSE)
            for verdict in verdicts
            if isinstance(verdict, Refused) and verdict.code is Code.RATE_LIMITED and verdict.scope is Scope.PROJECT
        ]
        if pauses:
            until_ms = now_ms + max(pauses) // timedelta(milliseconds=1)
            self._asked(lambda: self.flow.pause(way, until_ms=until_ms), otherwise=None)
            self._known.pop(way, None)

    def _read(self, ways: Mapping[Way, None], now_ms: int) -> Mapping[Way, Breaker]:
        stale = [way for way in ways if now_ms - self._known.get(way, (0, CLOSED))[0] >= READ_EVERY_MS]
        if stale:
            unknown: Mapping[Way, Breaker] = {}
            found = self._asked(lambda: self.flow.read(stale), otherwise=unknown)
            self._known.update({way: (now_ms, found.get(way, CLOSED)) for way in stale})
        return {way: self._known[way][1] for way in ways}

    def _take_probe(self, way: Way, breaker: Breaker, now_ms: int) -> bool:
        return self._asked(lambda: self.flow.take_probe(way, breaker, now_ms=now_ms), otherwise=False)

    def _changed(self, way: Way, event: str) -> None:
        self._known.pop(way, None)
        self.on_change(way, event)

    def _asked[T](self, ask: Callable[[], T], *, otherwise: T) -> T:
        try:
            return ask()
        except Exception as error:  # a breaker is a courtesy to the provider: no store's fault stops the pushes
            self.on_fault(error)
            return otherwise


def way_of(push: Push) -> Way:
    """The way that a push takes."""
    return Way(app_id=push.app.app_id, platform=push.device.platform, environment=push.device.environment)
