"""One AWS on this machine for the tests that deploy to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlease_local.emulator import EmbeddedAws

BUILD = Path(__file__).parents[2] / ".pushlease" / "build"


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """Yield a running AWS with nothing deployed; the built package is kept for the next run."""
    with EmbeddedAws(tmp_path_factory.mktemp("aws"), build_dir=BUILD) as running:
        yield running
