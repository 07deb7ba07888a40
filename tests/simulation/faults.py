"""Who decides what happens to a call: a script for the matrix, the dice for a campaign."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

from simulation.kernel import Worker
from simulation.wire import BATCH_ONLY, Outcome

TABLE = ("batch_execute_statement", "update_item", "batch_get_item", "query")
STORMS_MS = (2_000, 20_000, 180_000)
SILENCES_MS = (1, 2_000, 30_000, 180_000)


class Scripted:
    """Nothing goes wrong but what is named: ``always`` by call and occurrence, ``strike`` by the number of the try."""

    def __init__(
        self, always: Mapping[tuple[str, int], Outcome] | None = None, strike: tuple[int, Outcome] | None = None
    ) -> None:
        self._always = always or {}
        self._strike = strike
        self._met: Counter[str] = Counter()
        self.tries: list[str] = []

    def draw(self, worker: Worker, call: str) -> Outcome:
        self.tries.append(call)
        self._met[call] += 1
        if self._strike and self._strike[0] == len(self.tries):
            return self._strike[1]
        return self._always.get((call, self._met[call]), Outcome.OK)

    def silent(self, store: str) -> bool:
        self._met[store] += 1
        return (store, self._met[store]) in self._always


class Dice:
    """Each try may meet a fault, until the platform calms down. ``rates``: how often each is met.

    ``outages``: how often a call to the table begins an outage, in which all calls to it fail for a while. ``storms``:
    how often it begins a stretch in which nearly all is throttled. ``silences``: how often another store gives no
    answer, perhaps for a stretch as well. ``clock``: the run's own.
    """

    def __init__(
        self,
        rng: Random,
        rates: Mapping[Outcome, float],
        *,
        outages: float = 0.0,
        storms: float = 0.0,
        silences: float = 0.0,
    ) -> None:
        self._rng = rng
        self._rates = rates
        self._outages = outages
        self._storms = storms
        self._silences = silences
        self._outage = 0
        self._storm_until = 0
        self._silent_until: dict[str, int] = {}
        self.clock: Callable[[], int] = lambda: 0
        self.calm = False

    def draw(self, worker: Worker, call: str) -> Outcome:
        if self.calm:
            return Outcome.OK
        if call in TABLE and self._storm(STORMS_MS):
            return Outcome.THROTTLED if call.startswith("batch") else Outcome.ERROR
        if call in TABLE and call != "query":
            if self._outage:
                self._outage -= 1
                return Outcome.ERROR
            if self._rng.random() < self._outages:
                self._outage = self._rng.randint(2, 12)
        thrown = self._rng.random()
        for outcome, rate in self._rates.items():
            # A worker that freezes with pushes under way is the one that loses its lease with something to tell.
            thrown -= rate * 5 if outcome is Outcome.FREEZE and call == "push" else rate
            if thrown < 0:
                return outcome if outcome not in BATCH_ONLY or _takes_parts(call, outcome) else Outcome.OK
        return Outcome.OK

    def silent(self, store: str) -> bool:
        """Whether one of our other stores gives no answer now."""
        if self.calm:
            return False
        if self.clock() >= self._silent_until.get(store, 0) and self._rng.random() < self._silences:
            self._silent_until[store] = self.clock() + self._rng.choice(SILENCES_MS)
        return self.clock() < self._silent_until.get(store, 0)

    def _storm(self, spans_ms: Sequence[int]) -> bool:
        if self.clock() >= self._storm_until and self._rng.random() < self._storms:
            self._storm_until = self.clock() + self._rng.choice(spans_ms)
        return self.clock() < self._storm_until and self._rng.random() < 0.9


def _takes_parts(call: str, outcome: Outcome) -> bool:
    if outcome is Outcome.THROTTLED:
        return call.startswith(("batch", "send to"))
    return call in ("batch_execute_statement", "push")
