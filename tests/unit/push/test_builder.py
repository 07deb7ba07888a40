"""The typed builder: what it makes passes every rule, and says to each provider what was meant."""

import json
from typing import Any

import pytest

from pushlease.providers.apns import protocol as apns
from pushlease.providers.fcm import protocol as fcm
from pushlease.providers.lint import lint
from pushlease.push import builder
from pushlease.push.builder import Alert, Android, Interruption, Localised
from pushlease.push.notification import Content, Priority

AT_S = 1_800_000_000
FULL = Alert(
    title=Localised(key="GOAL", args=["Ada"]),
    subtitle="Second half",
    body=Localised(key="SCORE", args=["2", "1"]),
    sound="cheer.aiff",
    badge=3,
    category="MATCH",
    thread="match-7",
    interruption=Interruption.TIME_SENSITIVE,
    relevance=0.75,
    mutable=True,
    android=Android(channel="goals", tag="match-7", colour="#00ff7f", icon="ball", direct_boot=True),
)
BUILT = {
    "alert": [
        builder.alert(Alert(title="Hi", body="there")),
        builder.alert(FULL, data={"match": "7"}, priority=Priority.URGENT),
        builder.alert(Alert(body=Localised(key="HELLO"))),
        builder.alert(Alert(badge=0)),
    ],
    "background": [builder.background({"sync": "1"})],
    "voip": [builder.voip({"call": "7"})],
    "pushtotalk": [builder.push_to_talk({"speaker": "Ada"})],
    "location": [builder.location_query()],
    "complication": [builder.complication({"steps": 7})],
    "fileprovider": [builder.file_provider(container="c", domain="d"), builder.file_provider(container="c")],
    "mdm": [builder.mdm("magic")],
    "widgets": [builder.widgets_changed()],
    "controls": [builder.controls_changed()],
    "liveactivity": [
        builder.live_activity_start(
            attributes_type="Match",
            attributes={"teams": ["A", "B"]},
            state={"score": 0},
            title="Kick-off",
            body="A against B",
            at_s=AT_S,
            stale_at_s=AT_S + 60,
            channel="dHN0LXNyY2gtY2hubA==",
        ),
        builder.live_activity_update(state={"score": 1}, at_s=AT_S, title="Goal", relevance=50),
        builder.live_activity_update(state={"score": 1}, at_s=AT_S, priority=Priority.LOW),
        builder.live_activity_end(at_s=AT_S),
        builder.live_activity_end(at_s=AT_S, state={"score": 1}, dismissed_at_s=AT_S + 60),
    ],
}
CASES = [(push_type, content) for push_type, contents in BUILT.items() for content in contents]


def payload(content: Content) -> Any:
    return json.loads(apns.form(content).body)


@pytest.mark.parametrize(("push_type", "content"), CASES)
def test_whatever_is_built_passes_every_rule_as_the_type_it_was_built_for(push_type: str, content: Content) -> None:
    assert lint(json.loads(content.to_json())).findings == []
    assert apns.form(content).push_type == push_type


def test_every_push_type_can_be_built() -> None:
    assert set(BUILT) == set(apns.PUSH_TYPES)


@pytest.mark.parametrize(("_", "content"), CASES)
def test_whatever_is_built_survives_its_way_through_a_row(_: str, content: Content) -> None:
    assert Content.from_json(content.to_json()) == content


def test_an_alert_says_all_to_apple() -> None:
    assert payload(builder.alert(FULL, data={"match": "7"})) == {
        "aps": {
            "alert": {
                "title-loc-key": "GOAL",
                "title-loc-args": ["Ada"],
                "subtitle": "Second half",
                "loc-key": "SCORE",
                "loc-args": ["2", "1"],
            },
            "badge": 3,
            "sound": "cheer.aiff",
            "category": "MATCH",
            "thread-id": "match-7",
            "interruption-level": "time-sensitive",
            "relevance-score": 0.75,
            "mutable-content": 1,
        },
        "match": "7",
    }


def test_an_alert_says_all_to_google() -> None:
    message = fcm.form(builder.alert(FULL, priority=Priority.URGENT)).message
    assert message["android"] == {
        "priority": "HIGH",
        "direct_boot_ok": True,
        "notification": {
            "title_loc_key": "GOAL",
            "title_loc_args": ["Ada"],
            "body_loc_key": "SCORE",
            "body_loc_args": ["2", "1"],
            "channel_id": "goals",
            "tag": "match-7",
            "icon": "ball",
            "color": "#00ff7f",
        },
    }


def test_other_types_carry_what_they_were_given_alone() -> None:
    assert payload(builder.mdm("magic")) == {"mdm": "magic"}
    assert payload(builder.voip({"call": "7"})) == {"call": "7"}
    assert payload(builder.background({"sync": "1"})) == {"aps": {"content-available": 1}, "sync": "1"}


def test_a_low_priority_is_kept_where_the_type_has_one() -> None:
    urgent, low = (apns.form(BUILT["liveactivity"][at]).priority for at in (1, 2))
    assert (urgent, low) == (10, 5)
