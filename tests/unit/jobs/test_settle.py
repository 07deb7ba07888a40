"""What the results of an attempt make of a job."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import DAY_MS, HOUR_MS, NOW_MS, PHONE, SECOND_MS, TABLET, a_claimed_job, deliveries
from fakes import fixed_dice
from pushlease.codes import CHURN, Code
from pushlease.jobs.job import HISTORY_LIMIT, Delivery, DeliveryId, DeliveryStatus, Job, Status
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import (
    Delivered,
    Failed,
    Held,
    Policy,
    Result,
    Sent,
    Settlement,
    Suppressed,
    exhausted,
    release,
    settle,
)

GRACE_MS = 180 * SECOND_MS
POLICY = Policy(
    retry=RetryPolicy(schedule=listed([timedelta(seconds=30), timedelta(minutes=20)])),
    lease=timedelta(seconds=120),
    grace=timedelta(milliseconds=GRACE_MS),
)
FIRST_RETRY_MS = NOW_MS + 30 * SECOND_MS  # with the dice in the middle
RETRIED = [code for code in Code if code.retried]
FINAL = [code for code in Code if not code.retried]
NOT_TRIED = [Code.EXPIRED, Code.DEVICE_DELETED]
TROUBLE = Failed(code=Code.NETWORK_ERROR)


def ended(
    job: Job, results: Mapping[DeliveryId, Result], *, may_hint: bool = True, policy: Policy = POLICY
) -> Settlement:
    return settle(job, results, now_ms=NOW_MS, dice=fixed_dice(), policy=policy, may_hint=may_hint)


def settled(result: Result, **said: object) -> Settlement:
    """A job with one delivery, in its first attempt, and this result."""
    return ended(a_claimed_job(**said), {PHONE: result})


# ---- Each result


def test_a_sent_delivery_ends_the_job() -> None:
    end = settled(Sent(provider_id="p1"))
    assert end.status is Status.DONE
    assert end.deliveries == {
        PHONE: Delivery(status=DeliveryStatus.SENT, attempts=1, provider_id="p1", sent_at_ms=NOW_MS)
    }
    assert (end.hint_delay, end.died_at_ms, end.released) == (None, None, False)


def test_an_inbox_entry_is_the_delivery() -> None:
    end = settled(Delivered())
    assert end.status is Status.DONE
    assert end.deliveries[PHONE] == Delivery(status=DeliveryStatus.DELIVERED, attempts=1, sent_at_ms=NOW_MS)


def test_a_delivery_that_the_recipient_switched_off_is_suppressed_and_spends_nothing() -> None:
    end = settled(Suppressed())
    assert (end.status, end.deliveries[PHONE]) == (Status.DONE, Delivery(status=DeliveryStatus.SUPPRESSED))


@pytest.mark.parametrize("code", RETRIED)
def test_a_retried_code_waits_for_its_turn_and_keeps_the_code(code: Code) -> None:
    end = settled(Failed(code=code, reason="why"))
    assert end.status is Status.PENDING
    assert end.deliveries[PHONE] == Delivery(attempts=1, code=code, due_at_ms=FIRST_RETRY_MS)
    assert end.last_error == f"{code}: why"
    assert end.attempts == 1


@pytest.mark.parametrize("code", RETRIED)
@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_retried_code_at_the_maximum_kills_the_job(code: Code, max_attempts: int) -> None:
    job = a_claimed_job(max_attempts=max_attempts, deliveries=deliveries("phone", attempts=max_attempts - 1))
    end = ended(job, {PHONE: Failed(code=code)})
    assert end.status is Status.DEAD
    assert end.deliveries[PHONE] == Delivery(status=DeliveryStatus.FAILED, attempts=max_attempts, code=code)
    assert end.died_at_ms == NOW_MS


@pytest.mark.parametrize("code", FINAL)
def test_a_final_code_fails_the_delivery_at_once(code: Code) -> None:
    end = settled(Failed(code=code))
    assert end.deliveries[PHONE].status is DeliveryStatus.FAILED
    assert end.deliveries[PHONE].code == code
    assert end.status is (Status.DONE if code in CHURN else Status.DEAD)


@pytest.mark.parametrize("code", NOT_TRIED)
def test_what_we_decide_ourselves_spends_no_attempt_and_keeps_the_last_error(code: Code) -> None:
    job = a_claimed_job(deliveries=deliveries("phone", attempts=2, code="provider_error"), last_error="provider_error")
    end = ended(job, {PHONE: Failed(code=code, reason="now")})
    assert (end.deliveries[PHONE].attempts, end.deliveries[PHONE].code) == (2, code)
    assert end.last_error == "provider_error"


def test_a_held_delivery_waits_and_nothing_is_spent() -> None:
    job = a_claimed_job(deliveries=deliveries("phone", attempts=2, code="rate_limited"), attempts=3)
    end = ended(job, {PHONE: Held(until_ms=NOW_MS + HOUR_MS)})
    assert (end.status, end.attempts, end.released) == (Status.PENDING, 2, True)
    assert end.deliveries[PHONE] == Delivery(attempts=2, code="rate_limited", due_at_ms=NOW_MS + HOUR_MS)
    assert (end.due_at_ms, end.hint_delay) == (NOW_MS + HOUR_MS, None)
    assert end.history == job.history


def test_a_delivery_without_a_result_stays_as_it_was() -> None:
    waiting = Delivery(attempts=1, code="rate_limited", due_at_ms=NOW_MS + 40)
    job = a_claimed_job(deliveries={PHONE: waiting, TABLET: Delivery()})
    end = ended(job, {TABLET: Sent()})
    assert end.deliveries[PHONE] == waiting
    assert (end.status, end.attempts) == (Status.PENDING, 1)


@pytest.mark.parametrize("status", sorted(set(DeliveryStatus) - {DeliveryStatus.QUEUED}))
def test_a_delivery_that_is_through_is_never_touched_again(status: DeliveryStatus) -> None:
    through = Delivery(status=status, attempts=2, code="x", provider_id="p", sent_at_ms=5)
    job = a_claimed_job(deliveries={PHONE: through, TABLET: Delivery()})
    end = ended(job, {PHONE: Failed(code=Code.REJECTED), TABLET: Sent()})
    assert end.deliveries[PHONE] == through


# ---- Expiry


def test_a_retry_at_or_past_the_expiry_expires_and_keeps_the_error() -> None:
    end = settled(Failed(code=Code.PROVIDER_ERROR, reason="503"), expires_at_ms=FIRST_RETRY_MS)
    assert end.deliveries[PHONE] == Delivery(status=DeliveryStatus.FAILED, attempts=1, code=Code.EXPIRED)
    assert (end.status, end.last_error) == (Status.DONE, "provider_error: 503")


def test_a_retry_just_before_the_expiry_is_made() -> None:
    end = settled(Failed(code=Code.PROVIDER_ERROR), expires_at_ms=FIRST_RETRY_MS + 1)
    assert end.status is Status.PENDING


def test_spent_attempts_are_worse_than_the_expiry() -> None:
    job = a_claimed_job(max_attempts=1, expires_at_ms=NOW_MS + 1)
    assert ended(job, {PHONE: TROUBLE}).status is Status.DEAD


def test_retry_after_beyond_the_expiry_expires() -> None:
    end = settled(Failed(code=Code.RATE_LIMITED, retry_after=timedelta(days=2)), expires_at_ms=NOW_MS + DAY_MS)
    assert end.deliveries[PHONE].code == Code.EXPIRED


# ---- How a job ends


@pytest.mark.parametrize(
    ("phone", "tablet", "status"),
    [
        (Sent(), Sent(), Status.DONE),
        (Sent(), Failed(code=Code.INVALID_TOKEN), Status.DONE),
        (Failed(code=Code.EXPIRED_TOKEN), Failed(code=Code.DEVICE_DELETED), Status.DONE),
        (Sent(), Failed(code=Code.REJECTED), Status.DEAD),
        (Failed(code=Code.PAYLOAD_TOO_LARGE), Failed(code=Code.EXPIRED_TOKEN), Status.DEAD),
        (Failed(code=Code.REJECTED), TROUBLE, Status.PENDING),
        (Sent(), TROUBLE, Status.PENDING),
        (Suppressed(), Delivered(), Status.DONE),
    ],
)
def test_a_job_is_pending_while_any_delivery_is_queued_then_dead_before_done(
    phone: Result, tablet: Result, status: Status
) -> None:
    end = ended(a_claimed_job(deliveries=deliveries("phone", "tablet")), {PHONE: phone, TABLET: tablet})
    assert end.status is status


def test_an_earlier_attempts_failure_is_remembered_when_the_last_one_succeeds() -> None:
    rejected = Delivery(status=DeliveryStatus.FAILED, code="rejected", attempts=1)
    job = a_claimed_job(deliveries={PHONE: rejected, TABLET: Delivery()})
    assert ended(job, {TABLET: Sent()}).status is Status.DEAD


def test_a_setting_names_the_codes_that_a_person_should_see() -> None:
    job = a_claimed_job()
    churn = replace(POLICY, dead_codes=frozenset({Code.INVALID_TOKEN}))
    assert ended(job, {PHONE: Failed(code=Code.INVALID_TOKEN)}, policy=churn).status is Status.DEAD
    assert ended(job, {PHONE: Failed(code=Code.REJECTED)}, policy=churn).status is Status.DONE


def test_a_dead_job_is_next_looked_at_when_its_letter_must_have_been_seen() -> None:
    end = settled(Failed(code=Code.REJECTED))
    assert (end.due_at_ms, end.hint_delay) == (NOW_MS + 300 * SECOND_MS, None)


# ---- Attempts belong to deliveries


def test_crashed_claims_count_for_every_queued_delivery_and_the_job_has_the_highest() -> None:
    parts = {PHONE: Delivery(attempts=1), TABLET: Delivery(), **deliveries("watch", status=DeliveryStatus.SENT)}
    job = a_claimed_job(deliveries=parts, attempts=4, claim_seq=7, settled_seq=4, max_attempts=9)
    end = ended(job, {PHONE: TROUBLE, TABLET: Held(until_ms=NOW_MS)})
    assert [delivery.attempts for delivery in end.deliveries.values()] == [1 + 2 + 1, 0 + 2, 0]
    assert end.attempts == 4
    assert (end.claim_seq, end.alone) == (7, False)


def test_one_providers_failures_never_use_up_anothers_attempts() -> None:
    """APNs fails five times; FCM, held all the while, then has all five attempts to itself."""
    job = a_claimed_job(deliveries=deliveries("phone", "tablet"))
    for attempt in range(1, 6):
        end = ended(job, {PHONE: TROUBLE, TABLET: Held(until_ms=NOW_MS)})
        job = replace(
            job,
            deliveries=end.deliveries,
            attempts=end.attempts + 1,
            claim_seq=attempt + 1,
            settled_seq=attempt,
        )
    assert end.deliveries[PHONE].status is DeliveryStatus.FAILED
    assert (end.status, end.attempts, end.deliveries[TABLET].attempts) == (Status.PENDING, 0, 0)


def test_a_crash_brings_a_delivery_to_its_maximum() -> None:
    job = a_claimed_job(max_attempts=3, attempts=3, claim_seq=3, settled_seq=0)
    end = ended(job, {PHONE: TROUBLE})
    assert end.deliveries[PHONE].attempts == 3
    assert end.status is Status.DEAD


def test_a_job_taken_over_stays_alone_until_an_attempt_of_it_settles() -> None:
    suspect = a_claimed_job(claim_seq=2, settled_seq=0, attempts=2)
    assert ended(suspect, {PHONE: Held(until_ms=NOW_MS)}).alone
    assert not ended(suspect, {PHONE: TROUBLE}).alone
    assert not ended(replace(suspect, alone=True, settled_seq=1), {PHONE: TROUBLE}).alone
    assert ended(replace(suspect, alone=True, settled_seq=1), {PHONE: Held(until_ms=NOW_MS)}).alone


# ---- When it is due, and who says so


def test_a_short_wait_is_hinted_and_the_row_is_dated_past_it() -> None:
    end = settled(TROUBLE)
    assert end.hint_delay == timedelta(seconds=30)
    assert end.due_at_ms == FIRST_RETRY_MS + GRACE_MS


@pytest.mark.parametrize(("wait_ms", "hinted"), [(900_000, True), (900_001, False), (3_600_000, False)])
def test_a_wait_longer_than_sqs_can_delay_is_left_to_the_row(wait_ms: int, hinted: bool) -> None:
    exact = replace(POLICY, retry=RetryPolicy(schedule=listed([timedelta(milliseconds=wait_ms)])))
    end = ended(a_claimed_job(), {PHONE: TROUBLE}, policy=exact)
    assert end.hint_delay == (timedelta(milliseconds=wait_ms) if hinted else None)
    assert end.due_at_ms == NOW_MS + wait_ms + (GRACE_MS if hinted else 0)


def test_at_the_last_hop_the_row_alone_goes_on() -> None:
    end = ended(a_claimed_job(), {PHONE: TROUBLE}, may_hint=False)
    assert (end.hint_delay, end.due_at_ms) == (None, FIRST_RETRY_MS)


def test_the_earliest_delivery_decides_when_the_job_is_due() -> None:
    job = a_claimed_job(deliveries=deliveries("phone", "tablet"))
    slow = Failed(code=Code.RATE_LIMITED, retry_after=timedelta(minutes=10))
    end = ended(job, {PHONE: slow, TABLET: TROUBLE})
    assert end.hint_delay == timedelta(seconds=30)
    assert (end.deliveries[PHONE].due_at_ms or 0) >= NOW_MS + 600 * SECOND_MS


def test_a_part_of_a_millisecond_never_undercuts_a_floor() -> None:
    floor = Failed(code=Code.RATE_LIMITED, retry_after=timedelta(minutes=1, microseconds=1))
    end = settle(a_claimed_job(), {PHONE: floor}, now_ms=NOW_MS, dice=fixed_dice(0.0), policy=POLICY)
    assert end.deliveries[PHONE].due_at_ms == NOW_MS + 60_001


# ---- Release and exhaustion


def test_a_release_spends_nothing_and_sends_no_hint() -> None:
    job = a_claimed_job(attempts=3, claim_seq=3, settled_seq=2, deliveries=deliveries("phone", attempts=2))
    end = release(job, until_ms=NOW_MS + 7, alone=False, now_ms=NOW_MS, policy=POLICY)
    assert (end.status, end.attempts, end.deliveries) == (Status.PENDING, 2, job.deliveries)
    assert (end.due_at_ms, end.hint_delay, end.released, end.alone) == (NOW_MS + 7, None, True, False)


def test_a_release_after_a_crash_keeps_what_the_crash_cost() -> None:
    job = a_claimed_job(attempts=2, claim_seq=2, settled_seq=0)
    end = release(job, until_ms=NOW_MS, alone=True, now_ms=NOW_MS, policy=POLICY)
    assert (end.attempts, end.deliveries[PHONE].attempts, end.alone) == (1, 1, True)


def test_an_exhausted_jobs_queued_deliveries_fail_with_their_last_code_else_lost() -> None:
    parts = {
        PHONE: Delivery(attempts=1),
        TABLET: Delivery(attempts=1, code="provider_error", due_at_ms=NOW_MS),
        **deliveries("watch", status=DeliveryStatus.SENT, attempts=1),
    }
    job = a_claimed_job(attempts=5, claim_seq=5, settled_seq=1, deliveries=parts)
    end = exhausted(job, now_ms=NOW_MS, policy=POLICY)
    assert end.status is Status.DEAD
    assert [(d.status, d.code, d.attempts, d.due_at_ms) for d in end.deliveries.values()] == [
        (DeliveryStatus.FAILED, "lost", 5, None),
        (DeliveryStatus.FAILED, "provider_error", 5, None),
        (DeliveryStatus.SENT, None, 1, None),
    ]
    assert (end.last_error or "").startswith("lost: ")


def test_an_exhausted_job_goes_on_alone_for_what_has_attempts_left() -> None:
    """Four failures of one provider and a crash are not five of the other."""
    parts = {PHONE: Delivery(attempts=4, code="provider_error"), TABLET: Delivery(attempts=1, code="rate_limited")}
    job = a_claimed_job(attempts=5, claim_seq=7, settled_seq=6, deliveries=parts)
    end = exhausted(job, now_ms=NOW_MS, policy=POLICY)
    assert (end.status, end.attempts, end.alone, end.due_at_ms) == (Status.PENDING, 2, True, NOW_MS)
    assert [(d.status, d.code, d.attempts) for d in end.deliveries.values()] == [
        (DeliveryStatus.FAILED, "provider_error", 5),
        (DeliveryStatus.QUEUED, "rate_limited", 2),
    ]
    assert end.died_at_ms is None


def test_a_crash_is_not_charged_to_what_was_not_due() -> None:
    parts = {PHONE: Delivery(), TABLET: Delivery(attempts=1, code="rate_limited", due_at_ms=NOW_MS + 1)}
    job = a_claimed_job(attempts=3, claim_seq=3, settled_seq=0, deliveries=parts)
    end = settle(job, {PHONE: Sent()}, now_ms=NOW_MS, dice=lambda: 0.0, policy=POLICY)
    assert [d.attempts for d in end.deliveries.values()] == [3, 1]


# ---- The timeline


def test_every_settled_attempt_is_one_entry_of_the_timeline() -> None:
    job = a_claimed_job(deliveries=deliveries("a", "b", "c"), claim_seq=4, settled_seq=3, history=("1 earlier",))
    results: dict[DeliveryId, Result] = {DeliveryId("a"): Sent(), DeliveryId("b"): TROUBLE, DeliveryId("c"): TROUBLE}
    assert ended(job, results).history == ("1 earlier", f"{NOW_MS} #4 1 sent, 2 network_error")


def test_the_timeline_is_bounded_and_loses_its_oldest() -> None:
    job = a_claimed_job(history=tuple(f"{at} x" for at in range(HISTORY_LIMIT)))
    history = ended(job, {PHONE: Sent()}).history
    assert len(history) == HISTORY_LIMIT
    assert history[0] == "1 x"
    assert history[-1].endswith("sent")


# ---- Whatever happens

anything = st.one_of(
    st.just(Sent()),
    st.just(Delivered()),
    st.just(Suppressed()),
    st.builds(
        Failed,
        code=st.sampled_from(Code),
        retry_after=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=2)),
    ),
    st.builds(Held, until_ms=st.integers(NOW_MS - DAY_MS, NOW_MS + DAY_MS)),
    st.none(),
)


@given(
    given_=st.lists(st.tuples(st.sampled_from(DeliveryStatus), anything, st.integers(0, 4)), min_size=1, max_size=5),
    crashed=st.integers(0, 2),
    max_attempts=st.integers(1, 9),
    left_ms=st.integers(1, DAY_MS),
    dice=st.floats(0, 1, exclude_max=True),
    may_hint=st.booleans(),
)
def test_no_attempt_breaks_the_rules_of_a_job(
    given_: list[tuple[DeliveryStatus, Result | None, int]],
    crashed: int,
    max_attempts: int,
    left_ms: int,
    dice: float,
    may_hint: bool,
) -> None:
    names = [DeliveryId(f"d{at}") for at in range(len(given_))]
    job = a_claimed_job(
        deliveries={
            name: Delivery(status=status, attempts=min(attempts, max_attempts - 1))
            for name, (status, _, attempts) in zip(names, given_, strict=True)
        },
        attempts=1,
        claim_seq=crashed + 1,
        max_attempts=max_attempts,
        expires_at_ms=NOW_MS + left_ms,
    )
    answers = {name: result for name, (_, result, _) in zip(names, given_, strict=True) if result}
    end = settle(job, answers, now_ms=NOW_MS, dice=fixed_dice(dice), policy=POLICY, may_hint=may_hint)

    queued = [d for d in end.deliveries.values() if d.status is DeliveryStatus.QUEUED]
    assert (end.status is Status.PENDING) == bool(queued)
    assert set(end.deliveries) == set(names)
    for name in names:
        before, after = job.deliveries[name], end.deliveries[name]
        if before.status is not DeliveryStatus.QUEUED:
            assert after == before
        elif isinstance(answers.get(name), Sent):
            assert after.status is DeliveryStatus.SENT
        assert after.attempts >= before.attempts
        failed = answers.get(name)
        if after in queued and isinstance(failed, Failed):
            assert NOW_MS < (after.due_at_ms or 0) < job.expires_at_ms
            assert after.attempts < max_attempts
            if failed.retry_after:
                assert (after.due_at_ms or 0) - NOW_MS >= failed.retry_after / timedelta(milliseconds=1)
    assert end.due_at_ms >= NOW_MS
    if end.hint_delay is not None:
        assert may_hint
        assert end.status is Status.PENDING
        assert timedelta(0) <= end.hint_delay <= timedelta(seconds=900)
        assert end.due_at_ms == NOW_MS + end.hint_delay / timedelta(milliseconds=1) + GRACE_MS
    assert (end.died_at_ms is not None) == (end.status is Status.DEAD)
    if end.released:
        assert end.hint_delay is None
