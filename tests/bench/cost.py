"""Dollars per million jobs, from the write units that tests/contract/test_cost.py asserts.

    uv run python tests/bench/cost.py

Prints the tables of docs/cost.md; tests/unit/test_cost_table.py compares them.
"""

from dataclasses import dataclass

# List prices of us-east-1 in US dollars, on demand, without free tiers; check them before relying on them.
WRITE_UNITS = 0.625  # a million DynamoDB write request units
READ_UNITS = 0.125  # a million DynamoDB read request units
SQS_REQUESTS = 0.40  # a million SQS requests, standard queue
LAMBDA_REQUESTS = 0.20  # a million Lambda requests
LAMBDA_GB_S = 0.0000133334  # a GB-second of Lambda on arm64
SNS_MOBILE_PUSH = 0.50 + 0.50  # a million publishes and a million mobile push deliveries
WORKER_HOUR = 0.0168  # an hour of a t4g.small
MONTH_H = 730

BATCH = 10  # hints of one invocation of deliver
MEMORY_GB = 1.0
# Of one batch of ten, with providers that answer in 100 ms: claim, reads, one round trip, settle; measured locally
# without the providers' part it is about half of that. An assumption, and the largest one here.
DELIVER_S = 0.25
SEND_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What one job of a kind writes, reads and sends."""

    name: str
    writes: tuple[int, ...]
    hints: int = 1
    attempts: int = 1

    @property
    def units(self) -> int:
        return sum(self.writes)

    @property
    def dollars(self) -> float:
        """A million of them."""
        reads = 1.0 * self.attempts + 1.5  # devices at the attempt; app and devices at acceptance; consistent reads
        sqs = self.hints * 3 / BATCH  # send, receive, delete
        seconds = self.attempts * DELIVER_S / BATCH + SEND_S
        return (
            self.units * WRITE_UNITS
            + reads * READ_UNITS
            + sqs * SQS_REQUESTS
            + (1 + self.attempts / BATCH) * LAMBDA_REQUESTS
            + seconds * MEMORY_GB * LAMBDA_GB_S * 1_000_000
        )


PATHS = (
    Path(name="delivered at the first attempt", writes=(2, 1, 2)),
    Path(name="delivered at the second attempt", writes=(2, 1, 3, 1, 2), hints=2, attempts=2),
    Path(name="deferred once, then delivered by the drain", writes=(2, 1, 3, 3, 2), attempts=2),
    Path(name="dead at once, its letter seen", writes=(2, 1, 3, 3), hints=2),
    Path(name="dead, redriven, delivered", writes=(2, 1, 3, 3, 3, 3, 2), hints=2, attempts=2),
)


def paths_table() -> str:
    """A row a path."""
    rows = ["| a job that is | writes | units | dollars a million |", "|---|---|--:|--:|"]
    rows += [
        f"| {path.name} | {' + '.join(map(str, path.writes))} | {path.units} | {path.dollars:.2f} |" for path in PATHS
    ]
    return "\n".join(rows)


def beside_table() -> str:
    """What a month costs at three sizes, beside the alternatives."""
    rows = ["| notifications a month | pushlease | SNS mobile push | one small always-on worker |", "|--:|--:|--:|--:|"]
    for millions in (1, 10, 100):
        ours = PATHS[0].dollars * millions
        rows.append(
            f"| {millions} million | {ours:,.0f} | {SNS_MOBILE_PUSH * millions:,.0f} | {WORKER_HOUR * MONTH_H:,.0f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(paths_table())
    print()
    print(beside_table())
