"""Every version is pinned, and no pin names a host."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"[a-z0-9._-]+==[^ ;]+( ; .+)?( \\)?")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def test_what_is_deployed_is_what_the_pins_give() -> None:
    check = subprocess.run(  # noqa: S603 our own script
        [sys.executable, str(ROOT / "infra" / "pins.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_what_is_deployed_is_pinned_by_hash() -> None:
    lines = (ROOT / "functions" / "requirements.txt").read_text().splitlines()
    assert any(line.startswith("boto3==") for line in lines)  # the runtime's own changes without notice
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        assert HASH.fullmatch(line) or (PINNED.fullmatch(line) and HASH.fullmatch(following)), line


def test_the_tools_are_pinned() -> None:
    for name in ("sam.txt", "ministack.txt"):
        lines = (ROOT / "infra" / "local" / name).read_text().splitlines()
        assert lines
        assert all(PINNED.fullmatch(line) for line in lines), name
