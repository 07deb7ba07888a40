"""CPU of claiming due jobs: in batches of statements, beside one conditional UpdateItem each.

    uv run python tests/bench/claims.py [--jobs 1000] [--rounds 3]

Both claim the same number of rows from the embedded DynamoDB and read the row that the claim left. What is measured is
this process's own user and system time, which the emulator does not add to; the ratio is what counts.
"""

import argparse
import os
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.rows import job_of
from pushlease.aws.statements import Statements
from pushlease.jobs.job import Delivery, DeliveryId, Job, Status, job_id_of
from pushlease.jobs.ports import Claimed, Lead
from pushlease_local.emulator import EmbeddedAws

RAISE = "SET claim_id = :id, due_at = :due, attempts = attempts + :one, claim_seq = claim_seq + :one"
DUE_MS = 1_800_000_000_000


def a_job() -> Job:
    return Job(
        job_id=job_id_of(uuid.uuid4().hex),
        app_id="com.example.shop",
        user_id=str(uuid.uuid4()),
        notification_id=uuid.uuid4().hex,
        fingerprint=uuid.uuid4().hex[:16],
        status=Status.PENDING,
        deliveries={DeliveryId(str(uuid.uuid4())): Delivery()},
        max_attempts=5,
        due_at_ms=DUE_MS,
        content='{"title":"Your parcel is on its way","body":"It should arrive tomorrow."}',
        created_at_ms=DUE_MS,
        expires_at_ms=DUE_MS + 86_400_000,
    )


def one_by_one(client: Any, table: str, leads: list[Lead]) -> int:
    """The same claim as an UpdateItem for each job."""
    claimed = 0
    for lead in leads:
        answer = client.update_item(
            TableName=table,
            Key={"job_id": {"S": lead.job_id}},
            UpdateExpression=RAISE,
            ConditionExpression="#status = :pending AND due_at = :seen AND due_at <= :now AND attempts < max_attempts",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={
                ":id": {"S": uuid.uuid4().hex},
                ":one": {"N": "1"},
                ":due": {"N": str(DUE_MS + 120_000)},
                ":pending": {"S": "pending"},
                ":seen": {"N": str(DUE_MS)},
                ":now": {"N": str(DUE_MS)},
            },
            ReturnValues="ALL_NEW",
        )
        claimed += job_of(answer["Attributes"]).attempts == 1
    return claimed


def in_batches(store: DynamoJobStore, leads: list[Lead]) -> int:
    """The store's own claim."""
    answers = store.claim(leads, now_ms=DUE_MS, lease=timedelta(seconds=120))
    return sum(isinstance(answer, Claimed) for answer in answers)


def cpu_ms(work: Callable[[], int], wanted: int) -> float:
    """User and system time of this process for one round; every claim must have been won."""
    before = os.times()
    won = work()
    after = os.times()
    if won != wanted:
        raise RuntimeError(f"{won} of {wanted} claims were won")
    return (after.user + after.system - before.user - before.system) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, EmbeddedAws(Path(state)) as aws:
        client = aws.session().client("dynamodb")
        client.create_table(
            TableName="jobs",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "job_id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "job_id", "KeyType": "HASH"}],
        )
        statements = Statements(
            client=client,
            table="jobs",
            new_id=lambda: uuid.uuid4().hex,
            clock=lambda: DUE_MS,
            pause=time.sleep,
            dice=lambda: 0.5,
        )
        store = DynamoJobStore(statements=statements, lanes=16)
        figures: dict[str, list[float]] = {"one UpdateItem each": [], "in batches of 25": []}
        for _ in range(arguments.rounds):
            for name, spent in figures.items():
                jobs = [a_job() for _ in range(arguments.jobs)]
                store.insert(jobs)
                leads = [Lead(job_id=job.job_id, due_at_ms=DUE_MS) for job in jobs]
                if name == "in batches of 25":
                    spent.append(cpu_ms(partial(in_batches, store, leads), len(leads)))
                else:
                    spent.append(cpu_ms(partial(one_by_one, client, "jobs", leads), len(leads)))
        best = {name: min(spent) / arguments.jobs for name, spent in figures.items()}
        for name, each in best.items():
            print(f"{name:20} {each:.3f} ms of CPU a claim (best of {arguments.rounds})")
        single, batch = best.values()
        print(f"ratio {batch / single:.3f}")


if __name__ == "__main__":
    main()
