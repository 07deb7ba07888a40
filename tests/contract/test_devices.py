"""What every store of devices does: the fake, and DynamoDB. And what only rows can show: whose each push token is."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pynamodb.connection import Connection

from builders import DAY_MS, HOUR_MS, NOW_MS, a_device, a_recipient
from fakes import FakeDeviceStore, fixed_dice
from pushlease.aws import rows
from pushlease.aws.device_store import DynamoDeviceStore
from pushlease.aws.rows import OWNER, bound, device_keys, owner_key, owner_text
from pushlease.aws.tables import key_of
from pushlease.errors import StoreUnavailable
from pushlease.push.device import Address, Device, DeviceId, Environment, Platform, Recipient
from pushlease.push.ports import DeviceStore

_serials = count(1)
PIXEL, TABLET = DeviceId("pixel"), DeviceId("tablet")


def a_store(table: str, **said: Any) -> DynamoDeviceStore:
    """The real store; its pauses take no time."""
    values: dict[str, Any] = {
        "rows": bound(rows.DeviceRow, table),
        "owners": bound(rows.OwnerRow, table),
        "connection": rows.connection(),
        "fcm_stale_after": timedelta(days=270),
        "pause": lambda _: None,
        "dice": fixed_dice(1.0),
    }
    return DynamoDeviceStore(**values | said)


@pytest.fixture(scope="module")
def table(make_table: Callable[[str], str]) -> str:
    return make_table("devices")


@pytest.fixture(scope="module")
def store(table: str) -> DynamoDeviceStore:
    return a_store(table)


@pytest.fixture(scope="module", params=["fake", "dynamodb"])
def devices(request: pytest.FixtureRequest) -> DeviceStore:
    if request.param == "fake":
        return FakeDeviceStore()
    dynamo: DynamoDeviceStore = request.getfixturevalue("store")
    return dynamo


def somebody() -> Recipient:
    """A recipient that no other test has."""
    return a_recipient(f"user-{next(_serials)}")


def key(device: Device) -> tuple[Recipient, DeviceId]:
    return device.recipient, device.device_id


def later(device: Device, ms: int = 1, **said: Any) -> Device:
    """The same device, registered so much later."""
    return replace(device, **{"registered_at_ms": device.registered_at_ms + ms} | said)


# ---- What is registered


def test_a_registered_device_is_read_as_it_was(devices: DeviceStore) -> None:
    owner = somebody()
    phone = a_device(recipient=owner, locale="de-AT", environment=Environment.SANDBOX)
    pixel = a_device(
        recipient=owner, device_id=DeviceId("pixel"), platform=Platform.FCM, registered_at_ms=NOW_MS - 2 * HOUR_MS
    )
    devices.register(phone)
    devices.register(pixel)
    assert devices.of(owner) == [pixel, phone]
    assert devices.get([key(phone), key(pixel), key(phone)]) == {key(phone): phone, key(pixel): pixel}


def test_an_unknown_device_is_not_found(devices: DeviceStore) -> None:
    owner = somebody()
    assert devices.of(owner) == []
    assert devices.get([(owner, DeviceId("phone"))]) == {}
    assert not devices.remove(owner, DeviceId("phone"))


def test_a_removed_device_is_gone(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    devices.register(device)
    assert devices.remove(*key(device))
    assert devices.of(device.recipient) == []
    assert not devices.remove(*key(device))


def test_a_push_token_that_moves_to_another_user_leaves_the_first(devices: DeviceStore) -> None:
    before = a_device(recipient=somebody())
    after = a_device(recipient=somebody(), push_token=before.push_token)
    devices.register(before)
    devices.register(after)
    assert devices.of(before.recipient) == []
    assert devices.of(after.recipient) == [after]


def test_a_push_token_that_moves_to_another_device_id_leaves_the_first(devices: DeviceStore) -> None:
    before = a_device(recipient=somebody())
    after = a_device(recipient=before.recipient, device_id=DeviceId("reinstalled"), push_token=before.push_token)
    devices.register(before)
    devices.register(after)
    assert devices.of(before.recipient) == [after]


def test_a_disabled_device_says_why_until_it_registers_again(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    devices.register(device)
    assert devices.disable(device, code="expired_token", before_ms=NOW_MS)
    assert devices.of(device.recipient) == [device.disabled("expired_token")]
    devices.register(device)
    assert devices.of(device.recipient) == [device]


@pytest.mark.parametrize("before_ms", [NOW_MS - HOUR_MS, NOW_MS - HOUR_MS - 1])
def test_a_registration_as_young_as_the_providers_word_is_not_disabled(devices: DeviceStore, before_ms: int) -> None:
    device = a_device(recipient=somebody())
    devices.register(device)
    assert not devices.disable(device, code="expired_token", before_ms=before_ms)
    assert devices.of(device.recipient) == [device]


def test_a_device_with_a_new_push_token_is_not_disabled_for_its_old_one(devices: DeviceStore) -> None:
    old = a_device(recipient=somebody())
    new = a_device(recipient=old.recipient)
    devices.register(old)
    devices.register(new)
    assert not devices.disable(old, code="invalid_token", before_ms=NOW_MS)
    assert devices.of(old.recipient) == [new]


@pytest.mark.parametrize("address", Address)
def test_what_a_push_token_names_is_kept(devices: DeviceStore, address: Address) -> None:
    device = replace(a_device(recipient=somebody()), address=address)
    devices.register(device)
    assert devices.of(device.recipient) == [device]


def test_a_device_is_moved_to_the_environment_that_its_push_token_proved(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    devices.register(device)
    assert devices.move(device, environment=Environment.SANDBOX)
    assert devices.of(device.recipient) == [device.moved(Environment.SANDBOX)]


def test_a_device_that_registered_meanwhile_is_not_moved(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    again = replace(device, registered_at_ms=device.registered_at_ms + 1)
    devices.register(again)
    assert not devices.move(device, environment=Environment.SANDBOX)
    assert devices.of(device.recipient) == [again]


def test_a_device_that_is_gone_is_not_moved_into_being(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    assert not devices.move(device, environment=Environment.SANDBOX)
    assert devices.of(device.recipient) == []


def test_a_device_that_is_gone_is_not_disabled_into_being(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    assert not devices.disable(device, code="invalid_token", before_ms=NOW_MS)
    assert devices.of(device.recipient) == []


def test_all_that_a_device_says_of_itself_is_kept(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody(), locale="de-AT", zone="Europe/Vienna", app_version="4.2.0 (1734)")
    devices.register(device)
    assert devices.of(device.recipient) == [device]


def test_a_registration_says_all_anew(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody(), locale="de-AT", zone="Europe/Vienna", app_version="4.2.0")
    silent = later(device, locale=None, zone=None, app_version=None)
    assert devices.register(device)
    assert devices.register(silent)
    assert devices.of(device.recipient) == [silent]


# ---- Who has a push token


def test_a_push_token_moves_between_apps_too(devices: DeviceStore) -> None:
    before = a_device(recipient=a_recipient("ada", app_id=f"shop-{next(_serials)}"))
    after = later(before, recipient=a_recipient("ada", app_id=f"shop-{next(_serials)}"))
    devices.register(before)
    devices.register(after)
    assert (devices.of(before.recipient), devices.of(after.recipient)) == ([], [after])


def test_a_push_token_that_was_left_is_anybodys(devices: DeviceStore) -> None:
    first = a_device(recipient=somebody())
    renewed = later(first, push_token=a_device().push_token)
    heir = later(first, 2, recipient=somebody())
    for device in (first, renewed, heir):
        assert devices.register(device)
    assert (devices.of(first.recipient), devices.of(heir.recipient)) == ([renewed], [heir])


def test_two_devices_that_swap_their_push_tokens_both_keep_one(devices: DeviceStore) -> None:
    phone, tablet = a_device(recipient=somebody()), a_device(recipient=somebody(), device_id=TABLET)
    swapped = later(phone, push_token=tablet.push_token), later(tablet, push_token=phone.push_token)
    for device in (phone, tablet, *swapped):
        assert devices.register(device)
    assert devices.of(phone.recipient) == [swapped[0]]
    assert devices.of(tablet.recipient) == [swapped[1]]


def test_a_removed_device_leaves_its_push_token(devices: DeviceStore) -> None:
    first = a_device(recipient=somebody())
    again = later(first, recipient=somebody())
    devices.register(first)
    devices.remove(*key(first))
    assert devices.register(again)
    devices.register(later(first, 2, push_token=a_device().push_token))
    assert devices.of(again.recipient) == [again]


def test_a_disabled_device_holds_its_push_token_until_another_registers_it(devices: DeviceStore) -> None:
    first = a_device(recipient=somebody())
    heir = later(first, recipient=somebody())
    devices.register(first)
    devices.disable(first, code="expired_token", before_ms=NOW_MS)
    assert devices.register(heir)
    assert (devices.of(first.recipient), devices.of(heir.recipient)) == ([], [heir])


# ---- Of two registrations the later one stands


def test_an_older_registration_of_a_device_changes_nothing(devices: DeviceStore) -> None:
    new = a_device(recipient=somebody())
    old = later(new, -1, push_token=a_device().push_token)
    devices.register(new)
    assert not devices.register(old)
    assert devices.of(new.recipient) == [new]
    other = replace(old, recipient=somebody())
    assert devices.register(other)  # the push token of the older one was not taken
    assert devices.of(other.recipient) == [other]


def test_an_older_registration_of_a_push_token_changes_nothing(devices: DeviceStore) -> None:
    new = a_device(recipient=somebody())
    late = later(new, -1, recipient=somebody())
    kept = later(late, -1, push_token=a_device().push_token)
    devices.register(kept)
    devices.register(new)
    assert not devices.register(late)
    assert (devices.of(new.recipient), devices.of(late.recipient)) == ([new], [kept])


def test_an_older_registration_does_not_revive_a_disabled_device(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    devices.register(device)
    devices.disable(device, code="expired_token", before_ms=NOW_MS)
    assert not devices.register(later(device, -1))
    assert devices.of(device.recipient) == [device.disabled("expired_token")]


def test_of_two_registrations_at_the_same_instant_the_second_stands(devices: DeviceStore) -> None:
    first = a_device(recipient=somebody())
    moved = replace(first, recipient=somebody())
    renewed = replace(moved, push_token=a_device().push_token)
    for device in (first, moved, renewed):
        assert devices.register(device)
    assert (devices.of(first.recipient), devices.of(moved.recipient)) == ([], [renewed])


# ---- Retired


def test_a_retired_device_is_gone_and_leaves_its_push_token(devices: DeviceStore) -> None:
    device = a_device(recipient=somebody())
    devices.register(device)
    assert devices.retire(device)
    assert not devices.retire(device)
    assert devices.of(device.recipient) == []
    heir = replace(device, recipient=somebody())
    assert devices.register(heir)
    assert devices.of(heir.recipient) == [heir]


@pytest.mark.parametrize("said", [{}, {"push_token": f"{7:064x}"}])
def test_a_device_that_registered_meanwhile_is_not_retired(devices: DeviceStore, said: Mapping[str, str]) -> None:
    device = a_device(recipient=somebody())
    again = later(device, 0 if said else 1, **said)
    devices.register(device)
    devices.register(again)
    assert not devices.retire(device)
    assert devices.of(device.recipient) == [again]


# ---- Rows


def owner_of(store: DynamoDeviceStore, push_token: str) -> tuple[str, str] | None:
    """The keys of the device that has a push token, as its own row says."""
    with suppress(store.owners.DoesNotExist):
        return device_keys(store.owners.get(owner_key(push_token), OWNER, consistent_read=True).owner)
    return None


def row_key(device: Device) -> tuple[str, str]:
    return key_of(device.recipient), device.device_id


def test_no_row_says_whose_a_push_token_is_once_nobody_has_it(store: DynamoDeviceStore) -> None:
    first = a_device(recipient=somebody())
    renewed = later(first, push_token=a_device().push_token)
    store.register(first)
    assert owner_of(store, first.push_token) == row_key(first)
    store.register(renewed)
    assert (owner_of(store, first.push_token), owner_of(store, renewed.push_token)) == (None, row_key(first))
    store.remove(*key(renewed))
    assert owner_of(store, renewed.push_token) is None
    store.register(renewed)
    store.retire(renewed)
    assert owner_of(store, renewed.push_token) is None


def test_an_owner_is_read_as_it_was_written_whatever_the_user_is_called() -> None:
    assert device_keys(owner_text("shop#a#b", "phone:1")) == ("shop#a#b", "phone:1")


def test_rows_of_fcm_are_pruned_once_they_are_long_stale_and_say_until_then_whose_they_are(
    store: DynamoDeviceStore,
) -> None:
    pixel = a_device(recipient=somebody(), device_id=PIXEL, platform=Platform.FCM)
    iphone = a_device(recipient=pixel.recipient)
    store.register(pixel)
    store.register(iphone)
    read = [store.rows.get(*row_key(device), consistent_read=True).ttl for device in (pixel, iphone)]
    assert read == [(pixel.registered_at_ms + 300 * DAY_MS) // 1000, None]
    whose = [store.owners.get(owner_key(device.push_token), OWNER).ttl for device in (pixel, iphone)]
    assert whose == [(pixel.registered_at_ms + 330 * DAY_MS) // 1000, None]


def test_a_push_token_whose_device_was_pruned_can_be_registered(store: DynamoDeviceStore) -> None:
    pruned = a_device(recipient=somebody(), platform=Platform.FCM)
    heir = later(pruned, recipient=somebody())
    store.register(pruned)
    store.rows(*row_key(pruned)).delete()
    assert store.register(heir)
    assert owner_of(store, heir.push_token) == row_key(heir)


def test_a_device_that_came_back_with_another_push_token_after_it_was_pruned_keeps_that(
    store: DynamoDeviceStore,
) -> None:
    pruned = a_device(recipient=somebody(), platform=Platform.FCM)
    back = later(pruned, 1, push_token=a_device().push_token)
    heir = later(pruned, 2, recipient=somebody())
    store.register(pruned)
    store.rows(*row_key(pruned)).delete()
    for device in (back, heir):
        assert store.register(device)
    assert (store.of(back.recipient), store.of(heir.recipient)) == ([back], [heir])


def test_a_device_whose_owners_row_is_missing_can_be_renewed_and_removed(store: DynamoDeviceStore) -> None:
    device = a_device(recipient=somebody())
    renewed = later(device, push_token=a_device().push_token)
    for written, change in ((device, lambda: store.register(renewed)), (renewed, lambda: store.remove(*key(device)))):
        store.register(written)
        store.owners(owner_key(written.push_token), OWNER).delete()
        assert change()
    assert store.of(device.recipient) == []


# ---- Lost races


class Meddled:
    """A connection on which rivals come in between reading and writing, one a write."""

    def __init__(self, *rivals: Callable[[], object]) -> None:
        self._connection = rows.connection()
        self._rivals = list(rivals)

    def transact_write_items(self, **said: Any) -> Any:
        if self._rivals:
            self._rivals.pop(0)()
        return self._connection.transact_write_items(**said)


@dataclass
class Race:
    """A store that loses the races that it is told of; ``pauses``: how long it waited, in seconds."""

    table: str
    pauses: list[float] = field(default_factory=list)

    def store(self, *rivals: Callable[[], object]) -> DynamoDeviceStore:
        return a_store(self.table, connection=Meddled(*rivals), pause=self.pauses.append)


@pytest.fixture
def race(table: str) -> Race:
    return Race(table)


def test_a_registration_that_lost_a_race_is_made_again_as_things_are_now(store: DynamoDeviceStore, race: Race) -> None:
    mine = a_device(recipient=somebody())
    rival = later(mine, -1, recipient=somebody())
    assert race.store(lambda: store.register(rival)).register(mine)
    assert (store.of(rival.recipient), store.of(mine.recipient)) == ([], [mine])
    assert race.pauses == [0.1]


def test_a_registration_that_lost_a_race_to_a_later_one_is_none(store: DynamoDeviceStore, race: Race) -> None:
    mine = a_device(recipient=somebody())
    rival = later(mine, 1, recipient=somebody())
    assert not race.store(lambda: store.register(rival)).register(mine)
    assert (store.of(rival.recipient), store.of(mine.recipient)) == ([rival], [])


@pytest.mark.parametrize("ms", [-1, 1])
def test_of_two_first_registrations_at_once_the_later_stands_and_the_others_push_token_is_nobodys(
    store: DynamoDeviceStore, race: Race, ms: int
) -> None:
    mine = a_device(recipient=somebody())
    rival = later(mine, ms, push_token=a_device().push_token)
    assert race.store(lambda: store.register(rival)).register(mine) is (ms < 0)
    stands, other = (mine, rival) if ms < 0 else (rival, mine)
    assert store.of(mine.recipient) == [stands]
    assert (owner_of(store, stands.push_token), owner_of(store, other.push_token)) == (row_key(mine), None)


def test_a_holder_that_registers_again_meanwhile_keeps_its_push_token(store: DynamoDeviceStore, race: Race) -> None:
    holder = a_device(recipient=somebody())
    mine = later(holder, recipient=somebody())
    again = later(holder, 2)
    store.register(holder)
    assert not race.store(lambda: store.register(again)).register(mine)
    assert (store.of(holder.recipient), store.of(mine.recipient)) == ([again], [])


def test_a_device_that_registers_while_it_is_forgotten(store: DynamoDeviceStore, race: Race) -> None:
    device = a_device(recipient=somebody())
    again = later(device)
    store.register(device)
    assert not race.store(lambda: store.register(again)).retire(device)
    assert store.of(device.recipient) == [again]
    assert race.store(lambda: store.register(later(again))).remove(*key(device))  # whichever it is
    assert store.of(device.recipient) == []
    assert owner_of(store, device.push_token) is None


def test_a_device_whose_push_token_was_taken_while_it_was_forgotten(store: DynamoDeviceStore, race: Race) -> None:
    device = a_device(recipient=somebody())
    heir = later(device, recipient=somebody())
    store.register(device)
    assert not race.store(lambda: store.register(heir)).remove(*key(device))
    assert owner_of(store, heir.push_token) == row_key(heir)


def test_a_pruned_device_that_comes_back_with_its_push_token_meanwhile(store: DynamoDeviceStore, race: Race) -> None:
    pruned = a_device(recipient=somebody(), platform=Platform.FCM)
    heir = later(pruned, 1, recipient=somebody())
    store.register(pruned)
    store.rows(*row_key(pruned)).delete()
    assert race.store(lambda: store.register(pruned)).register(heir)  # the same owner as was seen, with a row again
    assert (store.of(pruned.recipient), store.of(heir.recipient)) == ([], [heir])


def test_races_lost_without_end_are_given_up(store: DynamoDeviceStore, race: Race) -> None:
    mine = a_device(recipient=somebody())
    rivals = [later(mine, -1, recipient=somebody()) for _ in range(9)]
    with pytest.raises(StoreUnavailable):
        race.store(*(lambda rival=rival: store.register(rival) for rival in rivals)).register(mine)
    assert race.pauses == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert store.of(mine.recipient) == []


def test_a_table_that_does_not_answer_is_no_race(race: Race) -> None:
    nowhere = Connection(host="http://127.0.0.1:1", max_retry_attempts=0)
    store = a_store(race.table, connection=nowhere, pause=race.pauses.append)
    with pytest.raises(StoreUnavailable):
        store.register(a_device(recipient=somebody()))
    assert race.pauses == []


# ---- No moment with two owners


def snapshot(store: DynamoDeviceStore, client: Any, push_token: str, owners: Sequence[Recipient]) -> tuple[Any, Any]:
    """Which devices' rows have the push token, and whom its own row names, both at one moment."""
    table = store.rows.Meta.table_name
    keys = [(key_of(owner), "phone") for owner in owners]
    items = [
        {"Get": {"TableName": table, "Key": {"recipient": {"S": hash_}, "device_id": {"S": range_}}}}
        for hash_, range_ in [*keys, (owner_key(push_token), OWNER)]
    ]
    *found, whose = (answer.get("Item") for answer in client.transact_get_items(TransactItems=items)["Responses"])
    have = [at for at, item in zip(keys, found, strict=True) if item and item["push_token"]["S"] == push_token]
    return have, [device_keys(whose["owner"]["S"])] if whose else []


@pytest.mark.slow
def test_at_no_moment_a_push_token_is_two_devices(aws: Any, store: DynamoDeviceStore) -> None:
    client = aws.session().client("dynamodb")
    wanted = a_device().push_token
    owners = [somebody() for _ in range(4)]
    clock = count(NOW_MS - HOUR_MS)

    def rival(owner: Recipient) -> None:
        """Take the push token, leave it for one of one's own, or go, in any order."""
        dice = random.Random(owner.user_id)  # noqa: S311  (nothing secret)
        own = a_device(recipient=owner)
        for _ in range(30):
            with suppress(StoreUnavailable):  # it lost six races in a row
                if dice.random() < 0.15:
                    store.remove(*key(own))
                else:
                    token = wanted if dice.random() < 0.75 else own.push_token
                    store.register(replace(own, push_token=token, registered_at_ms=next(clock)))

    seen: list[tuple[Any, Any]] = []
    with ThreadPoolExecutor(max_workers=len(owners)) as pool:
        rivals = [pool.submit(rival, owner) for owner in owners]
        while not all(done.done() for done in rivals):
            seen.append(snapshot(store, client, wanted, owners))
        for done in rivals:
            done.result()
    assert [(have, whose) for have, whose in seen if have != whose] == []
    assert len({tuple(whose) for _, whose in seen}) > 2, "the push token was not seen to move"


# ---- Any order of calls


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a store of devices, by numbers: whose device, with which push token, when."""

    name: str
    whose: int
    token: int
    at_ms: int


CALLS = st.builds(
    Call,
    name=st.sampled_from(["register", "register", "register", "remove", "retire", "disable", "move"]),
    whose=st.integers(0, 3),
    token=st.integers(0, 2),
    at_ms=st.integers(0, 3),
)


@dataclass
class Few:
    """Four devices of three recipients and three push tokens, that nobody else has."""

    owners: list[Recipient] = field(default_factory=lambda: [somebody() for _ in range(3)])
    tokens: list[str] = field(default_factory=lambda: [a_device().push_token for _ in range(3)])

    def device(self, call: Call) -> Device:
        owner, name = [*((owner, DeviceId("phone")) for owner in self.owners), (self.owners[0], TABLET)][call.whose]
        platform = Platform.FCM if call.whose == 1 else Platform.APNS
        return a_device(
            recipient=owner,
            device_id=name,
            platform=platform,
            push_token=self.tokens[call.token],
            registered_at_ms=NOW_MS + call.at_ms,
        )

    def ask(self, store: DeviceStore, call: Call) -> bool:
        device = self.device(call)
        match call.name:
            case "register":
                return store.register(device)
            case "remove":
                return store.remove(*key(device))
            case "retire":
                return store.retire(device)
            case "disable":
                return store.disable(device, code="expired_token", before_ms=device.registered_at_ms)
            case _:
                return store.move(device, environment=Environment.SANDBOX)

    def devices(self, store: DeviceStore) -> Iterator[Device]:
        for owner in self.owners:
            yield from store.of(owner)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, min_size=2, max_size=10))
def test_in_any_order_of_calls_the_fake_and_dynamodb_agree_and_so_do_the_rows(
    store: DynamoDeviceStore, calls: Sequence[Call]
) -> None:
    few, fake = Few(), FakeDeviceStore()
    for call in calls:
        assert few.ask(store, call) == few.ask(fake, call), call
    devices = [*few.devices(store)]
    assert devices == [*few.devices(fake)]
    holders = {device.push_token: row_key(device) for device in devices}
    assert len(holders) == len(devices)
    assert {token: owner_of(store, token) for token in few.tokens} == {
        token: holders.get(token) for token in few.tokens
    }
