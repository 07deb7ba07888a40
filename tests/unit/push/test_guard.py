"""A provider that takes nothing costs no attempts, and the other one notices nothing; then a ramp."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from builders import NOW_MS, a_device, an_app, some_content
from fakes import FakeClock, FakeFlow, FakePusher
from pushlease.codes import Code
from pushlease.push.device import Platform
from pushlease.push.flow import PROBE_MS, RAMP_MS, Way
from pushlease.push.guard import READ_EVERY_MS, Guard, way_of
from pushlease.push.outcome import Accepted, NotTried, Refused, Scope, Verdict
from pushlease.push.ports import Push

DOWN = Refused(code=Code.PROVIDER_ERROR, reason="InternalServerError")
UNREACHABLE = Refused(code=Code.NETWORK_ERROR, reason="ConnectError")
BAD_KEY = Refused(code=Code.REJECTED, reason="BadDeviceToken", scope=Scope.CREDENTIALS, alarm=True)
GONE = Refused(code=Code.INVALID_TOKEN, reason="Unregistered", scope=Scope.DEVICE)
OUR_BUG = Refused(code=Code.INTERNAL_ERROR, reason="ValueError")
BUSY = Refused(code=Code.RATE_LIMITED, reason="QUOTA_EXCEEDED", scope=Scope.PROJECT)


def pushes(many: int, platform: Platform = Platform.APNS) -> list[Push]:
    return [
        Push(
            push_id=f"{platform}-{at}",
            app=an_app(),
            device=a_device(platform=platform, push_token=f"{at:064x}"),
            content=some_content(),
            collapse_id="c",
            expires_at_ms=NOW_MS + 86_400_000,
        )
        for at in range(many)
    ]


class World:
    """A fleet of processes that share one store; ``answer`` is what APNs says to every push."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.flow = FakeFlow()
        self.provider = FakePusher()
        self.answer: Verdict | None = None
        self.changes: list[tuple[Way, str]] = []
        self.faults: list[Exception] = []

    def process(self, *, dice: float = 0.5) -> Guard:
        return Guard(
            pusher=self,
            flow=self.flow,
            clock=self.clock,
            dice=lambda: dice,
            open_after=10,
            on_change=lambda way, event: self.changes.append((way, event)),
            on_fault=self.faults.append,
        )

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        apns = [push.device.push_token for push in pushes if push.device.platform is Platform.APNS]
        self.provider.script = dict.fromkeys(apns, self.answer) if self.answer else {}
        return self.provider.push(pushes, deadline_ms=deadline_ms)

    def after(self, guard: Guard, given: Sequence[Push]) -> Counter[str]:
        """What became of the pushes, by kind, and none of the counts is of what ``given`` did not have."""
        verdicts = guard.push(given, deadline_ms=self.clock() + 10_000)
        assert len(verdicts) == len(given)
        return Counter(type(verdict).__name__ for verdict in verdicts)

    def opened(self) -> Guard:
        """A process that has just opened the breaker."""
        guard = self.process()
        self.answer = DOWN
        assert self.after(guard, pushes(10)) == {"Refused": 10}
        assert [event for _, event in self.changes] == ["opened"]
        return guard


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("fault", [DOWN, UNREACHABLE, BAD_KEY], ids=["5xx", "unreachable", "credentials"])
def test_ten_in_a_row_that_do_not_get_through_open_it(world: World, fault: Refused) -> None:
    guard = world.process()
    world.answer = fault
    for _ in range(9):
        assert world.after(guard, pushes(1)) == {"Refused": 1}
    assert not world.changes
    assert world.after(guard, pushes(1)) == {"Refused": 1}
    assert world.after(guard, pushes(50)) == {"NotTried": 50}


@pytest.mark.parametrize("answer", [Accepted(), GONE, Refused(code=Code.REJECTED, reason="BadTopic")])
def test_any_answer_of_a_provider_that_works_starts_the_count_again(world: World, answer: Verdict) -> None:
    guard = world.process()
    for said in (DOWN, answer, DOWN):
        world.answer = said
        world.after(guard, pushes(9))
    assert not world.changes


def test_what_says_nothing_of_the_provider_neither_counts_nor_starts_the_count_again(world: World) -> None:
    guard = world.process()
    for said in (DOWN, OUR_BUG, NotTried(), DOWN):
        world.answer = said
        world.after(guard, pushes(5))
    assert [event for _, event in world.changes] == ["opened"]


def test_while_it_is_open_the_other_provider_is_served_by_the_same_batch(world: World) -> None:
    guard = world.opened()
    assert world.after(guard, [*pushes(20), *pushes(20, Platform.FCM)]) == {"NotTried": 20, "Accepted": 20}


def test_the_whole_fleet_sees_it_within_seconds(world: World) -> None:
    other = world.process()
    world.after(other, pushes(1))
    world.opened()
    world.clock.now_ms += READ_EVERY_MS
    assert world.after(other, pushes(50)) == {"NotTried": 50}


def test_the_store_is_asked_once_in_three_seconds(world: World) -> None:
    guard = world.process()
    for _ in range(10):
        world.after(guard, pushes(5))
    assert world.flow.asked == 1
    world.clock.now_ms += READ_EVERY_MS
    world.after(guard, pushes(5))
    assert world.flow.asked == 2


def test_one_probe_at_a_time_in_the_whole_fleet_and_it_spends_no_attempt(world: World) -> None:
    world.opened()
    world.clock.now_ms += PROBE_MS
    sent = len(world.provider.pushed)
    fleet = [world.process() for _ in range(5)]
    assert [world.after(guard, pushes(50)) for guard in fleet] == [{"NotTried": 50}] * 5
    assert len(world.provider.pushed) == sent + 1
    assert len(world.changes) == 1


def test_a_probe_whose_worker_died_is_followed_by_another(world: World) -> None:
    world.opened()
    (way,) = world.flow.breakers
    world.clock.now_ms += PROBE_MS
    assert world.flow.take_probe(way, world.flow.breakers[way], now_ms=world.clock())
    world.answer = None
    assert world.after(world.process(), pushes(3)) == {"NotTried": 3}
    world.clock.now_ms += PROBE_MS
    assert world.after(world.process(), pushes(3)) == {"Accepted": 1, "NotTried": 2}


def test_a_probe_that_gets_through_closes_it_and_a_ramp_follows(world: World) -> None:
    world.opened()
    world.clock.now_ms += PROBE_MS
    world.answer = None
    assert world.after(world.process(), pushes(50)) == {"Accepted": 1, "NotTried": 49}
    assert [event for _, event in world.changes] == ["opened", "closed"]
    shares = []
    for _ in range(5):
        fleet = [world.process(dice=at / 100) for at in range(100)]
        shares.append(sum(world.after(guard, pushes(1))["Accepted"] for guard in fleet))
        world.clock.now_ms += RAMP_MS // 4
    assert shares == [2, 25, 50, 75, 100]


def test_even_an_answer_that_refuses_the_probe_closes_it(world: World) -> None:
    world.opened()
    world.clock.now_ms += PROBE_MS
    world.answer = GONE
    assert world.after(world.process(), pushes(2)) == {"Refused": 1, "NotTried": 1}
    assert [event for _, event in world.changes] == ["opened", "closed"]


def test_a_relapse_in_the_ramp_opens_it_again(world: World) -> None:
    world.opened()
    world.clock.now_ms += PROBE_MS
    world.answer = None
    world.after(world.process(), pushes(1))
    world.clock.now_ms += RAMP_MS
    world.answer = DOWN
    assert world.after(world.process(), pushes(10)) == {"Refused": 10}
    assert [event for _, event in world.changes] == ["opened", "closed", "opened"]


def test_a_release_lasts_as_long_as_the_outage_has_but_five_minutes_at_most_and_is_spread(world: World) -> None:
    world.opened()
    holds = []
    for lasted_s in (0, 60, 3600):
        world.clock.now_ms = NOW_MS + lasted_s * 1000
        (way,) = world.flow.breakers
        world.flow.take_probe(way, world.flow.breakers[way], now_ms=world.clock())
        (least,) = world.process(dice=0.0).push(pushes(1), deadline_ms=0)
        (most,) = world.process(dice=1.0).push(pushes(1), deadline_ms=0)
        assert isinstance(least, NotTried)
        assert isinstance(most, NotTried)
        holds.append(((least.until_ms - world.clock()) / 1000, (most.until_ms - world.clock()) / 1000))
    assert holds == [(15, 30), (30, 60), (150, 300)]


@pytest.mark.parametrize(
    ("retry_after", "wait_s"), [(None, 60), (timedelta(seconds=90), 90), (timedelta(days=2_900_000), 3600)]
)
def test_a_projects_429_quiets_the_whole_fleet_for_as_long_as_it_asks(
    world: World, retry_after: timedelta | None, wait_s: int
) -> None:
    guard = world.process()
    world.answer = Refused(code=Code.RATE_LIMITED, reason="QUOTA", scope=Scope.PROJECT, retry_after=retry_after)
    assert world.after(guard, pushes(3)) == {"Refused": 3}
    world.answer = None
    assert world.after(guard, pushes(3)) == {"NotTried": 3}
    world.clock.now_ms += wait_s * 1000 - 1
    assert world.after(world.process(), pushes(3)) == {"NotTried": 3}
    world.clock.now_ms += 1
    assert world.after(world.process(), pushes(3)) == {"Accepted": 3}


def test_one_devices_429_quiets_nobody(world: World) -> None:
    guard = world.process()
    world.answer = Refused(code=Code.RATE_LIMITED, reason="TooManyRequests", scope=Scope.DEVICE)
    world.after(guard, pushes(30))
    world.answer = None
    assert world.after(guard, pushes(3)) == {"Accepted": 3}


def test_a_store_that_does_not_answer_holds_nobody_back(world: World) -> None:
    guard = world.process()
    world.flow.unavailable = True
    assert world.after(guard, pushes(5)) == {"Accepted": 5}
    world.answer = DOWN
    assert world.after(guard, pushes(20)) == {"Refused": 20}
    world.answer = BUSY
    assert world.after(guard, pushes(2)) == {"Refused": 2}
    assert len(world.faults) == 3  # one for each of: is it open, open it, pause it
    assert not world.changes


def test_a_way_is_an_app_a_provider_and_an_environment() -> None:
    (push,) = pushes(1)
    assert str(way_of(push)) == "shop#apns#production"
