"""The linter: every rule finds what breaks it and nothing else, and names the document that has it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from builders import an_app
from pushlease.errors import BadRequest
from pushlease.providers.apns.protocol import PUSH_TYPES
from pushlease.providers.apns.rules import APS as APS_KEYS
from pushlease.providers.fcm.rules import ANDROID, ANDROID_NOTE
from pushlease.providers.lint import KINDS, lint
from pushlease.providers.preflight import preflight
from pushlease.push.notification import Content
from pushlease_ops.cli import app as command_line

APS = "content.apns.payload.aps"
ACTIVITY = {"event": "update", "timestamp": 1_800_000_000, "content-state": {"score": 1}}
START = {**ACTIVITY, "event": "start", "attributes-type": "Match", "attributes": {}, "alert": {"title": "Kick-off"}}
BOTH = an_app()


def aps(**values: Any) -> dict[str, Any]:
    """A shown content whose ``aps`` holds these besides; underscores stand for dashes."""
    return {"title": "Hi", "apns": {"payload": {"aps": {key.replace("_", "-"): v for key, v in values.items()}}}}


def typed(push_type: str, inside: Mapping[str, Any]) -> dict[str, Any]:
    return {"apns": {"push_type": push_type, "payload": {"aps": inside}}}


def android(**values: Any) -> dict[str, Any]:
    return {"title": "Hi", "fcm": {"android": values}}


def note(**values: Any) -> dict[str, Any]:
    return android(notification=values)


REFUSED = [
    ({"titel": "Hi"}, "content.titel"),
    ({"title": 1}, "content.title"),
    ({"title": "x" * 4097}, "content.title"),
    ({"title": "Hi", "badge": -1}, "content.badge"),
    ({"title": "Hi", "badge": True}, "content.badge"),
    ({"title": "Hi", "badge": 1_000_000}, "content.badge"),
    ({"title": "Hi", "link": "https://example.com", "data": {"link": "x"}}, "content.data.link"),
    ({"title": "Hi", "data": {"k": 1}}, "content.data"),
    ({"title": "Hi", "apns": []}, "content.apns"),
    ({"title": "Hi", "priority": "high"}, "content.priority"),
    ({"body": "x" * 4090}, "content"),
    ({"title": "Hi", "collapse_key": "ü" * 33}, "content.collapse_key"),
    ({"title": "Hi", "apns": {"push_type": "pager"}}, "content.apns.push_type"),
    ({"title": "Hi", "apns": {"storage": "forever"}}, "content.apns.storage"),
    ({"title": "Hi", "apns": {"push_type": "background"}}, "content.apns.push_type"),
    ({"title": "Hi", "apns": {"priority": 7}}, "content.apns.priority"),
    (aps(interruption_level="loud"), f"{APS}.interruption-level"),
    (aps(relevance_score=1.5), f"{APS}.relevance-score"),
    (aps(relevance_score="1"), f"{APS}.relevance-score"),
    (aps(relevance_score=True), f"{APS}.relevance-score"),
    (aps(mutable_content=True), f"{APS}.mutable-content"),
    (aps(mutable_content=2), f"{APS}.mutable-content"),
    (aps(content_available="1"), f"{APS}.content-available"),
    (aps(sound={"critical": 2}), f"{APS}.sound.critical"),
    (aps(sound={"volume": 1.5}), f"{APS}.sound.volume"),
    (aps(badge="1"), f"{APS}.badge"),
    (aps(thread_id=""), f"{APS}.thread-id"),
    (aps(alert={"loc-args": ["x"]}), f"{APS}.alert.loc-args"),
    (aps(alert={"title-loc-key": "k", "title-loc-args": [1]}), f"{APS}.alert.title-loc-args"),
    (typed("liveactivity", {}), f"{APS}.event"),
    (typed("liveactivity", {**ACTIVITY, "event": "pause"}), f"{APS}.event"),
    *((typed("liveactivity", ACTIVITY | {key: None}), f"{APS}.{key}") for key in ("timestamp", "content-state")),
    *(
        (typed("liveactivity", {k: v for k, v in START.items() if k != key}), f"{APS}.{key}")
        for key in START
        if key != "event"
    ),
    (typed("liveactivity", {**ACTIVITY, "timestamp": "now"}), f"{APS}.timestamp"),
    (typed("widgets", {}), f"{APS}.content-changed"),
    (typed("controls", {"content-changed": False}), f"{APS}.content-changed"),
    ({"title": "Hi", "data": {"google.x": "1"}}, "content.data.google.x"),
    ({"title": "Hi", "fcm": {"token": "x"}}, "content.fcm.token"),
    ({"title": "Hi", "fcm": {"data": {"k": 1}}}, "content.fcm.data.k"),
    (android(ttl="1 day"), "content.fcm.android.ttl"),
    (android(ttl="2419201s"), "content.fcm.android.ttl"),
    (android(priority="urgent"), "content.fcm.android.priority"),
    (android(direct_boot_ok="yes"), "content.fcm.android.direct_boot_ok"),
    (note(color="red"), "content.fcm.android.notification.color"),
    (note(channel_id=7), "content.fcm.android.notification.channel_id"),
    (note(notification_priority="HIGH"), "content.fcm.android.notification.notification_priority"),
    (note(visibility="public"), "content.fcm.android.notification.visibility"),
    (note(vibrate_timings=["1"]), "content.fcm.android.notification.vibrate_timings"),
    (note(event_time="today"), "content.fcm.android.notification.event_time"),
    (note(notification_count=-1), "content.fcm.android.notification.notification_count"),
    (note(title_loc_args=["x"]), "content.fcm.android.notification.title_loc_args"),
    ({"title": "Hi", "fcm": {"apns": {"headers": {"apns-priority": 10}}}}, "content.fcm.apns.headers"),
    (
        {"data": {"k": "v"}, "fcm": {"apns": {"headers": {"apns-priority": "10"}}}},
        "content.fcm.apns.headers.apns-priority",
    ),
    ({"title": "Hi", "fcm": {"webpush": {"headers": {"TTL": 5}}}}, "content.fcm.webpush.headers"),
    ({"title": "Hi", "fcm": {"fcm_options": {"analytics_label": "a b"}}}, "content.fcm.fcm_options.analytics_label"),
]

RISKS = [
    (aps(foo=1), f"{APS}.foo"),
    (aps(interruption_level="critical"), f"{APS}.interruption-level"),
    (aps(sound={"name": "siren", "critical": 1}), f"{APS}.interruption-level"),
    ({"badge": 1, "apns": {"payload": {"aps": {"mutable-content": 1}}}}, f"{APS}.mutable-content"),
    ({"body": "x" * 3800}, "content"),
    (note(channel="news"), "content.fcm.android.notification.channel"),
    (typed("liveactivity", {**ACTIVITY, "dismissal-date": 1_800_000_100}), f"{APS}.dismissal-date"),
]

SOUND = [
    {"title": "Hi"},
    {"data": {"k": "v"}},
    {"data": {"k": "v"}, "apns": {"push_type": None}},
    {"title": "Hi", "apns": {"storage": "apple"}},
    aps(interruption_level="time-sensitive", relevance_score=0.5, mutable_content=1, thread_id="t"),
    aps(sound={"name": "ping", "volume": 1}, filter_criteria="work", target_content_id="w"),
    typed("liveactivity", ACTIVITY),
    typed("liveactivity", {**ACTIVITY, "relevance-score": 100}),
    typed("liveactivity", START),
    typed("liveactivity", {"event": "end", "timestamp": 1_800_000_000, "dismissal-date": 1_800_000_100}),
    typed("widgets", {"content-changed": True}),
    {"apns": {"push_type": "voip", "payload": {"call": {"from": "Ada"}}}},
    {"apns": {"push_type": "mdm", "payload": {"mdm": "magic"}}},
    note(channel_id="news", color="#00ff7f", visibility="PUBLIC", vibrate_timings=["0.5s"], sticky=True),
    android(direct_boot_ok=True, ttl="0s", restricted_package_name="com.example"),
    {"title": "Hi", "fcm": {"webpush": {"headers": {"TTL": "5"}, "fcm_options": {"link": "https://example.com"}}}},
    {"title": "Hi", "fcm": {"apns": {"headers": {"apns-priority": "10"}, "payload": {"aps": {"badge": 1}}}}},
]


@pytest.mark.parametrize(("content", "field"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_would_be_refused_is_found_by_its_field_with_the_rules_source(content: dict[str, Any], field: str) -> None:
    report = lint(content)
    found = [finding for finding in report.findings if finding.fatal and finding.field == field]
    assert found
    assert report.fatal
    assert all(finding.source and finding.rule for finding in report.findings)


@pytest.mark.parametrize(("content", "field"), RISKS)
def test_a_risk_is_told_and_refuses_nothing(content: dict[str, Any], field: str) -> None:
    report = lint(content)
    assert field in [finding.field for finding in report.findings]
    assert not report.fatal


@pytest.mark.parametrize("content", SOUND)
def test_nothing_is_found_where_nothing_is_wrong(content: dict[str, Any]) -> None:
    assert lint(content).findings == []


@pytest.mark.parametrize("content", SOUND + [content for content, _ in RISKS])
def test_what_the_linter_lets_pass_is_accepted(content: dict[str, Any]) -> None:
    preflight(Content.from_json_object(content), BOTH)


@pytest.mark.parametrize(("content", "field"), [case for case in REFUSED if set(case[0]) <= set(KINDS)])
def test_what_the_linter_refuses_is_not_accepted(content: dict[str, Any], field: str) -> None:
    own = {finding.field for finding in lint(content).findings if "pushlease" in finding.source}
    if own:  # the request's own model refuses these, before there is a content
        return
    with pytest.raises(BadRequest):
        preflight(Content.from_json_object(content), BOTH)


def test_all_findings_come_at_once_the_fatal_first() -> None:
    report = lint(aps(foo=1, interruption_level="loud") | {"fcm": {"android": {"notification": {"color": "red"}}}})
    assert [finding.fatal for finding in report.findings] == [True, True, False]


def test_sizes_are_those_that_travel() -> None:
    apns, fcm = lint({"title": "Grüße"}).sizes
    assert apns.size_bytes == len('{"aps":{"alert":{"title":"Grüße"}}}'.encode())
    assert (apns.what, apns.limit_bytes, fcm.what, fcm.limit_bytes) == ("alert", 4096, "notification", 4000)


def test_the_command_line_reads_a_request_or_a_content_and_tells_by_its_exit() -> None:
    def run(text: str) -> tuple[int, str]:
        result = CliRunner().invoke(command_line, ["lint", "-"], input=text)
        return result.exit_code, result.output

    code, printed = run(json.dumps({"app_id": "shop", "recipients": ["ada"], "content": {"title": "Hi"}}))
    assert (code, "apns alert: 32 of 4,096 bytes" in printed) == (0, True)
    code, printed = run(json.dumps(aps(badge="1")))
    assert (code, "refused" in printed, "Apple" in printed) == (1, True, True)
    assert run("[]")[0] == 2
    assert run("{")[0] == 2
    assert run("[" * 100_000)[0] == 2


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KNOWN = st.sampled_from([*KINDS, *APS_KEYS, *ANDROID, *ANDROID_NOTE, "aps", "payload", "push_type", "alert", "headers"])
NESTED = st.recursive(
    JSON_VALUES | st.sampled_from([*PUSH_TYPES, "start", "update", "end", 1, "5s"]),
    lambda inner: st.dictionaries(KNOWN, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(list(KINDS)) | st.text(max_size=4), NESTED, max_size=5))
def test_whatever_json_is_linted_there_is_a_report_and_acceptance_agrees_with_it(said: dict[str, Any]) -> None:
    report = lint(said)
    if any("pushlease" in finding.source for finding in report.findings):
        return
    content = Content.from_json_object(said)
    if report.fatal:
        with pytest.raises(BadRequest):
            preflight(content, BOTH)
    else:
        preflight(content, BOTH)
        assert len(report.sizes) == 2
