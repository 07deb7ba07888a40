"""Quiet hours: weekly windows of a recipient's wall clock, in which no push may arrive.

A window's two wall times become instants, as wide as the clock's changes allow::

    02:00 ──▶ 03:00, an hour is left out     a wall time in it is the instant of the change
    03:00 ──▶ 02:00, an hour comes twice     a window begins at the first reading, and ends at the second

so that whatever the clock on the wall reads inside a window is inside it. Windows that touch are one stretch. What was
held back in it leaves after its end, spread so that not everybody's phone rings in the same second: each recipient has
a share of the spread of its own, and within it what was sent first is due first.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

WEEK_MINUTES = 7 * 24 * 60
# A stretch may last for most of a week, and a change of the clock may close the gap between two of them.
_DAYS_BEFORE, _DAYS_AFTER = 8, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Quiet from ``start`` to ``end``, minutes of the day, on the days on which it starts (Monday is 0).

    An ``end`` that is not after the start is on the next day.
    """

    days: frozenset[int]
    start: int
    end: int

    @property
    def minutes(self) -> int:
        """How long it lasts on a day without a change of the clock."""
        return self.end - self.start if self.end > self.start else self.end + 24 * 60 - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Quiet from ``start_ms`` until ``end_ms``; ``next_ms`` is when the next stretch begins. All epoch ms."""

    start_ms: int
    end_ms: int
    next_ms: int | None

    def release_ms(self, *, share: float, said_at_ms: int, spread: timedelta) -> int:
        """When a push of this stretch is due.

        Half of the spread tells recipients apart (``share``, from 0 to less than 1), half keeps what they were sent in
        order. Never earlier than the end, never later than the end and the spread, never in the next stretch.
        """
        spread_ms = spread // timedelta(milliseconds=1)
        room_ms = spread_ms if self.next_ms is None else min(spread_ms, self.next_ms - self.end_ms)
        order = min(max((said_at_ms - self.start_ms) / (self.end_ms - self.start_ms), 0.0), 1.0)
        return self.end_ms + int(room_ms * (share + order) / 2)


def free_minutes(windows: Sequence[Window]) -> int:
    """How many minutes of a week no window covers."""
    covered = {
        (day * 24 * 60 + minute) % WEEK_MINUTES
        for window in windows
        for day in window.days
        for minute in range(window.start, window.start + window.minutes)
    }
    return WEEK_MINUTES - len(covered)


def stretch_at(windows: Sequence[Window], zone: tzinfo, at_ms: int) -> Stretch | None:
    """The stretch that an instant falls into, None if it is not quiet then."""
    if not windows:
        return None
    stretches = _merged(sorted(_spans(windows, zone, at_ms)))
    for at, (start_ms, end_ms) in enumerate(stretches):
        if start_ms <= at_ms < end_ms:
            following = stretches[at + 1][0] if at + 1 < len(stretches) else None
            return Stretch(start_ms=start_ms, end_ms=end_ms, next_ms=following)
    return None


def instant_ms(wall: datetime, zone: tzinfo, *, last: bool = False) -> int:
    """When the clock on the wall reads so, the first time or the ``last``; if it never does, when it is changed."""
    early, late = (_seconds(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if early <= late:
        return (late if last else early) * 1000
    # In a gap the reading before the change gives the later instant: the change lies between the two.
    before = datetime.fromtimestamp(late, zone).utcoffset()
    return 1000 * bisect_left(
        range(early + 1), True, lo=late, key=lambda second: datetime.fromtimestamp(second, zone).utcoffset() != before
    )


def _spans(windows: Sequence[Window], zone: tzinfo, at_ms: int) -> Iterator[tuple[int, int]]:
    today = datetime.fromtimestamp(at_ms // 1000, zone).replace(tzinfo=None, hour=0, minute=0, second=0)
    for offset in range(-_DAYS_BEFORE, _DAYS_AFTER):
        day = today + timedelta(days=offset)
        for window in windows:
            if day.weekday() in window.days:
                start = day + timedelta(minutes=window.start)
                end = day + timedelta(minutes=window.start + window.minutes)
                yield instant_ms(start, zone), instant_ms(end, zone, last=True)


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start_ms, end_ms in spans:
        if start_ms >= end_ms:
            continue  # the clock jumped over it
        if merged and start_ms <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end_ms, merged[-1][1]))
        else:
            merged.append((start_ms, end_ms))
    return merged


def _seconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
