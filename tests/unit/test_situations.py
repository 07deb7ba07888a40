"""What people run into, played through the use cases on fakes: one test a situation, named for it."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders import (
    DAY_MS,
    HOUR_MS,
    NOW_MS,
    PHONE,
    a_dead_job,
    a_device,
    a_hint,
    a_job,
    a_recipient,
    a_record,
    an_app,
    deliveries,
    some_content,
)
from pushlease.aws.rows import due_lane
from pushlease.codes import Code
from pushlease.errors import BadRequest, StoreUnavailable
from pushlease.jobs.engine import MAX_HOPS
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Status, shard_of
from pushlease.jobs.message import LaneHandOver, hint_body, lane_body, letter_body, tick_body
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.push.device import (
    Address,
    ApnsCredentials,
    ApnsTopicKey,
    AppId,
    Device,
    DeviceId,
    Environment,
    FcmCredentials,
    Platform,
)
from pushlease.push.outcome import Accepted, Refused, Scope, Verdict
from pushlease.push.plan import Target
from pushlease.push.ports import Shared
from pushlease.push.preference import Preferences, Transport
from pushlease.records import partial
from redrive.usecase import Filter
from registry.usecase import Registration
from send.usecase import Cancellation
from system import GRACE, POLICY, TABLET, System, WorkerDied


@pytest.fixture
def system() -> System:
    return System()


def refused(code: Code, **said: Any) -> Refused:
    return Refused(**{"code": code, "reason": "because"} | said)


def outcome_of(system: System, verdict: Verdict, **said: Any) -> tuple[Status, Delivery]:
    """Send one notification to a phone whose provider always says this, and see it to its end."""
    system.answer(verdict)
    system.send(**said)
    system.deliver()
    job = system.until_over(system.only())
    return job.status, job.deliveries[PHONE]


# ---- Every result code


@pytest.mark.parametrize(
    "code", [Code.RATE_LIMITED, Code.NETWORK_ERROR, Code.PROVIDER_ERROR, Code.INTERNAL_ERROR], ids=str
)
def test_retried_codes_rate_limited_network_provider_and_internal_error(system: System, code: Code) -> None:
    status, delivery = outcome_of(system, refused(code))
    assert (status, delivery.status, delivery.code, delivery.attempts) == (
        Status.DEAD,
        DeliveryStatus.FAILED,
        code,
        5,
    )
    assert len(system.pusher.pushed) == 5
    assert [letter.code for letter in system.letters.sent] == [code]


@pytest.mark.parametrize("code", [Code.INVALID_TOKEN, Code.EXPIRED_TOKEN], ids=str)
def test_invalid_token_and_expired_token_end_the_delivery_and_disable_the_device(system: System, code: Code) -> None:
    status, delivery = outcome_of(system, refused(code, disable_before_ms=NOW_MS))
    assert (status, delivery.code, delivery.attempts) == (Status.DONE, code, 1)
    assert [device.disabled_code for device in system.devices.rows.values()] == [code]
    assert system.letters.sent == []
    assert system.send()["jobs"][0]["deliveries"] == {"push": {"status": "skipped", "code": "no_push_token"}}


@pytest.mark.parametrize("code", [Code.PAYLOAD_TOO_LARGE, Code.REJECTED], ids=str)
def test_payload_too_large_and_rejected_are_not_tried_twice_and_are_buried(system: System, code: Code) -> None:
    status, delivery = outcome_of(system, refused(code))
    assert (status, delivery.code, delivery.attempts) == (Status.DEAD, code, 1)
    assert [letter.code for letter in system.letters.sent] == [code]
    assert [device.disabled_code for device in system.devices.rows.values()] == [None]


def test_payload_too_large_is_caught_before_anything_is_stored(system: System) -> None:
    with pytest.raises(BadRequest, match="content: must be at most 4096 bytes"):
        system.send(content=some_content(body="x" * 4096))
    assert (system.jobs.rows, system.notifications.rows, system.hints.published) == ({}, {}, [])


def test_provider_not_configured_is_skipped_and_never_enqueued(system: System) -> None:
    system.apps.put(an_app(apns_production=None))
    answer = system.send()
    assert answer["jobs"][0]["deliveries"] == {PHONE: {"status": "skipped", "code": "unconfigured"}}
    assert answer["jobs"][0]["status"] == "done"
    assert system.hints.published == []


def test_a_secret_that_the_functions_may_not_read_is_refused_wherever_an_app_names_one(system: System) -> None:
    def check(field: str, name: str) -> None:
        if not name.startswith("pushlease/"):
            raise BadRequest(field, "must start with pushlease/")

    registry = replace(system.registry, check_secret=check)
    elsewhere = ApnsCredentials(team_id="TEAM000001", key_id="KEY0000002", secret="elsewhere")
    key = ApnsTopicKey(environment=Environment.SANDBOX, topics=frozenset({"com.shop"}), credentials=elsewhere)
    with pytest.raises(BadRequest, match=r"^apns_topic_keys\.0\.secret"):
        registry.configure_app(an_app(app_id=AppId("new"), apns_topic_keys=(key,)))
    with pytest.raises(BadRequest, match=r"^apns_sandbox\.secret"):
        registry.configure_app(an_app(app_id=AppId("new"), apns_sandbox=elsewhere))
    assert system.apps.get(AppId("new")) is None


def test_device_deleted_after_it_was_enqueued(system: System) -> None:
    system.send()
    system.registry.remove(a_recipient(), DeviceId(PHONE))
    system.deliver()
    assert (system.only().status, system.only().deliveries[PHONE].code) == (Status.DONE, "device_deleted")
    assert system.pusher.pushed == []


def test_expired_before_an_attempt(system: System) -> None:
    system.send(ttl_s=60)
    system.clock.forward(seconds=61)
    system.deliver()
    delivery = system.only().deliveries[PHONE]
    assert (system.only().status, delivery.code, delivery.attempts) == (Status.DONE, "expired", 0)
    assert system.pusher.pushed == []


def test_expired_because_no_retry_would_come_in_time(system: System) -> None:
    system.answer(refused(Code.PROVIDER_ERROR))
    system.send(ttl_s=40)
    system.deliver()
    system.clock.forward(seconds=30)
    system.deliver()
    delivery = system.only().deliveries[PHONE]
    assert (system.only().status, delivery.code, delivery.attempts) == (Status.DONE, "expired", 2)
    assert (system.only().last_error or "").startswith("provider_error")


def test_unreadable_row_dies_at_once_and_its_letter_waits_for_a_person(system: System) -> None:
    system.send()
    job = system.only()
    system.jobs.broken[job.job_id] = "user_id: missing"
    system.deliver()
    system.bury()
    assert system.row(job).status is Status.DEAD
    assert (system.row(job).last_error, [letter.code for letter in system.letters.sent]) == (
        "unreadable: user_id: missing",
        ["unreadable"],
    )
    assert len(system.dead_letters) == 1
    # Moving its letter mends no row: the letter goes back to the person, and nothing is lost.
    system.move_letters_back()
    assert (system.row(job).status, len(system.dead_letters)) == (Status.DEAD, 1)
    # Once somebody has mended the row, the same letter revives it.
    system.jobs.broken.clear()
    system.move_letters_back()
    assert system.row(job).status is Status.PENDING


def test_unreadable_message_is_refused_and_its_neighbours_are_served(system: System) -> None:
    system.send()
    hint = a_record(hint_body(system.hints.published[0]))
    bad = [a_record(body) for body in ("", "{}", '{"kind":"hint","job_id":""}', tick_body())]
    outcome = system.deliver(bad[0], hint, *bad[1:])
    assert [record for record, _ in outcome.unreadable] == bad
    assert all(fault.startswith("message") for _, fault in outcome.unreadable)
    assert system.only().status is Status.DONE


def test_lost_a_job_that_kills_every_worker(system: System) -> None:
    system.send(max_attempts=3)
    job = system.only()
    system.pusher.during = _die
    for _ in range(3):
        system.clock.forward(minutes=4)
        with pytest.raises(WorkerDied):
            system.drain()
    system.clock.forward(minutes=4)
    system.drain()
    assert (system.row(job).status, system.row(job).deliveries[PHONE].code) == (Status.DEAD, "lost")
    assert len(system.pusher.pushed) == 3


def _die(_: object) -> None:
    raise WorkerDied


def test_internal_error_our_own_code_raises_for_one_job_and_its_neighbours_are_unharmed(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    system.send("u1", "u2")
    system.devices.poisoned = {a_recipient("u1")}
    system.deliver()
    mine, other = (job for user in ("u1", "u2") for job in system.jobs.rows.values() if job.user_id == user)
    assert (mine.status, mine.deliveries[PHONE].code) == (Status.PENDING, "internal_error")
    assert other.status is Status.DONE
    assert system.faults == ["RuntimeError"]
    system.devices.poisoned.clear()
    assert system.until_over(mine).status is Status.DONE


# ---- Every delivery status and every ending of a job


def test_queued_and_pending_between_retries_with_the_last_error(system: System) -> None:
    system.answer(refused(Code.PROVIDER_ERROR))
    answer = system.send()
    assert answer["jobs"][0]["deliveries"] == {PHONE: {"status": "queued"}}
    system.deliver()
    job = system.only()
    assert (job.status, job.deliveries[PHONE].status) == (Status.PENDING, DeliveryStatus.QUEUED)
    assert (job.deliveries[PHONE].code, job.deliveries[PHONE].attempts) == ("provider_error", 1)


def test_sent_and_done(system: System) -> None:
    status, delivery = outcome_of(system, Accepted(provider_id="p1"))
    assert (status, delivery.status, delivery.provider_id) == (Status.DONE, DeliveryStatus.SENT, "p1")


def test_failed_and_dead_even_beside_a_success(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId(TABLET)))
    system.answer(refused(Code.REJECTED))
    system.send()
    system.deliver()
    job = system.only()
    assert job.status is Status.DEAD
    assert {name: delivery.status for name, delivery in job.deliveries.items()} == {
        PHONE: DeliveryStatus.FAILED,
        TABLET: DeliveryStatus.SENT,
    }


def test_suppressed_by_a_preference_before_it_is_stored(system: System) -> None:
    system.registry.set_preferences(a_recipient(), Preferences(channels={"news": {Transport.PUSH: False}}))
    answer = system.send(channel="news")
    assert answer["jobs"][0]["deliveries"] == {PHONE: {"status": "suppressed", "code": "channel_off"}}
    assert (answer["jobs"][0]["status"], system.hints.published) == ("done", [])


def test_suppressed_by_a_preference_that_came_after(system: System) -> None:
    system.send(channel="news")
    system.registry.set_preferences(a_recipient(), Preferences(channels={"news": {Transport.PUSH: False}}))
    system.deliver()
    assert system.only().deliveries[PHONE].status is DeliveryStatus.SUPPRESSED
    assert (system.only().status, system.pusher.pushed) == (Status.DONE, [])


def test_skipped_no_push_token(system: System) -> None:
    answer = system.send("nobody")
    assert answer["jobs"][0]["deliveries"] == {"push": {"status": "skipped", "code": "no_push_token"}}
    assert system.only().status is Status.DONE


def test_skipped_unconfigured_is_decided_for_each_device_alone(system: System) -> None:
    system.apps.put(an_app(fcm=None))
    system.devices.register(a_device(device_id=DeviceId("pixel"), platform=Platform.FCM))
    statuses = {name: it["status"] for name, it in system.send()["jobs"][0]["deliveries"].items()}
    assert statuses == {PHONE: "queued", "pixel": "skipped"}
    system.deliver()
    assert system.only().status is Status.DONE


def test_delivered_in_app(system: System) -> None:
    system.send(transports=frozenset({Transport.IN_APP}))
    system.deliver()
    assert system.only().deliveries[DeliveryId("in_app")].status is DeliveryStatus.DELIVERED
    assert [entry for entry, _ in system.inbox.entries(a_recipient())] == [system.only().notification_id]
    assert system.pusher.pushed == []


def test_cancelled_before_it_was_sent(system: System) -> None:
    notification_id = system.send()["notification_id"]
    assert system.cancel(notification_id, "u1") == [True]
    system.deliver()
    assert system.only().status is Status.CANCELLED
    assert system.only().deliveries[PHONE].status is DeliveryStatus.CANCELLED
    assert (system.pusher.pushed, system.cancel(notification_id, "u1")) == ([], [False])


def test_cancelled_between_retries_what_was_sent_stays_recorded(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId(TABLET)))
    system.answer(refused(Code.PROVIDER_ERROR))
    notification_id = system.send()["notification_id"]
    system.deliver()
    system.cancel(notification_id, "u1")
    assert {str(name): str(delivery.status) for name, delivery in system.only().deliveries.items()} == {
        PHONE: "cancelled",
        TABLET: "sent",
    }


def test_cancelled_while_dead_cannot_be_redriven(system: System) -> None:
    outcome_of(system, refused(Code.REJECTED))
    system.bury()
    job = system.only()
    system.cancel(job.notification_id, "u1")
    system.move_letters_back()
    assert system.row(job).status is Status.CANCELLED
    assert system.dead_letters == []


def test_max_attempts_one_makes_every_failure_final(system: System) -> None:
    status, delivery = outcome_of(system, refused(Code.NETWORK_ERROR), max_attempts=1)
    assert (status, delivery.attempts, len(system.pusher.pushed)) == (Status.DEAD, 1, 1)


# ---- What happens to a notification, a device or an app after it was accepted


def test_notification_deleted_after_it_was_enqueued(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    notification_id = system.send("u1", "u2", content=some_content(body="x" * 900))["notification_id"]
    system.notifications.withdraw(f"shop#{notification_id}")
    system.deliver()
    assert {job.status for job in system.jobs.rows.values()} == {Status.CANCELLED}
    assert system.pusher.pushed == []


def test_a_whole_notification_is_withdrawn_for_everybody(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    notification_id = system.send("u1", "u2")["notification_id"]
    assert system.cancel(notification_id) == [True, True]
    system.deliver()
    assert system.pusher.pushed == []


def test_withdrawing_for_everybody_may_be_repeated(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    notification_id = system.send("u1", "u2")["notification_id"]
    assert system.cancel(notification_id) == [True, True]
    assert system.cancel(notification_id) == [False, False]


def test_withdrawing_reaches_recipients_that_were_added_later(system: System) -> None:
    for users in (("u1", "u2"), ("u3", "u4")):
        for user in users:
            system.devices.register(a_device(recipient=a_recipient(user)))
        system.send(*users, notification_id="n7")
    assert system.cancel("n7") == [True] * 4
    assert [job.status for job in system.jobs.rows.values()] == [Status.CANCELLED] * 4


def test_one_devices_notification_is_withdrawn_as_it_was_sent(system: System) -> None:
    target = Target(user_id="u1", device_id=PHONE)
    system.send(targets=(target,), notification_id="n7")
    assert system.cancel("n7", "u1") == [False]
    answer = system._send.cancel(Cancellation(app_id="shop", notification_id="n7", targets=(target,)))
    assert [job["cancelled"] for job in answer["jobs"]] == [True]


def test_a_single_recipient_of_a_nameless_send_must_be_named_to_withdraw(system: System) -> None:
    notification_id = system.send()["notification_id"]
    with pytest.raises(BadRequest, match=r"^recipients: must name whom"):
        system.cancel(notification_id)
    assert system.cancel(notification_id, "u1") == [True]


def test_what_the_caller_named_is_withdrawn_by_its_name(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    for users in (("u1",), ("u2", "u3")):
        system.send(*users, notification_id="n7")
    assert sorted(system.cancel("n7")) == [False, True, True]  # u3 has no device: that job was done at once


def test_one_idempotency_key_is_one_notification(system: System) -> None:
    with pytest.raises(BadRequest, match=r"^idempotency_key: not together with notification_id"):
        system.send(notification_id="n7", idempotency_key="k")
    system.send("u1", idempotency_key="k")
    with pytest.raises(BadRequest, match=r"^idempotency_key: was used before with other content"):
        system.send("u2", idempotency_key="k", content=some_content(title="other"))
    assert len(system.jobs.rows) == 1


def test_a_notification_with_too_many_recipients_is_refused_by_the_limit(system: System) -> None:
    known = Shared(fingerprint="f", content="{}", job_ids=[f"{at:040x}" for at in range(5000)])
    system.send("u1", notification_id="n7")
    (ref,) = system.notifications.rows
    system.notifications.rows[ref] = replace(known, fingerprint=system.notifications.rows[ref].fingerprint)
    with pytest.raises(BadRequest, match=r"^recipients: one notification takes at most 5000"):
        system.send("u2", notification_id="n7")


def test_the_expiry_of_every_redrive_is_the_first_ones_span(system: System) -> None:
    system.send(ttl_s=3600)
    job = system.only()
    for redrive in range(1, 4):
        system.clock.forward(seconds=10 * 3600)
        system.jobs.rows[job.job_id] = replace(
            system.row(job), status=Status.DEAD, deliveries=deliveries(PHONE, status=DeliveryStatus.FAILED)
        )
        system.redrive.redrive(Filter(job_ids=[job.job_id], limit=1))
        assert system.row(job).redrives == redrive
        assert system.row(job).expires_at_ms == system.clock() + HOUR_MS


def test_an_app_configured_later_lets_no_backlog_out(system: System) -> None:
    system.apps.put(an_app(apns_production=None))
    system.send()
    system.registry.configure_app(an_app())
    system.drain()
    system.clock.forward(days=1)
    system.drain()
    assert system.pusher.pushed == []
    system.send()
    system.deliver()
    assert system.accepted() == 1


def test_a_run_of_provider_errors_disables_nothing(system: System) -> None:
    users = [f"u{at}" for at in range(30)]
    for user in users:
        system.devices.register(a_device(recipient=a_recipient(user)))
        system.answer(refused(Code.PROVIDER_ERROR), user=user)
        system.send(user)
        system.deliver()
    assert len(system.pusher.pushed) == 30
    assert {device.disabled_code for device in system.devices.rows.values()} == {None}
    assert {job.status for job in system.jobs.rows.values()} == {Status.PENDING}


def test_a_device_registered_after_acceptance_is_not_added(system: System) -> None:
    system.send()
    system.devices.register(a_device(device_id=DeviceId(TABLET)))
    system.deliver()
    assert system.pushed_to() == [PHONE]


# ---- Sending


def test_a_repeat_of_one_send_answers_the_same_and_sends_once(system: System) -> None:
    first = system.send(idempotency_key="order-7")
    system.deliver()
    again = system.send(idempotency_key="order-7")
    system.deliver()
    assert again["notification_id"] == first["notification_id"]
    assert (again["jobs"][0]["job_id"], again["jobs"][0]["duplicate"]) == (first["jobs"][0]["job_id"], True)
    assert again["jobs"][0]["deliveries"] == {PHONE: {"status": "sent"}}
    assert system.accepted() == 1


@pytest.mark.parametrize("name", ["idempotency_key", "notification_id"])
def test_one_name_for_two_contents_is_refused(system: System, name: str) -> None:
    system.send(**{name: "order-7"})
    with pytest.raises(BadRequest, match=f"{name}: was used before"):
        system.send(content=some_content(title="other"), **{name: "order-7"})


def test_one_name_for_two_contents_is_refused_for_other_recipients_too(system: System) -> None:
    for user in ("u2", "u3", "u4"):
        system.devices.register(a_device(recipient=a_recipient(user)))
    system.send("u1", "u2", notification_id="n7", content=some_content(body="x" * 900))
    with pytest.raises(BadRequest, match="notification_id"):
        system.send("u3", "u4", notification_id="n7", content=some_content(body="y" * 900))
    system.deliver()
    assert {push.content.body for push in system.pusher.pushed} == {"x" * 900}


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"targets": ()}, "recipients"),
        ({"app_id": "nobody"}, "app_id"),
        ({"ttl_s": 5, "expires_at_ms": NOW_MS + 1}, "ttl_s"),
        ({"expires_at_ms": NOW_MS}, "expires_at_ms"),
        ({"expires_at_ms": NOW_MS + 5, "deliver_at_ms": NOW_MS + 5}, "deliver_at_ms"),
    ],
)
def test_a_send_that_breaks_a_rule_names_the_field_and_stores_nothing(
    system: System, said: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadRequest, match=f"^{field}: "):
        system.send(**said)
    assert (system.jobs.rows, system.hints.published) == ({}, [])


@pytest.mark.parametrize(
    ("minutes", "hinted"), [(0, True), (10, True), (15, True), (16, False), (18, False), (600, False)]
)
def test_deliver_at_is_hinted_if_sqs_can_wait_so_long_and_else_left_to_the_drain(
    system: System, minutes: int, hinted: bool
) -> None:
    at_ms = NOW_MS + minutes * 60_000
    system.send(deliver_at_ms=at_ms)
    assert [hint.delay for hint in system.hints.published] == ([timedelta(minutes=minutes)] if hinted else [])
    assert system.only().due_at_ms == at_ms + (GRACE // timedelta(milliseconds=1) if hinted else 0)
    system.hints.published.clear()  # lost: the drain makes up for it
    assert system.until_over(system.only()).deliveries[PHONE].status is DeliveryStatus.SENT
    assert (system.only().deliveries[PHONE].sent_at_ms or 0) >= at_ms


def test_every_notification_has_an_expiry(system: System) -> None:
    def expiry(**said: Any) -> int:
        (job,) = system.send(**said)["jobs"]
        return int(job["expires_at_ms"])

    assert expiry() == NOW_MS + DAY_MS
    assert expiry(ttl_s=60) == NOW_MS + 60_000
    assert expiry(deliver_at_ms=NOW_MS + HOUR_MS, ttl_s=60) == NOW_MS + HOUR_MS + 60_000


def test_a_send_whose_hint_is_lost_is_told_of_and_sent_by_the_drain(system: System) -> None:
    system.hints.failing = True
    system.send()
    assert system.unhinted == [1]
    assert system.until_over(system.only()).status is Status.DONE


def test_a_named_device_gets_it_alone(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId(TABLET)))
    system.send(targets=(Target(user_id="u1", device_id=DeviceId(TABLET)),))
    system.deliver()
    assert system.pushed_to() == [TABLET]


def test_long_content_is_stored_once_and_short_content_in_the_row(system: System) -> None:
    system.send()
    assert (system.only().content_ref, system.notifications.rows) == (None, {})
    system.send("u1", content=some_content(body="x" * 900), notification_id="long")
    long = next(job for job in system.jobs.rows.values() if job.notification_id == "long")
    assert (long.content, long.content_ref) == (None, "shop#long")


# ---- Registering


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"environment": None}, "environment"),
        ({"topic": None}, "topic"),
        ({"platform": Platform.FCM}, "topic"),
    ],
)
def test_a_registration_that_breaks_a_rule_names_the_field(system: System, said: dict[str, Any], field: str) -> None:
    before = dict(system.devices.rows)
    with pytest.raises(BadRequest, match=f"^{field}: "):
        system.registry.register(_registration(**said))
    assert system.devices.rows == before


def test_a_device_that_its_provider_would_refuse_is_not_stored(system: System) -> None:
    def refuse(_device: Device) -> Device:
        raise BadRequest("push_token", "no")

    before = dict(system.devices.rows)
    with pytest.raises(BadRequest, match=r"^push_token: "):
        replace(system.registry, checked=refuse).register(_registration())
    assert system.devices.rows == before


@pytest.mark.parametrize("foreign", ["apns_production", "apns_sandbox", "fcm"])
def test_an_app_that_names_a_foreign_secret_is_not_stored(system: System, foreign: str) -> None:
    def check_secret(field: str, _name: str) -> None:
        if field == f"{foreign}.secret":
            raise BadRequest(field, "no")

    before = dict(system.apps.rows)
    registry = replace(system.registry, check_secret=check_secret)
    for app_id in ("shop", "new"):
        with pytest.raises(BadRequest, match=rf"^{foreign}\.secret: "):
            registry.configure_app(an_app(app_id=AppId(app_id), fcm=FcmCredentials(project_id="p-2", secret="other")))
    assert system.apps.rows == before


@pytest.mark.parametrize(("platform", "address"), [(Platform.APNS, Address.FID), (Platform.FCM, Address.CHANNEL)])
def test_no_device_is_addressed_as_its_provider_knows_none(
    system: System, platform: Platform, address: Address
) -> None:
    said = Registration(
        recipient=a_recipient(),
        device_id=DeviceId(PHONE),
        platform=platform,
        push_token="ab",
        environment=Environment.SANDBOX,
        topic="com.example.shop" if platform is Platform.APNS else None,
        address=address,
    )
    with pytest.raises(BadRequest, match="address"):
        system.registry.register(said)


def test_a_dead_push_token_that_registers_again_lives_again(system: System) -> None:
    (phone,) = system.devices.rows.values()
    system.devices.disable(phone, code="expired_token", before_ms=NOW_MS)
    system.registry.register(_registration(push_token=phone.push_token))
    assert system.registry.list_devices(a_recipient())["devices"] == [
        {
            "device_id": PHONE,
            "platform": "apns",
            "environment": "sandbox",
            "address": "push_token",
            "push_token": f"…{phone.push_token[-6:]}",
            "registered_at_ms": NOW_MS,
            "app_version": None,
            "locale": None,
            "zone": None,
            "stale": False,
            "disabled_code": None,
        }
    ]
    system.send()
    system.deliver()
    assert system.only().deliveries[PHONE].status is DeliveryStatus.SENT


def test_registering_on_android_needs_neither_topic_nor_environment(system: System) -> None:
    system.registry.register(_registration(platform=Platform.FCM, topic=None, environment=None))
    (device,) = system.devices.of(a_recipient())
    assert (device.platform, device.environment, device.topic) == (Platform.FCM, Environment.PRODUCTION, None)


def test_what_a_device_says_of_itself_is_listed(system: System) -> None:
    said = {"app_version": "4.2.0 (1734)", "locale": "de-AT", "zone": "Europe/Vienna"}
    system.registry.register(_registration(**said))
    (listed,) = system.registry.list_devices(a_recipient())["devices"]
    assert listed.items() >= said.items()


def test_a_phone_whose_user_changes_is_never_pushed_to_for_the_one_before(system: System) -> None:
    (phone,) = system.devices.rows.values()
    system.send()
    system.registry.register(_registration(recipient=a_recipient("u2"), push_token=phone.push_token))
    system.deliver()
    assert (system.only().deliveries[PHONE].code, system.pusher.pushed) == ("device_deleted", [])


def test_a_registration_that_comes_too_late_says_so_and_changes_nothing(system: System) -> None:
    system.registry.register(_registration(recipient=a_recipient("u2"), zone="Asia/Tokyo"))
    system.clock.forward(seconds=-1)  # this one stood still since
    answer = system.registry.register(_registration(locale="de", zone="Europe/Vienna"))
    assert (answer["superseded"], answer["retired"]) == (True, [])
    assert [device.push_token for device in system.devices.of(a_recipient("u2"))] == ["c" * 64]
    assert a_recipient() not in system.recipients.rows


def test_the_oldest_registrations_beyond_the_limit_are_retired_and_named(system: System) -> None:
    registry = replace(system.registry, max_devices=3)
    answers = []
    for at in range(5):
        system.clock.forward(seconds=1)
        answers.append(registry.register(_registration(device_id=DeviceId(f"d{at}"), push_token=f"{at:064x}")))
    assert [answer["retired"] for answer in answers] == [[], [], [PHONE], ["d0"], ["d1"]]
    assert [device.device_id for device in system.devices.of(a_recipient())] == ["d2", "d3", "d4"]


def test_a_device_that_registers_again_is_not_among_the_oldest(system: System) -> None:
    registry = replace(system.registry, max_devices=2)
    for name, token in (("a", "a"), ("b", "b"), ("a", "a"), ("c", "c")):
        system.clock.forward(seconds=1)
        answer = registry.register(_registration(device_id=DeviceId(name), push_token=token * 64))
    assert answer["retired"] == ["b"]


def test_a_lowered_limit_retires_as_many_as_it_takes(system: System) -> None:
    for at in range(4):
        system.registry.register(_registration(device_id=DeviceId(f"d{at}"), push_token=f"{at:064x}"))
    system.clock.forward(seconds=1)
    registry = replace(system.registry, max_devices=1)
    assert registry.register(_registration())["retired"] == ["d0", "d1", "d2", "d3"]
    assert [device.device_id for device in system.devices.of(a_recipient())] == [PHONE]


def test_other_recipients_devices_count_for_nobody_else(system: System) -> None:
    registry = replace(system.registry, max_devices=1)
    answer = registry.register(_registration(recipient=a_recipient("u2")))
    assert (answer["retired"], len(system.devices.rows)) == ([], 2)


# ---- Stale devices of FCM's


def _stale_pixel(system: System) -> Device:
    """A device that registered 270 days ago, beside the iPhone."""
    pixel = a_device(device_id=DeviceId("pixel"), platform=Platform.FCM, registered_at_ms=NOW_MS - 270 * DAY_MS)
    system.devices.register(pixel)
    return pixel


def test_nothing_is_planned_for_a_stale_device_and_the_list_says_that_it_is(system: System) -> None:
    _stale_pixel(system)
    assert system.send()["jobs"][0]["deliveries"] == {PHONE: {"status": "queued"}}
    listed = system.registry.list_devices(a_recipient())["devices"]
    assert {device["device_id"]: device["stale"] for device in listed} == {"pixel": True, PHONE: False}


def test_who_has_only_stale_devices_has_none(system: System) -> None:
    _stale_pixel(system)
    system.registry.remove(a_recipient(), DeviceId(PHONE))
    nobody = {"push": {"status": "skipped", "code": "no_push_token"}}
    assert system.send()["jobs"][0]["deliveries"] == nobody
    one = (Target(user_id="u1", device_id="pixel"),)
    assert system.send(targets=one, notification_id="n2")["jobs"][0]["deliveries"] == nobody


def test_a_device_that_became_stale_after_it_was_enqueued_ends_without_asking_google(system: System) -> None:
    pixel = a_device(platform=Platform.FCM, registered_at_ms=NOW_MS - 270 * DAY_MS + HOUR_MS)
    system.devices.rows = {(pixel.recipient, pixel.device_id): pixel}
    system.send()
    system.clock.forward(hours=1)
    job = system.until_over(system.only())
    assert (job.status, job.deliveries[PHONE].code, system.pusher.pushed) == (Status.DONE, Code.EXPIRED_TOKEN, [])


def test_a_stale_device_that_registers_again_is_sent_to(system: System) -> None:
    pixel = _stale_pixel(system)
    again = {"platform": Platform.FCM, "topic": None, "environment": None, "push_token": pixel.push_token}
    system.registry.register(_registration(device_id=pixel.device_id, **again))
    assert set(system.send()["jobs"][0]["deliveries"]) == {PHONE, "pixel"}


def _registration(**said: Any) -> Registration:
    values: dict[str, Any] = {
        "recipient": a_recipient(),
        "device_id": DeviceId(PHONE),
        "platform": Platform.APNS,
        "push_token": "c" * 64,
        "environment": Environment.SANDBOX,
        "topic": "com.example.shop",
    }
    return Registration(**values | said)


# ---- The inbox


def in_app(system: System, *notification_ids: str) -> None:
    """Notifications for the inbox alone, a second apart."""
    for notification_id in notification_ids:
        system.clock.forward(seconds=1)
        system.send(
            notification_id=notification_id,
            transports=frozenset({Transport.IN_APP}),
            content=some_content(title=notification_id),
        )
        system.deliver()


def listed_inbox(system: System, *, limit: int = 20, after: str | None = None) -> Mapping[str, Any]:
    return system.inboxes.entries(a_recipient(), limit=limit, after=after)


def test_an_inbox_shows_what_was_sent_newest_first_and_what_was_read(system: System) -> None:
    in_app(system, "first", "second")
    answer = listed_inbox(system)
    newest, oldest = answer["entries"]
    assert newest == {
        "entry": f"{system.clock()}#second",
        "notification_id": "second",
        "created_at_ms": system.clock(),
        "read": False,
        "content": json.loads(some_content(title="second").to_json()),
    }
    assert (oldest["notification_id"], answer["unread"], answer["next"]) == ("first", 2, None)
    assert system.inboxes.mark_read(a_recipient(), [oldest["entry"]]) == {"marked": 1, "unread": 1}
    assert [entry["read"] for entry in listed_inbox(system)["entries"]] == [False, True]


def test_an_inbox_is_turned_page_by_page(system: System) -> None:
    in_app(system, "a", "b", "c")
    shown, after = [], None
    for _ in range(2):
        answer = listed_inbox(system, limit=2, after=after)
        shown.append([entry["notification_id"] for entry in answer["entries"]])
        after = answer["next"]
        assert answer["unread"] == 3
    assert (shown, after) == ([["c", "b"], ["a"]], None)


def test_marking_may_be_repeated_and_what_comes_later_is_unread(system: System) -> None:
    in_app(system, "a", "b", "c")
    entry = listed_inbox(system)["entries"][0]["entry"]
    system.inboxes.mark_read(a_recipient(), [entry])
    assert system.inboxes.mark_read(a_recipient(), [entry]) == {"marked": 0, "unread": 2}
    assert system.inboxes.mark_all_read(a_recipient()) == {"marked": 2, "unread": 0}
    assert system.inboxes.mark_all_read(a_recipient()) == {"marked": 0, "unread": 0}
    in_app(system, "d")
    assert system.inboxes.unread_count(a_recipient()) == {"unread": 1}


def test_one_users_inbox_is_no_other_users(system: System) -> None:
    in_app(system, "a")
    entry = listed_inbox(system)["entries"][0]["entry"]
    assert system.inboxes.mark_read(a_recipient("u2"), [entry]) == {"marked": 0, "unread": 0}
    assert system.inboxes.unread_count(a_recipient()) == {"unread": 1}


def test_an_attempt_that_is_repeated_adds_no_second_entry_and_unreads_none(system: System) -> None:
    in_app(system, "a")
    system.inboxes.mark_all_read(a_recipient())
    job = system.only()
    system.jobs.rows[job.job_id] = replace(  # as a worker leaves it that dies before the record
        job, status=Status.PENDING, deliveries={DeliveryId("in_app"): Delivery()}, due_at_ms=system.clock()
    )
    system.until_over(job)
    answer = listed_inbox(system)
    assert ([entry["read"] for entry in answer["entries"]], answer["unread"]) == ([True], 0)


def test_what_stood_in_an_inbox_for_its_time_is_gone(system: System) -> None:
    in_app(system, "old")
    system.clock.forward(days=89)
    in_app(system, "new")
    assert listed_inbox(system)["unread"] == 2
    system.clock.forward(days=1)
    answer = listed_inbox(system)
    assert ([entry["notification_id"] for entry in answer["entries"]], answer["unread"]) == (["new"], 1)


# ---- Burial and redrive


def dead(system: System) -> Job:
    """A job that died, its letter in the dead-letter queue, its cause fixed since."""
    outcome_of(system, refused(Code.REJECTED))
    system.bury()
    system.pusher.script.clear()
    system.pusher.during = lambda _: None
    assert len(system.dead_letters) == 1
    return system.only()


def test_sqs_itself_moves_a_letter_after_it_was_refused_three_times(system: System) -> None:
    system.answer(refused(Code.REJECTED))
    system.send()
    system.deliver()
    outcomes = system.bury()
    assert [len(outcome.refused) for outcome in outcomes] == [1, 1, 1]
    assert [record.receipt.receive_count for record in system.dead_letters] == [4]
    assert system.only().due_at_ms == NOW_MS + 13 * DAY_MS


def test_the_consoles_button_revives_a_job_once(system: System) -> None:
    job = dead(system)
    outcomes = system.move_letters_back()
    assert [len(outcome.revived) for outcome in outcomes] == [1]
    assert (system.row(job).status, system.row(job).redrives) == (Status.PENDING, 1)
    system.drain()
    assert system.row(job).status is Status.DONE
    assert system.accepted() == 2


def test_a_second_redrive_of_one_death_changes_nothing(system: System) -> None:
    job = dead(system)
    letter = system.dead_letters[0].body
    system.move_letters_back()
    revived = system.row(job)
    for queue in (system.redrive.bury, lambda records: system.deliver(*records)):
        assert queue([a_record(letter, sent_at_ms=NOW_MS + DAY_MS)]).revived == []
    assert system.row(job) == revived


@pytest.mark.parametrize("queue", ["work", "bulk"])
def test_a_letter_moved_to_work_or_bulk_by_a_person_revives_likewise(system: System, queue: str) -> None:
    job = dead(system)
    outcome = system.deliver(a_record(system.dead_letters[0].body, queue=queue))
    assert [letter.job_id for letter in outcome.revived] == [job.job_id]
    assert outcome.kept == []
    system.drain()
    assert system.row(job).status is Status.DONE


def test_a_letter_on_work_whose_row_cannot_be_read_is_not_thrown_away(system: System) -> None:
    job = dead(system)
    system.jobs.broken[job.job_id] = "user_id: missing"
    letter = a_record(system.dead_letters[0].body)
    assert [record for record, _ in system.deliver(letter).unreadable] == [letter]


def test_a_letter_whose_row_cannot_be_sighted_keeps_its_neighbours_out_of_it(system: System) -> None:
    system.send("u1", max_attempts=1)
    system.answer(Refused(code=Code.REJECTED, reason="BadTopic"))
    system.deliver()
    (letter,) = system.letters.sent
    real = system.jobs.remains

    def remains(job_id: JobId) -> Job | None:
        if job_id == "throttled":
            raise StoreUnavailable("throttled")
        return real(job_id)

    system.jobs.remains = remains  # type: ignore[method-assign]
    records = [a_record(letter_body(replace(letter, job_id=JobId("throttled")))), a_record(letter_body(letter))]
    outcome = system.redrive.bury(records)
    assert (outcome.kept, outcome.refused) == ([records[0]], [records[1]])
    assert system.faults == ["StoreUnavailable"]


def test_a_hint_met_on_burial_is_deleted(system: System) -> None:
    outcome = system.redrive.bury([a_record(hint_body(a_hint()))])
    assert (outcome.refused, outcome.unreadable, outcome.revived) == ([], [], [])


def test_an_unreadable_message_on_burial_goes_to_the_dead_letter_queue(system: System) -> None:
    record = a_record("{}")
    assert [refused for refused, _ in system.redrive.bury([record]).unreadable] == [record]


def test_a_person_redrives_by_filter_after_a_preview(system: System) -> None:
    mine = [a_dead_job(due_at_ms=NOW_MS + at) for at in range(3)]
    other = a_dead_job(app_id="bank")
    lost = a_dead_job(
        last_error="lost: claimed 5 times",
        notification_id="n2",
        deliveries=deliveries(PHONE, status=DeliveryStatus.FAILED, code="lost"),
    )
    system.jobs.rows = {job.job_id: job for job in [*mine, other, lost, a_job()]}

    def redriven(**said: Any) -> tuple[set[JobId], set[JobId]]:
        values: dict[str, Any] = {"limit": 1000}
        answer = system.redrive.redrive(Filter(**values | said))
        return {job.job_id for job in answer.matched}, set(answer.revived)

    ids = {job.job_id for job in mine}
    assert redriven(code="rejected", app_id="shop", dry_run=True) == (ids, set())
    assert redriven(code="lost", dry_run=True) == ({lost.job_id}, set())
    assert redriven(notification_id="n2", dry_run=True) == ({lost.job_id}, set())
    assert len(redriven(limit=2, dry_run=True)[0]) == 2
    assert redriven(job_ids=[other.job_id, JobId("0" * 40)]) == ({other.job_id}, {other.job_id})
    assert redriven(code="rejected") == (ids, ids)
    assert redriven() == ({lost.job_id}, {lost.job_id})
    assert redriven() == (set(), set())


def test_a_letter_lost_in_a_crash_is_sent_again(system: System) -> None:
    system.letters.failing = True
    outcome_of(system, refused(Code.REJECTED))
    assert system.letters.sent == []
    system.letters.failing = False
    assert system.drain().reburied == 0
    system.clock.forward(minutes=5)
    assert system.drain().reburied == 1
    assert [letter.job_id for letter in system.letters.sent] == [system.only().job_id]


def test_a_letter_that_the_dead_letter_queue_drops_after_14_days_comes_back_before(system: System) -> None:
    job = dead(system)
    system.clock.forward(days=12)
    assert system.drain().reburied == 0
    system.clock.forward(days=1)
    assert system.drain().reburied == 1
    system.bury()
    assert len(system.dead_letters) == 2
    system.move_letters_back()
    assert (system.row(job).status, system.row(job).redrives) == (Status.PENDING, 1)


def test_a_redrive_sends_only_what_was_not_sent(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId(TABLET)))
    job = dead(system)
    assert len(system.pusher.pushed) == 2
    system.move_letters_back()
    system.drain()
    assert system.row(job).status is Status.DONE
    assert system.pushed_to()[2:] == [PHONE]


# ---- What broke others: the numbers are those of the list of situations


def test_01_a_request_without_an_answer_is_retried_and_a_job_without_time_is_given_back(system: System) -> None:
    system.answer(refused(Code.NETWORK_ERROR, reason="no answer by the deadline"), Accepted())
    system.send()
    assert len(system.deliver(seconds=9).kept) == 1
    system.drain(seconds=9)
    assert system.only().attempts == 0
    job = system.until_over(system.only())
    assert (job.status, job.deliveries[PHONE].attempts) == (Status.DONE, 2)


def test_02_one_dead_push_token_takes_no_ones_results(system: System) -> None:
    users = [f"u{at}" for at in range(40)]
    for user in users:
        system.devices.register(a_device(recipient=a_recipient(user)))
    system.answer(refused(Code.INVALID_TOKEN, disable_before_ms=NOW_MS), user="u7")
    system.send(*users)
    system.deliver()
    failed = [job.user_id for job in system.jobs.rows.values() if job.deliveries[PHONE].code]
    assert failed == ["u7"]
    assert {job.status for job in system.jobs.rows.values()} == {Status.DONE}


def test_03_a_wrong_topic_or_environment_disables_nobody(system: System) -> None:
    system.answer(
        refused(Code.REJECTED, reason="BadTopic", scope=Scope.CREDENTIALS, alarm=True),
        refused(Code.PROVIDER_ERROR, reason="BadDeviceToken", alarm=True),
        Accepted(),
    )
    system.send()
    job = system.until_over(system.only())
    assert [device.disabled_code for device in system.devices.rows.values()] == [None]
    assert (job.status, job.deliveries[PHONE].attempts) == (Status.DONE, 3)


def test_04_a_device_that_registers_while_its_410_is_in_flight_is_kept(system: System) -> None:
    (phone,) = system.devices.rows.values()
    system.send()
    system.pusher.script[phone.push_token] = refused(Code.EXPIRED_TOKEN, disable_before_ms=NOW_MS - 1)
    system.pusher.during = lambda _: _void(system.registry.register(_registration(push_token=phone.push_token)))
    system.deliver()
    assert [device.disabled_code for device in system.devices.rows.values()] == [None]


def test_07_a_repeat_after_a_503_that_delivered_replaces_the_first(system: System) -> None:
    system.answer(refused(Code.PROVIDER_ERROR, reason="503"), Accepted())
    system.send()
    system.until_over(system.only())
    first, second = system.pusher.pushed
    assert (first.push_id, first.collapse_id) == (second.push_id, second.collapse_id)
    assert first.collapse_id == system.only().notification_id


def test_08_one_providers_outage_takes_nothing_from_the_other(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId("pixel"), platform=Platform.FCM))
    system.answer(refused(Code.PROVIDER_ERROR), device="pixel")
    system.send()
    system.deliver()
    job = system.only()
    assert (job.deliveries[PHONE].status, job.deliveries[DeliveryId("pixel")].attempts) == (DeliveryStatus.SENT, 1)
    system.until_over(job)
    assert sum(push.device.platform is Platform.APNS for push in system.pusher.pushed) == 1


def test_09_a_delay_that_sqs_refuses_is_left_to_the_row(system: System) -> None:
    system.answer(refused(Code.RATE_LIMITED, retry_after=timedelta(seconds=901)), Accepted())
    system.send()
    system.deliver()
    assert system.hints.published == []
    assert system.until_over(system.only()).status is Status.DONE


def test_10_no_chain_of_hints_is_long_enough_to_be_stopped() -> None:
    # Every span is one that SQS can wait: nothing but the count of hops ends the chain.
    system = System(replace(POLICY, retry=RetryPolicy(schedule=listed([timedelta(seconds=s) for s in (30, 600)]))))
    system.answer(refused(Code.PROVIDER_ERROR))
    system.send(max_attempts=100, ttl_s=28 * 86_400)
    chain: list[int] = []
    while system.hints.published and len(chain) < 50:
        (hint,) = system.hints.published
        chain.append(hint.hops)
        system.clock.now_ms += int(hint.delay.total_seconds() * 1000)
        system.deliver()
    assert chain == list(range(MAX_HOPS + 1))
    assert len(chain) < 16  # where the platform stops a chain of invocations
    assert (system.only().status, system.only().attempts) == (Status.PENDING, len(chain))
    system.clock.now_ms = system.only().due_at_ms
    system.drain()
    assert system.only().attempts == len(chain) + 1  # by its row alone


def test_11_a_receive_count_is_never_an_attempt(system: System) -> None:
    system.send()
    system.deliver(a_record(hint_body(system.hints.published[0]), receive_count=99))
    assert system.only().deliveries[PHONE].attempts == 1


def test_12_a_redriven_job_that_dies_again_is_buried_again(system: System) -> None:
    job = dead(system)
    system.answer(refused(Code.REJECTED))
    system.move_letters_back()
    system.drain()
    system.bury()
    assert (system.row(job).status, system.row(job).redrives) == (Status.DEAD, 1)
    assert [letter.redrives for letter in system.letters.sent] == [0, 1]
    assert len(system.dead_letters) == 1
    system.pusher.script.clear()
    system.pusher.during = lambda _: None
    system.move_letters_back()
    system.drain()
    assert system.row(job).status is Status.DONE


def test_13_a_redrive_gives_a_fresh_budget(system: System) -> None:
    status, _ = outcome_of(system, refused(Code.PROVIDER_ERROR), max_attempts=2)
    assert status is Status.DEAD
    system.bury()
    system.move_letters_back()
    assert (system.only().attempts, system.only().deliveries[PHONE]) == (0, Delivery())
    system.until_over(system.only())
    assert len(system.pusher.pushed) == 4


def test_14_a_zombie_from_before_a_redrive_settles_nothing(system: System) -> None:
    """Its worker froze, the job died and was redriven and claimed anew: the old claim must not match the new."""
    system.send(max_attempts=1)
    job = system.only()
    seqs: list[int] = []

    def freeze(_: object) -> None:
        """While the first attempt hangs, everything else goes on without it."""
        system.pusher.during = lambda _: seqs.append(system.row(job).claim_seq)
        system.clock.forward(hours=1)
        system.drain()
        system.bury()
        system.move_letters_back()
        system.drain()

    system.pusher.during = freeze
    report = system.deliver().report
    assert report.count("lease_lost") == 1
    assert seqs == [2]
    after = system.row(job)
    assert (after.status, after.claim_seq, after.settled_seq, after.redrives) == (Status.DONE, 2, 2, 1)
    assert after.sent_late == {PHONE}


def test_16_a_job_that_crashes_its_worker_is_counted_whoever_claims_it(system: System) -> None:
    system.send(max_attempts=1)
    system.pusher.during = _die
    with pytest.raises(WorkerDied):
        system.deliver()
    for _ in range(5):
        system.clock.forward(minutes=5)
        system.drain()
    assert len(system.pusher.pushed) == 1
    assert system.only().status is Status.DEAD


def test_19_the_same_hint_at_every_worker_sends_one_push(system: System) -> None:
    system.send()
    hint = a_record(hint_body(system.hints.published[0]))
    system.pusher.during = lambda _: _void(system.deliver(hint))
    system.deliver(hint, hint, hint)
    system.deliver(hint)
    assert system.accepted() == 1


def test_21_a_fan_out_that_is_repeated_sends_nobody_a_second(system: System) -> None:
    users = [f"u{at}" for at in range(60)]
    for user in users:
        system.devices.register(a_device(recipient=a_recipient(user)))
    system.send(*users[:40], notification_id="n7")
    system.deliver()
    answer = system.send(*users, notification_id="n7")
    system.deliver()
    assert [job["duplicate"] for job in answer["jobs"]] == [True] * 40 + [False] * 20
    assert [system.accepted(user) for user in users] == [1] * 60


def test_22_a_row_past_its_ttl_that_is_still_there_changes_nothing(system: System) -> None:
    system.send()
    lead = system.hints.published[0]
    system.deliver()
    system.clock.now_ms = system.jobs.ttl_s[system.only().job_id] * 1000 + DAY_MS
    before = system.only()
    system.deliver(a_record(hint_body(lead)))
    system.drain()
    assert system.send(notification_id=before.notification_id)["jobs"][0]["duplicate"]
    assert system.only() == before
    assert system.accepted() == 1


def test_23_an_unreadable_message_does_not_loop(system: System) -> None:
    record = a_record("not json")
    outcome = system.deliver(record)
    assert [(refused, bool(fault)) for refused, fault in outcome.unreadable] == [(record, True)]
    assert outcome.report.decisions == []


def test_24_when_every_record_fails_the_answer_is_still_partial(system: System) -> None:
    records = [a_record("not json") for _ in range(3)]
    outcome = system.deliver(*records)
    answer = partial([*outcome.kept, *(record for record, _ in outcome.unreadable)])
    assert answer == {"batchItemFailures": [{"itemIdentifier": record.receipt.message_id} for record in records]}


def test_25_two_drains_at_once_and_one_late_on_a_backlog(system: System) -> None:
    backlog = [a_job(user_id="u1", due_at_ms=NOW_MS - 5000 + at) for at in range(400)]
    system.jobs.insert(backlog)
    nested = iter(range(3))

    def overlap(_: object) -> None:
        if next(nested, None) is not None:
            system.drain()

    system.pusher.during = overlap
    system.drain()
    system.drain()
    assert len(system.pusher.pushed) == 400
    assert {job.status for job in system.jobs.rows.values()} == {Status.DONE}
    assert {job.deliveries[PHONE].attempts for job in system.jobs.rows.values()} == {1}


def test_a_lane_with_more_than_one_read_is_drained_to_its_end_oldest_read_first(system: System) -> None:
    lane = [a_job(job_id=JobId(f"{3:08x}{at:032x}"), due_at_ms=NOW_MS - 1000 + at) for at in range(120)]
    system.jobs.insert(lane)
    drained = system.drain()
    order = [decision.job_id for decision in drained.report.decisions]
    assert len(order) == 120
    assert set(order[:100]) == {job.job_id for job in lane[:100]}
    assert order[:100] != [job.job_id for job in lane[:100]]
    assert drained.unfinished == ["due#03"]  # by the drain itself, which left it to another worker


def test_only_the_schedules_tick_hands_a_lane_over(system: System) -> None:
    lane = [a_job(job_id=JobId(f"{3:08x}{at:032x}"), due_at_ms=NOW_MS - 1000 + at) for at in range(120)]
    system.jobs.insert(lane)
    assert len(system.drain(hand_over=False).report.decisions) == 100
    assert len(system.drain(hand_over=True).report.decisions) == 20


def test_a_lane_that_was_handed_over_a_minute_ago_is_dropped(system: System) -> None:
    system.jobs.insert([a_job(job_id=JobId(f"{3:040x}"), due_at_ms=NOW_MS - 1)])
    (shard,) = {shard_of(job_id, 16) for job_id in system.jobs.rows}
    late = a_record(lane_body(LaneHandOver(lane=due_lane(shard), at_ms=system.clock() - 60_001)), queue="bulk")
    assert system.deliver(late).report.decisions == []
    soon = a_record(lane_body(LaneHandOver(lane=due_lane(shard), at_ms=system.clock() - 60_000)), queue="bulk")
    assert [decision.event for decision in system.deliver(soon).report.decisions] == ["settled"]


def test_25_a_full_read_that_nobody_can_claim_starves_nobody_behind_it(system: System) -> None:
    lane = [a_job(job_id=JobId(f"{3:08x}{at:032x}"), due_at_ms=NOW_MS - 1000 + at) for at in range(110)]
    system.jobs.insert(lane)
    system.jobs.unavailable = {job.job_id for job in lane[:100]}
    system.drain()
    assert [system.row(job).status for job in lane] == [Status.PENDING] * 100 + [Status.DONE] * 10


def test_a_drain_that_runs_out_of_time_says_so_and_leaves_the_rest_due(system: System) -> None:
    system.jobs.insert([a_job(job_id=JobId(f"{at % 16:08x}{at:032x}")) for at in range(1000)])  # 62 a lane, or 63
    system.pusher.during = lambda _: _void(system.clock.forward(seconds=3))
    drained = system.drain(seconds=45)
    assert len(drained.unfinished) == 16
    left = [job for job in system.jobs.rows.values() if job.status is Status.PENDING]
    assert 0 < len(left) < 1000
    assert {job.attempts for job in left} == {0}


def test_a_claim_that_the_store_does_not_answer_keeps_its_hint(system: System) -> None:
    system.send()
    system.jobs.unavailable = {system.only().job_id}
    hint = a_record(hint_body(system.hints.published[0]))
    assert system.deliver(hint).kept == [hint]


def test_a_worker_killed_after_the_provider_accepted_repeats_at_most_its_batch(system: System) -> None:
    """At least once: the repeat bears the same id, and is recorded once."""
    system.send()
    system.jobs.before_write = lambda event, _: _die(event) if event == "settle" else None
    with pytest.raises(WorkerDied):
        system.deliver()
    system.jobs.before_write = lambda _event, _job_id: None
    system.clock.forward(seconds=181)
    system.drain()
    assert len({push.push_id for push in system.pusher.pushed}) == 1
    assert (system.accepted(), system.only().status) == (2, Status.DONE)


def test_a_crash_costs_at_most_the_grace_and_one_tick(system: System) -> None:
    system.send()
    system.pusher.during = _die
    with pytest.raises(WorkerDied):
        system.deliver()
    system.pusher.during = lambda _: None
    job = system.until_over(system.only())
    assert (job.deliveries[PHONE].sent_at_ms or 0) - NOW_MS <= 180_000 + 30_000


def test_every_decision_names_its_job_and_no_personal_data(system: System) -> None:
    system.answer(refused(Code.REJECTED))
    system.send()
    said = repr(system.deliver().report)
    (phone,) = system.devices.rows.values()
    assert system.only().job_id in said
    assert not re.search(f"{phone.push_token}|parcel|door", said)


def _void(_: object) -> None:
    """For lambdas whose value nobody wants."""


def test_a_send_repeated_before_its_hint_went_out_sends_the_hint(system: System) -> None:
    """A crash, or an answer that the SDK lost, between the row and its hint."""
    system.send(notification_id="n1")
    system.hints.published.clear()
    system.send(notification_id="n1")
    assert len(system.hints.published) == 1
    assert system.deliver().report.count("settled") == 1
    system.hints.published.clear()
    system.send(notification_id="n1")
    assert system.hints.published == []  # it was claimed: somebody has had the hint


def test_of_two_hints_for_one_job_the_later_one_is_worked(system: System) -> None:
    system.answer(refused(Code.NETWORK_ERROR))
    system.send()
    (first,) = system.hints.published
    system.deliver()
    second = system.hints.published[-1]
    system.answer(Accepted())
    system.clock.forward(seconds=60)
    system.deliver(a_record(hint_body(second)), a_record(hint_body(first)))
    assert system.only().status is Status.DONE


def test_letters_of_the_dead_go_first_however_long_the_backlog(system: System) -> None:
    dead = a_dead_job(due_at_ms=NOW_MS - 1, died_at_ms=NOW_MS - 300_000)
    system.jobs.insert([a_job(due_at_ms=NOW_MS - 1) for _ in range(500)])
    system.jobs.rows[dead.job_id] = dead
    system.pusher.during = lambda _: _void(system.clock.forward(seconds=3))
    drained = system.drain(seconds=45)
    assert drained.unfinished
    assert drained.reburied == 1
