"""Quiet hours on real zones: what the clock on the wall says decides, whatever the clock does."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pushlease.push.quiet import WEEK_MINUTES, Window, free_minutes, instant_ms, stretch_at

VIENNA, LORD_HOWE, APIA = ZoneInfo("Europe/Vienna"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")
EVERY_DAY = frozenset(range(7))
NIGHT = Window(days=EVERY_DAY, start=22 * 60, end=7 * 60)
SPREAD = timedelta(minutes=10)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def wall(at_ms: int, zone: ZoneInfo) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, zone):%Y-%m-%d %H:%M %Z}"


def reads_inside(windows: list[Window], at_ms: int, zone: ZoneInfo) -> bool:
    """The oracle: the wall clock's weekday and minute, and nothing else."""
    now = datetime.fromtimestamp(at_ms // 1000, zone)
    minute = now.weekday() * 24 * 60 + now.hour * 60 + now.minute
    return any(
        (minute - day * 24 * 60 - window.start) % WEEK_MINUTES < window.minutes
        for window in windows
        for day in window.days
    )


def test_a_night_is_one_stretch_across_midnight() -> None:
    late = stretch_at([NIGHT], VIENNA, ms(datetime(2026, 6, 1, 23, 30, tzinfo=VIENNA)))
    early = stretch_at([NIGHT], VIENNA, ms(datetime(2026, 6, 2, 6, 59, tzinfo=VIENNA)))
    assert late == early
    assert late
    assert wall(late.start_ms, VIENNA) == "2026-06-01 22:00 CEST"
    assert wall(late.end_ms, VIENNA) == "2026-06-02 07:00 CEST"
    assert stretch_at([NIGHT], VIENNA, late.end_ms) is None
    assert stretch_at([NIGHT], VIENNA, late.start_ms - 1) is None


def test_windows_that_touch_are_one_stretch() -> None:
    weekend = Window(days=frozenset({5, 6}), start=0, end=0)
    saturday = ms(datetime(2026, 6, 6, 12, tzinfo=VIENNA))
    stretch = stretch_at([weekend, NIGHT], VIENNA, saturday)
    assert stretch
    assert wall(stretch.start_ms, VIENNA) == "2026-06-05 22:00 CEST"
    assert wall(stretch.end_ms, VIENNA) == "2026-06-08 07:00 CEST"


@pytest.mark.parametrize(
    ("zone", "window", "at", "until"),
    [
        # An hour is left out: a window's edge within it is the instant of the change.
        (VIENNA, (1 * 60, 2 * 60 + 30), datetime(2026, 3, 29, 1, 30), "2026-03-29 03:00 CEST"),
        (VIENNA, (2 * 60 + 30, 4 * 60), datetime(2026, 3, 29, 3, 30), "2026-03-29 04:00 CEST"),
        # An hour comes twice: a window's end is its second reading.
        (VIENNA, (1 * 60, 2 * 60 + 30), datetime(2026, 10, 25, 1, 30), "2026-10-25 02:30 CET"),
        (VIENNA, (2 * 60, 2 * 60 + 30), datetime(2026, 10, 25, 2, 45), "2026-10-25 02:30 CET"),
        # Half an hour, and a whole day.
        (LORD_HOWE, (1 * 60, 1 * 60 + 45), datetime(2026, 4, 5, 1, 40), "2026-04-05 01:45 +1030"),
        (APIA, (22 * 60, 7 * 60), datetime(2011, 12, 29, 23), "2011-12-31 07:00 +14"),
    ],
)
def test_the_clock_is_changed_within_a_window(
    zone: ZoneInfo, window: tuple[int, int], at: datetime, until: str
) -> None:
    windows = [Window(days=EVERY_DAY, start=window[0], end=window[1])]
    stretch = stretch_at(windows, zone, ms(at.replace(tzinfo=zone)))
    assert stretch
    assert wall(stretch.end_ms, zone) == until


def test_a_window_that_the_clock_jumps_over_is_none() -> None:
    windows = [Window(days=EVERY_DAY, start=2 * 60 + 15, end=2 * 60 + 45)]
    assert stretch_at(windows, VIENNA, ms(datetime(2026, 3, 29, 3, 0, tzinfo=VIENNA))) is None


def test_a_wall_time_that_never_was_is_the_change_of_the_clock() -> None:
    change = ms(datetime(2026, 3, 29, 1, 0, tzinfo=UTC))
    assert {instant_ms(datetime(2026, 3, 29, 2, 30), VIENNA, last=last) for last in (False, True)} == {change}
    first, last = (instant_ms(datetime(2026, 10, 25, 2, 30), VIENNA, last=last) for last in (False, True))
    assert last - first == 3_600_000


def test_the_free_minutes_of_a_week() -> None:
    assert free_minutes([]) == WEEK_MINUTES
    assert free_minutes([NIGHT, NIGHT]) == 7 * 15 * 60
    assert free_minutes([Window(days=EVERY_DAY, start=0, end=0)]) == 0


ZONES = st.sampled_from(sorted(available_timezones() - {"localtime"})).map(ZoneInfo)
DAYS = st.frozensets(st.integers(0, 6), min_size=1)
MINUTES = st.integers(0, 24 * 60 - 1)
WINDOWS = st.lists(
    st.builds(Window, days=DAYS, start=MINUTES, end=MINUTES).filter(lambda window: window.start != window.end),
    min_size=1,
    max_size=4,
).filter(lambda windows: free_minutes(windows) >= 60)
# Any second of fifty years: with 600 zones it rarely meets a change of the clock, so half of them lie near one.
ANY_MS = st.integers(ms(datetime(2001, 1, 1, tzinfo=UTC)) // 1000, ms(datetime(2050, 1, 1, tzinfo=UTC)) // 1000)


def changes(zone: ZoneInfo, year: int) -> list[int]:
    """The hours of a year in which a zone's clock changes, epoch s."""
    start = ms(datetime(year, 1, 1, tzinfo=UTC)) // 1000
    hours = range(start, start + 366 * 86_400, 3600)
    offsets = [datetime.fromtimestamp(hour, zone).utcoffset() for hour in hours]
    return [hours[at] for at in range(1, len(hours)) if offsets[at] != offsets[at - 1]]


CHANGING = ["Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo"]


@st.composite
def moments(draw: st.DrawFn) -> tuple[ZoneInfo, int]:
    """A zone and an instant, epoch ms; every other one within three hours of a change of the clock."""
    if draw(st.booleans()):
        return draw(ZONES), draw(ANY_MS) * 1000
    zone = ZoneInfo(draw(st.sampled_from(CHANGING)))
    near = draw(st.sampled_from(changes(zone, 2016) or [1_600_000_000]))
    return zone, (near + draw(st.integers(-3 * 3600, 3 * 3600))) * 1000


@settings(max_examples=400, deadline=None)
@given(moments(), WINDOWS, st.floats(0, 1, exclude_max=True), st.integers(0, 40 * 86_400_000), st.integers(0, 7200))
@example((APIA, ms(datetime(2011, 12, 29, 23, tzinfo=APIA))), [NIGHT], 0.99, 0, 600)
def test_never_inside_a_window_never_dropped_never_later_than_end_and_spread(
    moment: tuple[ZoneInfo, int], windows: list[Window], share: float, said_before_ms: int, spread_s: int
) -> None:
    zone, at_ms = moment
    spread = timedelta(seconds=spread_s)
    stretch = stretch_at(windows, zone, at_ms)
    if stretch is None:
        assert not reads_inside(windows, at_ms, zone)
        return
    assert stretch.start_ms <= at_ms < stretch.end_ms
    due_ms = stretch.release_ms(share=share, said_at_ms=at_ms - said_before_ms, spread=spread)
    assert stretch.end_ms <= due_ms <= stretch.end_ms + spread // timedelta(milliseconds=1)
    assert not reads_inside(windows, due_ms, zone)
    assert stretch_at(windows, zone, due_ms) is None


@settings(max_examples=200, deadline=None)
@given(moments(), WINDOWS, st.floats(0, 1, exclude_max=True), st.lists(st.integers(0, 86_400_000), min_size=2))
def test_what_was_sent_first_is_due_first(
    moment: tuple[ZoneInfo, int], windows: list[Window], share: float, said: list[int]
) -> None:
    zone, at_ms = moment
    stretch = stretch_at(windows, zone, at_ms)
    assume(stretch)
    assert stretch
    due = [stretch.release_ms(share=share, said_at_ms=at_ms - 43_200_000 + at, spread=SPREAD) for at in sorted(said)]
    assert due == sorted(due)


def test_two_recipients_wake_at_different_times() -> None:
    stretch = stretch_at([NIGHT], VIENNA, ms(datetime(2026, 6, 1, 23, tzinfo=VIENNA)))
    assert stretch
    due = [stretch.release_ms(share=share, said_at_ms=stretch.start_ms, spread=SPREAD) for share in (0.0, 0.5, 0.999)]
    assert due == sorted(set(due))
