"""What a push looks like on the wire, and what is refused before anything is stored."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlease.errors import BadRequest
from pushlease.providers.apns import protocol as apns
from pushlease.providers.fcm import protocol as fcm
from pushlease.providers.http import merged
from pushlease.providers.preflight import checked, preflight
from pushlease.push.builder import live_activity_end
from pushlease.push.device import (
    Address,
    ApnsCredentials,
    App,
    AppId,
    Device,
    DeviceId,
    Environment,
    FcmCredentials,
    Platform,
    Recipient,
    UserId,
)
from pushlease.push.notification import Content, Priority
from pushlease.push.ports import Push

NOW_MS = 1_800_000_000_000
APP = App(
    app_id=AppId("app"),
    apns_production=ApnsCredentials(team_id="TEAM000001", key_id="KEY0000001", secret="apns"),
    fcm=FcmCredentials(project_id="demo-project", secret="fcm"),
)
SHOWN = Content(title="Tea", body="is ready")


def device(platform: Platform, push_token: str, topic: str | None = "com.example.app") -> Device:
    return Device(
        device_id=DeviceId("d"),
        recipient=Recipient(app_id=APP.app_id, user_id=UserId("u")),
        platform=platform,
        environment=Environment.PRODUCTION,
        push_token=push_token,
        registered_at_ms=0,
        topic=topic,
    )


def push(content: Content = SHOWN, platform: Platform = Platform.APNS, push_token: str = "AB" * 32) -> Push:
    return Push(
        push_id="0e8f1f1c-6e3e-8d53-9d4c-3a5c1b2d4e6f",
        app=APP,
        device=device(platform, push_token),
        content=content,
        collapse_id="tea",
        expires_at_ms=NOW_MS + 90_500,
    )


def to_apple(content: Content) -> tuple[Mapping[str, str], dict[str, Any]]:
    request = apns.request(push(content), apns.form(content), bearer="e.y.J")
    return request.headers, json.loads(request.body)


def to_google(content: Content, expires_at_ms: int = NOW_MS + 90_500) -> dict[str, Any]:
    sent = replace(push(content, Platform.FCM, "fcm:1"), expires_at_ms=expires_at_ms)
    request = fcm.request(sent, fcm.form(content), project_id="demo-project", bearer="ya29", now_ms=NOW_MS)
    assert request.path == "/v1/projects/demo-project/messages:send"
    assert request.headers["authorization"] == "Bearer ya29"
    message: dict[str, Any] = json.loads(request.body)["message"]
    assert message.pop("token") == "fcm:1"
    return message


def fault(content: Content, app: App = APP) -> str:
    with pytest.raises(BadRequest) as caught:
        preflight(content, app)
    return caught.value.field


# --- APNs -------------------------------------------------------------------------------------------------------------


def test_an_alert_for_apple() -> None:
    content = Content(
        title="Tea", subtitle="Oolong", body="is réady", badge=0, sound="default", category="tea", thread="kitchen",
        image="https://example.com/tea.png", link="app://tea", data={"cup": "2"},
    )  # fmt: skip
    request = apns.request(push(content), apns.form(content), bearer="e.y.J")
    assert request.path == "/3/device/" + "ab" * 32
    assert request.headers == {
        "authorization": "bearer e.y.J",
        "apns-topic": "com.example.app",
        "apns-push-type": "alert",
        "apns-priority": "10",
        "apns-expiration": "1800000090",
        "apns-id": "0e8f1f1c-6e3e-8d53-9d4c-3a5c1b2d4e6f",
        "apns-collapse-id": "tea",
    }
    assert json.loads(request.body) == {
        "aps": {
            "alert": {"title": "Tea", "subtitle": "Oolong", "body": "is réady"},
            "badge": 0, "sound": "default", "category": "tea", "thread-id": "kitchen", "mutable-content": 1,
        },
        "cup": "2",
        "link": "app://tea",
        "image": "https://example.com/tea.png",
    }  # fmt: skip
    assert "is réady".encode() in request.body


def test_what_shows_nothing_travels_as_a_background_push_at_priority_5() -> None:
    headers, payload = to_apple(Content(data={"sync": "1"}, priority=Priority.URGENT))
    assert (headers["apns-push-type"], headers["apns-priority"]) == ("background", "5")
    assert payload == {"aps": {"content-available": 1}, "sync": "1"}


def test_an_override_that_shows_something_makes_it_an_alert() -> None:
    headers, payload = to_apple(Content(apns={"payload": {"aps": {"alert": {"loc-key": "TEA"}}}}))
    assert headers["apns-push-type"] == "alert"
    assert payload["aps"] == {"content-available": 1, "alert": {"loc-key": "TEA"}}


def test_low_priority_lets_the_device_sleep() -> None:
    assert to_apple(replace(SHOWN, priority=Priority.LOW))[0]["apns-priority"] == "5"
    assert to_apple(replace(SHOWN, apns={"priority": 1}))[0]["apns-priority"] == "1"


@pytest.mark.parametrize(
    ("push_type", "topic", "priority", "expiration"),
    [
        ("voip", "com.example.app.voip", "10", "0"),
        ("pushtotalk", "com.example.app.voip-ptt", "10", "0"),
        ("location", "com.example.app.location-query", "10", "1800000090"),
        ("liveactivity", "com.example.app.push-type.liveactivity", "10", "1800000090"),
        ("widgets", "com.example.app.push-type.widgets", "5", "1800000090"),
        ("controls", "com.example.app.push-type.controls", "10", "1800000090"),
        ("complication", "com.example.app.complication", "10", "1800000090"),
        ("fileprovider", "com.example.app.pushkit.fileprovider", "10", "1800000090"),
    ],
)
def test_each_push_type_has_its_topic_and_priority(push_type: str, topic: str, priority: str, expiration: str) -> None:
    headers, _ = to_apple(replace(SHOWN, apns={"push_type": push_type}))
    assert (headers["apns-topic"], headers["apns-priority"], headers["apns-expiration"]) == (
        topic,
        priority,
        expiration,
    )


@pytest.mark.parametrize(
    ("push_type", "storage", "expiration"),
    [
        ("alert", "until_expiry", "1800000090"),
        ("alert", "apple", None),
        ("alert", "none", "0"),
        ("voip", "until_expiry", "1800000090"),
    ],
)
def test_how_long_apple_keeps_a_push_is_the_callers_to_say(
    push_type: str, storage: str, expiration: str | None
) -> None:
    headers, _ = to_apple(replace(SHOWN, apns={"push_type": push_type, "storage": storage}))
    assert headers.get("apns-expiration") == expiration


def test_a_broadcast_names_its_channel_and_neither_topic_nor_device() -> None:
    ready = apns.form(live_activity_end(at_s=1_800_000_000))
    channel = replace(device(Platform.APNS, "dHN0LXNyY2g=", "com.example.app"), address=Address.CHANNEL)
    sent = apns.request(replace(push(), device=checked(channel)), ready, bearer="b")
    assert sent.path == "/4/broadcasts/apps/com.example.app"
    assert {name for name in sent.headers if name.startswith("apns-")} == {
        "apns-channel-id",
        "apns-push-type",
        "apns-priority",
        "apns-expiration",
    }
    assert sent.headers["apns-channel-id"] == "dHN0LXNyY2g="


def test_a_channel_takes_live_activities_alone() -> None:
    channel = replace(device(Platform.APNS, "dHN0LXNyY2g=", "com.example.app"), address=Address.CHANNEL)
    with pytest.raises(BadRequest, match="liveactivity alone"):
        apns.request(replace(push(), device=channel), apns.form(SHOWN), bearer="b")


@pytest.mark.parametrize("channel", ["", "a b", "a\r\nb", "../x", "x" * 201, "=abc"])
def test_no_odd_channel_reaches_a_header(channel: str) -> None:
    with pytest.raises(BadRequest, match="channel"):
        checked(replace(device(Platform.APNS, channel, "com.example.app"), address=Address.CHANNEL))


# --- FCM --------------------------------------------------------------------------------------------------------------


def test_a_notification_for_google() -> None:
    content = replace(SHOWN, image="https://example.com/tea.png", link="app://tea", data={"cup": "2"}, sound="default")
    assert to_google(content) == {
        "notification": {"title": "Tea", "body": "is ready", "image": "https://example.com/tea.png"},
        "data": {"cup": "2", "link": "app://tea"},
        "android": {"priority": "HIGH", "ttl": "90s", "notification": {"sound": "default", "tag": "tea"}},
    }


def test_an_install_is_named_by_its_firebase_id_where_it_registered_so() -> None:
    install = replace(
        push(SHOWN, Platform.FCM, "fid-1"), device=replace(device(Platform.FCM, "fid-1"), address=Address.FID)
    )
    for sent in (
        fcm.request(install, fcm.form(SHOWN), project_id="demo-project", bearer="b", now_ms=NOW_MS),
        fcm.probe(install.device, project_id="demo-project", bearer="b"),
    ):
        message = json.loads(sent.body)["message"]
        assert (message["fid"], "token" in message) == ("fid-1", False)


def test_data_alone_wakes_no_android_and_carries_no_tag() -> None:
    assert to_google(Content(data={"sync": "1"}))["android"] == {"priority": "NORMAL", "ttl": "90s"}


def test_fcms_collapse_key_is_only_ever_the_callers() -> None:
    assert to_google(replace(SHOWN, collapse_key="tea"))["android"]["collapse_key"] == "tea"


@pytest.mark.parametrize(("expires_at_ms", "ttl"), [(NOW_MS - 1, "0s"), (NOW_MS + 10**12, "2419200s")])
def test_the_age_stays_within_what_fcm_takes(expires_at_ms: int, ttl: str) -> None:
    assert to_google(SHOWN, expires_at_ms)["android"]["ttl"] == ttl


def test_overrides_are_merged_last_and_deep() -> None:
    over = {"android": {"ttl": "5s", "notification": {"channel_id": "kitchen"}}, "webpush": {"headers": {"TTL": "5"}}}
    message = to_google(replace(SHOWN, fcm=over))
    assert message["android"] == {
        "priority": "HIGH", "ttl": "5s", "notification": {"tag": "tea", "channel_id": "kitchen"},
    }  # fmt: skip
    assert message["webpush"] == {"headers": {"TTL": "5"}}


@settings(deadline=None)  # a busy machine is no finding
@given(st.dictionaries(st.text(), st.integers() | st.dictionaries(st.text(), st.integers())))
def test_merging_with_nothing_or_with_itself_changes_nothing(value: dict[str, object]) -> None:
    assert merged(value, {}) == merged({}, value) == merged(value, value) == value


# --- refused beforehand -----------------------------------------------------------------------------------------------

REFUSED = {
    "priority-10-in-the-background": (Content(apns={"priority": 10}), "content.apns.priority"),
    "priority-2": (replace(SHOWN, apns={"priority": 2}), "content.apns.priority"),
    "priority-true": (replace(SHOWN, apns={"priority": True}), "content.apns.priority"),
    "unknown-push-type": (replace(SHOWN, apns={"push_type": "banner"}), "content.apns.push_type"),
    "background-that-shows": (replace(SHOWN, apns={"push_type": "background"}), "content.apns.push_type"),
    "alert-without-anything": (Content(apns={"push_type": "alert"}), "content.apns.push_type"),
    "unknown-override": (replace(SHOWN, apns={"topic": "x"}), "content.apns.topic"),
    "payload-is-a-list": (replace(SHOWN, apns={"payload": []}), "content.apns.payload"),
    "aps-is-a-text": (replace(SHOWN, apns={"payload": {"aps": "x"}}), "content.apns.payload.aps"),
    "not-a-number": (replace(SHOWN, apns={"payload": {"x": float("nan")}}), "content.apns.payload"),
    "aps-in-data": (replace(SHOWN, data={"aps": "x"}), "content.data.aps"),
    "reserved-from": (replace(SHOWN, data={"from": "x"}), "content.data.from"),
    "reserved-message-type": (replace(SHOWN, data={"message_type": "x"}), "content.data.message_type"),
    "reserved-google": (replace(SHOWN, data={"google.x": "x"}), "content.data.google.x"),
    "reserved-gcm": (replace(SHOWN, data={"gcm.notification.x": "x"}), "content.data.gcm.notification.x"),
    "reserved-in-override": (replace(SHOWN, fcm={"data": {"from": "x"}}), "content.fcm.data.from"),
    "number-in-data": (replace(SHOWN, fcm={"data": {"n": 1}}), "content.fcm.data.n"),
    "another-target": (replace(SHOWN, fcm={"topic": "all"}), "content.fcm.topic"),
    "android-is-a-text": (replace(SHOWN, fcm={"android": "x"}), "content.fcm.android"),
    "link-twice": (replace(SHOWN, link="a", data={"link": "b"}), "content.data.link"),
    "collapse-key-of-65-bytes": (replace(SHOWN, collapse_key="é" * 32 + "x"), "content.collapse_key"),
    "collapse-key-with-a-line-break": (replace(SHOWN, collapse_key="a\r\nb"), "content.collapse_key"),
}


@pytest.mark.parametrize(("content", "field"), REFUSED.values(), ids=REFUSED)
def test_preflight_names_the_field_that_a_provider_would_refuse(content: Content, field: str) -> None:
    assert fault(content) == field


def test_preflight_asks_only_the_providers_that_the_app_has() -> None:
    preflight(replace(SHOWN, data={"from": "x"}), replace(APP, fcm=None))
    preflight(replace(SHOWN, data={"aps": "x"}), replace(APP, apns_production=None))


@pytest.mark.parametrize(("push_type", "limit"), [("alert", 4096), ("voip", 5120)])
def test_apples_limit_counts_bytes_of_utf8(push_type: str, limit: int) -> None:
    only_apple = replace(APP, fcm=None)
    apart = len(apns.form(Content(body="x", apns={"push_type": push_type})).body) - 1
    fits = Content(body="é" * ((limit - apart) // 2) + "x" * ((limit - apart) % 2), apns={"push_type": push_type})
    assert len(apns.form(fits).body) == limit
    preflight(fits, only_apple)
    assert fault(replace(fits, body=f"{fits.body}x"), only_apple) == "content"


def test_googles_limit_counts_notification_and_data() -> None:
    only_google = replace(APP, apns_production=None)
    apart = fcm.form(Content(data={"k": ""})).size_bytes
    preflight(Content(data={"k": "x" * (4000 - apart)}), only_google)
    assert fault(Content(data={"k": "x" * (4001 - apart)}), only_google) == "content"


def test_googles_limit_counts_bytes_of_utf8() -> None:
    only_google = replace(APP, apns_production=None)
    apart = fcm.form(Content(body="x")).size_bytes - 1
    fits = Content(body="é" * ((4000 - apart) // 2) + "x" * ((4000 - apart) % 2))
    assert fcm.form(fits).size_bytes == 4000
    preflight(fits, only_google)
    assert fault(replace(fits, body=f"{fits.body}x"), only_google) == "content"


@pytest.mark.parametrize("push_token", ["", "abc", "zz", "ab/../cd", "ab\r\n", "ab" * 201, "ａｂ"])
def test_no_odd_push_token_reaches_apples_path(push_token: str) -> None:
    with pytest.raises(BadRequest, match="push_token"):
        apns.request(push(push_token=push_token), apns.form(SHOWN), bearer="b")
    with pytest.raises(BadRequest, match="push_token"):
        checked(device(Platform.APNS, push_token))


@pytest.mark.parametrize(("characters", "fits"), [(62, False), (64, True), (65, False), (200, True), (202, False)])
def test_a_push_token_of_apples_is_registered_whole(characters: int, fits: bool) -> None:
    said = device(Platform.APNS, "Ab" * (characters // 2) + "c" * (characters % 2))
    if fits:
        assert checked(said).push_token == said.push_token.lower()
    else:
        with pytest.raises(BadRequest, match=r"^push_token: APNs"):
            checked(said)


@pytest.mark.parametrize("characters", [1, 2048, 2049])
def test_a_push_token_of_googles_is_registered_as_it_is(characters: int) -> None:
    said = device(Platform.FCM, ("aZ09_-:" * 293)[:characters], None)
    if characters <= 2048:
        assert checked(said) == said
    else:
        with pytest.raises(BadRequest, match=r"^push_token: FCM"):
            checked(said)


@pytest.mark.parametrize("topic", [None, "", "com.example\r\nx: y", "com/example", ".com", "a" * 256])
def test_no_odd_topic_reaches_a_header(topic: str | None) -> None:
    with pytest.raises(BadRequest, match="topic"):
        checked(device(Platform.APNS, "ab", topic))


@pytest.mark.parametrize("push_token", ["", "a b", "a/b", "x" * 4097])
def test_no_odd_push_token_reaches_google(push_token: str) -> None:
    with pytest.raises(BadRequest, match="push_token"):
        checked(device(Platform.FCM, push_token, None))


@pytest.mark.parametrize("project_id", ["", "../x", "a/b", "A", "x" * 64])
def test_no_odd_project_reaches_googles_path(project_id: str) -> None:
    sent = push(SHOWN, Platform.FCM, "fcm:1")
    with pytest.raises(BadRequest, match="project_id"):
        fcm.request(sent, fcm.form(SHOWN), project_id=project_id, bearer="b", now_ms=NOW_MS)
