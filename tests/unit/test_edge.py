"""How a request is parsed, and how a bad one is answered."""

import zoneinfo
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlease.edge import Action, answered
from pushlease.errors import BadRequest
from pushlease.push.device import ApnsCredentials, Environment
from redrive.request import RedriveModel
from registry.request import (
    ConfigureAppModel,
    ListDevicesModel,
    ListInboxModel,
    MarkReadModel,
    RegisterDeviceModel,
    SetPreferencesModel,
)
from send.request import CancelModel, SendModel

SECRET = "hunter2-and-a-push-token"
SENT: Mapping[str, Any] = {"app_id": "shop", "recipients": ["u1"], "content": {"title": "Hello"}}


def asked(event: object) -> Mapping[str, Any]:
    """A request to a function that has every model; each is turned into the use case's value."""
    actions: dict[str, Action[Any]] = {
        "send": Action(model=SendModel, work=lambda said: {"said": said.submission()}),
        "cancel": Action(model=CancelModel, work=lambda said: {"said": said.cancellation()}),
        "redrive": Action(model=RedriveModel, work=lambda said: {"said": said.filter()}),
        "configure_app": Action(model=ConfigureAppModel, work=lambda said: {"said": said.app()}),
        "register_device": Action(model=RegisterDeviceModel, work=lambda said: {"said": said.registration()}),
        "list_devices": Action(model=ListDevicesModel, work=lambda said: {"said": said.recipient()}),
        "set_preferences": Action(model=SetPreferencesModel, work=lambda said: {"said": said.preferences()}),
        "list_inbox": Action(model=ListInboxModel, work=lambda said: {"said": (said.limit, said.after)}),
        "mark_read": Action(model=MarkReadModel, work=lambda said: {"said": said.entries}),
    }
    return answered(event, actions, default="send")


def refused_fields(event: object) -> list[str]:
    answer = asked(event)
    assert not answer["ok"]
    assert all(fault["rule"] for fault in answer["errors"])
    return [fault["field"] for fault in answer["errors"]]


def test_a_good_request_is_answered_ok() -> None:
    assert asked(SENT)["ok"]
    assert asked({**SENT, "action": "send"})["said"] == asked(SENT)["said"]


@pytest.mark.parametrize("event", [None, [], "send", 7, True])
def test_what_is_no_object_is_refused(event: object) -> None:
    assert refused_fields(event) == ["request"]


@pytest.mark.parametrize("action", ["", "sned", None, 7, ["send"], {"a": 1}])
def test_an_unknown_action_is_refused_with_those_there_are(action: object) -> None:
    answer = asked({**SENT, "action": action})
    assert [fault["field"] for fault in answer["errors"]] == ["action"]
    assert "cancel, configure_app" in answer["errors"][0]["rule"]


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ({"app_id": "a b"}, ["app_id"]),
        ({"app_id": "a#b"}, ["app_id"]),
        ({"app_id": "shop\n"}, ["app_id"]),
        ({"recipients": ["u 1"]}, ["recipients.0"]),
        ({"recipients": ["u1"] * 501}, ["recipients"]),
        ({"recipients": ["u1", 7]}, ["recipients.1"]),
        ({"content": {"titel": "x"}}, ["content.titel"]),
        ({"content": {"badge": -1, "data": {"k": 1}}}, ["content.badge", "content.data.k"]),
        ({"content": {"priority": "now"}}, ["content.priority"]),
        ({"content": "hello"}, ["content"]),
        ({"ttl_s": 0}, ["ttl_s"]),
        ({"ttl_s": "60"}, ["ttl_s"]),
        ({"ttl_s": True}, ["ttl_s"]),
        ({"expires_at_ms": -1}, ["expires_at_ms"]),
        ({"transports": []}, ["transports"]),
        ({"transports": ["pigeon"]}, ["transports.0"]),
        ({"max_attempts": 101}, ["max_attempts"]),
        ({"notification_id": "x" * 65}, ["notification_id"]),
        ({"idempotency_key": ""}, ["idempotency_key"]),
        ({"devices": [{"user_id": "u1"}]}, ["devices.0.device_id"]),
        ({"surprise": 1}, ["surprise"]),
    ],
)
def test_a_field_that_breaks_a_rule_is_named(said: Mapping[str, Any], fields: list[str]) -> None:
    assert refused_fields({**SENT, **said}) == fields


def topic_keys(*said: Mapping[str, Any]) -> Mapping[str, Any]:
    """An app's configuration with a topic key each, good but for what is said."""
    key = {"team_id": "TEAM000001", "key_id": "KEY0000001", "secret": "pushlease/x"}
    good = {**key, "environment": "sandbox", "topics": ["com.shop"]}
    return {"action": "configure_app", "app_id": "a", "apns_topic_keys": [{**good, **one} for one in said]}


def test_a_topic_key_is_taken_for_its_topics_and_environment() -> None:
    (key,) = asked(topic_keys({}))["said"].apns_topic_keys
    assert (key.environment, key.topics) == (Environment.SANDBOX, {"com.shop"})
    assert key.credentials == ApnsCredentials(team_id="TEAM000001", key_id="KEY0000001", secret="pushlease/x")
    assert asked(topic_keys({}, {"environment": "production"}))["ok"]


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ({"action": "cancel", "app_id": "shop"}, ["notification_id"]),
        ({"action": "redrive", "job_ids": ["x"]}, ["job_ids.0"]),
        ({"action": "redrive", "code": "tired"}, ["code"]),
        ({"action": "redrive", "limit": 1001}, ["limit"]),
        ({"action": "list_devices", "app_id": "shop"}, ["user_id"]),
        ({"action": "set_preferences", "app_id": "a", "user_id": "u", "channels": {"n": {"fax": True}}}, None),
        (
            {"action": "register_device", "app_id": "a", "user_id": "u", "device_id": "d", "platform": "apns"},
            ["push_token"],
        ),
        ({"action": "configure_app", "app_id": "a", "fcm": {"project_id": "p"}}, ["fcm.project_id", "fcm.secret"]),
        (topic_keys({"topics": []}), ["apns_topic_keys.0.topics"]),
        (topic_keys({"topics": ["com.shop", "no bundle id"]}), ["apns_topic_keys.0.topics.1"]),
        (topic_keys({"topics": [f"com.shop{n}" for n in range(401)]}), ["apns_topic_keys.0.topics"]),
        (topic_keys({"environment": "test"}), ["apns_topic_keys.0.environment"]),
        (topic_keys({}, {}), ["apns_topic_keys"]),  # two keys for one topic
        (topic_keys(*({"topics": [f"com.shop{n}.{k}" for n in range(400)]} for k in range(3))), ["apns_topic_keys"]),
        (topic_keys(*({"topics": [f"com.shop{k}"]} for k in range(101))), ["apns_topic_keys"]),
    ],
)
def test_every_action_names_its_fields(said: Mapping[str, Any], fields: list[str] | None) -> None:
    assert refused_fields(said) == fields if fields else refused_fields(said)


ENTRY = "1800000000000#order-4711.shipped"


def test_an_inbox_is_listed_by_twenties_unless_told_otherwise() -> None:
    whose = {"action": "list_inbox", "app_id": "shop", "user_id": "u1"}
    assert asked(whose)["said"] == (20, None)
    assert asked({**whose, "limit": 100, "after": ENTRY})["said"] == (100, ENTRY)


@pytest.mark.parametrize(
    ("action", "said", "field", "limit"),
    [
        ("list_inbox", {"limit": 0}, "limit", "1"),
        ("list_inbox", {"limit": 101}, "limit", "100"),
        ("list_inbox", {"limit": "20"}, "limit", ""),
        ("list_inbox", {"after": "#"}, "after", ""),
        ("list_inbox", {"after": "1800000000000"}, "after", ""),
        ("mark_read", {}, "entries", ""),
        ("mark_read", {"entries": []}, "entries", "1"),
        ("mark_read", {"entries": [ENTRY] * 101}, "entries", "100"),
        ("mark_read", {"entries": [ENTRY, "#"]}, "entries.1", ""),
        ("mark_read", {"entries": [f"{ENTRY} "]}, "entries.0", ""),
    ],
)
def test_what_is_asked_of_an_inbox_is_refused_by_field_and_limit(
    action: str, said: Mapping[str, Any], field: str, limit: str
) -> None:
    (fault,) = asked({"action": action, "app_id": "shop", "user_id": "u1", **said})["errors"]
    assert fault["field"] == field
    assert limit in fault["rule"]


@pytest.mark.parametrize(
    "field", ["app_id", "recipients", "content", "ttl_s", "channel", "notification_id", "surprise"]
)
def test_no_answer_repeats_what_was_sent(field: str) -> None:
    for value in (SECRET + " ", {"inner": SECRET}, [SECRET]):
        answer = asked({**SENT, field: value})
        assert not answer["ok"] or field == "recipients"
        if not answer["ok"]:
            assert SECRET not in repr(answer)


REGISTERED: Mapping[str, Any] = {
    "action": "register_device",
    "app_id": "a",
    "user_id": "u",
    "device_id": "d",
    "platform": "fcm",
    "push_token": "p",
}


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("app_version", ""),
        ("app_version", "x" * 65),
        ("app_version", "4.2\n"),
        ("app_version", "4.2β"),
        ("zone", "Europe/Wien"),
        ("zone", "+01:00"),
        ("zone", "../../etc/passwd"),
        ("zone", ""),
        ("zone", 1),
        ("locale", "de_AT"),
    ],
)
def test_a_device_that_says_an_odd_thing_of_itself_is_refused(field: str, bad: object) -> None:
    assert refused_fields({**REGISTERED, field: bad}) == [field]


def test_what_a_device_says_of_itself_reaches_the_registry() -> None:
    said = {"app_version": "4.2 (17)", "zone": "America/Argentina/Buenos_Aires", "locale": "es-AR"}
    registration = asked({**REGISTERED, **said})["said"]
    assert {name: getattr(registration, name) for name in said} == said


def test_an_unknown_zone_is_refused_by_the_rule() -> None:
    (fault,) = asked({**REGISTERED, "zone": "Europe/Wien"})["errors"]
    assert "must be the name of an IANA time zone" in fault["rule"]


def test_time_zones_are_known_where_the_machine_has_no_files_of_them() -> None:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    try:
        assert asked({**REGISTERED, "zone": "Europe/Vienna"})["ok"]
    finally:
        zoneinfo.reset_tzpath(to=before)


def test_a_bad_push_token_is_not_repeated() -> None:
    answer = asked({"action": "register_device", "push_token": [SECRET], "app_id": "a"})
    assert not answer["ok"]
    assert SECRET not in repr(answer)


def test_a_rule_of_the_use_case_is_answered_like_one_of_the_edge() -> None:
    def work(_: Any) -> Mapping[str, Any]:
        raise BadRequest("content", "must be at most 4096 bytes")

    answer = answered(SENT, {"send": Action(model=SendModel, work=work)}, default="send")
    assert answer == {"ok": False, "errors": [{"field": "content", "rule": "must be at most 4096 bytes"}]}


def test_our_own_fault_is_not_taken_for_the_callers() -> None:
    def work(_: Any) -> Mapping[str, Any]:
        raise RuntimeError("throttled")

    with pytest.raises(RuntimeError):
        answered(SENT, {"send": Action(model=SendModel, work=work)}, default="send")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    said=st.dictionaries(st.sampled_from([*SendModel.model_fields, *RegisterDeviceModel.model_fields]), json_values),
    action=st.sampled_from(["send", "cancel", "redrive", "register_device", "set_preferences"]) | json_values,
)
def test_no_request_whatever_raises(said: dict[str, Any], action: Any) -> None:
    assert asked({**said, "action": action})["ok"] in (True, False)


def test_targets_stand_once_in_the_callers_order() -> None:
    device = {"user_id": "u3", "device_id": "d"}
    said = asked({**SENT, "recipients": ["u2", "u1", "u2"], "devices": [device, device]})["said"]
    assert [(target.user_id, target.device_id) for target in said.targets] == [("u2", None), ("u1", None), ("u3", "d")]


def test_a_device_of_somebody_who_is_named_whole_gets_it_once() -> None:
    said = asked({**SENT, "recipients": ["u1"], "devices": [{"user_id": "u1", "device_id": "d"}]})["said"]
    assert [(target.user_id, target.device_id) for target in said.targets] == [("u1", None)]
