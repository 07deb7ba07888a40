"""Audiences: one notification for a long list of recipients, worked page by page. Pure.

A list has one entry a line: a recipient's id, or a JSON object with ``user_id`` and ``variables``. A page is a span of
the list's bytes, and holds the lines that begin in it::

    bytes   0            4096          8192
    lines   ada⏎ alan⏎ b|arbara⏎ …    |grace⏎
    pages   ◀─ page 0 ─▶ ◀── page 1 ──▶         barbara begins in page 0, and is of page 0

so that any page can be found without reading the ones before it, by whoever works it, as often as it is worked.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pushlease.errors import BadRequest
from pushlease.jobs.job import DeliveryStatus, Job, Status
from pushlease.push.device import USER_ID
from pushlease.push.variables import MAX_VALUE, MAX_VARIABLES

PAGE_BYTES = 4096  # of a list: some hundred recipients, as many as an invocation can store and send to
MAX_LINE_BYTES = 4096
MAX_LIST_BYTES = 2**28  # some ten million recipients: as many pages as a tick can look through
MAX_INLINE = 5_000  # entries in a request; longer lists are objects
FAULTS_KEPT = 5  # of a page: enough to see what is wrong with a list
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class State(StrEnum):
    """Where an audience stands; a paused one goes on when somebody says so, the last three are over."""

    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        return self not in (State.RUNNING, State.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Where a list is: an object of the deployment's bucket, as it was (``etag``); without a key, in the request."""

    size_bytes: int
    key: str | None = None
    etag: str | None = None

    @property
    def pages(self) -> int:
        return -(-self.size_bytes // PAGE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """One audience send. ``ref`` names its notification's row, and it.

    ``said``: the request's fields that make its jobs, as JSON values. ``cursor``: the first page that was not yet given
    to a worker. ``swept_at_ms``: when the pages were last looked through. ``fault``: why it failed.
    """

    ref: str
    state: State
    listed: Listed
    said: Mapping[str, object]
    fingerprint: str
    started_at_ms: int
    expires_at_ms: int
    rate_per_s: int | None = None
    cursor: int = 0
    swept_at_ms: int = 0
    fault: str | None = None

    def due_ms(self, number: int) -> int:
        """When the recipient of this number may be sent to, by the audience's rate."""
        return self.started_at_ms + (number * 1000 // self.rate_per_s if self.rate_per_s else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a list."""

    user_id: str
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A line that is no entry: at which byte of the list it begins, and what is wrong with it."""

    at: int
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of a page's recipients. ``counts``: by status, ``invalid`` and ``duplicate`` beside them."""

    counts: Mapping[str, int]
    counted_at_ms: int
    faults: tuple[Fault, ...] = ()

    @property
    def open(self) -> bool:
        """Whether some are still to be served."""
        return self.counts.get(Status.PENDING, 0) > 0


def span_of(page: int, listed: Listed) -> tuple[int, int]:
    """The bytes to read for a page, the first and the one after the last.

    One byte more in front tells whether a line begins with the page, a line's length more behind where its last ends.
    """
    start = page * PAGE_BYTES
    return max(0, start - 1), min(listed.size_bytes, start + PAGE_BYTES + MAX_LINE_BYTES)


def entries_of(read: bytes, page: int) -> Iterator[Entry | Fault]:
    """The entries of a page, from the bytes of its span; empty lines are none."""
    start = page * PAGE_BYTES
    at = 0
    if page:
        if (first := read.find(b"\n")) < 0:
            return
        at = first + 1
    before = max(0, start - 1)  # where what was read begins in the list
    while at < len(read) and before + at < start + PAGE_BYTES:
        end = read.find(b"\n", at)
        line = read[at : end if end >= 0 else len(read)]
        if entry := _entry(line, before + at):
            yield entry
        at = end + 1 if end >= 0 else len(read)


def _entry(line: bytes, at: int) -> Entry | Fault | None:
    if len(line) > MAX_LINE_BYTES:
        return Fault(at=at, rule=f"a line must be at most {MAX_LINE_BYTES} bytes long")
    try:
        text = line.decode().strip().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return Fault(at=at, rule="a line must be UTF-8")
    if not text:
        return None
    try:
        said: dict[str, Any] = json.loads(text) if text.startswith("{") else {"user_id": text}
    except (ValueError, RecursionError):
        return Fault(at=at, rule="a line that begins with { must be a JSON object")
    rule = _broken(said)
    return Fault(at=at, rule=rule) if rule else Entry(user_id=said["user_id"], variables=said.get("variables", {}))


def _broken(said: Mapping[str, Any]) -> str | None:
    """The rule that an entry breaks."""
    user_id, variables = said.get("user_id"), said.get("variables", {})
    if not set(said) <= {"user_id", "variables"}:
        return "may hold user_id and variables alone"
    if not isinstance(user_id, str) or not USER_ID.fullmatch(user_id):
        return "user_id: must be 1 to 128 printable characters without spaces"
    if not isinstance(variables, dict) or len(variables) > MAX_VARIABLES:
        return f"variables: must be an object of at most {MAX_VARIABLES} names"
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            return "variables: a name must be letters, digits and _"
        if not isinstance(value, str) or len(value) > MAX_VALUE or not _encodable(value):
            return f"variables.{name}: must be text of at most {MAX_VALUE} characters"
    return None


def _encodable(text: str) -> bool:
    return all(not "\ud800" <= character <= "\udfff" for character in text)


def listed_text(entries: Sequence[Entry]) -> bytes:
    """Entries of a request as a list's bytes; raises ``BadRequest`` for one that is too long for a line."""
    lines = [
        json.dumps({"user_id": entry.user_id, "variables": dict(entry.variables)}, ensure_ascii=False)
        if entry.variables
        else entry.user_id
        for entry in entries
    ]
    for at, line in enumerate(lines):
        if (size := len(line.encode())) > MAX_LINE_BYTES:
            rule = f"has {size} bytes with its variables, at most {MAX_LINE_BYTES}"
            raise BadRequest(f"audience.recipients.{at}", rule)
    return "".join(f"{line}\n" for line in lines).encode()


FATES = ("pending", "sent", "failed", "suppressed", "skipped", "cancelled")


def counts_of(jobs: Sequence[Job], page: int) -> Counter[str]:
    """What became of the recipients of these jobs; one that another line names too is counted once."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for job in jobs:
        counts[_fate(job) if job.page == page and job.job_id not in seen else "duplicate"] += 1
        seen.add(job.job_id)
    return counts


def _fate(job: Job) -> str:
    """One word for a recipient: what reached a device or the inbox counts, whatever failed beside it."""
    if job.status is Status.PENDING:
        return Status.PENDING
    found = {delivery.status for delivery in job.deliveries.values()}
    if found & {DeliveryStatus.SENT, DeliveryStatus.DELIVERED}:
        return DeliveryStatus.SENT
    order = (DeliveryStatus.FAILED, DeliveryStatus.CANCELLED, DeliveryStatus.SUPPRESSED, DeliveryStatus.SKIPPED)
    return next((status for status in order if status in found), DeliveryStatus.SKIPPED)


def progress(tallies: Mapping[int, Tally]) -> Mapping[str, int]:
    """The sum of the pages' counts: ``accepted``, what became of those, and the lines that made no job."""
    summed: Counter[str] = Counter()
    for tally in tallies.values():
        summed.update(tally.counts)
    return {
        "accepted": sum(summed[fate] for fate in FATES),
        **{word: summed[word] for word in (*FATES, "duplicate", "invalid")},
    }
