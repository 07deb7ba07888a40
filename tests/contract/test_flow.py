"""What every store of breakers and quotas does: the fake, and DynamoDB."""

from dataclasses import replace
from itertools import count

import pytest

from builders import NOW_MS
from fakes import FakeFlow
from pushlease.aws.flow import DynamoFlow
from pushlease.aws.rows import FlowRow, bound
from pushlease.push.device import Environment, Platform
from pushlease.push.flow import PROBE_MS, Breaker, Way
from pushlease.push.ports import FlowStore

_serials = count(1)


@pytest.fixture(scope="module", params=["fake", "dynamodb"])
def flow(request: pytest.FixtureRequest) -> FlowStore:
    if request.param == "fake":
        return FakeFlow()
    return DynamoFlow(rows=bound(FlowRow, request.getfixturevalue("make_table")("flow")))


@pytest.fixture
def way() -> Way:
    """One that no other test has."""
    return Way(app_id=f"app-{next(_serials)}", platform=Platform.APNS, environment=Environment.SANDBOX)


def known(flow: FlowStore, way: Way) -> Breaker:
    return flow.read([way])[way]


def test_a_way_that_always_worked_is_unknown(flow: FlowStore, way: Way) -> None:
    assert flow.read([way]) == {}
    assert flow.read([]) == {}


def test_one_of_those_who_open_it_does(flow: FlowStore, way: Way) -> None:
    assert flow.open(way, now_ms=NOW_MS)
    assert not flow.open(way, now_ms=NOW_MS + 1)
    assert known(flow, way) == Breaker(opened_at_ms=NOW_MS, probe_at_ms=NOW_MS + PROBE_MS)


def test_one_of_those_who_saw_the_same_breaker_may_probe_and_the_next_when_its_lease_is_over(
    flow: FlowStore, way: Way
) -> None:
    flow.open(way, now_ms=NOW_MS)
    seen, later_ms = known(flow, way), NOW_MS + PROBE_MS
    assert flow.take_probe(way, seen, now_ms=later_ms)
    assert not flow.take_probe(way, seen, now_ms=later_ms)
    again = known(flow, way)
    assert not again.may_probe(later_ms + PROBE_MS - 1)
    assert again.may_probe(later_ms + PROBE_MS)
    assert flow.take_probe(way, again, now_ms=later_ms + PROBE_MS)


def test_a_closed_breaker_is_not_probed_and_opens_anew(flow: FlowStore, way: Way) -> None:
    flow.open(way, now_ms=NOW_MS)
    seen = known(flow, way)
    assert flow.close(way, seen, now_ms=NOW_MS + 5)
    assert not flow.close(way, seen, now_ms=NOW_MS + 6)
    assert not flow.take_probe(way, seen, now_ms=NOW_MS + PROBE_MS)
    assert known(flow, way) == replace(seen, closed_at_ms=NOW_MS + 5)
    assert flow.open(way, now_ms=NOW_MS + 9)
    assert known(flow, way).open


def test_who_saw_an_earlier_outage_does_not_close_this_one(flow: FlowStore, way: Way) -> None:
    flow.open(way, now_ms=NOW_MS)
    earlier = known(flow, way)
    flow.close(way, earlier, now_ms=NOW_MS + 1)
    flow.open(way, now_ms=NOW_MS + 2)
    assert not flow.close(way, earlier, now_ms=NOW_MS + 3)


def test_the_longest_pause_stays_and_changes_nothing_else(flow: FlowStore, way: Way) -> None:
    flow.open(way, now_ms=NOW_MS)
    for until_ms in (NOW_MS + 60_000, NOW_MS + 90_000, NOW_MS + 70_000):
        flow.pause(way, until_ms=until_ms)
    assert known(flow, way) == Breaker(
        opened_at_ms=NOW_MS, probe_at_ms=NOW_MS + PROBE_MS, paused_until_ms=NOW_MS + 90_000
    )


def test_a_quota_counts_each_window_for_itself(flow: FlowStore, way: Way) -> None:
    quota = str(way)
    assert flow.reserved(quota, window=7) == 0
    assert [flow.reserve(quota, window=7, count=many) for many in (30, 20, -10)] == [0, 30, 50]
    assert flow.reserve(quota, window=8, count=1) == 0
    assert (flow.reserved(quota, window=7), flow.reserved(quota, window=8)) == (40, 1)
