"""What travels through the queues, as JSON: hints, letters and ticks. A body that is none of them is ``Unreadable``."""

import json
import re
from dataclasses import dataclass

from pushlease.errors import Unreadable
from pushlease.jobs.job import JobId
from pushlease.jobs.ports import Hint, Lead, Letter

_LANE = re.compile(r"due#[0-9]{2,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A call to drain. ``hinted``: the drain's own delayed one, which leaves no further ticks behind."""

    hinted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneHandOver:
    """A lane with more due jobs than one drain can serve, for another worker. Dropped when it comes late."""

    lane: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of an audience's list, to be stored and sent to, or counted once it is. ``ref``: the audience's."""

    ref: str
    page: int


type Message = Lead | Letter | Tick | LaneHandOver | Page


def hint_body(hint: Hint) -> str:
    """A hint as a message's body."""
    return _body(kind="hint", job_id=hint.job_id, claim_seq=hint.claim_seq, due_at=hint.due_at_ms, hops=hint.hops)


def letter_body(letter: Letter) -> str:
    """A letter as a message's body."""
    return _body(
        kind="letter",
        job_id=letter.job_id,
        redrives=letter.redrives,
        nonce=letter.nonce,
        app_id=letter.app_id,
        code=letter.code,
        died_at=letter.died_at_ms,
    )


def tick_body() -> str:
    """The drain's own delayed tick as a message's body."""
    return _body(kind="tick", hinted=True)


def lane_body(hand_over: LaneHandOver) -> str:
    """A lane that is handed over as a message's body."""
    return _body(kind="lane", lane=hand_over.lane, at=hand_over.at_ms)


def page_body(page: Page) -> str:
    """A page as a message's body."""
    return _body(kind="page", ref=page.ref, page=page.page)


def parse(body: str) -> Message:
    """A message's body as a value; raises ``Unreadable``, naming the field and never its value."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable("message: not JSON") from None
    if not isinstance(said, dict):
        raise Unreadable("message: not a JSON object")
    match said.get("kind"):
        case "hint":
            return Lead(
                job_id=JobId(_text(said, "job_id")),
                claim_seq=_count(said, "claim_seq"),
                due_at_ms=_count(said, "due_at"),
                hops=_count(said, "hops"),
            )
        case "letter":
            return Letter(
                job_id=JobId(_text(said, "job_id")),
                redrives=_count(said, "redrives"),
                nonce=_text(said, "nonce"),
                app_id=_text(said, "app_id"),
                code=_text(said, "code"),
                died_at_ms=_count(said, "died_at"),
            )
        case "lane":
            return LaneHandOver(lane=_lane(said), at_ms=_count(said, "at"))
        case "page":
            return Page(ref=_text(said, "ref"), page=_count(said, "page"))
        case "tick":
            return Tick(hinted=said.get("hinted") is True)
        case _:
            raise Unreadable("message.kind: must be hint, letter, lane, page or tick")


def _body(**fields: object) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _text(said: dict[str, object], name: str) -> str:
    value = said.get(name)
    # 128 characters: twice the longest id that we write. DynamoDB takes no empty key, and no half of a character.
    if not isinstance(value, str) or not 1 <= len(value) <= 128 or not value.isascii():
        raise Unreadable(f"message.{name}: must be a string of 1 to 128 ASCII characters")
    return value


def _lane(said: dict[str, object]) -> str:
    lane = _text(said, "lane")
    if not _LANE.fullmatch(lane):
        raise Unreadable("message.lane: must be due# and a number")
    return lane


def _count(said: dict[str, object], name: str) -> int:
    value = said.get(name)
    # 2**53: past it a JSON number is not exact everywhere, and DynamoDB's own end is not far.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise Unreadable(f"message.{name}: must be a whole number from 0 to 2^53 - 1")
    return value
