"""Each function can do its work with its own role, and nothing beyond it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pushlease_local.emulator import EmbeddedAws
from pushlease_local.stack import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVENTS = Path(__file__).parents[2] / "events"
LONG_POLLS = 4  # of 20 s, SQS's longest; the first functions start cold


def test_every_function_works_with_its_own_role(strict_aws: EmbeddedAws, stack: Mapping[str, str]) -> None:
    session = strict_aws.session()

    def invoke(function: str, event: str) -> Any:
        payload = (EVENTS / function.lower() / f"{event}.json").read_bytes()
        answer: Mapping[str, Any] = session.client("lambda").invoke(
            FunctionName=stack[f"{function}FunctionName"], Payload=payload
        )
        body = json.load(answer["Payload"])
        assert "FunctionError" not in answer, body
        return body

    for name in ("pushlease/demo/apns", "pushlease/demo/fcm"):
        session.client("secretsmanager").create_secret(Name=name, SecretString="{}")
    for event in ("configure_app", "register_ios", "register_android", "set_preferences", "list_devices"):
        assert invoke("Registry", event)["ok"]
    for event in ("one_recipient", "many_recipients", "idempotent", "idempotent", "cancel"):
        assert invoke("Send", event)["ok"]
    # With one attempt and no provider, deliver lets this one die and redrive sees its letter to the dead letters.
    (job,) = invoke("Send", "explicit_devices")["jobs"]
    see_dead_letter(strict_aws, stack, job["job_id"])
    until("an entry in the inbox", lambda: invoke("Registry", "list_inbox")["entries"])
    assert invoke("Registry", "mark_read")["ok"]
    assert invoke("Registry", "mark_all_read")["marked"] == 1
    invoke("Drain", "tick")
    assert invoke("Redrive", "dry_run")["matched"] >= 1  # the others die too, in their time
    assert invoke("Registry", "remove_device")["ok"]

    for function in ("Send", "Deliver", "Drain", "Redrive", "Registry"):
        lines = strict_aws.function_logs(stack[f"{function}FunctionName"])
        assert lines, f"{function} did not run"
        assert [line for line in lines if "not authorized" in line] == [], function


def test_a_secret_outside_the_prefix_cannot_be_used(strict_aws: EmbeddedAws, stack: Mapping[str, str]) -> None:
    payload = (EVENTS / "registry" / "bad_secret_name.json").read_bytes()
    functions = strict_aws.session().client("lambda")
    answer = functions.invoke(FunctionName=stack["RegistryFunctionName"], Payload=payload)
    assert json.load(answer["Payload"])["ok"] is False


def see_dead_letter(aws: EmbeddedAws, stack: Mapping[str, str], job_id: str) -> None:
    """Wait for the dead letter of this job, past those of others."""
    sqs = aws.session().client("sqs")
    for _ in range(LONG_POLLS):
        answer = sqs.receive_message(QueueUrl=stack["DeadLettersQueueUrl"], WaitTimeSeconds=20, MaxNumberOfMessages=10)
        if any(job_id in message["Body"] for message in answer.get("Messages", [])):
            return
    pytest.fail("no such dead letter arrived")
