"""Write the versions that everything is built from, by name, version and hash and without an index's address.

`uv run python infra/pins.py` pins what is resolved now; `--upgrade` resolves afresh first; `--check` changes nothing
and fails when a file is not what the resolution gives.

The pins stand in `pyproject.toml` as uv's constraints, because `uv.lock` names the hosts that it was resolved from and
is not kept. `functions/requirements.txt` is what `sam build` installs. The tools in `infra/local` have versions of
their own, because each asks for another botocore; only `--upgrade` touches them.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYPROJECT = ROOT / "pyproject.toml"
REQUIREMENTS = ROOT / "functions" / "requirements.txt"

TOOLS = {
    ROOT / "infra" / "local" / "sam.txt": ("aws-sam-cli",),
    ROOT / "infra" / "local" / "ministack.txt": ("ministack", "aws-sam-translator"),
}

BARE = ("--quiet", "--no-emit-index-url", "--no-annotate", "--no-header")
BLOCK = re.compile(r"^constraint-dependencies = \[\n(?:.*\n)*?\]\n", re.MULTILINE)
TABLE = "[tool.uv]\n"


def uv(*arguments: str, given: str = "") -> str:
    """Run uv in the project and return what it printed; its complaints go to the terminal."""
    return subprocess.run(
        ("uv", *arguments), cwd=ROOT, check=True, input=given, stdout=subprocess.PIPE, text=True
    ).stdout


def with_pins(pyproject: str, pins: list[str]) -> str:
    """Return the project file with these constraints in place of those that it has."""
    block = "".join(["constraint-dependencies = [\n", *(f'    "{pin}",\n' for pin in pins), "]\n"])
    return BLOCK.sub("", pyproject).replace(TABLE, TABLE + block, 1)


def resolved() -> list[str]:
    """Return every package of the resolution as `name==version`, for any platform."""
    lines = uv("export", *BARE, "--no-emit-project", "--all-extras", "--all-groups", "--no-hashes").splitlines()
    return [line.split(" ;")[0] for line in lines]


def wanted() -> dict[Path, str]:
    """Return the text that each pinned file should have."""
    return {
        PYPROJECT: with_pins(PYPROJECT.read_text(), resolved()),
        REQUIREMENTS: uv("export", *BARE, "--no-emit-project", "--extra", "functions", "--no-dev"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="change nothing; fail when a file is out of date")
    mode.add_argument("--upgrade", action="store_true", help="resolve the newest versions first")
    arguments = parser.parse_args()
    if arguments.upgrade:
        PYPROJECT.write_text(with_pins(PYPROJECT.read_text(), []))
        uv("lock", "--upgrade")
        for path, names in TOOLS.items():
            # Without the project's configuration, whose constraints are not theirs.
            path.write_text(
                uv("--no-config", "pip", "compile", *BARE, "--python-version", "3.13", "-", given="\n".join(names))
            )
    stale = [path for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    if arguments.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the pins give: run infra/pins.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in wanted().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
