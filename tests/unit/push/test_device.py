"""What is decided of a device alone, and of a recipient's devices together."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import DAY_MS, NOW_MS, a_device
from pushlease.push.device import FCM_STALE_AFTER, Address, Device, DeviceId, Platform, surplus


def a_pixel(age_ms: int, **said: object) -> Device:
    """An Android device that registered so long ago."""
    return a_device(platform=Platform.FCM, registered_at_ms=NOW_MS - age_ms, **said)


@pytest.mark.parametrize(("age_ms", "stale"), [(0, False), (270 * DAY_MS - 1, False), (270 * DAY_MS, True)])
@pytest.mark.parametrize("address", [Address.PUSH_TOKEN, Address.FID])
def test_a_device_of_fcm_is_stale_once_it_was_idle_for_270_days(age_ms: int, stale: bool, address: Address) -> None:
    device = a_pixel(age_ms, address=address)
    assert device.stale(NOW_MS, FCM_STALE_AFTER) is stale
    assert device.reachable(NOW_MS, FCM_STALE_AFTER) is not stale


def test_how_long_that_is_can_be_chosen() -> None:
    device = a_pixel(7 * DAY_MS)
    assert [device.stale(NOW_MS, timedelta(days=days)) for days in (6, 7, 8)] == [True, True, False]


def test_a_device_of_apples_is_never_stale() -> None:
    assert not a_device(registered_at_ms=0).stale(NOW_MS, FCM_STALE_AFTER)


def test_a_disabled_device_is_not_reachable() -> None:
    assert not a_pixel(0).disabled("expired_token").reachable(NOW_MS, FCM_STALE_AFTER)


@given(ages=st.lists(st.integers(0, 5), min_size=1, max_size=8), newest=st.integers(0, 7), limit=st.integers(1, 8))
def test_beyond_the_limit_the_oldest_go_and_never_the_newest(ages: list[int], newest: int, limit: int) -> None:
    devices = [a_pixel(age, device_id=DeviceId(f"d{at}")) for at, age in enumerate(sorted(ages, reverse=True))]
    mine = devices[newest % len(devices)]
    gone = surplus(devices, mine.device_id, limit)
    left = [device for device in devices if device not in gone]
    assert mine in left
    assert len(left) == min(len(devices), limit)
    kept = [device.registered_at_ms for device in left if device is not mine]
    assert all(device.registered_at_ms <= min(kept, default=NOW_MS) for device in gone)
