"""Letters on their way into the dead-letter queue, and back."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import DAY_MS, HOUR_MS, NOW_MS, PHONE, TABLET, a_dead_job, a_job, a_letter, deliveries
from fakes import fixed_dice
from pushlease.codes import Code
from pushlease.jobs.burial import Burial, Receipt, judge, letter_of, next_check, revival_of
from pushlease.jobs.job import Delivery, DeliveryStatus, Job, Sight, Status

SEEN = Sight(sent_at_ms=NOW_MS, message_id="m1")
AS_SEEN = Receipt(sent_at_ms=NOW_MS, message_id="m1", receive_count=1)


def judged(job: Job | None, receipt: Receipt, *, nonce: str = "a", redrives: int = 0) -> Burial:
    letter = a_letter(job or a_dead_job(), nonce=nonce, redrives=redrives)
    return judge(letter, receipt, job, max_receive_count=lambda: 3)


@pytest.mark.parametrize("receive_count", [1, 2, 3, 4, 99])
def test_a_letter_never_seen_before_is_sighted_whatever_its_receipt(receive_count: int) -> None:
    receipt = replace(AS_SEEN, receive_count=receive_count)
    assert judged(a_dead_job(), receipt) is Burial.SIGHT
    assert judged(a_dead_job(sights={"other": SEEN}), receipt) is Burial.SIGHT


@pytest.mark.parametrize("receive_count", [1, 2, 3])
def test_the_same_message_again_is_refused_until_sqs_has_had_enough(receive_count: int) -> None:
    assert judged(a_dead_job(sights={"a": SEEN}), replace(AS_SEEN, receive_count=receive_count)) is Burial.REFUSE


REDRIVEN = {
    "a new message, counted afresh, as SendMessage by hand makes it": Receipt(
        sent_at_ms=NOW_MS + 1, message_id="m2", receive_count=1
    ),
    "the same id, sent anew": Receipt(sent_at_ms=NOW_MS + 1, message_id="m1", receive_count=1),
    "another id, the old instant": Receipt(sent_at_ms=NOW_MS, message_id="m2", receive_count=1),
    "an older instant under another id": Receipt(sent_at_ms=NOW_MS - 5, message_id="m2", receive_count=1),
    "all kept, but the count went on": Receipt(sent_at_ms=NOW_MS, message_id="m1", receive_count=4),
    "everything at once": Receipt(sent_at_ms=NOW_MS + DAY_MS, message_id="m2", receive_count=9),
}


@pytest.mark.parametrize("how", REDRIVEN)
def test_a_letter_that_came_back_revives_however_it_was_moved(how: str) -> None:
    assert judged(a_dead_job(sights={"a": SEEN}), REDRIVEN[how]) is Burial.REVIVE


@pytest.mark.parametrize(
    ("dead_for", "wait"),
    [(0, 300), (299, 300), (300, 300), (3_600, 3_600), (86_400, 86_400), (86_400 * 9, 86_400)],
)
def test_letters_of_one_death_come_ever_more_seldom(dead_for: int, wait: int) -> None:
    job = a_dead_job(died_at_ms=NOW_MS - dead_for * 1000)
    assert next_check(job, now_ms=NOW_MS, least=timedelta(minutes=5)) == timedelta(seconds=wait)


def test_the_queues_own_limit_is_asked_for_only_where_it_decides() -> None:
    asked: list[int] = []
    letter = a_letter(a_dead_job(), nonce="a")
    for job, receipt in (
        (a_dead_job(), AS_SEEN),
        (a_dead_job(sights={"a": SEEN}), REDRIVEN["another id, the old instant"]),
        (a_job(), AS_SEEN),
    ):
        judge(letter, receipt, job, max_receive_count=lambda: asked.append(1) or 3)
    assert asked == []


@given(later=st.integers(min_value=0, max_value=30 * DAY_MS))
def test_elapsed_time_decides_nothing(later: int) -> None:
    job = a_dead_job(sights={"a": SEEN}, due_at_ms=NOW_MS + later, died_at_ms=NOW_MS - later)
    assert judged(job, AS_SEEN) is Burial.REFUSE


@pytest.mark.parametrize("receipt", [AS_SEEN, *REDRIVEN.values()])
def test_a_letter_of_a_death_that_is_over_is_discarded(receipt: Receipt) -> None:
    sights = {"a": SEEN}
    assert judged(None, receipt) is Burial.DISCARD
    assert judged(a_dead_job(sights=sights, redrives=1), receipt) is Burial.DISCARD
    assert judged(a_dead_job(sights=sights), receipt, redrives=1) is Burial.DISCARD
    for status in (Status.PENDING, Status.DONE, Status.CANCELLED):
        assert judged(a_job(status=status, sights=sights), receipt) is Burial.DISCARD


@pytest.mark.parametrize(
    ("last_error", "code"),
    [
        ("rejected: apns: BadTopic", "rejected"),
        ("lost: claimed 5 times", "lost"),
        ("rejected", "rejected"),
        (None, "unreadable"),
    ],
)
def test_a_letter_names_its_death(last_error: str | None, code: str) -> None:
    job = a_dead_job(last_error=last_error, redrives=2)
    letter = letter_of(job, nonce="a")
    assert (letter.job_id, letter.redrives, letter.nonce, letter.code) == (job.job_id, 2, "a", code)
    assert letter.died_at_ms == job.died_at_ms


# ---- Revival


def revived(job: Job, dice: float = 0.0) -> dict[str, Delivery]:
    revival = revival_of(job, now_ms=NOW_MS, dice=fixed_dice(dice), spread=timedelta(seconds=5))
    return {str(id_): delivery for id_, delivery in revival.deliveries.items()}


@pytest.mark.parametrize("code", Code)
def test_what_a_fix_can_cure_is_queued_again_with_a_fresh_count(code: Code) -> None:
    failed = Delivery(status=DeliveryStatus.FAILED, code=code, attempts=5)
    beyond = {Code.INVALID_TOKEN, Code.EXPIRED_TOKEN, Code.DEVICE_DELETED, Code.EXPIRED}
    assert revived(a_dead_job(deliveries={PHONE: failed})) == {PHONE: failed if code in beyond else Delivery()}


@pytest.mark.parametrize("code", [None, "from_a_later_version"])
def test_a_code_that_we_do_not_know_does_not_stand_in_the_way(code: str | None) -> None:
    failed = Delivery(status=DeliveryStatus.FAILED, code=code, attempts=5)
    assert revived(a_dead_job(deliveries={PHONE: failed})) == {PHONE: Delivery()}


def test_what_is_queued_in_a_row_that_was_mended_starts_anew() -> None:
    assert revived(a_dead_job(deliveries=deliveries("tablet", attempts=2, code="rate_limited"))) == {TABLET: Delivery()}


@pytest.mark.parametrize("status", sorted(set(DeliveryStatus) - {DeliveryStatus.FAILED, DeliveryStatus.QUEUED}))
def test_everything_else_stays_as_it_was(status: DeliveryStatus) -> None:
    parts = {PHONE: Delivery(status=status, attempts=1, code="unconfigured")}
    assert revived(a_dead_job(deliveries=parts)) == parts


def test_the_expiry_is_extended_by_its_original_span() -> None:
    job = a_dead_job(created_at_ms=NOW_MS - DAY_MS, expires_at_ms=NOW_MS - DAY_MS + HOUR_MS)
    revival = revival_of(job, now_ms=NOW_MS, dice=fixed_dice(), spread=timedelta(0))
    assert revival.expires_at_ms == NOW_MS + HOUR_MS


def test_a_mass_redrive_is_spread() -> None:
    def due(dice: float) -> int:
        return revival_of(a_dead_job(), now_ms=NOW_MS, dice=fixed_dice(dice), spread=timedelta(seconds=5)).due_at_ms

    assert [due(dice) - NOW_MS for dice in (0.0, 0.5, 0.9)] == [0, 2500, 4500]


def test_a_revival_names_the_death_it_ends_and_notes_itself() -> None:
    revival = revival_of(a_dead_job(redrives=2), now_ms=NOW_MS, dice=fixed_dice(), spread=timedelta(0))
    assert revival.redrives == 2
    assert revival.history == (f"{NOW_MS} redrive 3",)
