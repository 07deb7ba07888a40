"""The template stands on the embedded AWS, and the embedded AWS cleans up after itself."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import cfnlint.decode  # type: ignore[import-untyped] # has no stubs
import pytest

from pushlease_local.emulator import TEMPLATE, EmbeddedAws, EmulatorError

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ECHO = Path(__file__).parent / "echo" / "template.yaml"
DEADLINE_MS = 10_000


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedAws, str]]:
    with EmbeddedAws(tmp_path_factory.mktemp("echo")) as running:
        yield running, running.deploy(template=ECHO)["EchoFunctionName"]


def ends(pid: int) -> bool:
    """Wait for a process that is not our child to end."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(DEADLINE_MS))
    finally:
        os.close(descriptor)


def say(aws: EmbeddedAws, function: str, word: str) -> int:
    answer = aws.session().client("lambda").invoke(FunctionName=function, Payload=json.dumps({"say": word}))
    pid: int = json.load(answer["Payload"])["pid"]
    return pid


def test_every_output_of_the_template_has_a_value(stack: Mapping[str, str]) -> None:
    template, _ = cfnlint.decode.decode(str(TEMPLATE))
    assert template is not None
    # What an option adds is off here; the events of ``tests/integration`` go through it.
    assert set(stack) == {name for name, output in template["Outputs"].items() if "Condition" not in output}
    assert all(stack.values())


def test_parameters_reach_the_functions(strict_aws: EmbeddedAws, stack: Mapping[str, str]) -> None:
    functions = strict_aws.session().client("lambda")
    for name in ("Send", "Deliver", "Drain", "Redrive", "Registry"):
        configuration = functions.get_function_configuration(FunctionName=stack[f"{name}FunctionName"])
        variables = configuration["Environment"]["Variables"]
        assert configuration["Timeout"] == 50
        assert variables["PUSHLEASE_RETRY_SCHEDULE"] == "1 2 3"
        assert variables["PUSHLEASE_BURIAL_QUEUE_URL"] == stack["BurialQueueUrl"]
        assert "" not in variables.values()


def test_queues_move_what_is_refused_and_wait_six_timeouts(strict_aws: EmbeddedAws, stack: Mapping[str, str]) -> None:
    sqs = strict_aws.session().client("sqs")

    def attributes(queue: str) -> "Mapping[QueueAttributeNameType, str]":
        return sqs.get_queue_attributes(QueueUrl=stack[f"{queue}QueueUrl"], AttributeNames=["All"])["Attributes"]

    dead_letters = attributes("DeadLetters")["QueueArn"]
    for queue in ("Work", "Bulk", "Burial"):
        assert int(attributes(queue)["VisibilityTimeout"]) >= 300
        policy = json.loads(attributes(queue)["RedrivePolicy"])
        assert (policy["deadLetterTargetArn"], int(policy["maxReceiveCount"])) == (dead_letters, 3)


def test_mappings_are_limited_and_the_drain_is_called_every_minute(
    strict_aws: EmbeddedAws, stack: Mapping[str, str]
) -> None:
    mappings = strict_aws.session().client("lambda").list_event_source_mappings()["EventSourceMappings"]
    limits = {
        mapping["EventSourceArn"].rsplit(":", 1)[1]: mapping["ScalingConfig"]["MaximumConcurrency"]
        for mapping in mappings
    }
    names = {queue: stack[f"{queue}QueueUrl"].rsplit("/", 1)[1] for queue in ("Work", "Bulk", "Tick", "Burial")}
    assert limits == {names["Work"]: 2, names["Bulk"]: 3, names["Tick"]: 2, names["Burial"]: 2}
    scheduler = strict_aws.session().client("scheduler")
    (summary,) = scheduler.list_schedules()["Schedules"]
    assert summary["Target"]["Arn"] == stack["DrainFunctionArn"]
    assert scheduler.get_schedule(Name=summary["Name"])["Target"]["Input"] == '{"kind":"tick"}'


def test_the_due_index_lists_rows_with_a_lane_only(strict_aws: EmbeddedAws, stack: Mapping[str, str]) -> None:
    dynamodb = strict_aws.session().client("dynamodb")
    # No lane of a drain's: it would rightly bury what is no job.
    for job_id, lane in (("pending", {"lane": {"S": "elsewhere#0"}}), ("done", {})):
        row = {"job_id": {"S": job_id}, "due_at": {"N": "1"}, **lane}
        dynamodb.put_item(TableName=stack["JobsTableName"], Item=row)
    found = dynamodb.query(
        TableName=stack["JobsTableName"],
        IndexName="due",
        KeyConditionExpression="lane = :lane AND due_at <= :now",
        ExpressionAttributeValues={":lane": {"S": "elsewhere#0"}, ":now": {"N": "2"}},
    )["Items"]
    assert found == [{"job_id": {"S": "pending"}, "lane": {"S": "elsewhere#0"}, "due_at": {"N": "1"}}]


def test_a_deployment_that_fails_says_why(strict_aws: EmbeddedAws, stack: Mapping[str, str]) -> None:
    with pytest.raises(EmulatorError, match="MaxAttempts"):
        strict_aws.deploy({"MaxAttempts": "0"})


def test_a_functions_lines_can_be_read(echo: tuple[EmbeddedAws, str]) -> None:
    aws, function = echo
    say(aws, function, "good morning")
    assert "good morning" in aws.function_logs(function)


def test_a_killed_function_process_is_replaced(echo: tuple[EmbeddedAws, str]) -> None:
    aws, function = echo
    pid = say(aws, function, "before")
    assert aws.function_pids(function) == [pid]
    os.kill(pid, signal.SIGKILL)
    assert say(aws, function, "after") != pid


def test_two_at_once_know_nothing_of_each_other(echo: tuple[EmbeddedAws, str], tmp_path: Path) -> None:
    aws, _ = echo
    with EmbeddedAws(tmp_path) as other:
        other.session().client("sqs").create_queue(QueueName="only-here")
        assert aws.endpoint_url != other.endpoint_url
        assert "only-here" not in str(aws.session().client("sqs").list_queues().get("QueueUrls"))


def test_stopping_ends_function_processes_too(tmp_path: Path) -> None:
    with EmbeddedAws(tmp_path) as aws:
        pid = say(aws, aws.deploy(template=ECHO)["EchoFunctionName"], "hello")
    assert ends(pid)


def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from pushlease_local.emulator import EmbeddedAws
with EmbeddedAws(Path({str(tmp_path)!r})) as aws:
    print(aws.endpoint_url, aws.pid, flush=True)
    sys.stdin.read()
"""
    owner = subprocess.Popen(  # noqa: S603 the program above
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        endpoint_url, pid = owner.stdout.readline().split()
        owner.kill()
        assert ends(int(pid))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(endpoint_url.rsplit(":", 1)[1]))) != 0
