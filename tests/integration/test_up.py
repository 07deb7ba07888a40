"""``pushlease up`` ends all that it started, however it is told to end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pushlease_local.emulator import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def up(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own, as a terminal would start it."""
    environment: Mapping[str, str] = {**os.environ, "TMPDIR": str(temporary), "COLUMNS": "200"}  # noqa: TID251  (the command's own)
    command = [str(Path(sys.executable).with_name("pushlease")), "up"]
    with subprocess.Popen(  # noqa: S603  (the wheel's own entry point)
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # does nothing once it has ended


def until_said(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            return
    raise AssertionError(f"it ended before it said {words!r}: {''.join(said)}")


def running(temporary: Path) -> list[str]:
    """The processes whose command or environment names the folder that all of them work below."""
    listing = run(["ps", "axeww", "-o", "pid=,args="])
    return [line[:200] for line in listing.splitlines() if str(temporary) in line]


@pytest.mark.parametrize(
    ("words", "told"), [("The system is up", signal.SIGINT), ("building and deploying", signal.SIGTERM)]
)
def test_it_leaves_neither_process_nor_file(tmp_path: Path, words: str, told: signal.Signals) -> None:
    with up(tmp_path) as process:
        until_said(process, words)
        assert list(tmp_path.glob("pushlease-*"))
        assert running(tmp_path)
        if told is signal.SIGINT:
            os.killpg(process.pid, told)  # Ctrl-C reaches the whole group
        else:
            process.send_signal(told)
        said, _ = process.communicate(timeout=60)
    assert running(tmp_path) == []
    assert list(tmp_path.glob("pushlease-*")) == []
    assert "Traceback" not in said
    assert process.returncode == (0 if told is signal.SIGINT else 130)
