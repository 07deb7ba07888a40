"""How one app's pushes to one environment fared lately: tells a bad push token from a bad configuration.

A wrong host, key or topic draws the same answer for every push token as a dead device does for its own. So a device is
disabled on such an answer only while the pair works for others.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

WINDOW_MS = 600_000  # older answers speak of another deployment, or of a fault that was fixed since
WINDOW_ANSWERS = 1000  # bounds memory; a thousand answers show a 5 % share well enough
BURST_LEAST = 10  # fewer bad push tokens are ordinary churn, even all at once
BURST_SHARE = 0.05  # facts of both vendors' libraries: above it the fault is ours, not the devices'
MAX_WINDOWS = 1000  # apps × environments that one process remembers


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """Recent answers of an app and environment: pushes accepted, and push tokens called bad."""

    ok: int = 0
    bad: int = 0

    @property
    def burst(self) -> bool:
        return self.bad >= BURST_LEAST and self.bad > BURST_SHARE * (self.ok + self.bad)


class Window:
    """Counts answers of the last ten minutes, a thousand at most."""

    def __init__(self) -> None:
        self._answers: deque[tuple[int, bool]] = deque()
        self._bad = 0

    def record(self, *, bad: bool, now_ms: int) -> None:
        self._answers.append((now_ms, bad))
        self._bad += bad
        if len(self._answers) > WINDOW_ANSWERS:
            self._forget()

    def recent(self, *, now_ms: int) -> Recent:
        while self._answers and self._answers[0][0] < now_ms - WINDOW_MS:
            self._forget()
        return Recent(ok=len(self._answers) - self._bad, bad=self._bad)

    def _forget(self) -> None:
        _, bad = self._answers.popleft()
        self._bad -= bad


class Windows:
    """One window a key; the key used longest ago is dropped first."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, Window] = {}

    def of(self, key: Hashable) -> Window:
        window = self._windows.pop(key, None) or Window()
        self._windows[key] = window
        if len(self._windows) > MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        return window


def within(span_ms: int, *, since_ms: int | None, now_ms: int) -> bool:
    """Whether ``since_ms`` was less than ``span_ms`` ago; not if it lies ahead, since the clock was put back then."""
    return since_ms is not None and 0 <= now_ms - since_ms < span_ms
