"""Erasing a recipient: nothing is left of a person, nothing more is sent, and the call can be made again."""

import pytest

from builders import NOW_MS, a_device, a_recipient, some_content
from pushlease.codes import Code
from pushlease.jobs.job import Status
from pushlease.push.outcome import Refused
from pushlease.push.preference import Preferences, Transport
from registry.erasure import PAGE
from system import System


@pytest.fixture
def system() -> System:
    system = System()
    system.devices.register(a_device(recipient=a_recipient("u2")))
    system.recipients.put(a_recipient(), Preferences(zone="Europe/Vienna"))
    return system


@pytest.mark.parametrize("by_recipient", [True, False])
def test_nothing_is_left_of_an_erased_recipient(system: System, by_recipient: bool) -> None:
    system.send(notification_id="read", transports=frozenset(Transport))
    system.deliver()
    system.send(notification_id="waiting", deliver_at_ms=NOW_MS + 1000)
    system.send("u1", "u2", notification_id="of-two")
    told = system.eraser(by_recipient=by_recipient).erase(a_recipient())
    assert told == {"complete": True, "devices": 1, "jobs": 3}
    assert system.devices.of(a_recipient()) == []
    assert system.inbox.entries(a_recipient()) == []
    assert system.recipients.get([a_recipient()]) == {}
    assert [job.user_id for job in system.jobs.rows.values()].count("u1") == 0
    scrubbed = [job for job in system.jobs.rows.values() if job.user_id == "erased"]
    assert {(job.content, job.content_ref, job.history, *job.deliveries) for job in scrubbed} == {("{}", None, ())}
    assert {job.status for job in scrubbed} == {Status.DONE, Status.CANCELLED}
    assert system.notifications.rows["shop#read"].content is None
    assert system.notifications.rows["shop#of-two"].content is not None
    pushed = len(system.pusher.pushed)
    system.deliver()
    system.clock.forward(hours=1)
    system.drain()
    assert [push.device.recipient.user_id for push in system.pusher.pushed[pushed:]] == ["u2"]


def test_erasing_again_changes_nothing(system: System) -> None:
    system.send()
    assert system.erasure.erase(a_recipient())["jobs"] == 1
    assert system.erasure.erase(a_recipient()) == {"complete": True, "devices": 0, "jobs": 0}


def test_a_dead_job_of_an_erased_recipient_is_not_redriven(system: System) -> None:
    system.answer(Refused(code=Code.REJECTED, reason="because"))
    system.send(content=some_content(title="secret"))
    system.deliver()
    system.bury()
    assert system.dead_letters
    system.erasure.erase(a_recipient())
    system.move_letters_back()
    system.clock.forward(hours=1)
    system.drain()
    assert len(system.pusher.pushed) == 1
    assert "secret" not in str([job.content for job in system.jobs.rows.values()])


def test_more_jobs_than_a_page_of_one_instant_are_all_found(system: System) -> None:
    for number in range(2 * PAGE + 5):
        system.send(notification_id=f"n{number}")
    assert system.erasure.erase(a_recipient())["jobs"] == 2 * PAGE + 5


def test_what_cannot_be_scrubbed_now_is_told(system: System) -> None:
    system.send()

    class Changing:
        """A store whose rows change whenever they are scrubbed."""

        def __getattr__(self, name: str) -> object:
            return (lambda *_, **__: False) if name == "scrub" else getattr(system.jobs, name)

    erasure = system.eraser(by_recipient=True)
    stubborn = type(erasure)(
        devices=system.devices,
        inbox=system.inbox,
        recipients=system.recipients,
        jobs=Changing(),  # type: ignore[arg-type]
        notifications=system.notifications,
        by_recipient=True,
        clock=system.clock,
    )
    assert stubborn.erase(a_recipient()) == {"complete": False, "devices": 1, "jobs": 0}
    assert erasure.erase(a_recipient())["complete"]
