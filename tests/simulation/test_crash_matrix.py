"""A fault at every single call of every scenario, then fresh workers and ticks: all invariants hold, all ends well."""

from collections import Counter
from dataclasses import replace

import pytest

from simulation.invariants import Invariant
from simulation.row import Row
from simulation.runs import play
from simulation.scenarios import SCENARIOS, Scenario
from simulation.wire import Outcome
from simulation.world import World

CRASHES = (Outcome.CRASH_BEFORE, Outcome.CRASH_AFTER)
OTHERS = (Outcome.LOST_ANSWER, Outcome.LATE, Outcome.FREEZE)

# The fast run plays these; the whole matrix takes a minute.
FAST = ("success", "partial success", "death", "redrive")

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
every_scenario_most_slow = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] if scenario.name not in FAST else [])
        for scenario in SCENARIOS
    ],
)


@every_scenario_most_slow
def test_every_crash_is_recovered_from(scenario: Scenario, only: str | None) -> None:
    unseen = scenario.sees - set(struck(scenario, CRASHES, only))
    assert only or not unseen


@pytest.mark.slow
@every_scenario
def test_every_lost_answer_late_write_and_freeze_is_recovered_from(scenario: Scenario, only: str | None) -> None:
    assert struck(scenario, OTHERS, only)


def test_the_scenarios_examine_every_invariant() -> None:
    assert set(Invariant) == set().union(*(scenario.sees for scenario in SCENARIOS))


def test_three_ticks_at_once_end_as_one_does() -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "overlapping ticks")
    one, three = (play(replace(scenario, shape=replace(scenario.shape, ticks=ticks)))[0] for ticks in (1, 3))
    assert ends(one) == ends(three)


def struck(scenario: Scenario, outcomes: tuple[Outcome, ...], only: str | None) -> Counter[Invariant]:
    """Run the scenario once clean, and once for each call and outcome; how many states were examined by each name."""
    world, clean = play(scenario)
    examined = Counter(world.watch.examined)
    number, _, side = (only or "").partition(":")
    for at in [int(number)] if number else range(1, len(clean.tries) + 1):
        for outcome in outcomes:
            if outcome.endswith(side):
                world, _ = play(scenario, (at, outcome))
                examined += world.watch.examined
    return examined


def ends(world: World) -> dict[str, object]:
    """How jobs and deliveries ended, without when."""
    return {
        job_id: (Row(row).status, {name: part["status"] for name, part in Row(row).deliveries.items()})
        for job_id, row in world.table.rows.items()
    }
