"""Lanes in full pages, on fakes: how reads and pages fall, and what a fault in one of them costs."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from builders import NOW_MS, SECOND_MS, a_job
from fakes import FakeAttempter, FakeClock, FakeHints, FakeJobStore, FakeLetters, counting_ids, fixed_dice
from pushlease.aws.rows import due_lane
from pushlease.errors import StoreUnavailable
from pushlease.jobs.engine import Engine, Report
from pushlease.jobs.job import JobId, Status
from pushlease.jobs.lanes import Lanes
from pushlease.jobs.ports import ClaimAnswer, Lead
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Policy, Sent

NAMES = [due_lane(shard) for shard in range(16)]


class PagedStore(FakeJobStore):
    """Notes what is read and claimed. ``ill_page``, ``ill_lane``: of which the store's fault comes through."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[int] = []
        self.reads: list[str] = []
        self.ill_page = -1
        self.ill_lane = ""

    def claim(self, leads: Sequence[Lead], *, now_ms: int, lease: timedelta) -> Sequence[ClaimAnswer]:
        self.pages.append(len(leads))
        if len(self.pages) - 1 == self.ill_page:
            raise StoreUnavailable("jobs: no answer")
        return super().claim(leads, now_ms=now_ms, lease=lease)

    def due(self, lane: str, *, now_ms: int, limit: int, after: Lead | None = None) -> Sequence[Lead]:
        self.reads.append(lane)
        if lane == self.ill_lane:
            raise StoreUnavailable("jobs: no answer")
        return super().due(lane, now_ms=now_ms, limit=limit, after=after)


class World:
    """The lanes of a store, worked by a real engine whose attempts all succeed and take ``attempt_s``."""

    def __init__(self) -> None:
        self.store = PagedStore()
        self.clock = FakeClock()
        self.report = Report()
        self.attempt_s = 0
        engine = Engine(
            store=self.store,
            hints=FakeHints(),
            letters=FakeLetters(),
            attempter=FakeAttempter(
                otherwise=lambda job: dict.fromkeys(job.open_deliveries, Sent()), during=self._pass
            ),
            clock=self.clock,
            dice=fixed_dice(),
            new_id=counting_ids("nonce"),
            policy=Policy(
                retry=RetryPolicy(schedule=listed([timedelta(seconds=30)])),
                lease=timedelta(seconds=120),
                grace=timedelta(seconds=180),
            ),
            least_time=timedelta(seconds=10),
        )
        self.lanes = Lanes(engine=engine, jobs=self.store, clock=self.clock, shuffle=list, page=50)

    def put(self, *, lanes: int, each: int) -> None:
        self.store.insert(
            [
                a_job(job_id=JobId(f"{lane:08x}{at:032x}"), due_at_ms=NOW_MS - 1)
                for lane in range(lanes)
                for at in range(each)
            ]
        )

    def work(self, *, reads: int | None = None, seconds: float = 45) -> list[str]:
        return self.lanes.work(NAMES, self.report, deadline_ms=self.clock() + int(seconds * SECOND_MS), reads=reads)

    def events(self) -> Counter[str]:
        return Counter(decision.event for decision in self.report.decisions)

    def pending(self) -> Counter[int]:
        """How many are left, by the attempts that they were charged."""
        return Counter(job.attempts for job in self.store.rows.values() if job.status is Status.PENDING)

    def _pass(self) -> None:
        self.clock.forward(seconds=self.attempt_s)


@pytest.fixture
def world() -> World:
    return World()


def test_a_page_takes_from_as_many_lanes_as_it_needs_to_be_full(world: World) -> None:
    world.put(lanes=16, each=12)
    assert world.work() == []
    assert world.store.pages == [50, 50, 50, 42]
    assert len(world.store.reads) == 16


def test_lanes_are_read_only_as_fast_as_they_are_worked(world: World) -> None:
    world.put(lanes=16, each=60)
    world.attempt_s = 20
    assert world.work(seconds=45) == NAMES
    assert world.store.pages == [50, 50]
    assert world.store.reads == NAMES[:2]


def test_a_read_that_is_full_leaves_its_lane_unfinished(world: World) -> None:
    world.put(lanes=2, each=100)
    assert world.work(reads=1) == NAMES[:2]
    assert world.work(reads=1) == []


def test_a_page_that_fails_costs_the_others_nothing(world: World) -> None:
    world.put(lanes=16, each=10)
    world.store.ill_page = 1
    world.work()
    assert world.events() == {"settled": 110, "page_failed": 50}
    assert world.pending() == {0: 50}


def test_a_lane_that_cannot_be_read_costs_the_others_nothing(world: World) -> None:
    world.put(lanes=16, each=10)
    world.store.ill_lane = NAMES[4]
    assert world.work() == [NAMES[4]]
    assert world.events() == {"settled": 150, "lane_failed": 1}
    assert world.pending() == {0: 10}
