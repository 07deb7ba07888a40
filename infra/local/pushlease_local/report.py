"""What the local commands show: tables for people."""

from collections.abc import Sequence

from rich.table import Table

from pushlease_local.demo import Check, Fate
from pushlease_local.stack import Stack


def fates(found: Sequence[Fate]) -> Table:
    """A row a delivery: what its row records beside what its provider accepted."""
    table = Table(title="What became of every delivery", title_justify="left")
    for heading in ("scenario", "recipient", "device", "status", "code"):
        table.add_column(heading)
    table.add_column("attempts", justify="right")
    table.add_column("accepted by the provider", justify="right")
    for fate in found:
        table.add_row(
            fate.scenario,
            fate.recipient,
            fate.device,
            f"[{'green' if fate.status == 'sent' else 'yellow'}]{fate.status}[/]",
            fate.code,
            str(fate.attempts),
            str(fate.accepted),
        )
    return table


def checks(found: Sequence[Check]) -> Table:
    """A row a guarantee."""
    table = Table(title="Guarantees", title_justify="left")
    table.add_column("")
    table.add_column("guarantee")
    table.add_column("seen", overflow="fold")
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
