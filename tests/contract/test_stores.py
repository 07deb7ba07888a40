"""What every store of apps, preferences and notifications does: the fakes, and DynamoDB."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from pynamodb.attributes import Attribute
from pynamodb.indexes import GlobalSecondaryIndex
from pynamodb.models import Model

from builders import HOUR_MS, NOW_MS, a_recipient, an_app
from fakes import FakeAppStore, FakeClock, FakeNotificationStore, FakeRecipientStore
from pushlease.aws import rows, stores
from pushlease.aws.rows import bound
from pushlease.push.device import (
    ApnsCredentials,
    ApnsTopicKey,
    AppId,
    Environment,
    FcmCredentials,
    Recipient,
)
from pushlease.push.ports import AppStore, NotificationStore, RecipientStore, Shared
from pushlease.push.preference import Channels, Preferences, Transport, Unknown
from pushlease.push.quiet import Window

_serials = count(1)
KINDS = ["fake", "dynamodb"]


@pytest.fixture(scope="module", params=KINDS)
def apps(request: pytest.FixtureRequest) -> AppStore:
    if request.param == "fake":
        return FakeAppStore()
    return stores.DynamoAppStore(rows=bound(rows.AppRow, request.getfixturevalue("make_table")("apps")))


@pytest.fixture(scope="module", params=KINDS)
def recipients(request: pytest.FixtureRequest) -> RecipientStore:
    if request.param == "fake":
        return FakeRecipientStore()
    table = request.getfixturevalue("make_table")("recipients")
    return stores.DynamoRecipientStore(rows=bound(rows.RecipientRow, table))


@pytest.fixture(scope="module", params=KINDS)
def notifications(request: pytest.FixtureRequest) -> NotificationStore:
    if request.param == "fake":
        return FakeNotificationStore()
    table = request.getfixturevalue("make_table")("notifications")
    return stores.DynamoNotificationStore(rows=bound(rows.NotificationRow, table), dead_kept=timedelta(days=30))


def somebody() -> Recipient:
    """A recipient that no other test has."""
    return a_recipient(f"user-{next(_serials)}")


# ---- Apps, preferences, notifications


TOPIC_KEY = ApnsTopicKey(
    environment=Environment.SANDBOX,
    topics=frozenset({"com.shop.watch", "com.shop.clip"}),
    credentials=ApnsCredentials(team_id="TEAM000001", key_id="KEY0000002", secret="pushlease/watch"),
)


@pytest.mark.parametrize(
    "app",
    [
        an_app(),
        an_app(apns_production=None, apns_sandbox=None),
        an_app(apns_topic_keys=(TOPIC_KEY, replace(TOPIC_KEY, environment=Environment.PRODUCTION))),
        an_app(fcm=None),
        an_app(channels=Channels(defaults={"news": {Transport.PUSH: False}, "all": {}}, unknown=Unknown.REFUSE)),
        an_app(zone="Europe/Vienna"),
    ],
)
def test_an_app_is_read_as_it_was_put(apps: AppStore, app: Any) -> None:
    apps.put(app)
    assert apps.get(app.app_id) == app


def test_an_app_put_again_is_replaced(apps: AppStore) -> None:
    apps.put(an_app())
    other = an_app(fcm=FcmCredentials(project_id="shop-2", secret="pushlease/other"), apns_sandbox=None)
    apps.put(other)
    assert apps.get(other.app_id) == other


def test_an_unknown_app_is_not_found(apps: AppStore) -> None:
    assert apps.get(AppId("nobody")) is None


def test_preferences_are_read_as_they_were_put(recipients: RecipientStore) -> None:
    choosy, silent = somebody(), somebody()
    wishes = Preferences(channels={"news": {Transport.PUSH: False, Transport.IN_APP: True}, "orders": {}})
    recipients.put(choosy, wishes)
    assert recipients.get([choosy, silent, choosy]) == {choosy: wishes}
    recipients.put(choosy, Preferences())
    assert recipients.get([choosy]) == {choosy: Preferences()}


def test_all_that_a_recipient_says_is_read_as_it_was_put(recipients: RecipientStore) -> None:
    owner = somebody()
    said = Preferences(
        channels={"news": {Transport.PUSH: False}},
        muted_until_ms={"*": NOW_MS, "news": NOW_MS + HOUR_MS},
        quiet=(Window(days=frozenset({0, 6}), start=1320, end=420), Window(days=frozenset({3}), start=0, end=0)),
        zone="Europe/Vienna",
        locale="de-AT",
    )
    recipients.put(owner, said)
    assert recipients.get([owner]) == {owner: said}
    recipients.put(owner, Preferences())  # who sets preferences may not know where the phone is
    assert recipients.get([owner]) == {owner: Preferences(zone="Europe/Vienna", locale="de-AT")}


def test_where_a_device_is_changes_nothing_else(recipients: RecipientStore) -> None:
    owner = somebody()
    recipients.locate(owner, zone="Asia/Tokyo", locale=None)
    recipients.put(owner, Preferences(channels={"news": {Transport.PUSH: False}}))
    recipients.locate(owner, zone=None, locale="ja")
    recipients.locate(owner, zone=None, locale=None)
    wanted = Preferences(channels={"news": {Transport.PUSH: False}}, zone="Asia/Tokyo", locale="ja")
    assert recipients.get([owner]) == {owner: wanted}


def test_a_recipient_that_is_erased_said_nothing(recipients: RecipientStore) -> None:
    owner = somebody()
    recipients.put(owner, Preferences(zone="Asia/Tokyo"))
    for _ in range(2):
        recipients.erase(owner)
        assert recipients.get([owner]) == {}


def test_a_notification_is_paused_and_goes_on_until_it_is_withdrawn(notifications: NotificationStore) -> None:
    shared = Shared(fingerprint="f", content="{}", job_ids=[])
    assert not notifications.pause("shop#waits", paused=True)
    notifications.put("shop#waits", shared, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert notifications.pause("shop#waits", paused=True)
    notifications.put("shop#waits", shared, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert notifications.get(["shop#waits"])["shop#waits"] == replace(shared, paused=True)
    assert notifications.pause("shop#waits", paused=False)
    assert notifications.get(["shop#waits"])["shop#waits"] == shared
    notifications.withdraw("shop#waits")
    assert not notifications.pause("shop#waits", paused=True)


def test_a_user_id_may_hold_what_separates_keys(recipients: RecipientStore) -> None:
    odd = a_recipient(f"a#b#{next(_serials)}")
    recipients.put(odd, Preferences(channels={"news": {Transport.PUSH: False}}))
    assert list(recipients.get([odd])) == [odd]


def test_a_notification_keeps_its_jobs_when_its_content_is_withdrawn(notifications: NotificationStore) -> None:
    shared = Shared(fingerprint="f", content='{"title":"ß"}', job_ids=["a", "b"])
    notifications.put("shop#n1", shared, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert notifications.get(["shop#n1", "shop#other"]) == {"shop#n1": shared}
    notifications.withdraw("shop#n1")
    notifications.withdraw("shop#n1")
    notifications.withdraw("shop#never")
    assert notifications.get(["shop#n1", "shop#never"]) == {"shop#n1": replace(shared, content=None)}


def test_recipients_may_be_added_to_a_notification_and_none_is_forgotten(notifications: NotificationStore) -> None:
    for job_id in ("b", "a", "b"):
        shared = Shared(fingerprint="f", content="{}", job_ids=[job_id])
        assert notifications.put("shop#added", shared, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert notifications.get(["shop#added"])["shop#added"].job_ids == ["a", "b"]


def test_a_notification_once_accepted_keeps_its_content(notifications: NotificationStore) -> None:
    first = Shared(fingerprint="first", content="{}", job_ids=["a"])
    other = Shared(fingerprint="other", content='{"title":"x"}', job_ids=["b"])
    assert notifications.put("shop#fixed", first, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert not notifications.put("shop#fixed", other, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert notifications.get(["shop#fixed"]) == {"shop#fixed": first}


def test_more_rows_than_one_batch_of_reads_holds_are_read(notifications: NotificationStore) -> None:
    refs = [f"shop#many-{at}" for at in range(130)]
    for ref in refs:
        notifications.put(
            ref, Shared(fingerprint=ref, content="{}", job_ids=["a"]), now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS
        )
    assert {ref: shared.fingerprint for ref, shared in notifications.get(refs).items()} == {ref: ref for ref in refs}


# ---- The models and the template

MODELS: Mapping[str, type[Model]] = {
    "jobs": rows.JobRow,
    "devices": rows.DeviceRow,
    "recipients": rows.RecipientRow,
    "inbox": rows.InboxRow,
    "notifications": rows.NotificationRow,
    "apps": rows.AppRow,
    "flow": rows.FlowRow,
    "audiences": rows.AudienceRow,
}


def test_every_table_of_the_template_has_a_model(template_tables: Mapping[str, Mapping[str, Any]]) -> None:
    assert set(template_tables) == set(MODELS)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_has_the_keys_types_and_indexes_of_its_table(
    template_tables: Mapping[str, Mapping[str, Any]], kind: str
) -> None:
    table, model = template_tables[kind], MODELS[kind]
    keys = {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]}
    assert keys == _keys(model.get_attributes())

    indexes = {
        index["IndexName"]: (
            {key["AttributeName"]: key["KeyType"] for key in index["KeySchema"]},
            index["Projection"]["ProjectionType"],
        )
        for index in table.get("GlobalSecondaryIndexes", [])
    }
    modelled = {
        index.Meta.index_name: (_keys(vars(type(index))), index.Meta.projection.projection_type)
        for index in vars(model).values()
        if isinstance(index, GlobalSecondaryIndex)
    }
    assert indexes == modelled

    types = {name: attribute.attr_type for name, attribute in model.get_attributes().items()}
    for defined in table["AttributeDefinitions"]:
        assert types[defined["AttributeName"]] == defined["AttributeType"]


def test_whose_a_push_token_is_stands_in_the_devices_own_table() -> None:
    kept, whose = rows.DeviceRow.get_attributes(), rows.OwnerRow.get_attributes()
    assert _keys(whose) == _keys(kept)
    assert {name for name in kept if name in whose} == {"recipient", "device_id", "ttl"}


@pytest.mark.parametrize("kind", ["jobs", "devices", "inbox", "notifications"])
def test_rows_that_end_are_pruned_by_the_attribute_that_the_table_names(
    template_tables: Mapping[str, Mapping[str, Any]], kind: str
) -> None:
    ttl = template_tables[kind]["TimeToLiveSpecification"]
    assert ttl["Enabled"]
    assert ttl["AttributeName"] in MODELS[kind].get_attributes()


def _keys(attributes: Mapping[str, Any]) -> dict[str, str]:
    keys = [attribute for attribute in attributes.values() if isinstance(attribute, Attribute)]
    hash_ = {key.attr_name: "HASH" for key in keys if key.is_hash_key}
    return hash_ | {key.attr_name: "RANGE" for key in keys if key.is_range_key}


def test_content_is_read_once_for_many_jobs_and_again_after_a_while(aws: Any, make_table: Callable[[str], str]) -> None:
    store = stores.DynamoNotificationStore(
        rows=bound(rows.NotificationRow, make_table("notifications")), dead_kept=timedelta(days=30)
    )
    clock = FakeClock()
    cached = stores.CachedNotifications(store=store, clock=clock)
    shared = Shared(fingerprint="f", content="{}", job_ids=["a"])
    store.put("shop#n1", shared, now_ms=NOW_MS, expires_at_ms=NOW_MS + HOUR_MS)
    assert cached.get(["shop#n1", "shop#n1", "shop#none"]) == {"shop#n1": shared}
    store.withdraw("shop#n1")
    assert cached.get(["shop#n1"]) == {"shop#n1": shared}
    clock.now_ms += stores.CACHED_MS
    assert cached.get(["shop#n1"]) == {"shop#n1": replace(shared, content=None)}
