"""Every planted bug is caught, and by an invariant: a check that catches nothing proves nothing."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from pushlease.aws.statements import Statements, Update
from simulation.campaign import campaign
from simulation.invariants import Invariant
from simulation.mutants import CLAUSES, MUTANTS, Mutant, event_of
from simulation.runs import Failed, play
from simulation.scenarios import SCENARIOS
from simulation.slips import SLIPS

SEEDS = 200


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [*MUTANTS, *SLIPS], ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, caught: dict[str, str]) -> None:
    mutant.plant(monkeypatch)
    by, where = hunt()
    caught[mutant.name] = f"{by} ({where})"
    assert by in set(Invariant)


def test_nothing_is_caught_where_nothing_is_planted() -> None:
    for scenario in SCENARIOS:
        play(scenario)


def test_every_clause_of_the_store_is_planted_against(monkeypatch: pytest.MonkeyPatch) -> None:
    said: defaultdict[str, set[str]] = defaultdict(set)
    real = Statements.update

    def update(self: Statements, updates: Sequence[Update], **until: int) -> object:
        for one in updates:
            said[event_of(one)] |= {clause.name for clause in one.clauses}
        return real(self, updates, **until)

    monkeypatch.setattr(Statements, "update", update)
    for scenario in SCENARIOS:
        play(scenario)
    assert said == {event: set(names) for event, names in CLAUSES.items()}


def hunt() -> tuple[str, str]:
    """What the first run that fails fails by, and which run it is; scenarios first, then campaigns."""
    for name, run in _runs():
        try:
            run()
        except Failed as failed:
            return failed.by, name
    return "nothing", "all runs"


def _runs() -> Iterator[tuple[str, Callable[[], object]]]:
    for scenario in SCENARIOS:
        yield scenario.name, partial(play, scenario)
    for seed in range(SEEDS):
        yield f"seed {seed}", partial(campaign, seed)
