"""The README's commands are run, and print what it shows."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_demo_holds_every_guarantee_that_the_readme_shows() -> None:
    (command,) = re.findall(r"^\$ python3 -m pip install uv && (uv run pushlease demo)$", README, re.MULTILINE)
    done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout
    shown = set(re.findall(r"^ *✓ +(\S.*?)(?:  .*)?$", README, re.MULTILINE))
    assert shown
    told = set(re.findall(r"^ *✓ +(\S.*?)(?:  .*)?$", done.stdout, re.MULTILINE))
    assert shown == told


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
