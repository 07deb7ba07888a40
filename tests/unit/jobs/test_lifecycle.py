"""The table of transitions, and the docs made from it."""

from pathlib import Path

from pushlease.jobs.job import Status
from pushlease.jobs.lifecycle import TRANSITIONS, Event, as_markdown

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"


def test_the_docs_hold_the_lifecycle_as_it_is() -> None:
    assert as_markdown() in ARCHITECTURE.read_text(encoding="utf-8")


def test_every_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Event)


def test_a_done_or_cancelled_job_is_over() -> None:
    """Only what was sent late may still be added to its row."""
    for over in (Status.DONE, Status.CANCELLED):
        assert [event for event, it in TRANSITIONS.items() if over in it.before] == [Event.RECORD_LATE]


def test_the_dead_come_back_only_by_a_redrive() -> None:
    assert [
        event
        for event, it in TRANSITIONS.items()
        if Status.DEAD in it.before and Status.PENDING in it.after and event is not Event.RECORD_LATE
    ] == [Event.REVIVE]


def test_every_status_can_be_reached_from_an_insert() -> None:
    reached = set(TRANSITIONS[Event.INSERT].after)
    for _ in Status:
        for event, it in TRANSITIONS.items():
            if reached & it.before and event is not Event.RECORD_LATE:
                reached |= it.after
    assert reached == set(Status)
