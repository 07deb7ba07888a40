"""One provider takes nothing, for ten minutes and for an hour: no job is lost, and the other one notices nothing."""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from statistics import quantiles

import pytest

from builders import NOW_MS
from pushlease.push.device import Platform
from simulation.faults import Scripted
from simulation.provider import OK
from simulation.row import Row
from simulation.runs import run
from simulation.shape import MINUTE, Order, Shape
from simulation.world import World

JOBS = 600  # one every two seconds, to each provider in turn
EVERY_MS = 2_000
BEGINS_MS = 5 * MINUTE
# No breaker may spend more attempts than it takes to open it: those in hand at that moment, and ten in a row.
IN_HAND = 10 * 4  # a batch of each of the work queue's workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run; instants in ms from its start."""

    world: World
    sent_ms: dict[str, int]  # by job
    accepted_ms: dict[str, dict[str, int]]  # by platform and job

    def attempts(self, platform: str) -> Counter[int]:
        """How many deliveries took how many attempts."""
        return Counter(
            part.get("attempts", 0)
            for item in self.world.table.rows.values()
            for name, part in Row(item).deliveries.items()
            if name.startswith(platform)
        )

    def p95_ms(self, platform: str) -> float:
        """From the send to the provider's acceptance."""
        waits = [at_ms - self.sent_ms[job_id] for job_id, at_ms in self.accepted_ms[platform].items()]
        return quantiles(waits, n=20)[-1]


@cache
def played(outage_ms: int) -> Outcome:
    """A steady load, and an outage of FCM in the middle of it."""
    sent: dict[str, int] = {}
    accepted: dict[str, dict[str, int]] = {"apns": {}, "fcm": {}}

    def stage(world: World) -> None:
        for number in range(JOBS):
            device = "apns-1" if number % 2 else "fcm-1"
            order = Order(user=f"u{number}", scripts={device: [OK]})
            sent[order.job_id] = number * EVERY_MS
            world.order(order, at_ms=number * EVERY_MS)
        if outage_ms:
            world.provider.outages.append((Platform.FCM, NOW_MS + BEGINS_MS, NOW_MS + BEGINS_MS + outage_ms))
        world.provider.on_accept = lambda key, now_ms: accepted[key[1][:-2]].setdefault(key[0], now_ms - NOW_MS)
        world.run(days=0.5)

    shape = Shape(page=50, latency_ms=(2, 30), second_ticks=True, max_skew_ms=5)
    world = run(1, Scripted({}, None), shape, stage, "uv run pytest tests/simulation/test_outage.py")
    return Outcome(world=world, sent_ms=sent, accepted_ms=accepted)


OUTAGES = pytest.mark.parametrize("outage_ms", [10 * MINUTE, 60 * MINUTE], ids=["ten minutes", "an hour"])


@OUTAGES
def test_no_job_is_lost(outage_ms: int) -> None:
    ended = Counter(Row(item).status for item in played(outage_ms).world.table.rows.values())
    assert ended == {"done": JOBS}


@OUTAGES
def test_no_attempt_is_spent_while_the_breaker_is_open(outage_ms: int) -> None:
    outcome = played(outage_ms)
    assert outcome.world.happened["breaker opened"] == outcome.world.happened["breaker closed"] == 1
    assert outcome.world.happened["held back"] > JOBS // 4
    spent = outcome.attempts("fcm")
    assert spent.total() == JOBS // 2
    assert sum(times * many for times, many in spent.items()) - JOBS // 2 <= 10 + IN_HAND


@OUTAGES
def test_the_other_provider_is_as_fast_as_ever(outage_ms: int) -> None:
    assert played(outage_ms).p95_ms("apns") <= 1.2 * played(0).p95_ms("apns")


@OUTAGES
def test_what_waited_comes_in_a_ramp_and_within_minutes(outage_ms: int) -> None:
    outcome = played(outage_ms)
    ends_ms = BEGINS_MS + outage_ms
    waited = sorted(at - ends_ms for at in outcome.accepted_ms["fcm"].values() if at >= ends_ms)
    by_half_minute = Counter(at // 30_000 for at in waited)
    first = min(by_half_minute)
    assert by_half_minute[first] < max(by_half_minute.values())
    # The longest release, the ramp, and the ticks that follow both.
    backlog = [at for job, at in outcome.accepted_ms["fcm"].items() if outcome.sent_ms[job] < ends_ms <= at]
    assert max(backlog) - ends_ms <= 8 * MINUTE


def test_without_an_outage_nothing_is_held() -> None:
    outcome = played(0)
    assert not outcome.world.happened["held back"]
    assert outcome.attempts("fcm") == outcome.attempts("apns") == {1: JOBS // 2}
