"""Which seeds or faults to run; at the end, what was examined, and which invariant caught which bug."""

import os
from collections import Counter
from collections.abc import Iterator

import pytest

_CAUGHT = pytest.StashKey[dict[str, str]]()
_EXAMINED = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, default=200, help="how many random campaigns to run")
    group.addoption("--seed", type=int, default=None, help="replay the campaign of this one seed")
    group.addoption("--strike", default=None, help="replay one fault of the matrix: the call's number, or 17:after")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if examined := config.stash.get(_EXAMINED, None):
        terminalreporter.section("states examined in campaigns")
        for invariant, states in examined.items():
            terminalreporter.write_line(f"{states:10} {invariant}")
    caught = config.stash.get(_CAUGHT, {})
    if caught:
        terminalreporter.section("planted bugs")
        for bug, by in caught.items():
            terminalreporter.write_line(f"{bug:52} {by}")


@pytest.fixture(scope="package", autouse=True)
def _one_processor() -> Iterator[None]:
    """Only one thread runs at a time: on one processor the baton goes from hand to hand in half the time."""
    if not hasattr(os, "sched_setaffinity"):  # not everywhere can a process choose
        yield
        return
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_of_them)})
    yield
    os.sched_setaffinity(0, all_of_them)


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds of this run."""
    one = request.config.getoption("--seed", default=None)
    return range(one, one + 1) if one is not None else range(request.config.getoption("--seeds", default=200))


@pytest.fixture
def only(request: pytest.FixtureRequest) -> str | None:
    """The one fault of the matrix to replay, if any."""
    strike: str | None = request.config.getoption("--strike", default=None)
    return strike


@pytest.fixture
def caught(request: pytest.FixtureRequest) -> dict[str, str]:
    """Which planted bug was caught, and by what: shown at the end of the run."""
    return request.config.stash.setdefault(_CAUGHT, {})


@pytest.fixture
def examined(request: pytest.FixtureRequest) -> Counter[str]:
    """How many states each invariant examined: shown at the end of the run."""
    return request.config.stash.setdefault(_EXAMINED, Counter())
