"""The job's lifecycle as one table, from which come the store's conditions, the docs' picture and the tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pushlease.jobs.job import Status


class Event(StrEnum):
    """What can happen to a job row; each is one named conditional write of the store."""

    INSERT = "insert"
    CLAIM = "claim"
    SETTLE = "settle"
    RELEASE = "release"
    RECORD_LATE = "record late"
    EXHAUST = "exhaust"
    CONDEMN = "condemn"
    CANCEL = "cancel"
    SIGHT = "sight"
    REBURY = "rebury"
    REVIVE = "revive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """From which statuses an event applies, to which it may lead, and what it is."""

    before: frozenset[Status]
    after: frozenset[Status]
    meaning: str


_PENDING = frozenset({Status.PENDING})
_DEAD = frozenset({Status.DEAD})
_ANY = frozenset(Status)

TRANSITIONS: Mapping[Event, Transition] = {
    Event.INSERT: Transition(
        before=frozenset(),
        after=frozenset({Status.PENDING, Status.DONE}),
        meaning="accepted, forward-dated; done at once if nothing is to be sent",
    ),
    Event.CLAIM: Transition(before=_PENDING, after=_PENDING, meaning="takes the lease and counts the attempt"),
    Event.SETTLE: Transition(
        before=_PENDING,
        after=frozenset({Status.PENDING, Status.DONE, Status.DEAD}),
        meaning="ends the claim with what the outcomes mean",
    ),
    Event.RELEASE: Transition(before=_PENDING, after=_PENDING, meaning="ends the claim, the attempt given back"),
    Event.RECORD_LATE: Transition(before=_ANY, after=_ANY, meaning="lease lost: adds to sent_late, nothing else"),
    Event.EXHAUST: Transition(
        before=_PENDING,
        after=frozenset({Status.PENDING, Status.DONE, Status.DEAD}),
        meaning="claimed max_attempts times, the last one never settled; goes on for what has attempts left",
    ),
    Event.CONDEMN: Transition(before=_PENDING, after=_DEAD, meaning="the row cannot be read"),
    Event.CANCEL: Transition(
        before=_PENDING | _DEAD,
        after=frozenset({Status.CANCELLED}),
        meaning="nothing more leaves it; what was sent stays recorded",
    ),
    Event.SIGHT: Transition(before=_DEAD, after=_DEAD, meaning="its letter was seen on the burial queue"),
    Event.REBURY: Transition(before=_DEAD, after=_DEAD, meaning="no letter seen in time: another is sent"),
    Event.REVIVE: Transition(before=_DEAD, after=_PENDING, meaning="a person redrives it, with a fresh budget"),
}


def as_markdown() -> str:
    """The table as it stands in docs/architecture.md."""
    rows = ["| event | from | to | meaning |", "|---|---|---|---|"]
    for event, transition in TRANSITIONS.items():
        before = " ".join(status for status in Status if status in transition.before) or "–"
        after = " ".join(status for status in Status if status in transition.after)
        rows.append(f"| {event} | {before} | {after} | {transition.meaning} |")
    return "\n".join(rows)
