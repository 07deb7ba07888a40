"""When the next attempt may run: pure functions of the attempt's number and a throw of the dice.

A delay is the schedule's span for that attempt, spread by the jitter, capped; a provider's Retry-After is a floor that
jitter only adds to, and the one thing that may exceed the cap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

type Schedule = Callable[[int], timedelta]

# SQS takes at most 900 s of DelaySeconds; a longer wait is left to the row, and to the drain that reads it.
MAX_HINT_DELAY = timedelta(seconds=900)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """``schedule`` gives the span after attempt 1, 2, …; a factor between ``least`` and ``most`` spreads it."""

    schedule: Schedule
    least: float = 0.8
    most: float = 1.2
    cap: timedelta = timedelta(hours=1)

    def delay(self, attempt: int, *, dice: float, retry_after: timedelta | None = None) -> timedelta:
        """How long to wait after ``attempt`` (from 1). ``dice`` is uniform in [0, 1)."""
        # Capped on both sides of the jitter: the longest span there is cannot be multiplied.
        span = min(self.schedule(attempt), self.cap / self.least)
        waited = min(span * (self.least + (self.most - self.least) * dice), self.cap)
        if retry_after is None:
            return waited
        # Half of the jitter's width, upwards only: the provider's floor is also when everybody else comes back.
        return max(waited, retry_after * (1 + (self.most - self.least) / 2 * dice))


def listed(spans: Sequence[timedelta]) -> Schedule:
    """One span after each attempt; past the end the last one again."""
    if not spans:
        raise ValueError("a retry schedule needs at least one span")
    fixed = tuple(spans)
    return lambda attempt: fixed[min(attempt, len(fixed)) - 1]


def exponential(*, base: timedelta = timedelta(seconds=60), factor: float = 2.0, cap: timedelta) -> RetryPolicy:
    """``base``, then ``factor`` times as long each, with equal jitter: half of the span fixed, half random."""

    def span(attempt: int) -> timedelta:
        # The cap bounds the exponent too: 2.0 ** 1100 overflows long before a delay is computed.
        try:
            return min(base * factor ** (attempt - 1), cap)
        except OverflowError:
            return cap

    return RetryPolicy(schedule=span, least=0.5, most=1.0, cap=cap)
