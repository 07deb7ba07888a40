"""How soon, how often and how evenly: what a run may cost in time, in claims, in letters and in hints."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulation.kernel import Worker
from simulation.row import Claim, Item, Row
from simulation.shape import DAY, MINUTE

# A write is judged when it is done, some calls after its values were decided: an invocation's time at most. A freeze is
# judged apart.
DECIDED_MS = 2 * MINUTE
BURIAL_CHECK_MS = 5 * MINUTE
SEEN_CHECK_MS = 13 * DAY  # a day before the dead-letter queue forgets the letter
KEPT_MS = {"done": 7 * DAY, "cancelled": 7 * DAY, "dead": 30 * DAY}
LEAST_TIME_MS = 10_000  # of an invocation, to begin an attempt
SPREAD_MS = 5_000  # of what is redriven
ENOUGH_DELAYS = (
    20  # to tell whether they are spread: chance alone keeps so many within half a window once in 40,000 runs
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a deployment promises. ``late_ms``: from the instant at which a row is due to its claim, in quiet times."""

    grace_ms: int
    late_ms: int
    timeout_ms: int
    max_hops: int


class Pace:
    """Judges one run's costs; each method says what is wrong, or nothing."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.quiet_since: int | None = None  # no faults of the platform any more
        self.idle: set[tuple[Worker, str]] = set()  # jobs that were held back
        self.starved: set[Worker] = set()  # who got no answer from a store of ours
        self.unsent: set[Worker] = set()  # whose send failed for good
        self.written_ms: dict[str, int] = {}  # when each row was last written
        self.died_ms: list[int] = []  # when invocations ended without returning
        self.owed: dict[tuple[Worker, str], int] = {}  # hints that a settle has promised
        self.hops: dict[tuple[Worker, str], set[int]] = defaultdict(set)  # of the hints in a worker's hands
        self.delays: dict[str, list[float]] = defaultdict(list)  # where in its window each retry falls, 0 to 1

    def late_claim(self, old: Row, now_ms: int) -> int:
        """By how much a claim is too late. A poison job costs its neighbours a tick for each worker that it kills."""
        if self.quiet_since is None:
            return 0
        since_ms = max(old.due, self.written_ms.get(old.text("job_id"), 0), self.quiet_since)
        killed = sum(since_ms <= at_ms for at_ms in self.died_ms)
        return max(0, now_ms - since_ms - self.limits.late_ms - killed * MINUTE)

    def unsent_hints(self, worker: Worker, rows: Mapping[str, Item], unknown: set[str]) -> list[str]:
        """Jobs that wait for a hint which their worker never sent, though it could, and knew of the settle."""
        owed = {job_id: seq for (who, job_id), seq in self.owed.items() if who is worker}
        waiting = {job_id: Row(rows.get(job_id, {})) for job_id in owed}
        still = [
            job_id
            for job_id, row in waiting.items()
            if (row.status, row.number("claim_seq")) == ("pending", owed[job_id])
        ]
        return [] if worker in self.unsent else sorted(set(still) - unknown)

    def pointless(self, claim: Claim, old: Row, new: Row, now_ms: int) -> bool:
        """Whether a claim was given back untried for no reason."""
        worker = claim.worker
        queued = [part.get("due_at", 0) for part in old.deliveries.values() if part["status"] == "queued"]
        return not (
            claim.verdicts
            or new.ended_since(old)
            or "alone" in new.item
            or (worker, claim.job_id) in self.idle
            or worker in self.starved
            or not self.has_time(worker, now_ms)
            or min(queued, default=0) > now_ms + worker.skew_ms - DECIDED_MS
        )

    def has_time(self, worker: Worker, now_ms: int) -> bool:
        """Whether an attempt may begin."""
        return now_ms - worker.born_ms < self.limits.timeout_ms * 9 // 10 - LEAST_TIME_MS

    def retry(self, claim: Claim, new: Row, clock: int, decided_at: int | None) -> str:
        """When a pending row is due again: at its retry, or the grace later where a hint is to come first."""
        retries = [part.get("due_at") or 0 for part in new.deliveries.values() if part["status"] == "queued"]
        at = max(min(retries), clock)
        hinted = new.due > at
        if new.due > at + self.limits.grace_ms:
            return f"due {new.due - at} ms after its retry"
        if hinted:
            self.owed[claim.worker, claim.job_id] = claim.seq
            return "" if claim.verdicts or new.ended_since(claim.row) else "waits for a hint, though nothing was tried"
        if decided_at is None:
            return ""
        wait = max(min(retries), decided_at) - decided_at
        allowed = max(self.hops[claim.worker, claim.job_id], default=0) < self.limits.max_hops
        early = new.due >= max(min(retries), decided_at) + self.limits.grace_ms  # and the settle came late
        return "" if wait > 900_000 or not allowed or early else f"no hint for a retry in {wait} ms"

    def hint(self, worker: Worker, message: Mapping[str, Any], row: Row) -> str:
        """A hint on its way: as the row has it, and one hop further than what led to it."""
        job_id, seq = message["job_id"], message["claim_seq"]
        if self.owed.get((worker, job_id)) == seq:
            del self.owed[worker, job_id]
        if row.status == "pending" and row.number("claim_seq") == seq and row.due != message["due_at"]:
            return f"a hint of {message['due_at'] - row.due} ms beside its row"
        led = {0} if seq == 0 else {hops + 1 for hops in self.hops[worker, job_id] or {0}}
        return "" if message["hops"] in led else f"hop {message['hops']} of a hint, not {sorted(led)}"

    def dropped_hint(self, message: Mapping[str, Any], row: Row) -> bool:
        """Whether a hint was deleted that its row still fits: nobody has served it."""
        same = row.number("claim_seq") == message["claim_seq"] and row.due == message["due_at"]
        spent = row.spoiled or row.number("attempts") >= row.number("max_attempts")
        return row.status == "pending" and same and not spent

    def unfit_check(self, new: Row, clock: int, *, frozen: bool) -> str:
        """When a dead row is looked at again, for want of a letter: growing with its age, a day at most."""
        age = clock - new.number("died_at")
        least, most = min(max(BURIAL_CHECK_MS, age), DAY), max(BURIAL_CHECK_MS, min(age, DAY))
        wait = new.due - clock
        fits = (frozen or wait >= least - DECIDED_MS - age // 10) and wait <= most + DECIDED_MS
        return "" if fits else f"another letter in {wait // 1000} s, {age // 1000} s after the death"

    def unfit_ttl(self, new: Row, clock: int, *, frozen: bool) -> str:
        """How long an ended row stays."""
        kept = new.number("ttl") * 1000 - clock
        span = KEPT_MS[new.status]
        fits = span - (10 * MINUTE if frozen else DECIDED_MS) <= kept <= span + 1_000
        return "" if fits else f"{new.status} and kept for {kept // 1000} s"

    def crowded(self) -> list[str]:
        """Which kinds of retries come back together."""
        many = {kind: at for kind, at in self.delays.items() if len(at) >= ENOUGH_DELAYS}
        return [kind for kind, at in many.items() if max(at) - min(at) < 0.5]


def words_missing(old: Row, new: Row, claim: Claim) -> str:
    """What an attempt should have left for people to read, and has not."""
    lines = new.text("history").splitlines()
    if not lines or f"#{claim.seq} " not in lines[-1]:
        return f"no word of attempt {claim.seq} in its history"
    failed = {code for code, _ in claim.verdicts.values()} - {"ok"}
    if failed and new.text("last_error").split(":")[0] not in failed | {old.text("last_error").split(":")[0]} - {""}:
        return f"says '{new.text('last_error')}' after {sorted(failed)}"
    return ""
