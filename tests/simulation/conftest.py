"""Options of the simulation: how many seeds, or which one again."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, default=200, help="how many random campaigns to run")
    group.addoption("--seed", type=int, default=None, help="replay the campaign of this one seed")
    group.addoption("--crash", default=None, help="replay one crash of the matrix: its number, or 17:after")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """The seeds of this run."""
    one = request.config.getoption("--seed", default=None)
    return range(one, one + 1) if one is not None else range(request.config.getoption("--seeds", default=200))


@pytest.fixture
def only_crash(request: pytest.FixtureRequest) -> str | None:
    """The one crash to replay, if any."""
    crash: str | None = request.config.getoption("--crash", default=None)
    return crash
