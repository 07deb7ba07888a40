"""Runs worlds, and tells of a failing one what happened in it and how to see it again."""

from collections.abc import Callable

from simulation.faults import Scripted
from simulation.invariants import Violation
from simulation.scenarios import Scenario
from simulation.shape import Shape
from simulation.wire import Faults, Outcome
from simulation.world import World

TRACE_LINES = 60


class Failed(AssertionError):
    """A run in which an invariant did not hold. ``by``: its name, or what else went wrong."""

    def __init__(self, by: str, text: str) -> None:
        super().__init__(text)
        self.by = by


def run(seed: int, faults: Faults, shape: Shape, stage: Callable[[World], None], replay: str) -> World:
    """Make a world, let ``stage`` play in it, and clear it away."""
    world = World(seed, faults, shape)
    try:
        stage(world)
    except (Violation, AssertionError) as fault:
        by = str(fault.invariant) if isinstance(fault, Violation) else "outcome"
        trace = "\n".join(world.wire.trace[-TRACE_LINES:])
        raise Failed(by, f"{fault}\n{trace}\nreplay: {replay}") from None
    finally:
        world.kernel.close()
    return world


def play(scenario: Scenario, strike: tuple[int, Outcome] | None = None) -> tuple[World, Scripted]:
    """One run of a scenario, with a crash or without."""
    faults = Scripted(scenario.always, strike)

    def stage(world: World) -> None:
        world.calm = True  # nothing happens but what is named
        if not strike and not scenario.always:
            world.watch.pace.quiet_since = 0
        scenario.prepare(world)
        world.run()
        scenario.check(world)

    place = f" --strike {strike[0]}:{strike[1].split()[-1]}" if strike else ""
    words = " and ".join(scenario.name.split())
    replay = f"uv run pytest tests/simulation/test_crash_matrix.py -k '{words}'{place}"
    return run(1, faults, scenario.shape, stage, replay), faults
