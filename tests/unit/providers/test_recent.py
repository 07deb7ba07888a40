"""The window of recent answers forgets by age and by number."""

from pushlease.providers.recent import Recent, Window, Windows, within


def test_answers_older_than_ten_minutes_are_forgotten() -> None:
    window = Window()
    window.record(bad=True, now_ms=0)
    window.record(bad=False, now_ms=1)
    assert window.recent(now_ms=600_000) == Recent(ok=1, bad=1)
    assert window.recent(now_ms=600_001) == Recent(ok=1, bad=0)


def test_a_thousand_answers_are_remembered_at_most() -> None:
    window = Window()
    for number in range(1010):
        window.record(bad=number < 15, now_ms=number)
    assert window.recent(now_ms=1010) == Recent(ok=995, bad=5)


def test_the_pair_used_longest_ago_makes_room() -> None:
    windows = Windows()
    for number in range(1000):
        windows.of(number).record(bad=True, now_ms=0)
    windows.of(0)  # used again: the next oldest goes
    windows.of("one too many")
    assert windows.of(0).recent(now_ms=0).bad == 1
    assert windows.of(1).recent(now_ms=0).bad == 0


def test_a_burst_needs_ten_bad_push_tokens_and_more_than_a_twentieth() -> None:
    assert not Recent(ok=0, bad=9).burst
    assert not Recent(ok=190, bad=10).burst
    assert Recent(ok=189, bad=10).burst


def test_what_lies_ahead_is_not_within_a_span() -> None:
    assert within(10, since_ms=100, now_ms=109)
    assert not within(10, since_ms=100, now_ms=110)
    assert not within(10, since_ms=100, now_ms=99)
    assert not within(10, since_ms=None, now_ms=5)
