"""The command line ``pushlease``."""

import json
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from pushlease.providers import lint as linter

app = typer.Typer(no_args_is_help=True, add_completion=True, help="Durable push notifications on AWS.")
# What is piped into a file is read there: no reason to fold it at 80 columns.
console = Console() if sys.stdout.isatty() else Console(width=120)

STYLES = {"running": "cyan", "held": "green", "FAILED": "bold red"}


@app.callback()
def root() -> None:
    """Durable push notifications on AWS."""


@app.command()
def demo(
    keep: Annotated[bool, typer.Option(help="Keep the logs and print where they are.")] = False,
) -> None:
    """Run the whole system on this machine, play every event through it, and check each guarantee."""
    local = _local()
    started = time.monotonic()
    states: dict[str, str] = {}

    def board() -> Table | str:
        if not states:
            return ""
        table = Table(title=f"pushlease demo, {time.monotonic() - started:.0f} s", title_justify="left", box=None)
        table.add_column("scenario", min_width=24)
        table.add_column("stands")
        for name, state in states.items():
            table.add_row(name, f"[{STYLES.get(state, 'white')}]{state}[/]")
        return table

    with tempfile.TemporaryDirectory(prefix="pushlease-", delete=not keep) as state_dir:
        # The board appears with the first scenario; on no terminal only its lines are printed.
        with Live(get_renderable=board, console=console, refresh_per_second=4, transient=True) as live:

            def say(what: str) -> None:
                live.console.print(f"[dim]{time.monotonic() - started:5.1f} s[/] {what}")

            def tell(name: str, state: str) -> None:
                states[name] = state
                if state != "running":
                    say(f"{name}: [{STYLES[state]}]{state}[/]")

            with local.stack.running(Path(state_dir), say=say) as stack:
                checks, fates = local.demo.play(stack, tell)
        console.print(local.report.fates(fates))
        console.print(local.report.checks(checks))
        failed = sum(not check.held for check in checks)
        verdict = f"[bold red]{failed} of {len(checks)} guarantees did not hold[/]"
        if not failed:
            verdict = f"[green]all {len(checks)} guarantees held[/]"
        console.print(f"{verdict} ({time.monotonic() - started:.0f} s)")
        console.print(f"[dim]{f'logs: {state_dir}' if keep else 'cleaning up'}[/]")
    if failed:
        raise typer.Exit(1)


@app.command()
def up() -> None:
    """Keep the whole system running on this machine until Ctrl-C, and say how to talk to it."""
    local = _local()
    with tempfile.TemporaryDirectory(prefix="pushlease-") as state_dir:
        with local.stack.running(Path(state_dir), say=lambda what: console.print(f"[dim]{what}[/]")) as stack:
            local.stack.register_ada(stack)
            console.print(local.report.how_to_talk(stack), soft_wrap=True, highlight=False)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
        console.print("ended")


@app.command()
def lint(
    file: Annotated[Path, typer.Argument(help="JSON: a send request, or its content alone; - reads standard input.")],
) -> None:
    """Say what Apple and Google would refuse of a content, and how large it travels; nothing is sent.

    Ends with 1 if a provider would refuse it, with 2 if the file holds no JSON object.
    """
    try:
        said = json.loads(sys.stdin.read() if str(file) == "-" else file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        console.print(f"[bold red]{escape(str(file))}[/]: {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None
    content = said.get("content", said) if isinstance(said, dict) else said
    if not isinstance(content, dict):
        console.print(f"[bold red]{escape(str(file))}[/]: must hold a JSON object, a send request or its content")
        raise typer.Exit(2)
    report = linter.lint(content)
    for size in report.sizes:
        console.print(f"{size.platform} {size.what}: {size.size_bytes:,} of {size.limit_bytes:,} bytes")
    if report.findings:
        console.print(_findings(report))
    else:
        console.print("[green]nothing to find fault with[/]")
    raise typer.Exit(1 if report.fatal else 0)


def _findings(report: linter.Report) -> Table:
    table = Table(box=None)
    for name in ("", "field", "rule", "source"):
        table.add_column(name, overflow="fold")
    for finding in report.findings:
        mark = "[bold red]refused[/]" if finding.fatal else "[yellow]risk[/]"
        table.add_row(mark, escape(finding.field), escape(finding.rule), finding.source)
    return table


def main() -> None:
    """The entry point of the wheel. SIGTERM ends a command as Ctrl-C does: what it started is ended first."""
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell may have started us with SIGINT ignored
        signal.signal(number, _interrupt)
    try:
        app()
    except RuntimeError as error:  # a tool that is missing or failed: what it said is what helps
        console.print(f"[bold red]{type(error).__name__}[/]: {error}", soft_wrap=True)
        raise SystemExit(1) from None


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


class _Local:
    """The modules of a checkout's ``infra/local``, which the wheel does not carry."""

    def __init__(self) -> None:
        from pushlease_local import demo, report, stack

        self.demo = demo
        self.report = report
        self.stack = stack


def _local() -> _Local:
    try:
        return _Local()
    except ModuleNotFoundError as error:
        console.print(f"this command needs a checkout of pushlease and its development packages: no {error.name}")
        raise typer.Exit(2) from None
