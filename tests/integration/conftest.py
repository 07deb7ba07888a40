"""The whole system, deployed once for all tests of this folder that ask for it."""

import json
from collections.abc import Iterator

import pytest

from pushlease_local import stack as local
from pushlease_local.scan import findings, push_tokens_of, texts_of
from pushlease_local.stack import EVENTS, Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The template on an embedded AWS, with look-alike providers, the demo app and Ada's two devices.

    When the last test is done, all that was logged is scanned for what must not be there.
    """
    with local.running(tmp_path_factory.mktemp("stack")) as system:
        for name in ("register_ios", "register_android"):
            assert system.invoke("registry", local.event(f"registry/{name}"))["ok"]
        yield system
        said = [json.loads(path.read_text()) for path in EVENTS.glob("*/*.json")]
        found = findings(
            system.log_lines(),
            secrets=system.secrets(),
            push_tokens=push_tokens_of(said),
            # A record's body is what a queue holds: ids, and no word of a notification.
            texts=[text for event in said if "Records" not in event for text in texts_of(event)],
        )
        assert found == []
