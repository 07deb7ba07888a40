"""The settings: parsed once, all faults listed together."""

from datetime import timedelta
from pathlib import Path

import pytest

from pushlease.errors import SettingsError
from pushlease.settings import Settings, parse

REQUIRED = {
    f"PUSHLEASE_{name}": name.lower()
    for name in (
        "JOBS_TABLE",
        "DEVICES_TABLE",
        "RECIPIENTS_TABLE",
        "INBOX_TABLE",
        "NOTIFICATIONS_TABLE",
        "APPS_TABLE",
        "FLOW_TABLE",
        "AUDIENCES_TABLE",
        "WORK_QUEUE_URL",
        "BULK_QUEUE_URL",
        "TICK_QUEUE_URL",
        "BURIAL_QUEUE_URL",
    )
}


OPERATORS_MODULE = """
from datetime import timedelta

def quarter_hours(attempt):
    return timedelta(minutes=15 * attempt)

def seconds(attempt):
    return 30.0 * attempt

def only_twice(attempt):
    return {1: timedelta(seconds=1), 2: timedelta(seconds=-1)}[attempt]
"""


@pytest.fixture(autouse=True)
def operators_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the operator's own, with schedules good and bad."""
    (tmp_path / "operators_module.py").write_text(OPERATORS_MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def parsed(**said: object) -> Settings:
    return parse({**REQUIRED, **{f"PUSHLEASE_{name}": str(value) for name, value in said.items()}})


def faults(**said: object) -> list[str]:
    with pytest.raises(SettingsError) as error:
        parsed(**said)
    return [line.partition(":")[0].removeprefix("PUSHLEASE_") for line in str(error.value).splitlines()]


def schedule(**said: object) -> list[float]:
    retry = parsed(**said).retry
    return [retry.schedule(attempt).total_seconds() for attempt in range(1, 7)]


def test_the_defaults_are_those_of_the_design() -> None:
    settings = parsed()
    assert settings.lease == timedelta(seconds=120)
    assert settings.function_timeout == timedelta(seconds=50)
    assert settings.grace == timedelta(seconds=180)
    assert (settings.max_attempts, settings.lanes, settings.drain_batch_size) == (5, 16, 50)
    assert schedule() == [30, 120, 480, 1920, 3600, 3600]
    assert (settings.retry.cap, settings.retry.least, settings.retry.most) == (timedelta(hours=1), 0.8, 1.2)
    assert settings.tick_offsets == (timedelta(seconds=30),)
    assert (settings.apns_retry_floor, settings.fcm_retry_floor) == (timedelta(minutes=1), timedelta(minutes=1))
    assert (settings.done_kept, settings.dead_kept) == (timedelta(days=7), timedelta(days=30))
    assert (settings.max_devices, settings.fcm_stale_after) == (20, timedelta(days=270))
    assert settings.inbox_kept == timedelta(days=90)
    assert settings.provider_ca_file is None


def test_all_faults_are_listed_together_by_their_variables() -> None:
    with pytest.raises(SettingsError) as error:
        parse({"PUSHLEASE_LANES": "many", "PUSHLEASE_APNS_SANDBOX_URL": "http://plain"})
    named = {line.partition(":")[0] for line in str(error.value).splitlines()}
    assert named == {*REQUIRED, "PUSHLEASE_LANES", "PUSHLEASE_APNS_SANDBOX_URL"}


@pytest.mark.parametrize(("lease", "timeout"), [(65, 50), (50, 50), (1, 50), (120, 105)])
def test_a_lease_that_a_late_worker_may_outlive_is_refused(lease: int, timeout: int) -> None:
    assert faults(LEASE_S=lease, FUNCTION_TIMEOUT_S=timeout) == ["LEASE_S"]


def test_the_shortest_lease_is_just_longer_than_the_timeout_and_the_clocks_skew() -> None:
    assert parsed(LEASE_S=66, FUNCTION_TIMEOUT_S=50).lease == timedelta(seconds=66)


def test_a_request_that_would_leave_no_time_to_settle_is_refused() -> None:
    assert faults(REQUEST_TIMEOUT_S=26) == ["REQUEST_TIMEOUT_S"]
    assert parsed(REQUEST_TIMEOUT_S=25).request_timeout == timedelta(seconds=25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_DEVICES", "0"),
        ("MAX_DEVICES", "101"),
        ("FCM_STALE_DAYS", "0"),
        ("MAX_ATTEMPTS", "0"),
        ("MAX_ATTEMPTS", "101"),
        ("MAX_ATTEMPTS", "five"),
        ("MAX_ATTEMPTS", "-1"),
        ("MAX_ATTEMPTS", "1.5"),
        ("MAX_ATTEMPTS", ""),
        ("LANES", "0"),
        ("LANES", "257"),
        ("DRAIN_BATCH_SIZE", "0"),
        ("BREAKER_AFTER", "0"),
        ("FCM_QUOTA_PER_MINUTE", "599"),
        ("TICK_OFFSETS_S", "0"),
        ("TICK_OFFSETS_S", "60"),
        ("TICK_OFFSETS_S", "nan"),
        ("TICK_OFFSETS_S", "soon"),
        ("DONE_TTL_DAYS", "0"),
        ("INBOX_DAYS", "0"),
        ("INBOX_DAYS", "3651"),
        ("FCM_URL", "http://fcm"),
        ("RETRY_CAP_S", "0"),
        ("DEAD_CODES", "rejected no_such_code"),
    ],
)
def test_a_setting_out_of_its_range_is_named(name: str, value: str) -> None:
    assert name in faults(**{name: value})


@pytest.mark.parametrize(
    ("said", "spans"),
    [
        ("1 2 3", [1, 2, 3, 3, 3, 3]),
        ("5,10", [5, 10, 10, 10, 10, 10]),
        ("0.5", [0.5] * 6),
        ("exponential", [60, 120, 240, 480, 960, 1920]),
        ("operators_module.quarter_hours", [900, 1800, 2700, 3600, 4500, 5400]),
    ],
)
def test_a_schedule_is_a_list_exponential_or_a_function(said: str, spans: list[float]) -> None:
    assert schedule(RETRY_SCHEDULE=said) == spans


@pytest.mark.parametrize(
    "said", ["", "soon", "-1", "0", "inf", "no.such.thing", "math.tau", "operators_module.seconds", "."]
)
def test_a_schedule_that_is_none_is_refused(said: str) -> None:
    assert "RETRY_SCHEDULE" in faults(RETRY_SCHEDULE=said)


def test_a_function_that_fails_later_delays_to_the_cap_and_never_raises() -> None:
    """It is asked after pushes went out, when their results must be settled."""
    retry = parsed(RETRY_SCHEDULE="operators_module.only_twice").retry
    assert [retry.delay(attempt, dice=0.5) for attempt in (1, 2, 3)] == [
        timedelta(seconds=1),
        timedelta(hours=1),
        timedelta(hours=1),
    ]


def test_lanes_once_used_are_drained_after_their_number_was_lowered() -> None:
    settings = parsed(LANES=4, LANES_EVER=32)
    assert (settings.lanes, settings.drained_lanes) == (4, 32)
    assert parsed(LANES=64, LANES_EVER=32).drained_lanes == 64


def test_a_setting_names_the_codes_that_a_person_should_see() -> None:
    assert parsed(DEAD_CODES="rejected invalid_token").dead_codes == {"rejected", "invalid_token"}
