"""The whole system, deployed once for all tests of this folder that ask for it."""

from collections.abc import Iterator

import pytest

from pushlease_local import stack as local
from pushlease_local.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The template on an embedded AWS, with look-alike providers, the demo app and Ada's two devices."""
    with local.running(tmp_path_factory.mktemp("stack")) as system:
        for name in ("register_ios", "register_android"):
            assert system.invoke("registry", local.event(f"registry/{name}"))["ok"]
        yield system
