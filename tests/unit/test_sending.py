"""What a caller may ask of ``send``, and what each recipient gets when: quiet hours, languages, mutes, parts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS, PHONE, a_device, a_recipient, an_app, some_content
from pushlease.errors import BadRequest
from pushlease.jobs.job import DeliveryStatus, Status
from pushlease.push.device import AppId, DeviceId
from pushlease.push.notification import Content, Priority
from pushlease.push.plan import Target
from pushlease.push.preference import EVERYTHING, Channels, Preferences, Transport, Unknown
from pushlease.push.quiet import Window, stretch_at
from send.usecase import PartlyAccepted, Submission
from system import SPREAD, System

VIENNA = ZoneInfo("Europe/Vienna")
EVERY_DAY = frozenset(range(7))
NIGHT = Window(days=EVERY_DAY, start=22 * 60, end=7 * 60)
MINUTES = st.integers(0, 59)
SPREAD_MS = SPREAD // timedelta(milliseconds=1)


def at(hour: int, minute: int = 0) -> int:
    """Epoch ms of a wall time in Vienna, on the day of ``NOW_MS`` (15 January 2027)."""
    day = datetime.fromtimestamp(NOW_MS / 1000, VIENNA)
    return int(day.replace(hour=hour, minute=minute, second=0, microsecond=0).timestamp() * 1000)


def sleeper(**said: Any) -> Preferences:
    return Preferences(**{"quiet": (NIGHT,), "zone": "Europe/Vienna"} | said)


@pytest.fixture
def system() -> System:
    return System()


def delivery(answer: Any, name: str = PHONE) -> Any:
    return answer["jobs"][0]["deliveries"][name]


# ---- Quiet hours


def test_what_is_sent_at_night_waits_for_the_morning_and_spends_no_attempt(system: System) -> None:
    system.recipients.put(a_recipient(), sleeper())
    system.clock.now_ms = at(23)
    told = delivery(system.send())
    assert (told["status"], told["why"]) == ("queued", "quiet_hours")
    assert at(7) + DAY_MS <= told["not_before_ms"] < at(7) + DAY_MS + SPREAD_MS
    assert system.hints.published == []
    system.clock.now_ms = told["not_before_ms"] - 1
    system.drain()
    assert system.pusher.pushed == []
    system.clock.now_ms += 1
    system.drain()
    (job,) = system.jobs.rows.values()
    assert (job.status, job.deliveries[PHONE].attempts, len(system.pusher.pushed)) == (Status.DONE, 1, 1)


def test_the_night_that_began_meanwhile_is_respected_at_the_claim(system: System) -> None:
    system.clock.now_ms = at(21, 59)
    system.send()
    system.recipients.put(a_recipient(), sleeper())
    system.clock.now_ms = at(22)
    system.deliver()
    (job,) = system.jobs.rows.values()
    assert (job.attempts, job.deliveries[PHONE].attempts, system.pusher.pushed) == (0, 0, [])
    assert at(7) + DAY_MS <= job.due_at_ms < at(7) + DAY_MS + SPREAD_MS
    assert "quiet_hours" in job.history[-1]


def test_what_is_urgent_passes(system: System) -> None:
    system.recipients.put(a_recipient(), sleeper())
    system.clock.now_ms = at(23)
    assert delivery(system.send(content=some_content(priority=Priority.URGENT))) == {"status": "queued"}
    system.deliver()
    assert len(system.pusher.pushed) == 1


def test_expiry_wins(system: System) -> None:
    system.recipients.put(a_recipient(), sleeper())
    system.clock.now_ms = at(23)
    told = delivery(system.send(ttl_s=3600))
    assert told["not_before_ms"] == at(23) + HOUR_MS
    system.clock.now_ms = told["not_before_ms"]
    system.drain()
    (job,) = system.jobs.rows.values()
    assert (job.status, job.deliveries[PHONE].code, system.pusher.pushed) == (Status.DONE, "expired", [])


def test_the_inbox_does_not_sleep(system: System) -> None:
    system.recipients.put(a_recipient(), sleeper())
    system.clock.now_ms = at(23)
    system.send(transports=frozenset(Transport))
    system.deliver()
    (job,) = system.jobs.rows.values()
    assert job.deliveries["in_app"].status is DeliveryStatus.DELIVERED  # type: ignore[index]
    assert job.deliveries[PHONE].status is DeliveryStatus.QUEUED


def test_an_app_has_a_zone_for_who_has_none(system: System) -> None:
    system.apps.put(an_app(zone="Asia/Tokyo"))
    system.recipients.put(a_recipient(), sleeper(zone=None))
    system.clock.now_ms = at(15)  # 23:00 in Tokyo
    assert delivery(system.send())["why"] == "quiet_hours"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            Window,
            days=st.frozensets(st.integers(0, 6), min_size=1),
            start=st.integers(0, 1379),
            end=st.integers(0, 59),
        ),
        min_size=1,
        max_size=2,
    ),
    st.integers(0, 400 * 1440),
    st.sampled_from(["Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.sampled_from([60, 3_600, 86_400, 14 * 86_400]),
    st.sampled_from(Priority),
)
def test_of_every_send_the_push_leaves_outside_the_windows_or_expires(
    windows: list[Window], minutes: int, zone: str, ttl_s: int, priority: Priority
) -> None:
    """Never inside the window, never dropped, never later than its end and the spread, unless expired or urgent."""
    system = System()
    system.clock.now_ms = start_ms = NOW_MS + minutes * MINUTE_MS
    system.recipients.put(a_recipient(), Preferences(quiet=tuple(windows), zone=zone))
    told = delivery(system.send(content=some_content(priority=priority), ttl_s=ttl_s))
    stretch = stretch_at(windows, ZoneInfo(zone), start_ms)
    due_ms = told.get("not_before_ms", start_ms)
    if stretch is None or priority is Priority.URGENT:
        assert due_ms == start_ms
    elif due_ms < start_ms + ttl_s * 1000:
        assert stretch.end_ms <= due_ms <= stretch.end_ms + SPREAD_MS
    else:
        assert stretch.end_ms + SPREAD_MS >= start_ms + ttl_s * 1000
    system.clock.now_ms = max(due_ms, start_ms + 1)
    system.deliver()
    system.drain()
    (job,) = system.jobs.rows.values()
    assert job.status is Status.DONE
    assert (job.deliveries[PHONE].code == "expired") == (not system.pusher.pushed)


# ---- When


def test_a_wall_time_is_each_recipients_own(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    system.recipients.put(a_recipient("u1"), Preferences(zone="Europe/Vienna"))
    system.recipients.put(a_recipient("u2"), Preferences(zone="America/New_York"))
    nine = datetime(2027, 1, 16, 9, 0)
    answer = system.send("u1", "u2", deliver_at_local=nine, ttl_s=60)
    due = [job["deliveries"][PHONE]["not_before_ms"] for job in answer["jobs"]]
    assert due == [
        int(nine.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000) for zone in ("Europe/Vienna", "America/New_York")
    ]
    assert [job["expires_at_ms"] - due_ms for job, due_ms in zip(answer["jobs"], due, strict=True)] == [60_000, 60_000]
    assert {job["deliveries"][PHONE]["why"] for job in answer["jobs"]} == {"deliver_at"}


def test_a_wall_time_that_has_passed_where_somebody_lives_is_now(system: System) -> None:
    system.recipients.put(a_recipient(), Preferences(zone="Pacific/Kiritimati"))
    local = datetime.fromtimestamp(NOW_MS / 1000, UTC).replace(tzinfo=None)
    assert delivery(system.send(deliver_at_local=local)) == {"status": "queued"}


@pytest.mark.parametrize(
    "said",
    [
        {"deliver_at_ms": 2**48 - 1},
        {"expires_at_ms": 2**48 - 1},
        {"deliver_at_local": datetime(9999, 12, 31)},
        {"deliver_at_ms": NOW_MS + 36_501 * DAY_MS},
    ],
)
def test_what_lies_too_far_ahead_is_refused_with_its_limit(system: System, said: dict[str, Any]) -> None:
    system.recipients.put(a_recipient(), sleeper())
    with pytest.raises(BadRequest, match="within 36500 days") as refusal:
        system.send(**said)
    assert refusal.value.field in said
    assert system.jobs.rows == {}


def test_fifty_years_ahead_are_not_too_far(system: System) -> None:
    system.recipients.put(a_recipient(), sleeper())
    assert delivery(system.send(deliver_at_ms=NOW_MS + 50 * 366 * DAY_MS))["status"] == "queued"


def test_a_wall_time_after_the_expiry_is_told_at_once(system: System) -> None:
    local = datetime.fromtimestamp((NOW_MS + 2 * HOUR_MS) / 1000, UTC).replace(tzinfo=None)
    told = delivery(system.send(deliver_at_local=local, expires_at_ms=NOW_MS + HOUR_MS))
    assert told == {"status": "failed", "code": "expired"}


def test_a_delivery_at_a_time_that_is_quiet_waits_on(system: System) -> None:
    system.recipients.put(a_recipient(), sleeper())
    told = delivery(system.send(deliver_at_ms=at(23), ttl_s=86_400))
    assert told["why"] == "quiet_hours"
    assert told["not_before_ms"] >= at(7) + DAY_MS


# ---- Channels and mutes


def test_what_is_off_for_everybody_is_on_for_who_asks(system: System) -> None:
    system.apps.put(an_app(channels=Channels(defaults={"news": {Transport.PUSH: False}})))
    assert delivery(system.send(channel="news")) == {"status": "suppressed", "code": "channel_off"}
    system.recipients.put(a_recipient(), Preferences(channels={"news": {Transport.PUSH: True}}))
    assert delivery(system.send(channel="news"))["status"] == "queued"


@pytest.mark.parametrize("channel", [None, "news"])
def test_a_mute_of_all_holds_until_its_end(system: System, channel: str | None) -> None:
    system.recipients.put(a_recipient(), Preferences(muted_until_ms={EVERYTHING: NOW_MS + HOUR_MS}))
    assert delivery(system.send(channel=channel)) == {"status": "suppressed", "code": "muted"}
    system.clock.now_ms += HOUR_MS
    assert delivery(system.send(channel=channel))["status"] == "queued"


def test_a_mute_of_a_channel_leaves_the_others_and_the_inbox(system: System) -> None:
    system.recipients.put(a_recipient(), Preferences(muted_until_ms={"news": NOW_MS + HOUR_MS}))
    both = system.send(channel="news", transports=frozenset(Transport))
    assert (delivery(both)["status"], delivery(both, "in_app")["status"]) == ("suppressed", "queued")
    assert delivery(system.send(channel="orders"))["status"] == "queued"


@pytest.mark.parametrize(("unknown", "status"), [(Unknown.ALLOW, "queued"), (Unknown.SUPPRESS, "suppressed")])
def test_a_channel_that_the_app_does_not_know(system: System, unknown: Unknown, status: str) -> None:
    system.apps.put(an_app(channels=Channels(defaults={"news": {}}, unknown=unknown)))
    assert delivery(system.send(channel="nwes"))["status"] == status
    assert delivery(system.send(channel="news"))["status"] == "queued"


def test_a_channel_that_the_app_does_not_know_may_be_refused_by_name(system: System) -> None:
    system.apps.put(an_app(channels=Channels(defaults={"news": {}, "orders": {}}, unknown=Unknown.REFUSE)))
    with pytest.raises(BadRequest, match="news, orders") as refusal:
        system.send(channel="nwes")
    assert refusal.value.field == "channel"
    assert system.jobs.rows == {}


# ---- Languages

GREETING = Content(
    title="Your parcel",
    body="It is at the door.",
    locales={"de": {"title": "Dein Paket", "body": "Es ist vor der Tür."}, "de-AT": {"title": "Dein Packerl"}},
)


@pytest.mark.parametrize(
    ("locale", "title", "body"),
    [
        ("de-AT", "Dein Packerl", "It is at the door."),
        ("de_DE", "Dein Paket", "Es ist vor der Tür."),
        ("DE", "Dein Paket", "Es ist vor der Tür."),
        ("fr", "Your parcel", "It is at the door."),
        (None, "Your parcel", "It is at the door."),
    ],
)
def test_a_device_shows_its_own_language(system: System, locale: str | None, title: str, body: str) -> None:
    system.devices.register(a_device(locale=locale))
    system.send(content=GREETING)
    system.deliver()
    (push,) = system.pusher.pushed
    assert (push.content.title, push.content.body, push.content.locales) == (title, body, {})


def test_the_inbox_has_the_recipients_language_and_the_push_its_name(system: System) -> None:
    system.recipients.put(a_recipient(), Preferences(locale="de"))
    answer = system.send(content=GREETING, transports=frozenset(Transport))
    system.deliver()
    (push,) = system.pusher.pushed
    assert push.content.data == {"notification_id": answer["notification_id"]}
    assert "Dein Paket" in str(system.inbox.entries(a_recipient()))


def test_a_language_that_is_too_long_is_refused_by_its_place(system: System) -> None:
    long = replace(GREETING, locales={"de": {"body": "x" * 5000}})
    with pytest.raises(BadRequest) as refusal:
        system.send(content=long)
    assert refusal.value.field.startswith("content.locales.de")


# ---- Once, wholly, or in parts


def test_a_dry_run_tells_and_stores_nothing(system: System) -> None:
    system.recipients.put(a_recipient("u2"), sleeper())
    system.devices.register(a_device(recipient=a_recipient("u2")))
    system.clock.now_ms = at(23)
    told = system.send("u1", "u2", "nobody", dry_run=True, notification_id="n-1")
    assert told["dry_run"] is True
    assert [next(iter(job["deliveries"].values())).get("why") for job in told["jobs"]] == [None, "quiet_hours", None]
    assert told["jobs"][2]["deliveries"] == {"push": {"status": "skipped", "code": "no_push_token"}}
    assert (system.jobs.rows, system.notifications.rows, system.hints.published) == ({}, {}, [])
    done = system.send("u1", "u2", "nobody", notification_id="n-1")
    assert [job["deliveries"] for job in done["jobs"]] == [job["deliveries"] for job in told["jobs"]]
    assert [job["job_id"] for job in done["jobs"]] == [job["job_id"] for job in told["jobs"]]


def test_what_the_table_did_not_answer_for_is_told_and_the_same_call_completes_it(system: System) -> None:
    for user in ("u2", "u3"):
        system.devices.register(a_device(recipient=a_recipient(user)))
    dry = system.send("u1", "u2", "u3", notification_id="n-1", dry_run=True)
    lost = dry["jobs"][1]["job_id"]
    system.jobs.unavailable.add(lost)
    with pytest.raises(PartlyAccepted, match='"not_accepted": \\[1\\]') as fault:
        system.send("u1", "u2", "u3", notification_id="n-1")
    assert [job["accepted"] for job in fault.value.answer["jobs"]] == [True, False, True]
    assert len(system.hints.published) == 2
    system.jobs.unavailable.clear()
    again = system.send("u1", "u2", "u3", notification_id="n-1")
    assert [job["duplicate"] for job in again["jobs"]] == [True, False, True]
    assert len(system.jobs.rows) == 3


def test_an_invocation_that_is_repeated_is_one_notification(system: System) -> None:
    first = system.send(invocation_id="8f1c")
    again = system.send(invocation_id="8f1c")
    other = system.send(invocation_id="8f1d")
    assert first["jobs"][0]["job_id"] == again["jobs"][0]["job_id"] != other["jobs"][0]["job_id"]
    assert len(system.jobs.rows) == 2


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from(["u1", "u2", "u3", "u4"]), min_size=1), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_any_interleaving_of_repeats_yields_one_set_of_jobs(calls: list[tuple[frozenset[str], bool]]) -> None:
    system = System()
    for user in ("u2", "u3", "u4"):
        system.devices.register(a_device(recipient=a_recipient(user)))
    for users, worked in calls:
        system.send(*sorted(users), idempotency_key="order-1")
        if worked:
            system.deliver()
    system.deliver()
    everybody = {user for users, _ in calls for user in users}
    assert {job.user_id for job in system.jobs.rows.values()} == everybody
    assert len(system.jobs.rows) == len(everybody) == len(system.pusher.pushed)


def test_a_submission_knows_whether_it_is_named() -> None:
    plain = Submission(app_id="shop", content=some_content(), targets=[Target(user_id="u1")])
    assert not plain.named
    assert replace(plain, idempotency_key="k").named
    assert replace(plain, notification_id="n").named


def test_an_unknown_app_is_refused(system: System) -> None:
    with pytest.raises(BadRequest) as refusal:
        system.send(app_id=AppId("nobody"))
    assert refusal.value.field == "app_id"


def test_one_device_alone_is_planned(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId("tablet")))
    told = system.send(targets=(Target(user_id="u1", device_id="tablet"),))
    assert list(told["jobs"][0]["deliveries"]) == ["tablet"]
