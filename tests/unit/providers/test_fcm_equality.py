"""Our messages for FCM are those that Google's own library encodes from the same values.

Each field is drawn once and spelt twice: as the JSON of FCM's reference, which is what an override is written in, and
as an argument of firebase-admin. What a caller leaves to us, such as the priority, is told to firebase-admin outright.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from firebase_admin import messaging  # type: ignore[import-untyped]
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pushlease.providers.fcm import protocol as fcm
from pushlease.push.device import (
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
PUSH_TOKEN = "fcm:1"
APP = App(app_id=AppId("app"), fcm=FcmCredentials(project_id="demo-project", secret="fcm"))

type Spelt = tuple[Any, Any]  # one value: in FCM's JSON, and as firebase-admin takes it
type Block = tuple[dict[str, Any], dict[str, Any]]  # likewise an object's members and a constructor's arguments


def sent(content: Content, collapse_id: str, ttl_ms: int) -> dict[str, Any]:
    """The message as our client sends it."""
    recipient = Recipient(app_id=APP.app_id, user_id=UserId("u"))
    device = Device(
        device_id=DeviceId("d"),
        recipient=recipient,
        platform=Platform.FCM,
        environment=Environment.PRODUCTION,
        push_token=PUSH_TOKEN,
        registered_at_ms=0,
        topic=None,
    )
    push = Push(
        push_id="0e8f1f1c-6e3e-8d53-9d4c-3a5c1b2d4e6f",
        app=APP,
        device=device,
        content=content,
        collapse_id=collapse_id,
        expires_at_ms=NOW_MS + ttl_ms,
    )
    request = fcm.request(push, fcm.form(content), project_id="demo-project", bearer="ya29", now_ms=NOW_MS)
    message: dict[str, Any] = json.loads(request.body)["message"]
    return message


def encoded(message: messaging.Message) -> dict[str, Any]:
    """The message as firebase-admin sends it."""
    said: dict[str, Any] = json.loads(json.dumps(messaging._MessagingService.encode_message(message)))
    return said


# --- one value, spelt twice -------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
LABELS = st.from_regex(r"[a-zA-Z0-9_.~%-]{1,50}", fullmatch=True)
DATA = st.dictionaries(st.from_regex(r"k_[a-z]{1,4}", fullmatch=True), TEXTS, min_size=1, max_size=3)
LINKS = st.from_regex(r"https://example\.com/[a-z]{0,9}", fullmatch=True)
COLOURS = st.from_regex(r"#[0-9a-fA-F]{6}", fullmatch=True)
EIGHTHS_MS = st.integers(1, 80).map(
    lambda eighths: 125 * eighths
)  # exact in binary, for firebase-admin counts in floats


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Spelt]:
    return values.map(lambda value: (value, value))


def enum(*names: str, prefix: str = "") -> st.SearchStrategy[Spelt]:
    """FCM's constants; firebase-admin takes them in lower case."""
    return st.sampled_from([(f"{prefix}{name}", name.lower()) for name in names])


def seconds(ms: int) -> str:
    """A duration in JSON, with no more digits than it needs."""
    return f"{Decimal(ms) / 1000:f}s"


def block(
    spelling: Callable[[str], str], required: Mapping[str, Any] | None = None, /, **optional: st.SearchStrategy[Spelt]
) -> st.SearchStrategy[Block]:
    """Some of these members, by firebase-admin's names, which ``spelling`` makes FCM's."""
    return st.fixed_dictionaries(required or {}, optional=optional).map(
        lambda drawn: (
            {spelling(name): spelt[0] for name, spelt in drawn.items()},
            {name: spelt[1] for name, spelt in drawn.items()},
        )
    )


def made(kind: Any, blocks: st.SearchStrategy[Block]) -> st.SearchStrategy[Spelt]:
    """An object that is not empty: firebase-admin sends no empty one, which FCM takes for an absent one."""
    return blocks.filter(lambda drawn: bool(drawn[0])).map(lambda drawn: (drawn[0], kind(**drawn[1])))


FCM_NAMES = {
    # android.notification
    "event_timestamp": "event_time",
    "priority": "notification_priority",
    "vibrate_timings_millis": "vibrate_timings",
    "light_on_duration_millis": "light_on_duration",
    "light_off_duration_millis": "light_off_duration",
    # webpush.notification
    "direction": "dir",
    "language": "lang",
    "require_interaction": "requireInteraction",
    "timestamp_millis": "timestamp",
}


def googles(name: str) -> str:
    return FCM_NAMES.get(name, name)


def apples(name: str) -> str:
    """Within aps the names are Apple's."""
    return name.replace("_", "-")


SWITCHES = same(st.booleans())
ONES = st.just((1, True))
DURATIONS = EIGHTHS_MS.map(lambda ms: (seconds(ms), ms))
EVENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
    lambda instant: (instant.isoformat().replace("+00:00", "Z"), instant)
)


def rgba(colour: str) -> Spelt:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return {"red": red, "green": green, "blue": blue, "alpha": 1.0}, colour


LIGHTS = made(
    messaging.LightSettings,
    block(
        googles,
        {"color": COLOURS.map(rgba), "light_on_duration_millis": DURATIONS, "light_off_duration_millis": DURATIONS},
    ),
)
ANDROID_NOTIFICATION = block(
    googles,
    **{name: same(TEXTS) for name in ("title", "body", "icon", "sound", "tag", "click_action", "body_loc_key")},
    **{name: same(TEXTS) for name in ("title_loc_key", "channel_id", "image", "ticker")},
    **dict.fromkeys(("sticky", "local_only", "default_sound", "default_light_settings"), SWITCHES),
    default_vibrate_timings=SWITCHES,
    color=same(COLOURS),
    event_timestamp=EVENTS,
    priority=enum("MIN", "LOW", "DEFAULT", "HIGH", "MAX", prefix="PRIORITY_"),
    visibility=enum("PRIVATE", "PUBLIC", "SECRET"),
    proxy=enum("ALLOW", "DENY", "IF_PRIORITY_LOWERED"),
    notification_count=same(st.integers(0, 99)),
    vibrate_timings_millis=st.lists(EIGHTHS_MS, min_size=1, max_size=3).map(
        lambda spans: ([seconds(ms) for ms in spans], spans)
    ),
    light_settings=LIGHTS,
)
ANDROID = block(
    googles,
    collapse_key=same(TEXTS),
    restricted_package_name=same(TEXTS),
    data=same(DATA),
    direct_boot_ok=SWITCHES,
    bandwidth_constrained_ok=SWITCHES,
    restricted_satellite_ok=SWITCHES,
    ttl=EIGHTHS_MS.map(lambda ms: (seconds(ms), timedelta(milliseconds=ms))),
    fcm_options=made(messaging.AndroidFCMOptions, block(googles, analytics_label=same(LABELS))),
)
ANDROID_PRIORITIES = st.none() | st.sampled_from(
    [(name, name.lower()) for name in ("HIGH", "NORMAL", "high", "normal")]
)
ALERTS = same(TEXTS) | made(
    messaging.ApsAlert,
    block(
        apples,
        **{name: same(TEXTS) for name in ("title", "subtitle", "body", "loc_key", "title_loc_key")},
        **{name: same(TEXTS) for name in ("action_loc_key", "launch_image")},
    ),
)
SOUNDS = same(TEXTS) | made(
    messaging.CriticalSound,
    block(apples, {"name": same(TEXTS)}, critical=ONES, volume=same(st.sampled_from([0.0, 0.25, 1.0]))),
)
APS = made(
    messaging.Aps,
    block(
        apples,
        alert=ALERTS,
        sound=SOUNDS,
        badge=same(st.integers(0, 99)),
        category=same(TEXTS),
        thread_id=same(TEXTS),
        content_available=ONES,
        mutable_content=ONES,
    ),
)
PAYLOADS = st.tuples(APS, st.dictionaries(st.from_regex(r"x-[a-z]{1,4}", fullmatch=True), TEXTS | st.integers())).map(
    lambda drawn: ({"aps": drawn[0][0], **drawn[1]}, messaging.APNSPayload(drawn[0][1], **drawn[1]))
)
APNS = made(
    messaging.APNSConfig,
    block(
        googles,
        headers=same(st.fixed_dictionaries({"apns-priority": st.sampled_from(["5", "10"])})),
        payload=PAYLOADS,
        live_activity_token=same(TEXTS),
        fcm_options=made(messaging.APNSFCMOptions, block(googles, analytics_label=same(LABELS), image=same(LINKS))),
    ),
)
ACTIONS = st.lists(
    made(
        messaging.WebpushNotificationAction,
        block(googles, {"action": same(TEXTS), "title": same(TEXTS)}, icon=same(LINKS)),
    ),
    min_size=1,
    max_size=2,
).map(lambda actions: ([raw for raw, _ in actions], [theirs for _, theirs in actions]))
WEBPUSH = made(
    messaging.WebpushConfig,
    block(
        googles,
        headers=same(st.fixed_dictionaries({"TTL": st.integers(0, 9).map(str)})),
        data=same(DATA),
        notification=made(
            messaging.WebpushNotification,
            block(
                googles,
                **{name: same(TEXTS) for name in ("title", "body", "icon", "badge", "image", "language", "tag")},
                **dict.fromkeys(("renotify", "require_interaction", "silent"), SWITCHES),
                actions=ACTIONS,
                data=same(DATA),
                direction=same(st.sampled_from(["auto", "ltr", "rtl"])),
                timestamp_millis=same(st.integers(1, 2**41)),
                vibrate=same(st.lists(st.integers(1, 500), min_size=1, max_size=3)),
            ),
        ),
        fcm_options=made(messaging.WebpushFCMOptions, block(googles, link=same(LINKS))),
    ),
)
NOTIFICATION = block(googles, title=same(TEXTS), body=same(TEXTS), image=same(LINKS))
FCM_OPTIONS = made(messaging.FCMOptions, block(googles, analytics_label=same(LABELS)))


# --- one push, said twice ---------------------------------------------------------------------------------------------


@st.composite
def pushes(draw: st.DrawFn) -> tuple[Content, str, int, messaging.Message]:
    """A content, its collapse id and its life in ms; and the message that it must become."""
    title, body = draw(st.none() | st.just("") | TEXTS), draw(st.none() | TEXTS)
    image, link, sound = draw(st.none() | LINKS), draw(st.none() | LINKS), draw(st.none() | TEXTS)
    priority, collapse_key = draw(st.sampled_from(Priority)), draw(st.none() | TEXTS)
    data, over_data = draw(st.just({}) | DATA), draw(st.just({}) | DATA)
    collapse_id, ttl_ms = draw(TEXTS), draw(st.integers(0, 1_000 * fcm.TTL_MAX_S))

    over_notification, notification_said = draw(st.just(({}, {})) | NOTIFICATION)
    over_android, android_said = draw(st.just(({}, {})) | ANDROID)
    over_inner, inner_said = draw(st.just(({}, {})) | ANDROID_NOTIFICATION)
    over_priority = draw(ANDROID_PRIORITIES)
    rest = {
        name: drawn
        for name, blocks in (("apns", APNS), ("webpush", WEBPUSH), ("fcm_options", FCM_OPTIONS))
        if (drawn := draw(st.none() | blocks)) is not None
    }

    over: dict[str, Any] = {
        "notification": over_notification,
        "data": over_data,
        "android": over_android
        | ({"notification": over_inner} if over_inner else {})
        | ({"priority": over_priority[0]} if over_priority else {}),
        **{name: raw for name, (raw, _) in rest.items()},
    }
    content = Content(
        title=title,
        body=body,
        image=image,
        link=link,
        sound=sound,
        data=data,
        priority=priority,
        collapse_key=collapse_key,
        fcm={name: value for name, value in over.items() if value},
    )

    shown = bool(title or body)
    ours = {"title": title or None, "body": body or None, "image": image} if shown else {}
    notification = ours | notification_said
    urgent = priority is Priority.URGENT or (shown and priority is Priority.NORMAL)
    inner = {"sound": sound if shown else None} | ({"tag": collapse_id} if notification else {}) | inner_said
    android = {
        "priority": over_priority[1] if over_priority else "high" if urgent else "normal",
        "ttl": timedelta(seconds=ttl_ms // 1_000),
        "collapse_key": collapse_key,
        "notification": messaging.AndroidNotification(**inner),
    }
    message = messaging.Message(
        token=PUSH_TOKEN,
        notification=messaging.Notification(**notification) if notification else None,
        data=data | ({"link": link} if link else {}) | over_data,
        android=messaging.AndroidConfig(**(android | android_said)),
        **{name: theirs for name, (_, theirs) in rest.items()},
    )
    return content, collapse_id, ttl_ms, message


def canonical(message: dict[str, Any]) -> dict[str, Any]:
    """What FCM's reference calls the same, made the same; everything else must be equal as it stands."""
    android: dict[str, Any] = message["android"]
    # AndroidMessagePriority: NORMAL and HIGH are its names; Google's own libraries send them in lower case.
    android["priority"] = android["priority"].upper()
    # Duration: seconds with up to nine fractional digits, so 3.5s is 3.500000000s.
    android["ttl"] = _span(android["ttl"])
    inner = android.get("notification", {})
    if "vibrate_timings" in inner:
        inner["vibrate_timings"] = [_span(span) for span in inner["vibrate_timings"]]
    for name in ("light_on_duration", "light_off_duration"):
        if name in inner.get("light_settings", {}):
            inner["light_settings"][name] = _span(inner["light_settings"][name])
    # Timestamp: RFC 3339 with 0, 3, 6 or 9 fractional digits.
    if "event_time" in inner:
        inner["event_time"] = datetime.fromisoformat(inner["event_time"])
    return message


def _span(text: str) -> Decimal:
    assert text.endswith("s")
    return Decimal(text[:-1])


# A registration token is what our devices have.
@pytest.mark.filterwarnings("ignore:Message.token is deprecated:DeprecationWarning")
@settings(
    max_examples=200,
    deadline=None,  # a busy machine is no finding
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(pushes())
def test_a_message_is_what_firebase_admin_makes_of_the_same_values(
    push: tuple[Content, str, int, messaging.Message],
) -> None:
    content, collapse_id, ttl_ms, message = push
    for name in content.fcm:
        event(f"overrides {name}")
    assert canonical(sent(content, collapse_id, ttl_ms)) == canonical(encoded(message))
