"""One attempt: from claimed jobs to pushes, and from verdicts back to results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from builders import (
    HOUR_MS,
    MINUTE_MS,
    NOW_MS,
    PHONE,
    TABLET,
    a_claimed_job,
    a_device,
    a_recipient,
    an_app,
    deliveries,
    some_content,
)
from fakes import (
    FakeAppStore,
    FakeDeviceStore,
    FakeInbox,
    FakeNotificationStore,
    FakePusher,
    FakeRecipientStore,
    fixed_dice,
)
from pushlease.codes import Code
from pushlease.errors import StoreUnavailable
from pushlease.jobs.job import Delivery, Job, JobId, push_id_of
from pushlease.jobs.settle import Attempted, Delivered, Failed, Held, Sent, Suppressed, Withdrawn
from pushlease.push.attempt import IN_APP, PushAttempter
from pushlease.push.device import ApnsCredentials, ApnsTopicKey, App, DeviceId, Environment, Platform
from pushlease.push.notification import Content
from pushlease.push.outcome import Accepted, NotTried, Refused, Scope, Verdict
from pushlease.push.ports import Push, Shared
from pushlease.push.preference import Preferences, Transport


@dataclass(kw_only=True)
class World:
    """The attempter and all that it touches: one app, one recipient with a phone."""

    apps: FakeAppStore = field(default_factory=lambda: FakeAppStore(an_app()))
    devices: FakeDeviceStore = field(default_factory=lambda: FakeDeviceStore(a_device()))
    recipients: FakeRecipientStore = field(default_factory=FakeRecipientStore)
    inbox: FakeInbox = field(default_factory=FakeInbox)
    notifications: FakeNotificationStore = field(default_factory=FakeNotificationStore)
    pusher: FakePusher = field(default_factory=FakePusher)
    faults: list[tuple[JobId, str]] = field(default_factory=list)
    alarms: list[tuple[str, ...]] = field(default_factory=list)

    def attempt(self, *jobs: Job) -> dict[JobId, Attempted]:
        attempter = PushAttempter(
            apps=self.apps,
            devices=self.devices,
            recipients=self.recipients,
            inbox=self.inbox,
            notifications=self.notifications,
            pusher=self.pusher,
            dice=fixed_dice(),
            spread=timedelta(minutes=10),
            on_fault=lambda job_id, error: self.faults.append((job_id, type(error).__name__)),
            on_alarm=lambda *alarm: self.alarms.append(alarm),
        )
        return dict(attempter.attempt(jobs, now_ms=NOW_MS, deadline_ms=NOW_MS + MINUTE_MS))

    def one(self, **said: object) -> Attempted:
        """The results of one job."""
        job = a_claimed_job(**said)
        return self.attempt(job)[job.job_id]

    def answer(self, verdict: Verdict) -> None:
        """What the provider says of the phone."""
        (device,) = self.devices.rows.values()
        self.pusher.script[device.push_token] = verdict


@pytest.fixture
def world() -> World:
    return World()


def test_a_push_carries_what_its_device_needs(world: World) -> None:
    job = a_claimed_job()
    assert world.attempt(job) == {job.job_id: {PHONE: Sent()}}
    (push,) = world.pusher.pushed
    (device,) = world.devices.rows.values()
    assert push == Push(
        push_id=push_id_of(job.job_id, PHONE),
        app=an_app(),
        device=device,
        content=some_content(),
        collapse_id=job.notification_id,
        expires_at_ms=job.expires_at_ms,
    )


def test_a_collapse_key_replaces_the_notifications_id(world: World) -> None:
    world.one(content=some_content(collapse_key="score").to_json())
    assert world.pusher.pushed[0].collapse_id == "score"


def test_the_push_token_is_the_one_of_this_moment(world: World) -> None:
    world.devices.register(a_device(push_token="f" * 64))
    world.one()
    assert world.pusher.pushed[0].device.push_token == "f" * 64


def test_all_jobs_are_read_together_and_pushed_together(world: World) -> None:
    world.devices.register(a_device(device_id=DeviceId(TABLET)))
    jobs = [a_claimed_job(deliveries=deliveries("phone", "tablet")) for _ in range(5)]
    world.attempt(*jobs)
    assert world.devices.reads == [10]
    assert len(world.pusher.pushed) == 10


def test_shared_content_is_read_where_it_is(world: World) -> None:
    world.notifications.rows["shop#n1"] = Shared(
        fingerprint="f", content=some_content(title="shared").to_json(), job_ids=[]
    )
    world.one(content_ref="shop#n1")
    assert world.pusher.pushed[0].content.title == "shared"


# ---- What changed since it was accepted


def test_a_deleted_device_is_noticed(world: World) -> None:
    world.devices.remove(a_recipient(), DeviceId(PHONE))
    assert world.one() == {PHONE: Failed(code=Code.DEVICE_DELETED)}
    assert world.pusher.pushed == []


def test_a_device_that_belongs_to_another_recipient_by_now_is_not_sent_to(world: World) -> None:
    (phone,) = world.devices.rows.values()
    world.devices.register(a_device(recipient=a_recipient("u2"), push_token=phone.push_token))
    assert world.one() == {PHONE: Failed(code=Code.DEVICE_DELETED)}
    assert world.pusher.pushed == []


@pytest.mark.parametrize("code", [Code.INVALID_TOKEN, Code.EXPIRED_TOKEN])
def test_a_device_disabled_meanwhile_is_not_sent_to(world: World, code: Code) -> None:
    (phone,) = world.devices.rows.values()
    world.devices.disable(phone, code=code, before_ms=NOW_MS)
    assert world.one() == {PHONE: Failed(code=code, reason="disabled meanwhile")}
    assert world.pusher.pushed == []


@pytest.mark.parametrize(("age", "sent"), [(timedelta(days=270), False), (timedelta(days=269), True)])
def test_a_device_that_became_stale_meanwhile_is_not_sent_to(world: World, age: timedelta, sent: bool) -> None:
    registered_at_ms = NOW_MS - age // timedelta(milliseconds=1)
    world.devices = FakeDeviceStore(a_device(platform=Platform.FCM, registered_at_ms=registered_at_ms))
    stale = Failed(code=Code.EXPIRED_TOKEN, reason="not registered again for 270 days")
    assert world.one() == {PHONE: Sent() if sent else stale}
    assert len(world.pusher.pushed) == sent


def test_a_channel_switched_off_meanwhile_is_respected(world: World) -> None:
    off = Preferences(channels={"news": {Transport.PUSH: False}})
    world.recipients.put(a_recipient(), off)
    assert world.one(channel="news") == {PHONE: Suppressed(why="channel_off")}
    assert world.one(channel="orders") == {PHONE: Sent()}
    assert world.one(channel=None) == {PHONE: Sent()}


def test_a_withdrawn_notification_is_not_sent(world: World) -> None:
    world.notifications.rows["shop#gone"] = Shared(fingerprint="f", content=None, job_ids=[])
    assert world.one(content_ref="shop#gone") == Withdrawn()
    assert world.pusher.pushed == []


def test_content_that_is_not_to_be_had_is_no_withdrawal(world: World) -> None:
    (failed,) = world.one(content_ref="shop#pruned").values()
    assert failed == Failed(code=Code.UNREADABLE, reason="content: the notification's row is gone")


def test_an_app_that_is_gone_can_be_configured_again(world: World) -> None:
    world.apps.rows.clear()
    result = world.one()
    assert isinstance(result, dict)
    assert isinstance(result[PHONE], Failed)
    assert result[PHONE].code is Code.PROVIDER_ERROR


def test_a_delivery_whose_time_has_not_come_is_left_alone(world: World) -> None:
    world.devices.register(a_device(device_id=DeviceId(TABLET)))
    parts = {PHONE: Delivery(due_at_ms=NOW_MS + 1), TABLET: Delivery(due_at_ms=NOW_MS)}
    assert world.one(deliveries=parts) == {TABLET: Sent()}


# ---- The inbox


def test_in_app_the_row_is_the_delivery_and_a_repeat_adds_none(world: World) -> None:
    job = a_claimed_job(deliveries=deliveries("in_app", "phone"))
    for _ in range(2):
        assert world.attempt(job)[job.job_id] == {IN_APP: Delivered(), PHONE: Sent()}
    assert world.inbox.entries(a_recipient()) == [("n1", some_content().to_json())]


def test_push_switched_off_leaves_the_inbox_on_and_the_other_way_round(world: World) -> None:
    switches = {"news": {Transport.PUSH: False}, "orders": {Transport.IN_APP: False}}
    world.recipients.put(a_recipient(), Preferences(channels=switches))
    both = deliveries("in_app", "phone")
    off = Suppressed(why="channel_off")
    assert world.one(channel="news", deliveries=both) == {IN_APP: Delivered(), PHONE: off}
    assert world.one(channel="orders", deliveries=both) == {IN_APP: off, PHONE: Sent()}


# ---- One job's fault stays its own


def test_a_job_whose_content_cannot_be_read_harms_no_neighbour(world: World) -> None:
    poisoned, *sound = jobs = [a_claimed_job(content="{not json"), *(a_claimed_job() for _ in range(3))]
    attempted = world.attempt(*jobs)
    assert attempted[poisoned.job_id] == {
        PHONE: Failed(code=Code.UNREADABLE, reason="content: not a stored notification (JSONDecodeError)")
    }
    assert all(attempted[job.job_id] == {PHONE: Sent()} for job in sound)
    assert world.faults == [(poisoned.job_id, "Unreadable")]


def test_a_batch_read_that_fails_for_one_job_fails_only_for_it(world: World) -> None:
    world.devices.poisoned = {a_recipient("u2")}
    poisoned = a_claimed_job(user_id="u2")
    sound = [a_claimed_job() for _ in range(3)]
    attempted = world.attempt(sound[0], poisoned, *sound[1:])
    assert attempted[poisoned.job_id] == {PHONE: Failed(code=Code.INTERNAL_ERROR, reason="RuntimeError")}
    assert all(attempted[job.job_id] == {PHONE: Sent()} for job in sound)
    assert len(world.pusher.pushed) == 3


def test_a_fault_spends_nothing_of_a_delivery_that_still_waits(world: World) -> None:
    world.devices.poisoned = {a_recipient()}
    parts = {PHONE: Delivery(due_at_ms=NOW_MS + 1), TABLET: Delivery()}
    assert world.one(deliveries=parts) == {TABLET: Failed(code=Code.INTERNAL_ERROR, reason="RuntimeError")}


def test_an_unknown_word_on_a_device_is_its_jobs_own_fault(world: World) -> None:
    world.devices.rows = {key: device.disabled("?!") for key, device in world.devices.rows.items()}
    world.devices.register(a_device(recipient=a_recipient("u2")))
    odd, sound = a_claimed_job(), a_claimed_job(user_id="u2")
    attempted = world.attempt(odd, sound)
    assert attempted[odd.job_id] == {PHONE: Failed(code=Code.INTERNAL_ERROR, reason="ValueError")}
    assert attempted[sound.job_id] == {PHONE: Sent()}


def test_a_disable_that_fails_is_told_and_loses_no_result(world: World) -> None:
    class Failing(FakeDeviceStore):
        def disable(self, device: object, *, code: str, before_ms: int) -> bool:
            raise RuntimeError("throttled")

    (phone,) = world.devices.rows.values()
    world.devices = Failing(phone)
    world.answer(Refused(code=Code.EXPIRED_TOKEN, reason="Unregistered", disable_before_ms=NOW_MS))
    job = a_claimed_job()
    assert world.attempt(job)[job.job_id] == {PHONE: Failed(code=Code.EXPIRED_TOKEN, reason="apns: Unregistered")}
    assert world.faults == [(job.job_id, "RuntimeError")]


def test_where_a_push_token_was_taken_is_remembered(world: World) -> None:
    (phone,) = world.devices.rows.values()
    world.answer(Accepted(environment=Environment.SANDBOX))
    assert world.one() == {PHONE: Sent()}
    assert list(world.devices.rows.values()) == [phone.moved(Environment.SANDBOX)]


# ---- Verdicts


def test_the_providers_own_name_is_kept_only_if_it_differs(world: World) -> None:
    world.answer(Accepted(provider_id="projects/shop/messages/1"))
    assert world.one() == {PHONE: Sent(provider_id="projects/shop/messages/1")}


@pytest.mark.parametrize("code", sorted(set(Code) - {Code.REJECTED}))
def test_a_refusal_becomes_a_failure_with_its_code_floor_and_reason(world: World, code: Code) -> None:
    floor = timedelta(seconds=70)
    world.answer(Refused(code=code, reason="Why", retry_after=floor))
    assert world.one() == {PHONE: Failed(code=code, reason="apns: Why", retry_after=floor)}


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("alarm", [True, False])
def test_a_rejection_for_our_own_credentials_sake_can_be_fixed_so_it_is_retried(
    world: World, scope: Scope, alarm: bool
) -> None:
    world.answer(Refused(code=Code.REJECTED, reason="BadTopic", scope=scope, alarm=alarm))
    ours = alarm and scope is Scope.CREDENTIALS
    code = Code.PROVIDER_ERROR if ours else Code.REJECTED
    assert world.one() == {PHONE: Failed(code=code, reason="apns: BadTopic")}


# ---- Disabling devices


@pytest.mark.parametrize("code", Code)
def test_no_code_disables_a_device_unless_the_verdict_says_so(world: World, code: Code) -> None:
    world.answer(Refused(code=code, reason="x", alarm=True, scope=Scope.DEVICE))
    world.one()
    assert world.faults == []
    assert [device.disabled_code for device in world.devices.rows.values()] == [None]


@pytest.mark.parametrize(
    ("before_ms", "disabled"), [(NOW_MS, True), (NOW_MS - HOUR_MS, False), (NOW_MS - 2 * HOUR_MS, False)]
)
def test_only_a_registration_older_than_the_providers_word_is_disabled(
    world: World, before_ms: int, disabled: bool
) -> None:
    world.answer(Refused(code=Code.EXPIRED_TOKEN, reason="Unregistered", disable_before_ms=before_ms))
    world.one()
    (phone,) = world.devices.rows.values()
    assert phone.disabled_code == ("expired_token" if disabled else None)


def test_a_device_that_registers_anew_while_its_410_is_in_flight_lives(world: World) -> None:
    (old,) = world.devices.rows.values()
    world.answer(Refused(code=Code.EXPIRED_TOKEN, reason="Unregistered", disable_before_ms=NOW_MS))
    world.pusher.during = lambda _: world.devices.register(a_device(push_token="e" * 64, registered_at_ms=NOW_MS - 1))
    world.one()
    (new,) = world.devices.rows.values()
    assert (new.push_token, new.disabled_code) == ("e" * 64, None)
    assert new.push_token != old.push_token


def test_verdicts_reach_their_own_deliveries(world: World) -> None:
    """One dead push token among many takes no one else's result."""
    users = [f"u{at}" for at in range(20)]
    phones = [a_device(recipient=a_recipient(user)) for user in users]
    world.devices = FakeDeviceStore(*phones)
    world.pusher.script[phones[7].push_token] = Refused(
        code=Code.INVALID_TOKEN, reason="BadDeviceToken", disable_before_ms=NOW_MS
    )
    jobs = [a_claimed_job(user_id=user) for user in users]
    attempted = world.attempt(*jobs)
    dead = Failed(code=Code.INVALID_TOKEN, reason="apns: BadDeviceToken")
    assert attempted == {job.job_id: {PHONE: dead if at == 7 else Sent()} for at, job in enumerate(jobs)}
    assert [owner.user_id for (owner, _), device in world.devices.rows.items() if device.disabled_code] == ["u7"]


def test_no_pushes_mean_no_call_of_the_pusher(world: World) -> None:
    class Untouchable(FakePusher):
        def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
            raise AssertionError("nothing was to be pushed")

    world.pusher = Untouchable()
    assert world.one(deliveries=deliveries("in_app")) == {IN_APP: Delivered()}


# ---- Devices, content, preferences


def test_a_device_and_content_show_nothing_personal() -> None:
    device = a_device(push_token="a1b2" * 15 + "c3d4")
    assert "a1b2a1" not in repr(device)
    assert repr(device).endswith("…b2c3d4)")
    assert "s3cret" not in repr(some_content(title="s3cret"))


def test_content_comes_back_as_it_was_and_small() -> None:
    content = some_content(data={"k": "ß"}, badge=0, apns={"priority": 5}, sound="")
    assert Content.from_json(content.to_json()) == content
    assert "ß" in content.to_json()
    assert Content().to_json() == "{}"


@pytest.mark.parametrize(
    ("said", "silent"),
    [({"title": None, "body": None}, True), ({"title": None, "body": None, "badge": 0}, False), ({}, False)],
)
def test_content_with_nothing_to_show_is_silent(said: dict[str, None], silent: bool) -> None:
    assert some_content(**said).silent is silent


def test_credentials_are_those_of_the_devices_kind_and_environment() -> None:
    app: App = an_app(apns_sandbox=None)
    assert app.credentials(a_device(environment=Environment.PRODUCTION)) is app.apns_production
    assert app.credentials(a_device(environment=Environment.SANDBOX)) is None
    assert app.credentials(a_device(platform=Platform.FCM, environment=Environment.SANDBOX)) is app.fcm


def test_a_topics_own_key_comes_before_the_environments() -> None:
    credentials = ApnsCredentials(team_id="TEAM000001", key_id="KEY0000002", secret="pushlease/watch")
    key = ApnsTopicKey(environment=Environment.SANDBOX, topics=frozenset({"com.shop.watch"}), credentials=credentials)
    app: App = an_app(apns_sandbox=None, apns_topic_keys=(key,))
    watch = a_device(environment=Environment.SANDBOX, topic="com.shop.watch")
    assert app.credentials(watch) is credentials
    assert app.credentials(replace(watch, environment=Environment.PRODUCTION)) is app.apns_production
    assert app.credentials(replace(watch, topic="com.shop")) is None
    assert an_app(apns_production=None, apns_sandbox=None, apns_topic_keys=(key,)).has_apns


def test_a_fault_that_strikes_every_device_calls_a_person_once_a_batch(world: World) -> None:
    (device,) = world.devices.rows.values()
    world.pusher.script[device.push_token] = Refused(
        code=Code.PROVIDER_ERROR, reason="InvalidProviderToken", scope=Scope.CREDENTIALS, alarm=True
    )
    world.attempt(*(a_claimed_job() for _ in range(3)))
    assert world.alarms == [("shop", "apns", "InvalidProviderToken")]


def test_what_no_time_was_left_for_spends_no_attempt(world: World) -> None:
    (device,) = world.devices.rows.values()
    world.pusher.script[device.push_token] = NotTried()
    assert world.one() == {PHONE: Held(until_ms=NOW_MS)}


def test_a_push_token_that_the_provider_quotes_is_cut(world: World) -> None:
    (device,) = world.devices.rows.values()
    world.pusher.script[device.push_token] = Refused(code=Code.REJECTED, reason=f"no such {device.push_token}")
    (failed,) = world.one().values()
    assert isinstance(failed, Failed)
    assert device.push_token not in failed.reason
    assert failed.reason.endswith(device.push_token[-6:])


class Silent:
    """A store whose table does not answer."""

    def __getattr__(self, name: str) -> object:
        def unanswered(*_: object, **__: object) -> None:
            raise StoreUnavailable(f"{name}: no answer")

        return unanswered


@pytest.mark.parametrize("store", ["apps", "devices", "recipients", "notifications"])
def test_a_store_that_does_not_answer_holds_its_jobs_and_spends_no_attempt(world: World, store: str) -> None:
    setattr(world, store, Silent())
    jobs = [a_claimed_job(channel="news", content=None, content_ref="shop#n1") for _ in range(3)]
    attempted = world.attempt(*jobs)
    for job in jobs:
        results = attempted[job.job_id]
        assert isinstance(results, Mapping)
        assert results == {PHONE: Held(until_ms=NOW_MS + 30_000)}
    assert world.pusher.pushed == []
    assert [name for _, name in world.faults] == ["StoreUnavailable"] * 3


def test_an_inbox_that_does_not_answer_holds_its_own_delivery_alone(world: World) -> None:
    setattr(world, "inbox", Silent())  # noqa: B010  (of another type on purpose)
    results = world.one(deliveries={PHONE: Delivery(), IN_APP: Delivery()})
    assert isinstance(results, Mapping)
    assert isinstance(results[PHONE], Sent)
    assert results[IN_APP] == Held(until_ms=NOW_MS + 30_000)
