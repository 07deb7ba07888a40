"""Does the drain's price per job stay the same as backlogs grow, and its throughput grow with lanes and workers?

    uv run python tests/bench/scale.py [--rows 1000 10000 100000]

Plays the real drain, lanes, engine and store over the simulation's table, without faults, and counts calls and write
units. Time is a model: what each call takes is stated below, workers take lanes as `bulk` hands them out, and the
throughput is the backlog over the time of the worker that ends last. Prints the tables of docs/cost.md.
"""

import argparse
import bisect
import heapq
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "simulation")]

from dynamodb import Item, Refused, Table

from builders import a_job
from fakes import FakeHints, FakeLetters
from metered import size_of
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.rows import due_lane, row_of
from pushlease.aws.statements import Statements
from pushlease.jobs.engine import Engine, Report
from pushlease.jobs.job import Job, JobId, job_id_of
from pushlease.jobs.lanes import Lanes
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Attempted, Policy, Sent

NOW_MS = 1_800_000_000_000
PAGE = 50
# What a call takes, in ms: a batch of 25 conditional writes, an index page, a provider's answers to a page of pushes.
CALL_MS = {"batch_execute_statement": 15, "query": 8, "attempt": 150}
KIB = 1024


class LaneTable(Table):
    """The simulation's table with an index that is sorted, and up to date."""

    def __init__(self) -> None:
        super().__init__("jobs", on_write=self._bill, replicate=lambda show: show())
        self.lanes: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.units = 0.0

    def load(self, item: Item) -> None:
        """A row that is there already."""
        key = item["job_id"]["S"]
        self.rows[key] = item
        bisect.insort(self.lanes[item["lane"]["S"]], (int(item["due_at"]["N"]), key))

    def query(self, lane: str, until: int, limit: int, start: tuple[int, str] | None) -> list[tuple[int, str]]:
        entries = self.lanes[lane]
        first = bisect.bisect_right(entries, start) if start else 0
        return [entry for entry in entries[first : first + limit] if entry[0] <= until]

    def _bill(self, before: Item | None, after: Item | None) -> None:
        """Units as AWS bills them: the row's size, and the index entry's leaving and entering."""
        old, new = _entry(before), _entry(after)
        self.units += -(-max(size_of(item) for item in (before, after) if item) // KIB)
        if old != new:
            self.units += (old is not None) + (new is not None)
            if old:
                entries = self.lanes[old[0]]
                del entries[bisect.bisect_left(entries, old[1])]
            if new:
                bisect.insort(self.lanes[new[0]], new[1])


def _entry(item: Item | None) -> tuple[str, tuple[int, str]] | None:
    if item is None or "lane" not in item:
        return None
    return item["lane"]["S"], (int(item["due_at"]["N"]), item["job_id"]["S"])


class Client:
    """The calls that the store makes, counted and timed on a virtual clock."""

    def __init__(self, table: LaneTable) -> None:
        self.table = table
        self.calls = 0
        self.spent_ms = 0

    def _took(self, call: str) -> None:
        self.calls += 1
        self.spent_ms += CALL_MS[call]

    def batch_execute_statement(self, *, Statements: Sequence[Any]) -> Any:  # noqa: N803 (boto3's name)
        self._took("batch_execute_statement")
        return {"Responses": [self._one(said) for said in Statements]}

    def _one(self, said: Mapping[str, Any]) -> Any:
        try:
            return {"Item": self.table.statement(said["Statement"], said["Parameters"])}
        except Refused as refused:
            self.table.units += 1
            return {"Error": {"Code": refused.code, "Item": refused.item}}

    def query(self, *, ExpressionAttributeValues: Any, Limit: int, **call: Any) -> Any:  # noqa: N803
        self._took("query")
        lane, until = ExpressionAttributeValues[":lane"]["S"], int(ExpressionAttributeValues[":now"]["N"])
        start = call.get("ExclusiveStartKey")
        after = (int(start["due_at"]["N"]), start["job_id"]["S"]) if start else None
        page = self.table.query(lane, until, Limit, after)
        return {"Items": [{"job_id": {"S": key}, "due_at": {"N": str(due)}} for due, key in page]}


class Attempter:
    """Everything is accepted."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def attempt(self, jobs: Sequence[Job], *, now_ms: int, deadline_ms: int) -> Mapping[JobId, Attempted]:
        self._client.spent_ms += CALL_MS["attempt"]
        return {job.job_id: dict.fromkeys(job.open_deliveries, Sent()) for job in jobs}


class Backlog:
    """So many due rows over so many lanes, and a worker's hands on them."""

    def __init__(self, rows: int, lanes: int) -> None:
        self.names = [due_lane(shard) for shard in range(lanes)]
        self.table = LaneTable()
        self.client = Client(self.table)
        dice = random.Random(rows)
        ids = iter(range(10**9))
        for at in range(rows):
            job = a_job(job_id=job_id_of(str(at)), due_at_ms=NOW_MS - dice.randrange(60_000))
            self.table.load(row_of(job, lanes=lanes, ttl_s=None))
        statements = Statements(
            client=self.client,  # type: ignore[arg-type]
            table="jobs",
            new_id=lambda: f"{next(ids):032x}",
            clock=lambda: NOW_MS,
            pause=lambda _: None,
            dice=dice.random,
        )
        store = DynamoJobStore(statements=statements, lanes=lanes)
        engine = Engine(
            store=store,
            hints=FakeHints(),
            letters=FakeLetters(),
            attempter=Attempter(self.client),
            clock=lambda: NOW_MS,
            dice=dice.random,
            new_id=lambda: f"{next(ids):032x}",
            policy=Policy(
                retry=RetryPolicy(schedule=listed([timedelta(seconds=30)])),
                lease=timedelta(seconds=120),
                grace=timedelta(seconds=180),
            ),
            least_time=timedelta(seconds=10),
        )
        self.lanes = Lanes(
            engine=engine,
            jobs=store,
            clock=lambda: NOW_MS,
            shuffle=lambda leads: dice.sample(leads, len(leads)),
            page=PAGE,
        )

    def work(self, lane: str) -> tuple[int, float]:
        """See one lane through; its jobs, and the seconds that it took."""
        before_ms = self.client.spent_ms
        report = Report()
        self.lanes.work([lane], report, deadline_ms=NOW_MS + 10**9)
        return report.count("settled"), (self.client.spent_ms - before_ms) / 1000

    def tick(self) -> tuple[int, list[str]]:
        """What a drain does by itself; its jobs, and the lanes that it hands over."""
        report = Report()
        handed_over = self.lanes.work(self.names, report, deadline_ms=NOW_MS + 10**9, reads=1)
        return report.count("settled"), handed_over


def prices(sizes: Sequence[int]) -> str:
    """A row a size: calls and units per job, over one lane and over the default of 16."""
    lines = ["| due rows | lanes | calls a job | write units a job |", "|--:|--:|--:|--:|"]
    for lanes in (1, 16):
        for rows in sizes:
            backlog = Backlog(rows, lanes)
            done, handed_over = backlog.tick()
            done += sum(backlog.work(lane)[0] for lane in handed_over)
            if done != rows:
                raise RuntimeError(f"{done} of {rows} jobs were done")
            calls, units = backlog.client.calls / rows, backlog.table.units / rows
            lines.append(f"| {rows:,} | {lanes} | {calls:.3f} | {units:.2f} |")
    return "\n".join(lines)


def throughput(rows: int) -> str:
    """Jobs a second by lanes and workers."""
    workers = (1, 2, 4, 8, 16)
    lines = [
        f"| lanes | {' | '.join(f'{count} worker{"s" * (count > 1)}' for count in workers)} |",
        f"|--:|{'--:|' * len(workers)}",
    ]
    for lanes in (1, 4, 16, 64):
        backlog = Backlog(rows, lanes)
        spans = [backlog.work(lane)[1] for lane in backlog.names]
        cells = []
        for count in workers:
            free = [0.0] * count
            for span in spans:  # each lane goes to the worker that is free first
                heapq.heappush(free, heapq.heappop(free) + span)
            cells.append(f"{rows / max(free):,.0f}")
        lines.append(f"| {lanes} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    arguments = parser.parse_args()
    print(prices(arguments.rows))
    print()
    print(throughput(10_000))


if __name__ == "__main__":
    main()
