"""What the local commands show: tables for people."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from pushlease_local.demo import Check, Fate
from pushlease_local.stack import Stack


def fates(found: Sequence[Fate]) -> Table:
    """A row a delivery: what its row records beside how often its provider accepted it."""
    table = Table(title="what became of every delivery", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("scenario", "device", "status", "code"):
        table.add_column(heading, no_wrap=True)
    for heading in ("tries", "taken"):
        table.add_column(heading, justify="right", no_wrap=True)
    for fate in found:
        table.add_row(
            fate.scenario,
            fate.device,
            f"[{'green' if fate.status == 'sent' else 'yellow'}]{fate.status}[/]",
            fate.code,
            str(fate.attempts),
            str(fate.accepted),
        )
    return table


def checks(found: Sequence[Check]) -> Table:
    """A row a guarantee."""
    table = Table(title="guarantees", title_justify="left", box=None, show_header=False)
    table.add_column(min_width=1)
    table.add_column(min_width=max(len(check.guarantee) for check in found))
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for check in found:
        table.add_row("[green]✓[/]" if check.held else "[bold red]✗[/]", check.guarantee, check.seen)
    return table


def how_to_talk(stack: Stack) -> str:
    """The lines to paste into a shell."""
    exports = "\n".join(f"export {name}={value}" for name, value in stack.aws.env.items())
    send = stack.outputs["SendFunctionName"]
    return f"""
[bold]The system is up.[/] In another shell:

{exports}
aws lambda invoke --function-name {send} --cli-binary-format raw-in-base64-out \\
    --payload file://events/send/one_recipient.json /dev/stdout
aws sqs receive-message --queue-url {stack.queue("dead-letters")} --attribute-names All
aws dynamodb scan --table-name {stack.outputs["JobsTableName"]}

look-alike APNs: {stack.lookalike["apns"]["production_url"]}, FCM: {stack.lookalike["fcm"]["url"]}, \
control: {stack.lookalike["control_url"]} (CA {stack.lookalike["ca_file"]})
Ctrl-C ends it all.
"""
