"""A Firebase project's quota is shared by the fleet, and a device's share of collapsible messages is kept."""

from collections import Counter
from collections.abc import Sequence

import pytest

from builders import NOW_MS, a_device, an_app, some_content
from fakes import FakeClock, FakeFlow, FakePusher
from pushlease.push.device import Platform
from pushlease.push.flow import WINDOW_MS
from pushlease.push.outcome import Accepted, NotTried
from pushlease.push.pace import DEVICE_BURST, DEVICE_REFILL_MS, MAX_DEVICES, UNCOUNTED, Pace
from pushlease.push.ports import Push

QUOTA = 60_000  # a minute: 6,000 a window, and 600 more in each than in the one before


def pushes(
    many: int, *, platform: Platform = Platform.FCM, device: int | None = None, key: str | None = None
) -> list[Push]:
    return [
        Push(
            push_id=f"p-{at}",
            app=an_app(),
            device=a_device(platform=platform, push_token=f"{at if device is None else device:064x}"),
            content=some_content(collapse_key=key),
            collapse_id="c",
            expires_at_ms=NOW_MS + 86_400_000,
        )
        for at in range(many)
    ]


class World:
    """A fleet of processes that share one store."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW_MS // WINDOW_MS * WINDOW_MS)
        self.flow = FakeFlow()
        self.faults: list[Exception] = []

    def process(self) -> Pace:
        return Pace(
            pusher=FakePusher(),
            flow=self.flow,
            clock=self.clock,
            dice=lambda: 0.5,
            quota=QUOTA,
            on_fault=self.faults.append,
        )

    def after(self, pace: Pace, given: Sequence[Push]) -> int:
        """How many were let through; the others are held past the window."""
        verdicts = pace.push(given, deadline_ms=0)
        assert len(verdicts) == len(given)
        held = [verdict.until_ms for verdict in verdicts if isinstance(verdict, NotTried)]
        assert all(until_ms > self.clock() for until_ms in held)
        sent = sum(isinstance(verdict, Accepted) for verdict in verdicts)
        assert sent + len(held) == len(given)
        return sent


@pytest.fixture
def world() -> World:
    return World()


def test_a_small_deployment_never_asks(world: World) -> None:
    pace = world.process()
    assert [world.after(pace, pushes(UNCOUNTED // 2)) for _ in range(2)] == [UNCOUNTED // 2] * 2
    assert world.flow.asked == 0


def test_from_silence_the_quota_is_reached_in_ten_steps(world: World) -> None:
    pace = world.process()
    sent = []
    for _ in range(12):
        sent.append(world.after(pace, pushes(10_000)) - UNCOUNTED)
        world.clock.now_ms += WINDOW_MS
    assert sent == [600 * step for step in range(1, 11)] + [6_000, 6_000]


def test_the_fleet_shares_one_window(world: World) -> None:
    fleet = [world.process() for _ in range(10)]
    counted = [world.after(pace, pushes(UNCOUNTED + 100)) - UNCOUNTED for pace in fleet]
    assert counted == [100] * 6 + [0] * 4
    assert sum(world.flow.taken.values()) == 600  # what was held is given back, or the ramp would run ahead


def test_a_new_window_is_a_new_share(world: World) -> None:
    pace = world.process()
    assert world.after(pace, pushes(1_000)) == 700
    assert world.after(pace, pushes(1_000)) == 0
    world.clock.now_ms += WINDOW_MS
    assert world.after(pace, pushes(2_000)) == 1_300


def test_apns_has_no_such_quota(world: World) -> None:
    assert world.after(world.process(), pushes(5_000, platform=Platform.APNS, key="k")) == 5_000
    assert world.flow.asked == 0


def test_a_store_that_does_not_answer_holds_nobody_back(world: World) -> None:
    world.flow.unavailable = True
    assert world.after(world.process(), pushes(5_000)) == 5_000
    assert len(world.faults) == 1


def test_a_device_takes_twenty_collapsible_messages_and_one_more_every_three_minutes(world: World) -> None:
    pace = world.process()
    assert world.after(pace, pushes(30, device=1, key="score")) == DEVICE_BURST
    (held,) = pace.push(pushes(1, device=1, key="score"), deadline_ms=0)
    assert held == NotTried(until_ms=world.clock() + DEVICE_REFILL_MS)
    world.clock.now_ms += DEVICE_REFILL_MS
    assert world.after(pace, pushes(2, device=1, key="score")) == 1
    assert world.after(pace, pushes(1, device=2, key="score")) == 1


def test_messages_that_do_not_collapse_are_not_held_for_their_device(world: World) -> None:
    assert world.after(world.process(), pushes(60, device=1)) == 60


def test_what_is_remembered_of_devices_is_bounded(world: World) -> None:
    pace = world.process()
    world.flow.unavailable = True
    world.after(pace, pushes(MAX_DEVICES + 500, key="score"))
    assert len(pace._rested_at_ms) == MAX_DEVICES


def test_both_keep_the_order_of_the_pushes(world: World) -> None:
    mixed = [push for pair in zip(pushes(800), pushes(800, platform=Platform.APNS), strict=True) for push in pair]
    verdicts = world.process().push(mixed, deadline_ms=0)
    kinds = Counter(
        type(v).__name__ for p, v in zip(mixed, verdicts, strict=True) if p.device.platform is Platform.APNS
    )
    assert kinds == {"Accepted": 800}
