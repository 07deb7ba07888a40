"""Every event of ``events/`` against its deployed function: what people copy from there must do what it says."""

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from pushlease_local.lookalike.script import Step
from pushlease_local.stack import EVENTS, Stack, event, until

pytestmark = pytest.mark.slow

EVENT_NAMES = sorted(str(path.relative_to(EVENTS).with_suffix("")) for path in EVENTS.glob("*/*.json"))

# What a refused event is refused for: the field that its answer names.
REFUSED = {
    "redrive/bad_filter": ["job_ids.0", "limit"],
    "registry/bad_action": ["action"],
    "registry/bad_environment_missing": ["environment"],
    "registry/bad_inbox_limit": ["limit"],
    "registry/bad_push_token": ["push_token"],
    "registry/bad_secret_name": ["fcm.secret"],
    "registry/bad_zone": ["zone"],
    "send/bad_background_priority": ["content.apns.priority"],
    "send/bad_expired_already": ["expires_at_ms"],
    "send/bad_no_recipient": ["recipients"],
    "send/bad_reserved_data_key": ["content.data.from"],
    "send/bad_unknown_app": ["app_id"],
    "send/bad_unknown_field": ["content.titel"],
}
# What no mapping sends fails the invocation, so that a batch would stay in its queue.
RAISED = {"deliver/bad_records": "Records", "redrive/bad_records": "Records"}
# What a batch's event leaves in its queue, where it meets no job.
KEPT = {
    "deliver/hint": [],
    "deliver/letter_moved_here": [],
    "deliver/unreadable": ["059f36b4-87a3-44ab-83d2-661975830a7d"],
    "redrive/letter": [],
    "redrive/hint_moved_here": [],
    "redrive/unreadable": ["059f36b4-87a3-44ab-83d2-661975830a7d"],
}
# How the deliveries of what was sent end, by recipient.
SENT = {
    "send/one_recipient": {"ada": {"ada-iphone": "sent", "ada-pixel": "sent"}},
    "send/explicit_devices": {"ada": {"ada-iphone": "sent"}},
    "send/idempotent": {"ada": {"ada-iphone": "sent", "ada-pixel": "sent"}},
    "send/overrides": {"ada": {"ada-iphone": "sent", "ada-pixel": "sent"}},
    "send/silent": {"ada": {"ada-iphone": "sent", "ada-pixel": "sent"}},
    "send/nobody_home": {"has-no-device": {"push": "skipped"}},
    "send/many_recipients": {
        "ada": {"ada-iphone": "sent", "ada-pixel": "sent", "in_app": "delivered"},
        "grace": {"push": "skipped", "in_app": "delivered"},
        "edsger": {"push": "skipped", "in_app": "delivered"},
    },
}
ACCEPTED = [
    "registry/configure_app",
    "registry/configure_topic_keys",
    "registry/list_devices",
    "registry/list_inbox",
    "registry/mark_all_read",
    "registry/mark_read",
    "registry/refresh_push_token",
    "registry/register_android",
    "registry/register_ios",
    "registry/remove_device",
    "registry/set_preferences",
]
REVIVED = ["redrive/by_code", "redrive/dry_run", "redrive/one_job"]  # tests of their own, below
DRAINED = ["drain/hinted_tick", "drain/tick"]
OTHERS = ["send/audience", "send/cancel", "send/later"]  # tests of their own, below


def invoke(stack: Stack, name: str) -> Any:
    return stack.invoke(name.split("/")[0], event(name))


def job_ids(stack: Stack) -> set[str]:
    """All jobs that there are."""
    pages = (
        stack.clients["dynamodb"]
        .get_paginator("scan")
        .paginate(TableName=stack.outputs["JobsTableName"], ProjectionExpression="job_id", ConsistentRead=True)
    )
    return {item["job_id"]["S"] for page in pages for item in page["Items"]}


def stored(stack: Stack, table: str) -> object:
    """All rows of a table that only invocations of this test change."""
    return stack.clients["dynamodb"].scan(TableName=stack.outputs[table], ConsistentRead=True)["Items"]


def ended(stack: Stack, job_id: str, status: str) -> Mapping[str, Any]:
    """Wait until the job ends so; its row."""
    until(f"{job_id} {status}", lambda: stack.job(job_id).get("status") == status)
    return stack.job(job_id)


def registered(stack: Stack) -> str:
    """Ada's iPhone, whatever other tests did to it; its push token."""
    iphone = event("registry/register_ios")
    assert stack.invoke("registry", iphone)["ok"]
    push_token: str = iphone["push_token"]
    return push_token


def dead_job(stack: Stack) -> str:
    """A job whose one attempt Apple refused; its cause is gone."""
    stack.providers.script(registered(stack), Step(do="answer", status=500, reason="InternalServerError"))
    (job,) = invoke(stack, "send/explicit_devices")["jobs"]
    ended(stack, job["job_id"], "dead")
    job_id: str = job["job_id"]
    return job_id


def waiting_job(stack: Stack, **row: int) -> str:
    """A job of the far future, its row rewritten to be due now."""
    registered(stack)
    (job,) = stack.invoke("send", event("send/later") | {"notification_id": f"due-{uuid.uuid4()}"})["jobs"]
    values = {"due_at": int(time.time() * 1000) - 1, **row}
    deliveries = {f"#d{at}": name for at, name in enumerate(job["deliveries"])}
    sets = ", ".join(f"{name} = :{name}" for name in values)
    removes = ", ".join(f"deliveries.{mark}.due_at" for mark in deliveries)
    stack.clients["dynamodb"].update_item(
        TableName=stack.outputs["JobsTableName"],
        Key={"job_id": {"S": job["job_id"]}},
        UpdateExpression=f"SET {sets} REMOVE {removes}",
        ExpressionAttributeNames=deliveries,
        ExpressionAttributeValues={f":{name}": {"N": str(value)} for name, value in values.items()},
    )
    job_id: str = job["job_id"]
    return job_id


def lost_job(stack: Stack) -> str:
    """A job as workers leave it that were killed in each of its attempts, and died of it."""
    job_id = waiting_job(stack, attempts=5, claim_seq=5)
    invoke(stack, "drain/tick")
    row = ended(stack, job_id, "dead")
    assert {delivery["code"] for delivery in row["deliveries"].values()} == {"lost"}
    return job_id


def letter_of(stack: Stack, name: str, job_id: str) -> dict[str, Any]:
    """A letter's event, about this job."""
    said = event(name)
    (record,) = said["Records"]
    death = stack.job(job_id)
    letter = json.loads(record["body"]) | {"job_id": job_id, "died_at": death["died_at"], "code": "provider_error"}
    record["body"] = json.dumps(letter | {"nonce": f"nonce-{job_id}"})
    return said


def test_every_event_is_played_here() -> None:
    played = [*REFUSED, *RAISED, *KEPT, *SENT, *ACCEPTED, *REVIVED, *DRAINED, *OTHERS]
    assert sorted(played) == EVENT_NAMES


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_event_is_refused_by_its_field_and_stores_nothing(stack: Stack, name: str) -> None:
    tables = ("DevicesTableName", "RecipientsTableName", "AppsTableName", "NotificationsTableName", "InboxTableName")
    before = job_ids(stack), [stored(stack, table) for table in tables]
    answer = invoke(stack, name)
    assert (job_ids(stack), [stored(stack, table) for table in tables]) == before
    assert not answer["ok"]
    assert [fault["field"] for fault in answer["errors"]] == REFUSED[name]
    assert all(fault["rule"] for fault in answer["errors"])


@pytest.mark.parametrize("name", RAISED)
def test_what_no_mapping_sends_fails_by_its_field_and_stores_nothing(stack: Stack, name: str) -> None:
    before = job_ids(stack)
    with pytest.raises(RuntimeError, match=f"{RAISED[name]}: must be"):
        invoke(stack, name)  # fails with the function's error, as Lambda tells it
    assert job_ids(stack) == before


@pytest.mark.parametrize("name", SENT)
def test_what_is_sent_arrives_at_every_delivery(stack: Stack, name: str) -> None:
    for again in ("register_ios", "register_android"):
        stack.invoke("registry", event(f"registry/{again}"))
    answer = invoke(stack, name)
    for job in answer["jobs"]:
        done = ended(stack, job["job_id"], "done")
        fates = {device: delivery["status"] for device, delivery in done["deliveries"].items()}
        assert fates == SENT[name][job["user_id"]]


@pytest.mark.parametrize("name", KEPT)
def test_a_batch_keeps_only_what_nobody_can_read(stack: Stack, name: str) -> None:
    answer = invoke(stack, name)
    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == KEPT[name]


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_registry_accepts(stack: Stack, name: str) -> None:
    assert invoke(stack, name)["ok"]


def test_the_registry_never_shows_a_whole_push_token(stack: Stack) -> None:
    registered = event("registry/register_ios")
    stack.invoke("registry", registered)
    answer = json.dumps(invoke(stack, "registry/list_devices"))
    assert registered["push_token"][-6:] in answer
    assert registered["push_token"] not in answer


def test_what_was_sent_in_app_is_in_the_inbox_until_it_is_read_and_after(stack: Stack) -> None:
    only = {"notification_id": f"inbox-{uuid.uuid4()}", "recipients": ["ada"], "transports": ["in_app"]}
    said = event("send/many_recipients") | only
    (job,) = stack.invoke("send", said)["jobs"]
    ended(stack, job["job_id"], "done")
    before = invoke(stack, "registry/list_inbox")
    (mine,) = (entry for entry in before["entries"] if entry["notification_id"] == said["notification_id"])
    assert (mine["content"], mine["read"]) == (said["content"], False)
    mark = event("registry/mark_read") | {"entries": [mine["entry"]]}
    assert stack.invoke("registry", mark) == {"ok": True, "marked": 1, "unread": before["unread"] - 1}
    assert stack.invoke("registry", mark) == {"ok": True, "marked": 0, "unread": before["unread"] - 1}
    invoke(stack, "registry/mark_all_read")
    after = invoke(stack, "registry/list_inbox")
    assert (after["unread"], {entry["read"] for entry in after["entries"]}) == (0, {True})
    count = {"action": "unread_count", "app_id": "demo", "user_id": "ada"}
    assert stack.invoke("registry", count) == {"ok": True, "unread": 0}


def test_a_letter_that_a_person_moved_to_the_work_queue_revives_its_job(stack: Stack) -> None:
    job_id = dead_job(stack)
    answer = stack.invoke("deliver", letter_of(stack, "deliver/letter_moved_here", job_id))
    assert answer["batchItemFailures"] == []
    row = ended(stack, job_id, "done")
    assert (row["redrives"], row["deliveries"]["ada-iphone"]["status"]) == (1, "sent")


def test_a_letter_on_its_way_is_refused_until_sqs_moves_it(stack: Stack) -> None:
    job_id = dead_job(stack)
    letter = letter_of(stack, "redrive/letter", job_id)
    answer = stack.invoke("redrive", letter)
    assert answer["batchItemFailures"] == [{"itemIdentifier": letter["Records"][0]["messageId"]}]
    row = stack.job(job_id)
    assert row["status"] == "dead"
    assert any(sight.startswith(f"nonce-{job_id} ") for sight in row["sights"])


def test_redrive_one_job_revives_it_alone(stack: Stack) -> None:
    job_id, other = dead_job(stack), dead_job(stack)
    answer = stack.invoke("redrive", event("redrive/one_job") | {"job_ids": [job_id]})
    assert answer == {"ok": True, "matched": 1, "revived": [job_id], "codes": {"provider_error": 1}}
    row = ended(stack, job_id, "done")
    assert (row["redrives"], row["deliveries"]["ada-iphone"]["status"]) == (1, "sent")
    assert stack.job(other)["status"] == "dead"


def test_redrive_by_code_revives_what_died_of_it(stack: Stack) -> None:
    lost, refused = lost_job(stack), dead_job(stack)
    answer = invoke(stack, "redrive/by_code")
    assert (answer["revived"], answer["codes"]) == ([lost], {"lost": 1})
    assert ended(stack, lost, "done")["redrives"] == 1
    assert stack.job(refused)["status"] == "dead"


def test_a_dry_run_tells_what_it_would_revive_and_revives_nothing(stack: Stack) -> None:
    job_id = dead_job(stack)
    answer = invoke(stack, "redrive/dry_run")
    assert answer["revived"] == []
    assert answer["matched"] >= 1
    assert answer["codes"]["provider_error"] >= 1
    row = stack.job(job_id)
    assert (row["status"], row.get("redrives", 0)) == ("dead", 0)


@pytest.mark.parametrize("name", DRAINED)
def test_a_tick_attempts_what_is_due(stack: Stack, name: str) -> None:
    def served() -> bool:
        """A tick of the schedule may be faster: then the next job will do."""
        job_id = waiting_job(stack)
        answer = invoke(stack, name)
        assert answer["unfinished_lanes"] == 0
        assert ended(stack, job_id, "done")
        return bool(answer["jobs"])

    assert any(served() for _ in range(5))


def test_what_is_for_later_waits_in_its_row_and_can_be_withdrawn(stack: Stack) -> None:
    later = event("send/later")
    (job,) = stack.invoke("send", later | {"notification_id": "launch-2026"})["jobs"]
    assert stack.job(job["job_id"])["due_at"] == later["deliver_at_ms"]
    answer = invoke(stack, "send/cancel")
    assert answer["jobs"] == [{"job_id": job["job_id"], "cancelled": True}]
    row = stack.job(job["job_id"])
    assert (row["status"], "lane" in row) == ("cancelled", False)
    assert {delivery["status"] for delivery in row["deliveries"].values()} == {"cancelled"}


def test_an_audience_is_sent_and_told_of(stack: Stack) -> None:
    registered(stack)
    said = event("send/audience")
    accepted = invoke(stack, "send/audience")
    assert (accepted["ok"], accepted["pages"], accepted["variables"]) == (True, 1, ["city", "name"])
    assert invoke(stack, "send/audience")["duplicate"]
    asked = {"action": "audience_status", "app_id": said["app_id"], "notification_id": said["notification_id"]}

    def told() -> Mapping[str, Any] | None:
        answer = stack.invoke("send", asked)
        return answer if answer["recipients"]["sent"] == 1 else None

    answer = until("the audience to be sent", told, within_s=90) or {}
    assert {word: number for word, number in answer["recipients"].items() if number} == {
        "accepted": 2,
        "sent": 1,
        "skipped": 1,
    }
    (body,) = {
        json.dumps(push.body)
        for push in stack.providers.accepted()
        if push.provider == "apns" and "Spring sale" in json.dumps(push.body)
    }
    assert '"title": "Spring sale, Ada"' in body


def test_requests_come_in_by_a_queue_and_by_events(stack: Stack) -> None:
    registered(stack)
    said = event("send/one_recipient")
    sqs = stack.clients["sqs"]
    by_queue, by_event, refused = (f"by-{way}-{uuid.uuid4()}" for way in ("queue", "event", "refused"))
    requests = stack.outputs["RequestsQueueUrl"]
    sqs.send_message(QueueUrl=requests, MessageBody=json.dumps(said | {"notification_id": by_queue}))
    sqs.send_message(QueueUrl=requests, MessageBody=json.dumps(said | {"app_id": "nobody", "channel": refused}))
    entry = {
        "Source": "orders",
        "DetailType": "pushlease.send",
        "Detail": json.dumps(said | {"notification_id": by_event}),
    }
    assert stack.clients["events"].put_events(Entries=[entry])["FailedEntryCount"] == 0

    def status(notification_id: str) -> list[str]:
        asked = {"action": "status", "app_id": said["app_id"], "notification_id": notification_id, "user_id": "ada"}
        return [job["status"] for job in stack.invoke("send", asked)["jobs"]]

    for notification_id in (by_queue, by_event):
        until(notification_id, lambda wanted=notification_id: status(wanted) == ["done"])  # type: ignore[misc]

    def dead() -> bool:
        answer = sqs.receive_message(QueueUrl=stack.outputs["RefusedRequestsQueueUrl"], WaitTimeSeconds=1)
        return any(refused in message["Body"] for message in answer.get("Messages", []))

    until("the refused request in its dead-letter queue", dead)
