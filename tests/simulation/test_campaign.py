"""Random campaigns: whatever a seed draws, every invariant holds, and all of them together saw everything."""

from collections import Counter

import pytest

from simulation.campaign import RATES, campaign
from simulation.invariants import Invariant
from simulation.provider import ANSWERS, OK, POISON
from simulation.wire import Outcome

ENOUGH = 200  # seeds after which nothing may be left that never happened

CALLS = (
    "batch_execute_statement",
    "batch_get_item",
    "query",
    "update_item",
    "send to work",
    "send to burial",
    "send to tick",
    "send to bulk",
    "change_message_visibility",
    "push",
)
EVERYWHERE = (Outcome.OK, Outcome.ERROR, Outcome.LOST_ANSWER, Outcome.LATE, Outcome.CRASH_BEFORE, Outcome.CRASH_AFTER)
HAPPENINGS = (
    *(f"row: {kind}" for kind in ("insert", "claim", "settle", "end", "late", "cancel", "sight", "rebury", "revive")),
    *(
        "row: prune",
        "spoiled",
        "erased",
        "withdrawn",
        "cancelled",
        "weeks later",
        "contained",
        "muted",
        "device removed",
        "sent too late",
        "breaker opened",
        "breaker closed",
        "held back",
        "send raised",
        POISON,
    ),
    *(
        "settled",
        "released",
        "lease_lost",
        "lost_race",
        "stale_index_read",
        "unclaimed",
        "unended",
        "lane_failed",
        "exhausted",
        "condemned",
    ),
    *("hint sent", "hint refused", "letter sent", "letter refused", "tick sent", "tick refused", "lane sent"),
    *("letter given back", "letter revives", "letter revives from work", "redriven by function", "reburied"),
    *("moved by console to its source", "moved by console to work", "moved by console to burial"),
    *("cancelled by a person", "cancelled too late", "throttled pull", "lost delete"),
    *(f"answer: {answer}" for answer in (OK, *ANSWERS)),
)


@pytest.mark.slow
@pytest.mark.timeout(7200)  # with --seeds there may be many thousands
def test_every_invariant_holds_in_every_campaign(seeds: range, examined: Counter[str]) -> None:
    happened: Counter[str] = Counter()
    met: Counter[tuple[str, Outcome]] = Counter()
    for seed in seeds:
        world = campaign(seed)
        examined.update(world.watch.examined)
        happened += world.happened
        met += world.wire.met
    if len(seeds) >= ENOUGH:
        never = [str(invariant) for invariant in Invariant if not examined[invariant]]
        never += [what for what in HAPPENINGS if not happened[what]]
        never += [f"{call}: {outcome}" for call in CALLS for outcome in EVERYWHERE if not met[call, outcome]]
        never += [str(outcome) for outcome in RATES if not met["batch_execute_statement", outcome]]
        assert not never


def test_a_seed_is_a_run() -> None:
    one, other = campaign(7), campaign(7)
    assert one.wire.trace == other.wire.trace
    assert one.table.rows == other.table.rows
