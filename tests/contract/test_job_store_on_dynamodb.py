"""What only the real job store can meet: rows that others wrote, answers that were lost, throttling, outages, races."""

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from builders import NOW_MS, PHONE, a_claimed_job, a_dead_job, a_job, a_lead
from fakes import fixed_dice
from pushlease.aws import clients
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.rows import row_of
from pushlease.aws.statements import TRIES, Statements
from pushlease.errors import StoreUnavailable
from pushlease.jobs import settle
from pushlease.jobs.job import DeliveryStatus, Job, Status
from pushlease.jobs.ports import Broken, ClaimAnswer, Claimed, Ended, LostRace, Unavailable
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Policy, Sent, Settlement

LEASE = timedelta(seconds=120)
POLICY = Policy(retry=RetryPolicy(schedule=listed([LEASE])), lease=LEASE, grace=LEASE)


@pytest.fixture(scope="module")
def client(aws: object) -> Any:
    return clients.dynamodb()


@pytest.fixture(scope="module")
def table(make_table: Callable[[str], str]) -> str:
    return make_table("jobs")


@cache
def a_store(
    client: Any,
    table: str,
    *,
    pause: Callable[[float], None] = lambda _: None,
    clock: Callable[[], int] = lambda: NOW_MS,
) -> DynamoJobStore:
    statements = Statements(
        client=client,
        table=table,
        new_id=lambda: uuid.uuid4().hex,
        clock=clock,
        pause=pause,
        dice=fixed_dice(),
    )
    return DynamoJobStore(statements=statements, lanes=16)


def sent(job: Job) -> Settlement:
    return settle.settle(job, {PHONE: Sent()}, now_ms=NOW_MS, dice=fixed_dice(), policy=POLICY)


class Between:
    """The client, with something in between: ``execute`` is called for every batch, with the real client's method."""

    def __init__(self, client: Any, execute: Callable[[Callable[..., Any], list[Any]], Any]) -> None:
        self._client = client
        self._execute = execute

    def batch_execute_statement(self, *, Statements: list[Any]) -> Any:  # noqa: N803  (boto3's name)
        return self._execute(self._client.batch_execute_statement, Statements)

    def batch_get_item(self, **request: Any) -> Any:
        return self._client.batch_get_item(**request)


def repeated(between: Callable[[], object] = lambda: None) -> Callable[[Callable[..., Any], list[Any]], Any]:
    """The first answer is lost, and the SDK asks again; ``between`` happens in the meantime."""

    def execute(real: Callable[..., Any], statements: list[Any]) -> Any:
        real(Statements=statements)
        between()
        return real(Statements=statements)

    return execute


# ---- The emulator can be trusted with what is tested on it


def test_of_many_conditional_writes_at_once_just_one_wins(client: Any, table: str) -> None:
    threads = 16
    for _ in range(10):
        job = a_job()
        a_store(client, table).insert([job])
        start = Barrier(threads)

        def increment(job: Job = job, start: Barrier = start) -> bool:
            start.wait(timeout=10)
            try:
                client.update_item(
                    TableName=table,
                    Key={"job_id": {"S": job.job_id}},
                    UpdateExpression="SET claim_seq = claim_seq + :one",
                    ConditionExpression="claim_seq = :zero",
                    ExpressionAttributeValues={":one": {"N": "1"}, ":zero": {"N": "0"}},
                )
            except client.exceptions.ConditionalCheckFailedException:
                return False
            return True

        with ThreadPoolExecutor(threads) as pool:
            wins = [future.result() for future in [pool.submit(increment) for _ in range(threads)]]
        assert wins.count(True) == 1


def test_workers_that_claim_the_same_jobs_get_each_just_once(client: Any, table: str) -> None:
    workers = 8
    jobs = [a_job() for _ in range(50)]
    a_store(client, table).insert(jobs)
    start = Barrier(workers)

    def claim(_worker: int) -> list[str]:
        store = a_store(client, table)
        start.wait(timeout=10)
        answers = store.claim([a_lead(job) for job in jobs], now_ms=NOW_MS, lease=LEASE)
        return [answer.job.job_id for answer in answers if isinstance(answer, Claimed)]

    with ThreadPoolExecutor(workers) as pool:
        claimed = [job_id for mine in pool.map(claim, range(workers)) for job_id in mine]
    assert sorted(claimed) == sorted(job.job_id for job in jobs)


def test_of_a_settle_and_a_cancel_at_once_just_one_ends_the_job(client: Any, table: str) -> None:
    for _ in range(10):
        store = a_store(client, table)
        job = a_job()
        store.insert([job])
        answer = store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)[0]
        assert isinstance(answer, Claimed)
        mine = answer.job
        start = Barrier(2)

        def end(mine: Job = mine, start: Barrier = start) -> Ended:
            start.wait(timeout=10)
            return a_store(client, table).settle([sent(mine)])[0]

        def cancel(mine: Job = mine, start: Barrier = start) -> bool:
            start.wait(timeout=10)
            return a_store(client, table).cancel([mine.job_id], now_ms=NOW_MS)[0]

        with ThreadPoolExecutor(2) as pool:
            ended, cancelled = pool.submit(end), pool.submit(cancel)
        assert (ended.result() is Ended.WRITTEN) != cancelled.result()
        left = store.get([job.job_id])[job.job_id]
        assert left.status is (Status.CANCELLED if cancelled.result() else Status.DONE)


# ---- Answers that were lost


def test_a_claim_repeated_by_the_sdk_is_still_ours(client: Any, table: str) -> None:
    store = a_store(Between(client, repeated()), table)
    job = a_job()
    a_store(client, table).insert([job])
    answer = store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)[0]
    assert isinstance(answer, Claimed)
    assert (answer.job.attempts, answer.job.claim_seq) == (1, 1)


def test_a_claim_repeated_by_the_sdk_is_lost_if_the_job_was_cancelled_in_between(client: Any, table: str) -> None:
    other = a_store(client, table)
    job = a_job()
    other.insert([job])
    store = a_store(Between(client, repeated(lambda: other.cancel([job.job_id], now_ms=NOW_MS))), table)
    assert store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]


def test_a_settle_repeated_by_the_sdk_is_still_written(client: Any, table: str) -> None:
    job = a_job()
    other = a_store(client, table)
    other.insert([job])
    claimed = other.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)[0]
    assert isinstance(claimed, Claimed)
    assert a_store(Between(client, repeated()), table).settle([sent(claimed.job)]) == [Ended.WRITTEN]
    assert other.settle([sent(claimed.job)]) == [Ended.LEASE_LOST]


def test_an_insert_repeated_by_the_sdk_stores_the_job_once(client: Any, table: str) -> None:
    job = a_job()
    assert a_store(Between(client, repeated()), table).insert([job]) == [job]


def unanswered(real: Callable[..., Any], statements: list[Any]) -> Any:
    """Done, and nobody is ever told."""
    real(Statements=statements)
    raise EndpointConnectionError(endpoint_url="https://dynamodb")


def test_a_write_that_got_no_answer_is_read_back(client: Any, table: str) -> None:
    """Else a claim would be an attempt that nobody makes, and a settle one that is made twice."""
    job = a_job()
    a_store(client, table).insert([job])
    store = a_store(Between(client, unanswered), table)
    (claimed,) = store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)
    assert isinstance(claimed, Claimed)
    assert (claimed.job.attempts, claimed.job.claim_seq) == (1, 1)
    assert store.settle([sent(claimed.job)]) == [Ended.WRITTEN]
    assert store.settle([sent(claimed.job)]) == [Ended.UNKNOWN]  # this one was not done


# ---- Throttling and outages


class Passing:
    """A clock that goes on by what is waited."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms

    def wait(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


@pytest.mark.parametrize("fault", ["each statement", "the whole call"])
def test_a_settle_is_repeated_until_its_deadline_and_no_longer(client: Any, table: str, fault: str) -> None:
    other = a_store(client, table)
    job = a_job()
    other.insert([job])
    (claimed,) = other.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)
    assert isinstance(claimed, Claimed)
    clock = Passing()
    mends_at_ms = NOW_MS + 20_000

    def throttled(real: Callable[..., Any], statements: list[Any]) -> Any:
        if clock() >= mends_at_ms:
            return real(Statements=statements)
        if fault == "the whole call":
            raise EndpointConnectionError(endpoint_url="https://dynamodb")
        return {"Responses": [{"Error": {"Code": "ThrottlingError", "Message": "later"}} for _ in statements]}

    store = a_store(Between(client, throttled), table, pause=clock.wait, clock=clock)
    assert store.settle([sent(claimed.job)], deadline_ms=NOW_MS + 10_000) == [Ended.UNKNOWN]
    assert NOW_MS + 10_000 <= clock() < NOW_MS + 13_000
    assert store.settle([sent(claimed.job)], deadline_ms=NOW_MS + 30_000) == [Ended.WRITTEN]


def test_a_call_that_dynamodb_refuses_as_such_is_not_repeated(client: Any, table: str) -> None:
    calls: list[int] = []

    def refused(_real: Callable[..., Any], statements: list[Any]) -> Any:
        calls.append(len(statements))
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchExecuteStatement")

    store = a_store(Between(client, refused), table)
    assert store.settle([sent(a_claimed_job())], deadline_ms=NOW_MS + 60_000) == [Ended.UNKNOWN]
    assert calls == [1]


def throttling(times: int, code: str = "ThrottlingError") -> Callable[[Callable[..., Any], list[Any]], Any]:
    """For so many calls every second statement is throttled, and not done."""
    calls = []

    def execute(real: Callable[..., Any], statements: list[Any]) -> Any:
        calls.append(1)
        if len(calls) > times:
            return real(Statements=statements)
        done = iter(real(Statements=statements[1::2])["Responses"] if statements[1::2] else [])
        throttled = {"Error": {"Code": code, "Message": "later"}}
        return {"Responses": [next(done) if at % 2 else throttled for at in range(len(statements))]}

    return execute


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "InternalServerError"])
def test_throttled_statements_are_repeated_with_growing_pauses_and_never_lost(
    client: Any, table: str, code: str
) -> None:
    jobs = [a_job() for _ in range(8)]
    pauses: list[float] = []
    store = a_store(Between(client, throttling(3, code)), table, pause=pauses.append)
    a_store(client, table).insert(jobs)
    answers = store.claim([a_lead(job) for job in jobs], now_ms=NOW_MS, lease=LEASE)
    assert all(isinstance(answer, Claimed) for answer in answers)
    assert [answer.job.job_id for answer in answers if isinstance(answer, Claimed)] == [job.job_id for job in jobs]
    assert len(pauses) == 3
    assert pauses == sorted(pauses)
    assert store.statements.throttled == 4 + 2 + 1


def test_statements_throttled_to_the_end_are_unavailable_and_unknown(client: Any, table: str) -> None:
    store = a_store(Between(client, throttling(99)), table)
    job, other = a_job(), a_job()
    a_store(client, table).insert([job, other])
    answers = store.claim([a_lead(job), a_lead(other)], now_ms=NOW_MS, lease=LEASE)
    assert answers[0] == Unavailable(job_id=job.job_id)
    assert isinstance(answers[1], Claimed)
    assert store.settle([sent(a_claimed_job())]) == [Ended.UNKNOWN]
    assert store.statements.throttled >= TRIES - 1


def out_of_reach(real: Callable[..., Any], statements: list[Any]) -> Any:
    raise EndpointConnectionError(endpoint_url="https://dynamodb")


def test_a_store_out_of_reach_is_said_to_be(client: Any, table: str) -> None:
    store = a_store(Between(client, out_of_reach), table)
    job = a_job()
    assert store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [Unavailable(job_id=job.job_id)]
    assert store.settle([sent(a_claimed_job())]) == [Ended.UNKNOWN]
    assert store.insert([job]) == [Unavailable(job_id=job.job_id)]


class Unreading(Between):
    """Writes go through; of reads nothing is processed, or each fails."""

    def __init__(self, client: Any, fault: Exception | None = None) -> None:
        super().__init__(client, lambda real, statements: real(Statements=statements))
        self._fault = fault

    def batch_get_item(self, **request: Any) -> Any:
        if self._fault:
            raise self._fault
        return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}


def test_rows_that_could_not_be_read_are_not_taken_for_missing(client: Any, table: str) -> None:
    job = a_job()
    a_store(client, table).insert([job])
    store = a_store(Unreading(client), table)
    with pytest.raises(StoreUnavailable):
        store.get([job.job_id])
    with pytest.raises(StoreUnavailable):
        store.remains(job.job_id)


@pytest.mark.parametrize("fault", [None, EndpointConnectionError(endpoint_url="https://dynamodb")])
def test_a_row_that_cannot_be_looked_up_takes_no_neighbours_claim(
    client: Any, table: str, fault: Exception | None
) -> None:
    """A condition that fails on a missing row shows none: it is read, and that may fail."""
    missing, job = a_job(), a_job()
    a_store(client, table).insert([job])
    store = a_store(Unreading(client, fault), table)
    unknown, claimed = store.claim([a_lead(missing), a_lead(job)], now_ms=NOW_MS, lease=LEASE)
    assert unknown == Unavailable(job_id=missing.job_id)
    assert isinstance(claimed, Claimed)


def test_a_cancel_wins_against_one_that_was_faster(client: Any, table: str) -> None:
    """The row changes between the cancel's read and its write: it reads again."""
    job = a_job()
    other = a_store(client, table)
    other.insert([job])
    raced: list[ClaimAnswer] = []

    class Racing(Between):
        def batch_get_item(self, **request: Any) -> Any:
            answer = super().batch_get_item(**request)
            if not raced:
                raced.extend(other.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE))
            return answer

    store = a_store(Racing(client, lambda real, statements: real(Statements=statements)), table)
    assert store.cancel([job.job_id], now_ms=NOW_MS) == [True]
    left = other.get([job.job_id])[job.job_id]
    assert (left.status, left.claim_seq, left.settled_seq) == (Status.CANCELLED, 1, 1)


# ---- Rows that cannot be read

NOT_A_TEXT: Mapping[str, Any] = {"M": {}}
NOT_A_NUMBER: Mapping[str, Any] = {"S": "seven"}
A_DELIVERY: Mapping[str, Any] = {"status": {"S": "queued"}}


def delivered(**parts: Any) -> Mapping[str, Any]:
    return {"M": {"phone": {"M": {**A_DELIVERY, **parts}}}}


REQUIRED = {
    "app_id": NOT_A_TEXT,
    "user_id": NOT_A_TEXT,
    "notification_id": NOT_A_TEXT,
    "fingerprint": NOT_A_TEXT,
    "status": NOT_A_TEXT,
    "attempts": NOT_A_NUMBER,
    "max_attempts": NOT_A_NUMBER,
    "claim_seq": NOT_A_NUMBER,
    "settled_seq": NOT_A_NUMBER,
    "deliveries": {"S": "phone"},
    "content": NOT_A_TEXT,
    "created_at": NOT_A_NUMBER,
    "expires_at": {"N": "1.5"},
}
OPTIONAL: Mapping[str, Any] = {
    "alone": {"S": "yes"},
    "sent_late": {"S": "phone"},
    "content_ref": NOT_A_TEXT,
    "channel": NOT_A_TEXT,
    "last_error": NOT_A_TEXT,
    "redrives": NOT_A_NUMBER,
    "died_at": NOT_A_NUMBER,
    "sights": {"M": {"a": {"S": "here"}}},
    "history": NOT_A_TEXT,
}
INSIDE: Mapping[str, Any] = {
    "a delivery is a text": {"M": {"phone": {"S": "queued"}}},
    "no status": {"M": {"phone": {"M": {}}}},
    "an unknown status": delivered(status={"S": "lingering"}),
    "attempts": delivered(attempts={"S": "two"}),
    "code": delivered(code={"N": "410"}),
    "due_at": delivered(due_at={"S": "soon"}),
    "provider_id": delivered(provider_id={"N": "1"}),
    "sent_at": delivered(sent_at={"S": "now"}),
}
FAULTS: Mapping[str, Mapping[str, Any]] = {
    **{f"{name} missing": {name: None} for name in REQUIRED},
    # Of an index's key DynamoDB itself keeps the type.
    **{f"{name} mistyped": {name: value} for name, value in {**REQUIRED, **OPTIONAL}.items() if name != "created_at"},
    **{f"deliveries: {name}": {"deliveries": value} for name, value in INSIDE.items()},
    "an unknown job status": {"status": {"S": "asleep"}},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_row_with_any_fault_dies_at_once_and_its_neighbour_is_claimed(client: Any, table: str, fault: str) -> None:
    store = a_store(client, table)
    job, sound = a_job(), a_job()
    store.insert([sound])
    item = {**row_of(job, lanes=16, ttl_s=None), **FAULTS[fault]}
    client.put_item(TableName=table, Item={name: value for name, value in item.items() if value is not None})

    broken, claimed = store.claim([a_lead(job), a_lead(sound)], now_ms=NOW_MS, lease=LEASE)
    assert isinstance(broken, Broken)
    assert isinstance(claimed, Claimed)

    assert store.condemn(job.job_id, due_at_ms=NOW_MS, now_ms=NOW_MS, why=broken.why) is not None
    remains = store.remains(job.job_id)
    assert remains is not None
    assert remains.status is Status.DEAD
    assert store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]


def test_the_fault_names_the_attribute_and_never_its_value(client: Any, table: str) -> None:
    store = a_store(client, table)
    job = a_job()
    item = row_of(job, lanes=16, ttl_s=None) | {"expires_at": {"S": "s3cret"}}
    client.put_item(TableName=table, Item=item)
    (broken,) = store.claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE)
    assert isinstance(broken, Broken)
    assert "expires_at" in broken.why
    assert "s3cret" not in broken.why


def test_a_hint_for_a_row_that_was_pruned_claims_nothing(client: Any, table: str) -> None:
    job = a_job()
    assert a_store(client, table).claim([a_lead(job)], now_ms=NOW_MS, lease=LEASE) == [LostRace(job_id=job.job_id)]


def test_only_rows_with_work_or_a_letter_to_see_to_are_in_the_index(
    client: Any, make_table: Callable[[str], str]
) -> None:
    table = make_table("jobs")
    store = a_store(client, table)
    pending, dead, done = a_job(), a_dead_job(), a_job(status=Status.DONE, deliveries={})
    for job in (pending, dead, done):
        client.put_item(TableName=table, Item=row_of(job, lanes=16, ttl_s=None))
    listed_ = client.scan(TableName=table, IndexName="due")["Items"]
    assert {row["job_id"]["S"] for row in listed_} == {pending.job_id, dead.job_id}
    assert all(set(row) == {"job_id", "lane", "due_at"} for row in listed_)
    assert store.get([done.job_id])[done.job_id].status is Status.DONE


def test_a_delivery_recorded_late_is_sent_whatever_the_map_says(client: Any, table: str) -> None:
    job = a_job()
    store = a_store(client, table)
    store.insert([job])
    store.record_late(job.job_id, [PHONE])
    raw = client.get_item(TableName=table, Key={"job_id": {"S": job.job_id}})["Item"]
    assert raw["deliveries"]["M"][PHONE]["M"]["status"]["S"] == "queued"
    assert store.get([job.job_id])[job.job_id].deliveries[PHONE].status is DeliveryStatus.SENT
