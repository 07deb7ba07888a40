"""What became of a notification, told by its name, by recipient and by delivery."""

import pytest

from builders import HOUR_MS, MINUTE_MS, NOW_MS, PHONE, SECOND_MS, a_device, a_recipient
from pushlease.codes import Code
from pushlease.errors import BadRequest
from pushlease.push.device import DeviceId
from pushlease.push.outcome import Refused
from pushlease.push.plan import Target
from pushlease.push.preference import Preferences
from pushlease.push.quiet import Window
from send.status import Question, Statuses
from system import System


@pytest.fixture
def system() -> System:
    return System()


def asked(system: System, **said: object) -> list[dict[str, object]]:
    return list(system.statuses.tell(Question(app_id="shop", **said))["jobs"])  # type: ignore[arg-type]


def test_a_delivery_that_was_retried_tells_its_whole_story(system: System) -> None:
    system.answer(Refused(code=Code.PROVIDER_ERROR, reason="503"))
    answer = system.send(notification_id="n1")
    system.deliver()
    (job,) = asked(system, notification_id="n1", user_id="u1")
    assert job["job_id"] == answer["jobs"][0]["job_id"]
    assert (job["status"], job["last_error"]) == ("pending", "provider_error: apns: 503")
    waits = job["deliveries"][PHONE]  # type: ignore[index]
    assert (waits["status"], waits["code"], waits["attempts"]) == ("queued", "provider_error", 1)
    assert waits["not_before_ms"] > NOW_MS
    system.pusher.during = lambda _: None
    system.pusher.script.clear()
    system.clock.forward(minutes=10)
    system.drain()
    (job,) = asked(system, notification_id="n1", user_id="u1", device_id=PHONE)
    assert job["deliveries"][PHONE] == {  # type: ignore[index]
        "status": "sent",
        "attempts": 2,
        "sent_at_ms": NOW_MS + 10 * MINUTE_MS,
    }
    assert [entry["what"] for entry in job["timeline"]] == ["accepted", "#1 1 provider_error", "#2 1 sent"]  # type: ignore[attr-defined,index]


def test_why_it_waits_for_the_morning_is_in_the_timeline(system: System) -> None:
    system.send(notification_id="n1")
    always = Window(days=frozenset(range(7)), start=0, end=23 * 60)
    system.recipients.put(a_recipient(), Preferences(quiet=(always,)))
    system.deliver()
    (job,) = asked(system, notification_id="n1", user_id="u1")
    assert [entry["what"] for entry in job["timeline"]] == ["accepted", "#1 1 quiet_hours"]  # type: ignore[attr-defined,index]


def test_a_notification_of_many_is_told_of_by_its_name(system: System) -> None:
    system.devices.register(a_device(recipient=a_recipient("u2")))
    system.send("u1", "u2", notification_id="n1")
    assert {job["user_id"] for job in asked(system, notification_id="n1")} == {"u1", "u2"}
    assert len(asked(system, notification_id="n1", limit=1)) == 1


def test_a_recipients_notifications_come_newest_first_page_by_page(system: System) -> None:
    for number in range(5):
        system.send(notification_id=f"n{number}")
        system.clock.forward(seconds=1)
    first = system.statuses.tell(Question(app_id="shop", user_id="u1", limit=3))
    assert [job["notification_id"] for job in first["jobs"]] == ["n4", "n3", "n2"]
    assert first["next_before_ms"] == NOW_MS + 2 * SECOND_MS
    rest = system.statuses.tell(Question(app_id="shop", user_id="u1", limit=3, before_ms=first["next_before_ms"]))
    assert [job["notification_id"] for job in rest["jobs"]] == ["n1", "n0"]
    assert "next_before_ms" not in rest


def test_what_was_sent_to_a_device_by_its_name_is_found(system: System) -> None:
    system.devices.register(a_device(device_id=DeviceId("tablet")))
    system.send(targets=(Target(user_id="u1", device_id="tablet"),), notification_id="n1")
    (job,) = asked(system, notification_id="n1", user_id="u1", device_id="tablet")
    assert list(job["deliveries"]) == ["tablet"]  # type: ignore[call-overload]


def test_of_whom_nothing_is_known_nothing_is_told(system: System) -> None:
    assert asked(system, user_id="nobody") == []
    assert asked(system, notification_id="never", user_id="u1") == []


@pytest.mark.parametrize(
    ("said", "field"),
    [({}, "user_id"), ({"notification_id": "single"}, "user_id"), ({"device_id": "phone"}, "user_id")],
)
def test_a_question_that_names_nobody_is_refused(system: System, said: dict[str, str], field: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        asked(system, **said)
    assert refusal.value.field == field


def test_an_audience_as_a_whole_is_told_of_elsewhere(system: System) -> None:
    system.send_audience("u1", notification_id="sale")
    with pytest.raises(BadRequest, match="audience_status"):
        asked(system, notification_id="sale")
    system.drain()
    system.work_pages()
    assert len(asked(system, notification_id="sale", user_id="u1")) == 1


def test_without_the_index_a_recipient_is_not_looked_up(system: System) -> None:
    statuses = Statuses(jobs=system.jobs, notifications=system.notifications, by_recipient=False)
    with pytest.raises(BadRequest, match="RecipientIndex") as refusal:
        statuses.tell(Question(app_id="shop", user_id="u1"))
    assert refusal.value.field == "notification_id"
    assert HOUR_MS
