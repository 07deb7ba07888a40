"""How fast pushes may leave: a breaker for each way to a provider, and quotas. Pure decisions over shared rows.

::

                ten pushes in a row, none got through
    closed ───────────────────────────────────────────▶ open ──▶ a probe at a time, 30 s apart
      ▲                                                   │
      └──── ramp: a growing share of the pushes ◀─────────┘ a probe got through

While a breaker is open its jobs are released, and no attempt is spent, the probe's neither. All instants are epoch ms.
"""

from dataclasses import dataclass

from pushlease.codes import Code
from pushlease.push.device import Environment, Platform
from pushlease.push.outcome import Accepted, NotTried, Refused, Scope, Verdict

PROBE_MS = 30_000  # between two probes: a minute's schedule with its second tick comes by as often
RAMP_MS = 60_000  # from the first push that got through to all of them (Google: 0 to full over at least 60 s)
LEAST_SHARE = 0.02  # the ramp's start: one of a page of fifty
LEAST_HOLD_MS, MOST_HOLD_MS = 30_000, 300_000  # how long a release lasts: as long as the outage has, within these

WINDOW_MS = 6_000  # a quota is counted in tenths of a minute
RAMP_WINDOWS = 10  # a quota is reached in ten steps, a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One app's way to one provider: what a wrong key, a wrong topic or an outage strikes as a whole."""

    app_id: str
    platform: Platform
    environment: Environment

    def __str__(self) -> str:
        return f"{self.app_id}#{self.platform}#{self.environment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What the fleet knows of a way.

    ``opened_at_ms``: since when nothing gets through. ``probe_at_ms``: when the next probe may be taken; taking it
    moves this on, so that it is a lease. ``closed_at_ms``: when a probe got through. ``paused_until_ms``: the provider
    asked for that much quiet.
    """

    opened_at_ms: int | None = None
    probe_at_ms: int = 0
    closed_at_ms: int | None = None
    paused_until_ms: int = 0

    @property
    def open(self) -> bool:
        return self.opened_at_ms is not None and self.closed_at_ms is None

    def share(self, now_ms: int) -> float:
        """Which share of the pushes may leave."""
        if self.open or now_ms < self.paused_until_ms:
            return 0.0
        if self.closed_at_ms is None:
            return 1.0
        return min(1.0, max(LEAST_SHARE, (now_ms - self.closed_at_ms) / RAMP_MS))

    def may_probe(self, now_ms: int) -> bool:
        """Whether somebody may ask whether it works again."""
        return self.open and now_ms >= max(self.probe_at_ms, self.paused_until_ms)

    def held_until_ms(self, now_ms: int, *, dice: float) -> int:
        """When a push that may not leave now is due again; spread, since all are held alike."""
        if not self.open:
            return max(now_ms, self.paused_until_ms) + round(RAMP_MS * dice)
        lasted_ms = now_ms - (self.opened_at_ms or now_ms)
        hold_ms = min(max(lasted_ms, LEAST_HOLD_MS), MOST_HOLD_MS)
        return max(now_ms, self.paused_until_ms) + round(hold_ms * (0.5 + 0.5 * dice))


CLOSED = Breaker()


def got_through(verdict: Verdict) -> bool | None:
    """Whether an answer shows that the way works; None if it says nothing of it.

    A server that ails or is out of reach, and credentials that it refuses, strike every push alike. What a provider
    says of one push or one device, even a refusal, it says because the way works.
    """
    if isinstance(verdict, NotTried) or (isinstance(verdict, Refused) and verdict.code is Code.INTERNAL_ERROR):
        return None
    if isinstance(verdict, Accepted):
        return True
    return verdict.code not in (Code.PROVIDER_ERROR, Code.NETWORK_ERROR) and verdict.scope is not Scope.CREDENTIALS


def quota_share(limit: int, *, before: int, previous: int, wanted: int) -> int:
    """How many of ``wanted`` pushes may leave in a window.

    ``limit``: a whole window's. ``before``: how many the fleet has taken of this window already, ``previous``: of the
    one before. A window allows a tenth of the limit more than the one before it took.
    """
    allowed = min(limit, previous + -(-limit // RAMP_WINDOWS))
    return min(max(allowed - before, 0), wanted)
