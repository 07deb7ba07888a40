"""Run the look-alikes as a process: `python -m pushlease_local.lookalike --state-dir DIR`.

Writes DIR/ca.pem, then DIR/lookalike.json whole, so a reader that finds the second finds servers that answer; then it
prints that file's name, one line. Ends on SIGTERM or SIGINT, or when the process that it was started for is gone.
"""

import argparse
import asyncio
import json
import os
import signal
from pathlib import Path

from pushlease_local.lookalike.lookalike import Lookalike

PARENT_POLL_S = 0.5  # an orphan may hold its ports this long


async def run(state_dir: Path, parent_pid: int | None) -> None:
    """Serve until told to stop or orphaned."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Lookalike.start() as lookalike:
        print(write_state(state_dir, lookalike), flush=True)
        own_parent = os.getppid()
        while os.getppid() == own_parent and (parent_pid is None or _is_alive(parent_pid)):
            try:
                async with asyncio.timeout(PARENT_POLL_S):
                    await stopped.wait()
                    return
            except TimeoutError:
                continue


def write_state(state_dir: Path, lookalike: Lookalike) -> Path:
    """Write ca.pem and lookalike.json, readable by their owner only; returns the second, which holds keys."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_file = state_dir / "ca.pem"
    _write_whole(ca_file, lookalike.ca_pem)
    state = {"pid": os.getpid(), "ca_file": str(ca_file.resolve()), **lookalike.describe()}
    state_file = state_dir / "lookalike.json"
    _write_whole(state_file, json.dumps(state, indent=2))
    return state_file


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's by now, or was from the start
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pushlease_local.lookalike", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True, help="where ca.pem and lookalike.json go")
    parser.add_argument("--parent-pid", type=int, help="end with this process; the default is the one that started us")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.state_dir, arguments.parent_pid))


if __name__ == "__main__":
    main()
