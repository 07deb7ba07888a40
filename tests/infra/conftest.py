"""The template on an AWS of its own, where functions may do only what their roles allow."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pushlease_local.emulator import EmbeddedAws

BUILD = Path(__file__).parents[2] / ".pushlease" / "build"  # kept, for the next run to build less
NOBODY = "https://127.0.0.1:9"  # where no provider answers


@pytest.fixture(scope="session")
def strict_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAws]:
    """Yield a running AWS that enforces roles."""
    with EmbeddedAws(tmp_path_factory.mktemp("strict"), build_dir=BUILD, enforce_iam=True) as running:
        yield running


@pytest.fixture(scope="session")
def stack(strict_aws: EmbeddedAws) -> Mapping[str, str]:
    """Return the outputs of the template deployed there."""
    providers = dict.fromkeys(("ApnsProductionUrl", "ApnsSandboxUrl", "FcmUrl"), NOBODY)
    return strict_aws.deploy({"WorkConcurrency": "2", "BulkConcurrency": "3", "RetrySchedule": "1 2 3", **providers})
