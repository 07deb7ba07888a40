"""What a job costs in write units, from DynamoDB's own figures: docs/cost.md is made from these paths."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders import HOUR_MS, NOW_MS
from fakes import FakeAttempter, FakeClock, FakeHints, FakeLetters, fixed_dice
from metered import Metered, size_of
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.statements import Statements
from pushlease.codes import Code
from pushlease.jobs import burial
from pushlease.jobs.engine import Engine
from pushlease.jobs.job import Delivery, DeliveryId, Job, Sight, Status, job_id_of
from pushlease.jobs.ports import Lead
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Attempted, Failed, Held, Policy, Sent

CONTENT = '{"title":"Your parcel is on its way","body":"It should arrive tomorrow.","data":{"order":"4711"}}'
POLICY = Policy(
    retry=RetryPolicy(schedule=listed([timedelta(seconds=30)])),
    lease=timedelta(seconds=120),
    grace=timedelta(seconds=180),
)
KIB = 1024


class Bench:
    """The real store, metered, under the real engine."""

    def __init__(self, client: Any, table: str) -> None:
        self.client, self.table = Metered(client), table
        self.clock = FakeClock()
        self.hints, self.letters = FakeHints(), FakeLetters()
        self.attempter = FakeAttempter()
        statements = Statements(
            client=self.client,
            table=table,
            new_id=lambda: uuid.uuid4().hex,
            clock=lambda: NOW_MS,
            pause=lambda _: None,
            dice=fixed_dice(),
        )
        self.store = DynamoJobStore(statements=statements, lanes=16)
        self.engine = Engine(
            store=self.store,
            hints=self.hints,
            letters=self.letters,
            attempter=self.attempter,
            clock=self.clock,
            dice=fixed_dice(),
            new_id=lambda: uuid.uuid4().hex,
            policy=POLICY,
            least_time=timedelta(seconds=10),
        )

    def send(self, devices: int = 1, **said: Any) -> Job:
        """Insert a job as ``send`` does: forward-dated, with ids of the longest usual kind."""
        values: dict[str, Any] = {
            "job_id": job_id_of(uuid.uuid4().hex),
            "app_id": "com.example.shop",
            "user_id": str(uuid.uuid4()),
            "notification_id": uuid.uuid4().hex,
            "fingerprint": uuid.uuid4().hex[:16],
            "status": Status.PENDING,
            "deliveries": {DeliveryId(str(uuid.uuid4())): Delivery() for _ in range(devices)},
            "max_attempts": 5,
            "due_at_ms": self.clock() + 180_000,
            "content": CONTENT,
            "created_at_ms": self.clock(),
            "expires_at_ms": self.clock() + 24 * HOUR_MS,
        }
        job = Job(**values | said)
        self.store.insert([job])
        return job

    def attempt(self, job: Job, result: Any, *, from_index: bool = False) -> Job:
        """One claim, attempt and settle, from the hint or from the drain; the row after it."""

        def answer(claimed: Job) -> Attempted:
            return dict.fromkeys(claimed.open_deliveries, result)

        self.attempter.otherwise = answer
        seen = self.store.get([job.job_id])[job.job_id]
        if from_index:
            self.clock.now_ms = max(self.clock.now_ms, seen.due_at_ms)
        lead = Lead(job_id=job.job_id, due_at_ms=seen.due_at_ms, claim_seq=None if from_index else seen.claim_seq)
        self.engine.work([lead], deadline_ms=self.clock() + 45_000)
        return self.store.get([job.job_id])[job.job_id]

    def item(self, job: Job) -> Mapping[str, Any]:
        item: Mapping[str, Any] = self.client.get_item(TableName=self.table, Key={"job_id": {"S": job.job_id}})["Item"]
        return item


@pytest.fixture
def bench(aws: Any, make_table: Callable[[str], str]) -> Bench:
    return Bench(aws.session().client("dynamodb"), make_table("jobs"))


def put(bench: Bench, **said: Any) -> None:
    bench.client.put_item(TableName=bench.table, Item={"job_id": {"S": "x"}, **said})


def update(bench: Bench, expression: str, **values: Any) -> None:
    bench.client.update_item(
        TableName=bench.table,
        Key={"job_id": {"S": "x"}},
        UpdateExpression=expression,
        **({"ExpressionAttributeValues": values} if values else {}),
    )


def test_the_emulator_bills_as_documented(bench: Bench) -> None:
    """AWS, "Global secondary indexes: write capacity": enter 1, leave 1, key changed 2, untouched 0; a unit a KiB."""
    in_lane = {"lane": {"S": "due#00"}, "due_at": {"N": "1"}}
    put(bench, due_at={"N": "1"})
    put(bench, **in_lane)
    update(bench, "SET attempts = :n", **{":n": {"N": "1"}})
    update(bench, "SET due_at = :n", **{":n": {"N": "2"}})
    update(bench, "REMOVE lane")
    assert bench.client.bill == [1, 1 + 1, 1, 1 + 2, 1 + 1]
    bench.client.bill.clear()
    put(bench, filler={"S": "x" * KIB}, due_at={"N": "1"})
    update(bench, "SET attempts = :n", **{":n": {"N": "1"}})
    assert bench.client.bill == [2, 2]


@pytest.mark.parametrize("devices", [1, 3])
def test_a_delivered_job_costs_five_units_and_stays_below_a_kibibyte(bench: Bench, devices: int) -> None:
    job = bench.send(devices)
    done = bench.attempt(job, Sent())
    assert done.status is Status.DONE
    assert bench.client.bill == [2, 1, 2]
    assert size_of(bench.item(job)) < KIB  # 555 bytes of one device, 699 of three


def test_to_be_found_by_recipient_costs_a_unit_at_the_insert_and_no_more(bench: Bench) -> None:
    bench.store = replace(bench.store, by_recipient=True)
    bench.engine = replace(bench.engine, store=bench.store)
    job = bench.send()
    assert bench.attempt(job, Sent()).status is Status.DONE
    assert bench.client.bill == [3, 1, 2]
    assert size_of(bench.item(job)) < KIB


def test_a_delivered_job_that_the_drain_found_costs_its_moved_lease(bench: Bench) -> None:
    bench.attempt(bench.send(), Sent(), from_index=True)
    assert bench.client.bill == [2, 1 + 2, 2]


def test_a_retry_costs_a_claim_and_a_settle_that_moves_the_job(bench: Bench) -> None:
    job = bench.attempt(bench.send(), Failed(code=Code.PROVIDER_ERROR, reason="apns: 503"))
    assert bench.attempt(job, Sent()).status is Status.DONE
    assert bench.client.bill == [2, 1, 1 + 2, 1, 2]


def test_a_deferral_costs_a_claim_and_a_settle(bench: Bench) -> None:
    job = bench.send()
    held = bench.attempt(job, Held(until_ms=NOW_MS + HOUR_MS))
    assert (held.status, held.attempts) == (Status.PENDING, 0)
    assert bench.client.bill == [2, 1, 1 + 2]


def test_a_death_costs_its_way_into_the_dead_lane_and_the_sight_of_its_letter(bench: Bench) -> None:
    dead = bench.attempt(bench.send(), Failed(code=Code.REJECTED, reason="apns: 400 BadTopic"))
    (letter,) = bench.letters.sent
    sight = Sight(sent_at_ms=NOW_MS, message_id=str(uuid.uuid4()))
    assert bench.store.sight(dead.job_id, redrives=0, nonce=letter.nonce, sight=sight, due_at_ms=NOW_MS + HOUR_MS)
    assert bench.client.bill == [2, 1, 1 + 2, 1 + 2]


def test_a_redrive_costs_its_way_back_and_an_attempt(bench: Bench) -> None:
    dead = bench.attempt(bench.send(), Failed(code=Code.REJECTED, reason="apns: 400 BadTopic"))
    bench.client.bill.clear()
    revival = burial.revival_of(dead, now_ms=NOW_MS, dice=fixed_dice(0.0), spread=timedelta(0))
    assert bench.store.revive(revival)
    assert bench.attempt(dead, Sent(), from_index=True).status is Status.DONE
    assert bench.client.bill == [1 + 2, 1 + 2, 2]


def test_content_that_does_not_fit_is_stored_beside_the_row(bench: Bench) -> None:
    job = bench.send(content=None, content_ref="com.example.shop#" + uuid.uuid4().hex)
    bench.attempt(job, Sent())
    assert bench.client.bill == [2, 1, 2]
