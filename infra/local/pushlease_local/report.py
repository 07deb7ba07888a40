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
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for check in found:
        table.add_row("[green]✓[/]" if check.held else "[bold red]✗[/]", check.guarantee, check.seen)
    return table


def how_to_talk(stack: Stack) -> str:
    """The lines to paste into a shell; Ada and her two devices are registered."""
    names = {
        name.removesuffix("FunctionName").upper(): value
        for name, value in stack.outputs.items()
        if name.endswith("FunctionName")
    }
    exports = "\n".join(f"export {name}={value}" for name, value in [*stack.aws.env.items(), *names.items()])
    return f"""
[bold]The system is up.[/] In another shell, in this folder:

{exports}
aws lambda invoke --function-name "$SEND" --payload file://events/send/one_recipient.json answer.json
aws lambda invoke --function-name "$REDRIVE" --payload file://events/redrive/dry_run.json answer.json
aws sqs receive-message --endpoint-url "$AWS_ENDPOINT_URL" --queue-url {stack.queue("dead-letters")}
aws dynamodb scan --table-name {stack.outputs["JobsTableName"]}

What the look-alike APNs and FCM accepted, and what they were asked:

curl --cacert {stack.lookalike["ca_file"]} -d '{{}}' {stack.lookalike["control_url"]}/accepted
curl --cacert {stack.lookalike["ca_file"]} -d '{{}}' {stack.lookalike["control_url"]}/requests

Ctrl-C ends it all.
"""
