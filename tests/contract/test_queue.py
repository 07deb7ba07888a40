"""The queues and the secrets against the emulator's SQS and Secrets Manager."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from builders import NOW_MS, a_dead_job, a_hint, a_letter
from pushlease.aws import clients
from pushlease.aws.queue import SqsHints, SqsLetters, SqsPolicy, SqsRefusal, SqsTicks
from pushlease.aws.secrets import SecretsManagerSecrets
from pushlease.errors import CredentialsError
from pushlease.jobs.message import Tick, parse
from pushlease.jobs.ports import Lead

_serials = count(1)
MAX_RECEIVE_COUNT = 3


@pytest.fixture(scope="module")
def sqs(aws: object) -> Any:
    return clients.sqs()


@pytest.fixture
def make_queue(sqs: Any) -> Callable[..., str]:
    def make(**attributes: str) -> str:
        url: str = sqs.create_queue(QueueName=f"queue-{next(_serials)}", Attributes=attributes)["QueueUrl"]
        return url

    return make


def arn(sqs: Any, url: str) -> str:
    found: str = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return found


def received(sqs: Any, url: str, wanted: int = 1) -> list[Mapping[str, Any]]:
    """So many messages; fewer only if none comes for a second."""
    found: list[Mapping[str, Any]] = []
    while len(found) < wanted:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, MessageSystemAttributeNames=["All"]
        )
        if not answer.get("Messages"):
            break
        found += answer["Messages"]
    return found


def test_hints_arrive_as_leads_in_their_apps_group(sqs: Any, make_queue: Callable[..., str]) -> None:
    url = make_queue()
    hint = a_hint(claim_seq=3, hops=2, app_id="shop-7")
    assert SqsHints(client=sqs, queue_url=url).publish([hint]) == 0
    (message,) = received(sqs, url)
    assert parse(message["Body"]) == Lead(job_id=hint.job_id, claim_seq=3, due_at_ms=NOW_MS, hops=2)
    assert message["Attributes"]["MessageGroupId"] == "shop-7"


def test_more_hints_than_one_call_takes_all_arrive(sqs: Any, make_queue: Callable[..., str]) -> None:
    url = make_queue()
    hints = [a_hint() for _ in range(23)]
    assert SqsHints(client=sqs, queue_url=url).publish(hints) == 0
    bodies = [json.loads(message["Body"]) for message in received(sqs, url, 23)]
    assert sorted(body["job_id"] for body in bodies) == sorted(hint.job_id for hint in hints)


@pytest.mark.parametrize(
    ("delay", "seconds"), [(0, 0), (1, 2), (1000, 2), (1001, 3), (898_001, 900), (899_001, 900), (900_000, 900)]
)
def test_a_delay_is_rounded_up_to_whole_seconds_and_one_more_for_clocks_that_differ(delay: int, seconds: int) -> None:
    asked: list[Any] = []

    class Recording:
        def send_message_batch(self, *, QueueUrl: str, Entries: Any) -> Mapping[str, Any]:  # noqa: N803
            asked.extend(Entries)
            return {}

    client: Any = Recording()
    SqsHints(client=client, queue_url="q").publish([a_hint(delay=timedelta(milliseconds=delay))])
    assert asked[0]["DelaySeconds"] == seconds


def test_a_delayed_hint_is_not_there_yet(sqs: Any, make_queue: Callable[..., str]) -> None:
    url = make_queue()
    assert SqsHints(client=sqs, queue_url=url).publish([a_hint(delay=timedelta(minutes=15))]) == 0
    delayed = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesDelayed"])
    assert delayed["Attributes"]["ApproximateNumberOfMessagesDelayed"] == "1"


def test_hints_letters_and_ticks_that_cannot_be_sent_are_counted_and_nothing_is_raised(
    sqs: Any, make_queue: Callable[..., str]
) -> None:
    gone = make_queue() + "-gone"
    assert SqsHints(client=sqs, queue_url=gone).publish([a_hint() for _ in range(12)]) == 12
    assert SqsLetters(client=clients.sqs_once(), queue_url=gone).bury([a_letter(a_dead_job())]) == 1
    assert SqsTicks(client=sqs, queue_url=gone).leave([timedelta(seconds=30)]) == 1
    SqsRefusal(client=sqs, queue_url=gone).refuse("handle")


def test_what_sqs_refuses_in_a_batch_is_counted() -> None:
    class Refusing:
        def send_message_batch(self, *, QueueUrl: str, Entries: Any) -> Mapping[str, Any]:  # noqa: N803
            return {"Failed": [{"Id": "0", "SenderFault": True, "Code": "InvalidParameterValue"}]}

    client: Any = Refusing()
    assert SqsHints(client=client, queue_url="q").publish([a_hint() for _ in range(15)]) == 2


def test_letters_are_sent_without_the_sdks_own_retries(aws: object) -> None:
    assert clients.sqs_once().meta.config.retries["total_max_attempts"] == 1  # type: ignore[attr-defined]
    assert clients.sqs().meta.config.retries["total_max_attempts"] > 1  # type: ignore[attr-defined]


def test_a_tick_is_left_for_later(sqs: Any, make_queue: Callable[..., str]) -> None:
    url = make_queue()
    assert SqsTicks(client=sqs, queue_url=url).leave([timedelta(seconds=1)]) == 0
    (message,) = received(sqs, url) or received(sqs, url)
    assert parse(message["Body"]) == Tick(hinted=True)


def test_a_refused_letter_is_moved_to_the_dead_letter_queue_by_sqs_itself(
    sqs: Any, make_queue: Callable[..., str]
) -> None:
    dead_letters = make_queue()
    policy = json.dumps({"deadLetterTargetArn": arn(sqs, dead_letters), "maxReceiveCount": MAX_RECEIVE_COUNT})
    burial = make_queue(RedrivePolicy=policy, VisibilityTimeout="300")
    letter = a_letter(a_dead_job())
    assert SqsLetters(client=clients.sqs_once(), queue_url=burial).bury([letter]) == 0

    refusal = SqsRefusal(client=sqs, queue_url=burial)
    for time in range(1, MAX_RECEIVE_COUNT + 1):
        (message,) = received(sqs, burial)
        assert message["Attributes"]["ApproximateReceiveCount"] == str(time)
        refusal.refuse(message["ReceiptHandle"])
    assert received(sqs, burial) == []

    (moved,) = received(sqs, dead_letters)
    assert parse(moved["Body"]) == letter
    assert moved["Attributes"]["DeadLetterQueueSourceArn"] == arn(sqs, burial)


# ---- Secrets


@pytest.fixture
def secret(aws: Any) -> Callable[[str], tuple[str, Any]]:
    client = aws.session().client("secretsmanager")

    def make(text: str) -> tuple[str, Any]:
        name = f"pushlease/secret-{next(_serials)}"
        client.create_secret(Name=name, SecretString=text)
        return name, client

    return make


@pytest.fixture
def secrets(aws: object) -> SecretsManagerSecrets:
    return SecretsManagerSecrets(provider=clients.secrets(), prefix="pushlease/")


def test_a_secret_is_cached_until_it_is_wanted_fresh(
    secrets: SecretsManagerSecrets, secret: Callable[[str], tuple[str, Any]]
) -> None:
    name, client = secret("first")
    assert secrets.get(name) == "first"
    client.put_secret_value(SecretId=name, SecretString="second")
    assert secrets.get(name) == "first"
    assert secrets.get(name, fresh=True) == "second"
    assert secrets.get(name) == "second"


def test_a_missing_secret_is_named(secrets: SecretsManagerSecrets) -> None:
    with pytest.raises(CredentialsError, match="secret pushlease/nowhere: cannot be read"):
        secrets.get("pushlease/nowhere")


def test_a_secret_outside_the_prefix_is_not_even_asked_for(
    secrets: SecretsManagerSecrets, secret: Callable[[str], tuple[str, Any]]
) -> None:
    with pytest.raises(CredentialsError, match="must start with pushlease/"):
        secrets.get("others/key")


def test_a_queues_limit_is_read_from_its_policy(sqs: Any, make_queue: Callable[..., str]) -> None:
    dead_letters = arn(sqs, make_queue())
    policy = {"deadLetterTargetArn": dead_letters, "maxReceiveCount": 7}
    url = make_queue(RedrivePolicy=json.dumps(policy))
    assert SqsPolicy(client=sqs, queue_url=url).max_receive_count() == 7
