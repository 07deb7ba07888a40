"""Every event of ``events/`` against its deployed function: what people copy from there must do what it says."""

import json
from typing import Any

import pytest

from pushlease_local.stack import EVENTS, Stack, event, until

pytestmark = pytest.mark.slow

EVENT_NAMES = sorted(str(path.relative_to(EVENTS).with_suffix("")) for path in EVENTS.glob("*/*.json"))

# What a refused event is refused for: the field that its answer names.
REFUSED = {
    "redrive/bad_filter": ["job_ids.0", "limit"],
    "registry/bad_action": ["action"],
    "registry/bad_environment_missing": ["environment"],
    "registry/bad_push_token": ["push_token"],
    "registry/bad_secret_name": ["fcm.secret"],
    "send/bad_background_priority": ["content.apns.priority"],
    "send/bad_expired_already": ["expires_at_ms"],
    "send/bad_no_recipient": ["recipients"],
    "send/bad_reserved_data_key": ["content.data.from"],
    "send/bad_unknown_app": ["app_id"],
    "send/bad_unknown_field": ["content.titel"],
}
# What a batch's event leaves in its queue.
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
    "registry/list_devices",
    "registry/refresh_push_token",
    "registry/register_android",
    "registry/register_ios",
    "registry/remove_device",
    "registry/set_preferences",
]
REVIVED = {"redrive/by_code": [], "redrive/dry_run": [], "redrive/one_job": []}
DRAINED = ["drain/hinted_tick", "drain/tick"]
OTHERS = ["send/cancel", "send/later"]  # tests of their own, below


def invoke(stack: Stack, name: str) -> Any:
    return stack.invoke(name.split("/")[0], event(name))


def test_every_event_is_played_here() -> None:
    played = [*REFUSED, *KEPT, *SENT, *ACCEPTED, *REVIVED, *DRAINED, *OTHERS]
    assert sorted(played) == EVENT_NAMES


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_event_is_refused_by_its_field(stack: Stack, name: str) -> None:
    answer = invoke(stack, name)
    assert not answer["ok"]
    assert [fault["field"] for fault in answer["errors"]] == REFUSED[name]
    assert all(fault["rule"] for fault in answer["errors"])


@pytest.mark.parametrize("name", SENT)
def test_what_is_sent_arrives_at_every_delivery(stack: Stack, name: str) -> None:
    for again in ("register_ios", "register_android"):
        stack.invoke("registry", event(f"registry/{again}"))
    answer = invoke(stack, name)
    for job in answer["jobs"]:
        done = until(job["job_id"], lambda job=job: (row := stack.job(job["job_id"])).get("status") == "done" and row)
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


@pytest.mark.parametrize("name", REVIVED)
def test_a_filter_that_meets_nothing_revives_nothing(stack: Stack, name: str) -> None:
    assert invoke(stack, name)["revived"] == REVIVED[name]


@pytest.mark.parametrize("name", DRAINED)
def test_a_tick_drains_every_lane(stack: Stack, name: str) -> None:
    assert invoke(stack, name)["unfinished_lanes"] == 0


def test_what_is_for_later_waits_in_its_row_and_can_be_withdrawn(stack: Stack) -> None:
    later = event("send/later")
    (job,) = stack.invoke("send", later | {"notification_id": "launch-2026"})["jobs"]
    assert stack.job(job["job_id"])["due_at"] == later["deliver_at_ms"]
    answer = invoke(stack, "send/cancel")
    assert answer["jobs"] == [{"job_id": job["job_id"], "cancelled": True}]
    row = stack.job(job["job_id"])
    assert (row["status"], "lane" in row) == ("cancelled", False)
    assert {delivery["status"] for delivery in row["deliveries"].values()} == {"cancelled"}
