"""What must hold at every write, push and send, by name, and how many states each name really examined.

Judged from outside: from raw rows before and after a write, from what the provider saw, from what SQS was handed and
from what persons asked for. Nothing here uses the code that is judged. Why a delivery may end stands in ``causes``,
what a run may cost in ``pace``. (Quiet hours are not played yet.)
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from simulation.causes import OK, Causes, ending
from simulation.kernel import Worker
from simulation.pace import DECIDED_MS, SEEN_CHECK_MS, SPREAD_MS, Limits, Pace, words_missing
from simulation.row import CODES_BEYOND_CURE, Claim, Item, Key, Row

SPANS_S = (30, 120, 480, 1920, 3600)
LEAST, MOST, CAP_S = 0.8, 1.2, 3600


class Invariant(StrEnum):
    """The names, the same in docs/guarantees.md."""

    NO_JOB_LOST = "no job lost"
    ONE_LIVE_CLAIM = "one live claim"
    STALE_WRITER_REFUSED = "stale writer refused"
    ATTEMPTS_BOUNDED = "attempts bounded"
    SENT_NEVER_AGAIN = "a recorded sent never sent again"
    DUPLICATES_BOUNDED = "duplicates bounded by one batch per crash"
    DEAD_HAS_NO_WORK = "dead has no work"
    DEAD_IS_REDRIVABLE = "dead is redrivable and has a letter"
    ONE_DEATH_REVIVES_ONCE = "one death revives once"
    CLAIM_SEQ_NEVER_FALLS = "claim_seq never falls"
    SECOND_DEATH_BURIED = "second death buried"
    INDEX_AGREES = "index agrees with rows once it has caught up"
    BACKOFF_IN_WINDOW = "backoff inside its window, never earlier than Retry-After"
    DELAY_SPLIT = "at most 900 s to SQS, else row"
    TICKS_OVERLAP = "overlapping ticks change nothing but timing"
    THROTTLES_NEUTRAL = "throttles never change attempts"
    EXPIRY_HONOURED = "expiry honoured"
    CANCEL_WINS = "cancel wins"
    POISON_ISOLATED = "a poison job never costs its neighbours their attempts"
    PROVIDERS_APART = "one provider's failures never spend another's attempts"
    NO_REVIVAL_UNASKED = "nothing revives without a person"
    ENDS_HAVE_CAUSES = "every end has a cause"
    SUCCESS_RECORDED = "what a worker was told is recorded"
    REDRIVE_REVIVES = "what a person redrives is revived"
    IN_TIME = "what is due is soon attempted"
    ROWS_ARE_KEPT = "ended rows are kept for their span"
    REASON_IS_TOLD = "each attempt leaves its reason"


class Violation(BaseException):
    """An invariant does not hold. Not an ``Exception``: the code under test must not be able to swallow it."""

    def __init__(self, invariant: Invariant, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that a run promises to keep."""

    grace_ms: int
    max_skew_ms: int
    page: int


class Watch:
    """Sees everything that happens in one run."""

    def __init__(self, rules: Rules, limits: Limits) -> None:
        self.rules = rules
        self.causes = Causes()
        self.pace = Pace(limits)
        self.redriven: dict[tuple[str, int], str] = {}  # deaths whose sighted letter was moved in quiet times, and how
        self.told: dict[Worker, set[Key]] = defaultdict(set)  # what each was told to have been accepted
        self.spans: dict[str, int] = {}  # from a job's creation to its expiry
        self.examined: Counter[Invariant] = Counter()
        self.accepted_jobs: set[str] = set()  # whose sender was told so
        self.asked: set[tuple[str, int]] = set()  # (job, life) that a person wants revived
        self.frozen: set[Worker] = set()
        self.unanswered: set[Worker] = set()
        self.excused: dict[Worker, set[str]] = defaultdict(set)  # jobs whose fate a worker reported as unknown
        self.claims: dict[tuple[str, int], Claim] = {}
        self.hands: dict[Worker, dict[str, Claim]] = defaultdict(dict)
        self.provider: dict[Key, list[Claim]] = defaultdict(list)  # what it accepted, under which claims
        self.tries: Counter[tuple[str, int, str]] = Counter()
        self.told_at: dict[tuple[Worker, Key], int] = {}
        self.erased: set[str] = set()  # a person wanted them gone
        self.revived: set[tuple[str, int]] = set()
        self.deaths: Counter[tuple[str, int]] = Counter()
        self.letters: Counter[tuple[str, int]] = Counter()
        self._lives: dict[str, int] = {}  # nonce → life of the job that its letter speaks of
        self.events: Counter[str] = Counter()
        self.repeated: dict[tuple[Worker, int], set[str]] = defaultdict(set)  # jobs of one batch that were sent again
        self.poisoned: Counter[str] = Counter()  # neighbours' claims that died with a poison job
        self.poison_kills: Counter[tuple[str, int]] = Counter()
        self.must_record: set[Worker] = set()
        self.batches: Counter[Worker] = Counter()

    def hold(self, invariant: Invariant, truth: bool, detail: str) -> None:
        """Examine one state."""
        self.examined[invariant] += 1
        if not truth:
            raise Violation(invariant, detail)

    # --- rows

    def on_write(self, before: Item | None, after: Item | None, worker: Worker, now_ms: int) -> str:
        """A row was written by a worker; what kind of write it was."""
        if after is None:
            assert before is not None
            old = Row(before)
            over = old.status not in ("", "pending") or old.text("job_id") in self.erased
            self.hold(Invariant.NO_JOB_LOST, over, f"{old.text('job_id')[:6]} pruned")
            return "prune"
        new = Row(after)
        job_id = new.text("job_id")
        if before is None:
            self.hold(Invariant.NO_JOB_LOST, new.status in ("pending", "done"), f"{job_id[:6]}: a row of nothing")
            odd = self.causes.unplanned(new)
            self.hold(Invariant.ENDS_HAVE_CAUSES, not odd, f"{job_id[:6]} is not as ordered: {odd}")
            self.spans[job_id] = new.number("expires_at") - new.number("created_at")
            self._state(new)
            return "insert"
        old = Row(before)
        kind = self._kind(old, new, worker, now_ms + worker.skew_ms)
        self.events[kind] += 1
        label = f"{job_id[:6]} {kind} by {worker.name}"
        self._always(old, new, label)
        self._state(new)
        clock = now_ms + worker.skew_ms
        getattr(self, f"_{kind}")(old, new, worker, clock, label)
        if kind != "revive":
            self._ends(old, new, kind, worker, clock, label)
        if kind == "claim":
            late_ms = self.pace.late_claim(old, now_ms)
            self.hold(Invariant.IN_TIME, not late_ms, f"{label}: {late_ms} ms later than allowed")
        self.pace.written_ms[new.text("job_id")] = now_ms
        if kind == "settle" and new.status == "pending":
            pointless = self.pace.pointless(self.hands[worker][job_id], old, new, now_ms)
            self.hold(Invariant.IN_TIME, not pointless, f"{label}: given back untried for no reason")
        return kind

    def _ends(self, old: Row, new: Row, kind: str, worker: Worker, clock: int, label: str) -> None:
        """What a write ends has ended for a reason, and stays to be looked at."""
        claim = self.hands[worker].get(new.text("job_id"))
        latest_retry = max((self._latest_retry(claim, name) for name in claim.verdicts), default=0) if claim else 0
        odd = self.causes.without_cause(old, new, kind, claim, clock=clock, latest_retry=latest_retry)
        self.hold(Invariant.ENDS_HAVE_CAUSES, not odd, f"{label}: {odd}")
        if old.status != new.status and new.status != "pending":
            unfit = self.pace.unfit_ttl(new, clock, frozen=worker in self.frozen)
            self.hold(Invariant.ROWS_ARE_KEPT, not unfit, f"{label}: {unfit}")
            if new.status == "dead":
                unfit = self.pace.unfit_check(new, clock, frozen=worker in self.frozen)
                self.hold(Invariant.DEAD_IS_REDRIVABLE, not unfit, f"{label}: {unfit}")

    def _latest_retry(self, claim: Claim, name: str) -> int:
        """When, at the latest, what was tried is tried again."""
        span_s = SPANS_S[min(claim.row.deliveries[name].get("attempts", 0) + claim.crashed_before, len(SPANS_S) - 1)]
        most = max(min(span_s * MOST, CAP_S), (claim.verdicts[name][1] or 0) * MOST)
        return self.told_at.get((claim.worker, (claim.job_id, name)), 0) + int(most * 1000) + 10

    def _kind(self, old: Row, new: Row, worker: Worker, clock: int) -> str:
        changed = old.differs(new)
        if "claim_seq" in changed:
            return "claim"
        if changed & {"redrives", "expires_at"}:
            return "revive"
        if new.status == "cancelled" and "status" in changed:
            return "cancel"
        mine = self.hands[worker].get(new.text("job_id"))
        ended = "status" in changed and new.status in ("dead", "done")
        spent = mine is None and "settled_seq" in changed  # a crash's claims are charged, and what has attempts goes on
        if spent or (ended and not (mine and mine.seq == old.number("claim_seq"))):
            return "end"
        again = old.status == new.status == "dead" and worker.kind == "redrive" and changed == {"due_at"}
        if "sights" in changed or again:
            return "sight"
        moved = old.status == new.status == "dead" and "due_at" in changed and changed <= {"due_at", "claim_id"}
        if moved and (mine is None or old.due <= clock):  # else it is a settle that comes again
            return "rebury"
        if "sent_late" in changed:
            return "late"
        return "settle" if changed - {"claim_id"} else "nothing"

    def _always(self, old: Row, new: Row, label: str) -> None:
        seq, settled = new.number("claim_seq"), new.number("settled_seq")
        rises = seq >= old.number("claim_seq") and old.number("settled_seq") <= settled <= seq
        self.hold(Invariant.CLAIM_SEQ_NEVER_FALLS, rises, label)
        self.hold(Invariant.SENT_NEVER_AGAIN, old.sent <= new.sent, f"{label} forgets what was sent")
        self.hold(Invariant.ONE_DEATH_REVIVES_ONCE, new.life >= old.life, f"{label}: back in an earlier life")
        if old.status == "cancelled":
            self.hold(Invariant.CANCEL_WINS, old.differs(new) <= {"sent_late"}, f"{label} after a cancel")
        if old.status == "done":
            self.hold(Invariant.STALE_WRITER_REFUSED, old.differs(new) <= {"sent_late"}, f"{label} after its end")

    def _state(self, row: Row) -> None:
        """What holds for any row at any time."""
        label = f"{row.text('job_id')[:6]} {row.status}"
        if row.status == "pending":
            self.hold(Invariant.INDEX_AGREES, row.lane.startswith("due#"), f"{label} in {row.lane or 'no lane'}")
            self.hold(Invariant.NO_JOB_LOST, "ttl" not in row.item, f"{label} will be pruned")
            attempts = row.number("attempts") <= row.number("max_attempts")
            self.hold(Invariant.ATTEMPTS_BOUNDED, attempts, f"{label}: {row.number('attempts')} attempts")
        elif row.status == "dead":
            self.hold(Invariant.INDEX_AGREES, row.lane.startswith("dead#"), f"{label} in {row.lane or 'no lane'}")
            queued = any(part.get("status") == "queued" for part in row.deliveries.values())
            idle = not row.open and (not queued or row.text("last_error").startswith("unreadable"))
            self.hold(Invariant.DEAD_HAS_NO_WORK, idle, f"{label} with work")
        else:
            self.hold(Invariant.INDEX_AGREES, not row.lane, f"{label} in {row.lane}")

    def _claim(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        job_id, seq = new.text("job_id"), new.number("claim_seq")
        self.hold(Invariant.CLAIM_SEQ_NEVER_FALLS, seq == old.number("claim_seq") + 1, label)
        self.hold(Invariant.CANCEL_WINS, old.status != "cancelled", label)
        self.hold(Invariant.DEAD_HAS_NO_WORK, old.status == "pending", f"{label}: it is {old.status}")
        free = not old.open or old.due <= clock
        self.hold(Invariant.ONE_LIVE_CLAIM, free, f"{label}: leased for {old.due - clock} ms more")
        if not worker.dead and worker not in self.frozen:
            outlives = new.due - self.rules.max_skew_ms >= worker.dies_at_ms
            self.hold(Invariant.ONE_LIVE_CLAIM, outlives, f"{label}: the lease ends before its worker")
        counted = new.number("attempts") == old.number("attempts") + 1
        self.hold(Invariant.ATTEMPTS_BOUNDED, counted, f"{label}: the attempt is not counted")
        if worker.kind == "drain":
            self.hold(Invariant.TICKS_OVERLAP, old.due <= clock, f"{label}: {old.due - clock} ms early")
        allowed = {"claim_seq", "attempts", "due_at", "claim_id"}
        self.hold(Invariant.STALE_WRITER_REFUSED, old.differs(new) <= allowed, f"{label} writes more than a claim")
        crashed = old.number("claim_seq") - old.number("settled_seq")
        claim = Claim(job_id=job_id, seq=seq, worker=worker, row=new, recorded=set(old.sent), crashed_before=crashed)
        self.claims[job_id, seq] = self.hands[worker][job_id] = claim

    def _settle(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        job_id, seq = new.text("job_id"), old.number("claim_seq")
        mine = self.hands[worker].get(job_id)
        fresh = mine is not None and mine.seq == seq and old.open and new.number("settled_seq") == seq
        self.hold(Invariant.STALE_WRITER_REFUSED, fresh, label)
        assert mine is not None
        mine.ended = True
        if new.status == "dead":
            self._died(new)
        for name, part in new.deliveries.items():
            before = old.deliveries[name]
            if before.get("status") != "queued" or name in old.late:
                continue
            if part["status"] == "failed" and part.get("code") in CODES_BEYOND_CURE:
                continue  # decided for good, perhaps without asking a provider
            spent = part.get("attempts", 0) - before.get("attempts", 0)
            tried = name in mine.verdicts
            charges = {mine.crashed_before} if tried else _charges(before, mine.crashed_before, clock)
            invariant = Invariant.ATTEMPTS_BOUNDED if tried else Invariant.PROVIDERS_APART
            self.hold(invariant, spent - tried in charges, f"{label}: {name} spent {spent}, not {charges} + {tried}")
            if tried and part["status"] == "queued":
                self._backoff(mine, name, part, clock, label)
        told = [
            self.told_at[worker, (job_id, name)] for name in mine.verdicts if (worker, (job_id, name)) in self.told_at
        ]
        if new.status == "pending":
            self._split(new, clock, bool(mine.verdicts), label)
            unfit = self.pace.retry(mine, new, clock, max(told, default=None))
            self.hold(Invariant.IN_TIME, not unfit, f"{label}: {unfit}")
            alone = "alone" in new.item
            tried = mine.verdicts or new.ended_since(old)
            fits = not alone if tried else alone == mine.taken_over
            self.hold(Invariant.POISON_ISOLATED, fits, f"{label}: {'' if alone else 'not '}marked as alone")
        self.hold(Invariant.ENDS_HAVE_CAUSES, new.status == ending(new), f"{label}: its deliveries are {ending(new)}")
        if mine.verdicts:
            missing = words_missing(old, new, mine)
            self.hold(Invariant.REASON_IS_TOLD, not missing, f"{label}: {missing}")

    def _backoff(self, claim: Claim, name: str, part: Mapping[str, Any], clock: int, label: str) -> None:
        code, at_ms = claim.verdicts[name][0], claim.row.due
        retry_after_s, at_ms = claim.verdicts[name][1], self.told_at.get((claim.worker, (claim.job_id, name)), at_ms)
        span_s = SPANS_S[min(part["attempts"], len(SPANS_S)) - 1]
        least, most = min(span_s * LEAST, CAP_S), min(span_s * MOST, CAP_S)
        if retry_after_s is not None:
            least, most = max(least, retry_after_s), max(most, retry_after_s * MOST)
        waited = (part["due_at"] - at_ms) / 1000
        inside = least <= waited <= most + 0.01
        self.hold(Invariant.BACKOFF_IN_WINDOW, inside, f"{label}: {waited} s after {code}, not {least}–{most}")
        self.hold(Invariant.EXPIRY_HONOURED, part["due_at"] < claim.row.number("expires_at"), f"{label}: past expiry")
        if most > least:
            kind = "after Retry-After" if (retry_after_s or 0) > span_s * MOST else "of the schedule"
            self.pace.delays[kind].append((waited - least) / (most - least))

    def _split(self, row: Row, clock: int, tried: bool, label: str) -> None:
        """``due_at`` is the next retry itself, or that and the grace where a hint says when."""
        retry = [part.get("due_at", 0) for part in row.deliveries.values() if part.get("status") == "queued"]
        early = row.due - min(retry, default=0)
        hinted = early >= self.rules.grace_ms and tried
        wait_ms = row.due - self.rules.grace_ms - clock
        self.hold(Invariant.DELAY_SPLIT, not hinted or wait_ms <= 900_000, f"{label}: hinted {wait_ms} ms ahead")

    def _end(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        """An end without an attempt: of a job with none left, or unreadable; done only if all was sent late."""
        self.hold(Invariant.CANCEL_WINS, old.status == "pending", f"{label}: was {old.status}")
        unreadable = new.text("last_error").startswith("unreadable")
        spent = unreadable or old.number("attempts") >= old.number("max_attempts")
        self.hold(Invariant.ATTEMPTS_BOUNDED, spent, f"{label} with attempts left")
        if unreadable:
            self.hold(Invariant.STALE_WRITER_REFUSED, old.spoiled, f"{label}: condemned though it was mended")
        else:
            free = not old.open or old.due <= clock
            self.hold(Invariant.ONE_LIVE_CLAIM, free, f"{label}: somebody is at it")
        if new.status == "dead":
            self._died(new)
        elif new.status == "done":
            left = {name for name, part in old.deliveries.items() if part.get("status") == "queued"} - old.late
            self.hold(Invariant.NO_JOB_LOST, not left, f"{label} with {sorted(left)} undelivered")
        crashes = old.number("claim_seq") - old.number("settled_seq")
        for name, part in new.deliveries.items() if not unreadable else ():
            before = old.deliveries[name]
            if before.get("status") == "queued" and name not in old.late:
                spent_now = part.get("attempts", 0) - before.get("attempts", 0)
                fits = spent_now in _charges(before, crashes, clock)
                self.hold(Invariant.PROVIDERS_APART, fits, f"{label}: {name} spent {spent_now}")
                left = part["status"] == "queued" or part.get("attempts", 0) >= old.number("max_attempts")
                self.hold(Invariant.PROVIDERS_APART, left, f"{label}: {name} failed with attempts left")

    def _died(self, row: Row) -> None:
        self.deaths[row.text("job_id"), row.life] += 1
        self.hold(Invariant.DEAD_HAS_NO_WORK, "ttl" in row.item, f"{row.text('job_id')[:6]} is kept for ever")

    def _late(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        only = old.differs(new) <= {"sent_late"}
        self.hold(Invariant.STALE_WRITER_REFUSED, only, f"{label} writes more than what was sent")

    def _cancel(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        asked = self.causes.may_cancel(new.text("job_id"), worker.kind)
        self.hold(Invariant.ENDS_HAVE_CAUSES, asked, f"{label}: nobody has asked for it")
        queued = any(part.get("status") == "queued" for part in new.deliveries.values())
        self.hold(Invariant.CANCEL_WINS, not new.open and not queued, f"{label} leaves work")
        self.hold(Invariant.CANCEL_WINS, old.status in ("pending", "dead"), f"{label}: was {old.status}")

    def _sight(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        only = old.status == "dead" and old.differs(new) <= {"sights", "due_at"}
        self.hold(Invariant.DEAD_IS_REDRIVABLE, only, f"{label}: it is {old.status}")
        nonces = {text.split(" ")[0] for text in new.item["sights"]["SS"]}
        known = {self._lives.get(nonce) for nonce in nonces}
        self.hold(Invariant.ONE_DEATH_REVIVES_ONCE, known == {old.life}, f"{label}: a sight of another death")
        wait = new.due - clock
        fits = SEEN_CHECK_MS - DECIDED_MS <= wait <= SEEN_CHECK_MS + 1_000 or worker in self.frozen
        self.hold(Invariant.DEAD_IS_REDRIVABLE, fits, f"{label}: looked at again in {wait // 1000} s")

    def _rebury(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        self.hold(Invariant.TICKS_OVERLAP, old.due <= clock, f"{label}: {old.due - clock} ms early")
        self.deaths[new.text("job_id"), new.life] += 1  # justifies one letter more
        unfit = self.pace.unfit_check(new, clock, frozen=worker in self.frozen)
        self.hold(Invariant.DEAD_IS_REDRIVABLE, not unfit, f"{label}: {unfit}")

    def _nothing(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        """Only repeats that are harmless by design may change nothing."""

    def _revive(self, old: Row, new: Row, worker: Worker, clock: int, label: str) -> None:
        death = (new.text("job_id"), old.life)
        once = old.status == "dead" and death not in self.revived and new.life == old.life + 1
        self.hold(Invariant.ONE_DEATH_REVIVES_ONCE, once, label)
        self.revived.add(death)
        self.hold(Invariant.NO_REVIVAL_UNASKED, worker.kind == "person" or death in self.asked, label)
        untouched = not old.differs(new) & {"claim_seq", "settled_seq"}
        self.hold(Invariant.CLAIM_SEQ_NEVER_FALLS, untouched, label)
        left = {"sights", "ttl", "died_at", "alone"} & set(new.item)
        self.hold(Invariant.ONE_DEATH_REVIVES_ONCE, not left, f"{label} keeps {sorted(left)} of its death")
        spent = [name for name, part in new.deliveries.items() if part["status"] == "queued" and part.get("attempts")]
        fresh = new.number("attempts") == 0 and not spent
        self.hold(Invariant.ATTEMPTS_BOUNDED, fresh, f"{label} without a fresh budget")
        for name, part in new.deliveries.items():
            was = old.deliveries[name]
            curable = was["status"] == "failed" and was.get("code") not in CODES_BEYOND_CURE and name not in old.late
            mended = was["status"] == "queued"  # it died unreadable
            reopened = part["status"] == "queued"
            self.hold(
                Invariant.SENT_NEVER_AGAIN, reopened == (curable or mended), f"{label}: {name} was {was['status']}"
            )
        expires_at, span = new.number("expires_at"), self.spans[new.text("job_id")]
        self.hold(Invariant.EXPIRY_HONOURED, expires_at > clock, f"{label}: expired at once")
        grown = expires_at - max(old.number("expires_at"), clock + span)
        self.hold(Invariant.EXPIRY_HONOURED, grown <= 0, f"{label}: lives {grown} ms longer than at first")
        wait = new.due - clock
        self.hold(Invariant.IN_TIME, wait <= SPREAD_MS, f"{label}: to be tried in {wait} ms")

    # --- calls and pushes

    def before_call(self, worker: Worker, name: str, what: Any) -> None:
        """What a provider has accepted is recorded by the very next call."""
        settles = name == "batch_execute_statement" and "settled_seq" in what[0]["Statement"]
        if settles:
            ending = {value.get("S") for statement in what for value in statement["Parameters"]}
            for job_id in ending & set(self.hands[worker]):
                self.hands[worker][job_id].giving_up = True
        if worker in self.must_record:
            self.must_record.discard(worker)
            label = f"{worker.name} calls {name} before it records what was sent"
            self.hold(Invariant.DUPLICATES_BOUNDED, settles, label)

    def on_batch(self, worker: Worker) -> None:
        """A worker begins to push what it has in hand."""
        self.batches[worker] += 1
        for claim in self.hands[worker].values():
            claim.batch = claim.batch or self.batches[worker]

    def on_shown(self, worker: Worker, item: Item) -> None:
        """A worker was shown a row: it may learn that its own claim is over."""
        row = Row(item)
        claim = self.hands[worker].get(row.text("job_id"))
        if claim and claim.seq == row.number("claim_seq") and not claim.ended:
            claim.void = claim.void or not row.open or row.status != "pending"

    def on_push(self, key: Key, worker: Worker, started_at: int) -> Claim:
        """A delivery reaches its provider, by a call begun at an instant of its worker's clock; its claim."""
        in_time = self.pace.has_time(worker, started_at - worker.skew_ms)
        job_id, name = key
        claim = self.hands[worker].get(job_id)
        label = f"{job_id[:6]}/{name} pushed by {worker.name}"
        self.hold(Invariant.ONE_LIVE_CLAIM, claim is not None and not claim.ended, f"{label} without a claim")
        assert claim is not None
        self.hold(Invariant.CANCEL_WINS, not claim.void, f"{label}, who was shown that it is over")
        self.hold(Invariant.IN_TIME, in_time, f"{label} with too little time left")
        self.hold(Invariant.SENT_NEVER_AGAIN, name not in claim.recorded, label)
        claim.pushed.add(name)
        self.tries[job_id, claim.row.life, name] += 1
        tries = self.tries[job_id, claim.row.life, name]
        bounded = tries <= claim.row.number("max_attempts")
        self.hold(Invariant.ATTEMPTS_BOUNDED, bounded, f"{label}: try {tries}")
        self.hold(Invariant.EXPIRY_HONOURED, started_at < claim.row.number("expires_at"), f"{label}: expired")
        due = claim.row.deliveries[name].get("due_at", 0)
        self.hold(Invariant.BACKOFF_IN_WINDOW, due <= started_at, f"{label}: {due - started_at} ms early")
        return claim

    def on_accept(self, key: Key, claim: Claim, *, uncertain: bool) -> None:
        """The provider took it."""
        name = key[1]
        for earlier in self.provider[key]:
            worker = earlier.worker
            label = f"{key[0][:6]}/{name} accepted again, first by {worker.name}"
            # The store gave no answer whether it was recorded.
            unsaid = not earlier.ended and (worker in self.unanswered or key[0] in self.excused[worker])
            incident = earlier.uncertain or unsaid or worker.dead or worker in self.frozen
            self.hold(Invariant.DUPLICATES_BOUNDED, incident, label)
            if worker.dead and not (earlier.uncertain or unsaid or worker in self.frozen):
                last = earlier.batch == self.batches[worker]
                self.hold(Invariant.DUPLICATES_BOUNDED, last, f"{label}: not in its last batch")
            repeated = self.repeated[worker, earlier.batch]
            repeated.add(key[0])
            self.hold(Invariant.DUPLICATES_BOUNDED, len(repeated) <= self.rules.page, f"{label}: more than a batch")
        self.provider[key].append(claim)
        claim.accepted.add(name)
        claim.uncertain = claim.uncertain or uncertain

    def on_verdicts(self, worker: Worker, verdicts: Mapping[Key, tuple[str, int | None]], clock: int) -> None:
        """The answers reach the worker."""
        for key, verdict in verdicts.items():
            self.hands[worker][key[0]].verdicts[key[1]] = verdict
            self.told_at[worker, key] = clock
            if verdict[0] == OK:
                self.told[worker].add(key)
        self.must_record.add(worker)

    def on_inbox(self, worker: Worker, key: Key, clock: int) -> None:
        """An entry stands in the inbox."""
        claim = self.hands[worker][key[0]]
        self.provider[key].append(claim)
        claim.verdicts[key[1]] = OK, None
        self.told_at[worker, key] = clock
        self.told[worker].add(key)

    def on_held(self, worker: Worker, key: Key) -> None:
        """A delivery was held back, or only asked whether its provider works: no attempt."""
        job_id, name = key
        claim = self.hands[worker][job_id]
        self.pace.idle.add((worker, job_id))
        if name in claim.pushed:
            claim.pushed.remove(name)
            self.tries[job_id, claim.row.life, name] -= 1

    def on_poison(self, job_id: str, worker: Worker) -> None:
        """A job kills its worker."""
        claim = self.hands[worker][job_id]
        over = self.erased | self.causes.cancelled
        others = [
            other
            for other in self.hands[worker].values()
            if not (other is claim or other.giving_up or other.ended or other.job_id in over)
        ]
        alone = not claim.taken_over or not others
        self.hold(
            Invariant.POISON_ISOLATED, alone, f"{job_id[:6]} kills {worker.name} with {len(others)} others in hand"
        )
        self.poison_kills[job_id, claim.row.life] += 1
        for other in others:
            self.poisoned[other.job_id] += 1
            once = self.poisoned[other.job_id] <= len(self.poison_kills)
            self.hold(Invariant.POISON_ISOLATED, once, f"{other.job_id[:6]} dies again with {job_id[:6]}")

    # --- queues

    def on_sent(
        self, worker: Worker, queue: str, message: Mapping[str, Any], delay: Any, now_ms: int, row: Row
    ) -> None:
        """SQS is handed a message, taken or not."""
        valid = isinstance(delay, int) and 0 <= delay <= 900
        self.hold(Invariant.DELAY_SPLIT, valid, f"{worker.name} sends with a delay of {delay} s")
        job_id = str(message.get("job_id", ""))
        if message["kind"] == "hint":
            follows = job_id in self.erased or (
                row.number("settled_seq") >= message["claim_seq"] or row.number("claim_seq") > message["claim_seq"]
            )
            self.hold(Invariant.DUPLICATES_BOUNDED, follows, f"{worker.name}: a hint runs ahead of its settle")
            early = message["due_at"] - self.rules.grace_ms - (now_ms + worker.skew_ms + delay * 1000)
            if message["claim_seq"] == 0:  # a sender may repeat the first hint of another, whose clock is ahead
                early -= 2 * self.rules.max_skew_ms
            self.hold(Invariant.DELAY_SPLIT, early <= 0, f"{worker.name}: a hint {early} ms early")
            self.hold(Invariant.DELAY_SPLIT, message["hops"] <= self.pace.limits.max_hops, "an endless chain of hints")
            unfit = self.pace.hint(worker, message, row)
            self.hold(Invariant.DELAY_SPLIT, not unfit, f"{worker.name}: {unfit}")
        if message["kind"] == "letter":
            death = (job_id, message["redrives"])
            self.letters[death] += 1
            label = f"{job_id[:6]}: letter {self.letters[death]} of life {message['redrives']}"
            self.hold(Invariant.TICKS_OVERLAP, self.letters[death] <= self.deaths[death], label)
            self.hold(Invariant.DEAD_IS_REDRIVABLE, message["nonce"] not in self._lives, f"{label}: an old nonce")
            self._lives[message["nonce"]] = message["redrives"]

    # --- ends

    def on_end(self, worker: Worker, rows: Mapping[str, Item]) -> None:
        """An invocation returned: what it claimed is ended, unless the store would not say."""
        for claim in self.hands[worker].values():
            row = Row(rows.get(claim.job_id, {}))
            mine_open = row.number("claim_seq") == claim.seq and row.open and row.status == "pending"
            explained = claim.job_id in self.excused[worker]
            self.hold(
                Invariant.THROTTLES_NEUTRAL,
                explained or not mine_open,
                f"{claim.job_id[:6]} abandoned by {worker.name}",
            )
        for job_id, name in self.told[worker]:
            recorded = job_id not in rows or name in Row(rows[job_id]).sent or job_id in self.excused[worker]
            self.hold(Invariant.SUCCESS_RECORDED, recorded, f"{job_id[:6]}/{name} was accepted, as {worker.name} knew")
        unsent = self.pace.unsent_hints(worker, rows, self.excused[worker])
        self.hold(Invariant.IN_TIME, not unsent, f"{worker.name} sent no hints of {unsent}")

    def at_rest(
        self,
        rows: Mapping[str, Item],
        index: Mapping[str, tuple[str, int]],
        letters: list[dict[str, Any]],
        now_ms: int,
        pruned: set[str],
    ) -> None:
        """Faults are over, ticks have come, the index has caught up."""
        there = {key: (Row(item).lane, Row(item).due) for key, item in rows.items() if Row(item).lane}
        self.hold(Invariant.INDEX_AGREES, there == dict(index), f"{there} in rows, {dict(index)} in the index")
        for job_id in sorted(self.accepted_jobs - pruned):
            self.hold(Invariant.NO_JOB_LOST, job_id in rows, f"{job_id[:6]} is gone")
        for job_id, item in rows.items():
            row = Row(item)
            ended = row.status in ("done", "dead", "cancelled")
            self.hold(Invariant.NO_JOB_LOST, ended, f"{job_id[:6]} is {row.status}, due in {row.due - now_ms} ms")
            for name in row.sent:
                truth = bool(self.provider[job_id, name])
                self.hold(Invariant.SENT_NEVER_AGAIN, truth, f"{job_id[:6]}/{name} is recorded, and never was sent")
            if row.status == "dead":
                self.hold(
                    Invariant.REASON_IS_TOLD, bool(row.text("last_error")), f"{job_id[:6]} is dead, and says not why"
                )
                buried = [at for at in letters if at["job_id"] == job_id and at["redrives"] == row.life]
                seen = bool(row.item.get("sights")) and row.due > now_ms
                home = any(at["source"] in ("burial", "work") for at in buried)
                name_ = Invariant.SECOND_DEATH_BURIED if row.life else Invariant.DEAD_IS_REDRIVABLE
                self.hold(name_, seen and home, f"{job_id[:6]}: {len(buried)} letters, seen {seen}")
        for (job_id, life), how in self.redriven.items():
            row = Row(rows.get(job_id, {}))
            revived = (job_id, life) in self.revived or row.status in ("", "cancelled") or row.spoiled
            self.hold(
                Invariant.REDRIVE_REVIVES, revived, f"{job_id[:6]} was moved {how} in life {life}, and stays dead"
            )
        crowded = self.pace.crowded()
        self.hold(Invariant.BACKOFF_IN_WINDOW, not crowded, f"all retries {crowded} fall together")


def _charges(before: Mapping[str, Any], crashes: int, clock: int) -> set[int]:
    """What crashes may cost a delivery that was not tried: nothing before it is due, both while it may just be."""
    due_ms = before.get("due_at", 0)
    return {crashes if due_ms <= at_ms else 0 for at_ms in (clock, clock - DECIDED_MS)}
