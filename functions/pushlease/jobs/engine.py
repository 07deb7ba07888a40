"""Claim → attempt → settle → publish: the one path that a hint's worker and the drain share.

::

    leads ──claim──▶ claimed ─┬─ taken over from a crash, others in hand ──▶ released, alone ──▶ one at a time, last
                     │        └─▶ attempt ─▶ settle ─▶ publish retries' hints, bury the dead
                     ├─▶ exhausted, broken ─▶ dead ─▶ bury
                     └─▶ lost race: somebody has it

A crash at any point leaves a row whose lease runs out. Before the claim nothing has happened; between claim and settle
the attempt is counted and repeated; after the settle only a hint or a letter is missing, which the drain replaces.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Self

from pushlease.codes import Code
from pushlease.jobs import burial, settle
from pushlease.jobs.job import DeliveryId, Job, JobId, Status
from pushlease.jobs.ports import (
    Attempter,
    Broken,
    Claimed,
    Ended,
    Exhausted,
    Hint,
    HintSender,
    JobStore,
    Lead,
    Letter,
    LetterSender,
    LostRace,
    Unavailable,
)
from pushlease.jobs.settle import Attempted, Policy, Settlement, Withdrawn

# A hint that follows a hint shares its trace, and the platform stops a chain at 16 invocations; a redriven letter may
# carry its trace along, so the chain is given up for the drain well before.
MAX_HOPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the engine decided about one job: one log line, one step of its timeline."""

    event: str
    job_id: JobId
    app_id: str = ""
    notification_id: str = ""
    status: str = ""
    attempts: int = 0
    claim_seq: int = 0
    deliveries: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class Report:
    """All decisions of one run, in order.

    ``unclaimed``: the store did not answer for these, so whoever gave the lead keeps it. ``unpublished``, ``unburied``:
    hints and letters that could not be sent; the drain makes up for them.
    """

    decisions: list[Decision] = field(default_factory=list)
    unclaimed: set[JobId] = field(default_factory=set)
    unpublished: int = 0
    unburied: int = 0

    def add(self, other: Self) -> None:
        """Go on with what another run decided."""
        self.decisions += other.decisions
        self.unclaimed |= other.unclaimed
        self.unpublished += other.unpublished
        self.unburied += other.unburied

    def count(self, event: str) -> int:
        """How many decisions were of this kind."""
        return sum(decision.event == event for decision in self.decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """What the leads turned out to be, other than lost."""

    claimed: list[Job] = field(default_factory=list)
    exhausted: list[Job] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Works jobs through its ports.

    ``clock``: epoch ms. ``dice``: uniform in [0, 1). ``new_id``: a fresh random id. ``least_time``: an attempt is not
    started with less time left than this, since a request may take that long.
    """

    store: JobStore
    hints: HintSender
    letters: LetterSender
    attempter: Attempter
    clock: Callable[[], int]
    dice: Callable[[], float]
    new_id: Callable[[], str]
    policy: Policy
    least_time: timedelta

    def has_time(self, deadline_ms: int) -> bool:
        """Whether an attempt may still be started."""
        return deadline_ms - self.clock() > self.least_time / timedelta(milliseconds=1)

    def work(self, leads: Sequence[Lead], *, deadline_ms: int) -> Report:
        """See through what the leads promise; what cannot be claimed is left to whoever gave the lead."""
        report = Report()
        # A job's latest lead: an earlier hint would lose its race, and the good one be deleted with it.
        leads = list({lead.job_id: lead for lead in sorted(leads, key=lambda lead: lead.claim_seq or 0)}.values())
        hops = {lead.job_id: lead.hops for lead in leads}
        claims = self._claim(leads, report)
        claimed, alone = claims.claimed, list[Lead]()
        if len(claimed) > 1:
            alone = self._set_aside([job for job in claimed if job.taken_over], report, deadline_ms=deadline_ms)
            claimed = [job for job in claimed if not job.taken_over]
        self._attempt(claimed, hops, report, deadline_ms=deadline_ms)
        self._end(claims, report)
        for lead in alone:
            if not self.has_time(deadline_ms):
                break  # the row is due already: the next drain goes on
            again = self._claim([lead], report)
            self._attempt(again.claimed, hops, report, deadline_ms=deadline_ms)
            self._end(again, report)
        return report

    def _claim(self, leads: Sequence[Lead], report: Report) -> _Claims:
        claims = _Claims()
        now_ms = self.clock()
        for lead, answer in zip(leads, self.store.claim(leads, now_ms=now_ms, lease=self.policy.lease), strict=True):
            match answer:
                case Claimed(job=job):
                    claims.claimed.append(job)
                case Exhausted(job=job):
                    claims.exhausted.append(job)
                case Broken():
                    claims.broken.append(answer)
                case Unavailable():
                    report.unclaimed.add(lead.job_id)
                    report.decisions.append(Decision(event="unclaimed", job_id=lead.job_id))
                case LostRace():
                    # An index row is behind its table at times; a hint that is late was served by somebody else.
                    event = "stale_index_read" if lead.claim_seq is None else "lost_race"
                    report.decisions.append(Decision(event=event, job_id=lead.job_id))
        return claims

    def _end(self, claims: _Claims, report: Report) -> None:
        """Bury what can never be attempted. After the living: a write that fails here must not cost them an attempt."""
        now_ms = self.clock()
        dead: list[Job] = []
        for job in claims.exhausted:
            death = settle.exhausted(job, now_ms=now_ms, policy=self.policy)
            if _written(job.job_id, partial(self.store.exhaust, job, death), report):
                dead += [_dead(job, death)] if death.died_at_ms is not None else []
                event = "exhausted" if death.status is not Status.PENDING else "set_aside"
                report.decisions.append(_decision(event, job, death))
        check_at_ms = now_ms + _ms(self.policy.burial_check)
        for broken in claims.broken:
            job_id, why = broken.job_id, broken.why
            condemn = partial(self.store.condemn, job_id, due_at_ms=check_at_ms, now_ms=now_ms, why=why)
            if remains := _written(job_id, condemn, report):
                dead.append(remains)
                report.decisions.append(Decision(event="condemned", job_id=job_id, app_id=remains.app_id, detail=why))
        self._bury(dead, report)

    def _set_aside(self, suspects: Sequence[Job], report: Report, *, deadline_ms: int) -> list[Lead]:
        """Release what may have crashed its worker, so that it does not take this worker's other jobs along."""
        now_ms = self.clock()
        releases = [
            settle.release(job, until_ms=now_ms, alone=True, now_ms=now_ms, policy=self.policy) for job in suspects
        ]
        kept = self._settle(list(zip(suspects, releases, strict=True)), report, deadline_ms=deadline_ms)
        return [Lead(job_id=job.job_id, due_at_ms=given_back.due_at_ms) for job, given_back in kept]

    def _attempt(self, jobs: Sequence[Job], hops: Mapping[JobId, int], report: Report, *, deadline_ms: int) -> None:
        if not jobs:
            return
        now_ms = self.clock()
        if not self.has_time(deadline_ms):
            releases = [
                settle.release(job, until_ms=now_ms, alone=job.taken_over, now_ms=now_ms, policy=self.policy)
                for job in jobs
            ]
            self._settle(list(zip(jobs, releases, strict=True)), report, deadline_ms=deadline_ms)
            return
        fresh = [job for job in jobs if job.expires_at_ms > now_ms]
        attempted: dict[JobId, Attempted] = {
            job.job_id: {delivery_id: settle.Failed(code=Code.EXPIRED) for delivery_id in job.open_deliveries}
            for job in jobs
            if job.expires_at_ms <= now_ms
        }
        if fresh:
            attempted |= self.attempter.attempt(fresh, now_ms=now_ms, deadline_ms=deadline_ms)

        now_ms = self.clock()
        decided: list[tuple[Job, Settlement]] = []
        withdrawn: list[Job] = []
        for job in jobs:
            results = attempted[job.job_id]
            if isinstance(results, Withdrawn):
                withdrawn.append(job)
                continue
            end = settle.settle(
                job,
                results,
                now_ms=now_ms,
                dice=self.dice,
                policy=self.policy,
                may_hint=hops.get(job.job_id, 0) < MAX_HOPS,
            )
            decided.append((job, end))
        settled = self._settle(decided, report, deadline_ms=deadline_ms)
        self._publish(settled, hops, report)
        self._bury([_dead(job, end) for job, end in settled if end.died_at_ms is not None], report)
        for job in withdrawn:  # last: nothing was sent for these, and their failing must not unsettle what was
            if _written(job.job_id, partial(self.store.cancel, [job.job_id], now_ms=now_ms), report) == [True]:
                report.decisions.append(_decision("cancelled", job, None, detail="notification deleted"))

    def _settle(
        self, decided: Sequence[tuple[Job, Settlement]], report: Report, *, deadline_ms: int
    ) -> list[tuple[Job, Settlement]]:
        kept: list[tuple[Job, Settlement]] = []
        answers = self.store.settle([settlement for _, settlement in decided], deadline_ms=deadline_ms)
        for (job, settlement), answer in zip(decided, answers, strict=True):
            match answer:
                case Ended.WRITTEN:
                    kept.append((job, settlement))
                    event = "released" if settlement.released else "settled"
                case Ended.LEASE_LOST:
                    if sent := _newly_sent(job, settlement):
                        _written(job.job_id, partial(self.store.record_late, job.job_id, sent), report)
                    event = "lease_lost"
                case Ended.UNKNOWN:
                    event = "unsettled"  # the lease runs out, and the job is attempted again
            report.decisions.append(_decision(event, job, settlement))
        return kept

    def _publish(self, settled: Sequence[tuple[Job, Settlement]], hops: Mapping[JobId, int], report: Report) -> None:
        retries = [
            Hint(
                job_id=job.job_id,
                claim_seq=end.claim_seq,
                due_at_ms=end.due_at_ms,
                app_id=job.app_id,
                hops=hops.get(job.job_id, 0) + 1,
                delay=end.hint_delay,
            )
            for job, end in settled
            if end.hint_delay is not None
        ]
        if retries:
            report.unpublished += self.hints.publish(retries)

    def _bury(self, dead: Sequence[Job], report: Report) -> None:
        letters: list[Letter] = [burial.letter_of(job, nonce=self.new_id()) for job in dead]
        if letters:
            report.unburied += self.letters.bury(letters)


def _written[T](job_id: JobId, write: Callable[[], T], report: Report) -> T | None:
    """The write's answer; None if it raised: the row is as it was, and the next drain meets it again."""
    try:
        return write()
    except Exception as error:  # the store's own kinds of fault are not the engine's to know
        report.decisions.append(Decision(event="unended", job_id=job_id, detail=type(error).__name__))
        return None


def _newly_sent(job: Job, settlement: Settlement) -> list[DeliveryId]:
    return [
        delivery_id for delivery_id in job.open_deliveries if settlement.deliveries[delivery_id].sent_at_ms is not None
    ]


def _dead(job: Job, death: Settlement) -> Job:
    """The row as its death left it, as far as a letter needs it."""
    return replace(
        job,
        status=death.status,
        deliveries=death.deliveries,
        last_error=death.last_error,
        died_at_ms=death.died_at_ms,
    )


def _decision(event: str, job: Job, settlement: Settlement | None, detail: str = "") -> Decision:
    deliveries = settlement.deliveries if settlement else {}
    return Decision(
        event=event,
        job_id=job.job_id,
        app_id=job.app_id,
        notification_id=job.notification_id,
        status=settlement.status if settlement else "",
        attempts=settlement.attempts if settlement else job.attempts,
        claim_seq=job.claim_seq,
        deliveries={
            delivery_id: f"{delivery.status}({delivery.code})" if delivery.code else delivery.status
            for delivery_id, delivery in deliveries.items()
        },
        detail=detail or (settlement.last_error or "" if settlement else ""),
    )


def _ms(span: timedelta) -> int:
    return int(span / timedelta(milliseconds=1))
