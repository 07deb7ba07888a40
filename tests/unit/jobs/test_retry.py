"""When the next attempt may run."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlease.jobs.retry import RetryPolicy, exponential, listed

CAP = timedelta(hours=1)
DEFAULT = RetryPolicy(schedule=listed([timedelta(seconds=s) for s in (30, 120, 480, 1920, 3600)]), cap=CAP)
EXPONENTIAL = exponential(cap=CAP)

attempts = st.integers(min_value=1, max_value=100)
dice = st.floats(min_value=0, max_value=1, exclude_max=True)
spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=28))


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 30), (2, 120), (3, 480), (4, 1920)])
def test_the_default_schedule(attempt: int, seconds: int) -> None:
    assert DEFAULT.delay(attempt, dice=0.5) == timedelta(seconds=seconds)


@given(attempt=attempts, dice=dice)
def test_the_default_is_spread_by_a_fifth_and_capped_after_the_jitter(attempt: int, dice: float) -> None:
    span = [30, 120, 480, 1920, 3600][min(attempt, 5) - 1]
    delay = DEFAULT.delay(attempt, dice=dice)
    assert timedelta(seconds=span * 0.8) <= delay <= min(timedelta(seconds=span * 1.2), CAP)


@given(attempt=attempts, dice=dice, floor=spans)
def test_a_retry_is_never_earlier_than_the_provider_asked_for(attempt: int, dice: float, floor: timedelta) -> None:
    for policy in (DEFAULT, EXPONENTIAL):
        assert policy.delay(attempt, dice=dice, retry_after=floor) >= floor


@given(attempt=attempts, dice=dice, floor=spans)
def test_only_retry_after_and_its_jitter_exceed_the_cap(attempt: int, dice: float, floor: timedelta) -> None:
    for policy in (DEFAULT, EXPONENTIAL):
        assert policy.delay(attempt, dice=dice) <= CAP
        jitter = 1 + (policy.most - policy.least) / 2
        assert policy.delay(attempt, dice=dice, retry_after=floor) <= max(CAP, floor * jitter)


def test_jitter_spreads_those_whom_retry_after_held_back() -> None:
    floor = timedelta(hours=2)
    assert DEFAULT.delay(1, dice=0.0, retry_after=floor) == floor
    assert DEFAULT.delay(1, dice=0.9, retry_after=floor) > floor * 1.15


@given(attempt=st.integers(min_value=1, max_value=10**9), dice=dice)
def test_the_exponential_schedule_never_overflows_and_stays_in_its_window(attempt: int, dice: float) -> None:
    span = min(timedelta(seconds=60) * 2 ** min(attempt - 1, 20), CAP)
    delay = EXPONENTIAL.delay(attempt, dice=dice)
    assert span * 0.5 <= delay <= span


@given(attempt=attempts, dice=dice, listed_spans=st.lists(spans, min_size=1, max_size=6))
def test_past_its_end_a_list_repeats_its_last_span(attempt: int, dice: float, listed_spans: list[timedelta]) -> None:
    policy = RetryPolicy(schedule=listed(listed_spans), cap=timedelta(days=99))
    same = min(attempt, len(listed_spans))
    assert policy.delay(attempt, dice=dice) == policy.delay(same, dice=dice)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one span"):
        listed([])
