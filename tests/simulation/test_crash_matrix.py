"""A crash before and after every single call of every scenario, then fresh workers and ticks: all invariants hold."""

from collections import Counter

import pytest

from simulation.invariants import Invariant
from simulation.runs import play
from simulation.scenarios import SCENARIOS, Scenario
from simulation.wire import Outcome

CRASHES = (Outcome.CRASH_BEFORE, Outcome.CRASH_AFTER)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_crash_is_recovered_from(scenario: Scenario, only_crash: str | None) -> None:
    world, clean = play(scenario)
    examined: Counter[Invariant] = Counter(world.watch.examined)
    for number, outcome in crashes(len(clean.tries), only_crash):
        world, _ = play(scenario, (number, outcome))
        examined += world.watch.examined
    unseen = scenario.sees - set(examined)
    assert not unseen


def test_the_scenarios_examine_every_invariant() -> None:
    assert set(Invariant) == set().union(*(scenario.sees for scenario in SCENARIOS))


def crashes(tries: int, only: str | None) -> list[tuple[int, Outcome]]:
    """Every crash of a run of so many tries, or the one that is to be replayed."""
    if only is None:
        return [(number, outcome) for number in range(1, tries + 1) for outcome in CRASHES]
    number, _, side = only.partition(":")
    return [(int(number), outcome) for outcome in CRASHES if outcome.endswith(side)]
