"""What a job is called, and what can be told from its row."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PHONE, TABLET, a_job, a_job_id, some_content
from pushlease.jobs.job import Delivery, DeliveryStatus, job_id_of, push_id_of, shard_of, with_late


def test_the_same_identity_always_gets_the_same_id() -> None:
    assert job_id_of("shop", "n1", "u1") == job_id_of("shop", "n1", "u1")


@pytest.mark.parametrize(
    "other", [("shop", "n1", "u2"), ("shop", "n1u1", ""), ("shop", "n", "1u1"), ("shop", "n1", "u1", "d")]
)
def test_other_identities_get_other_ids(other: tuple[str, ...]) -> None:
    assert job_id_of(*other) != job_id_of("shop", "n1", "u1")


@given(shards=st.integers(1, 256))
def test_a_job_is_always_in_the_same_one_of_the_shards(shards: int) -> None:
    job_id = a_job_id()
    assert 0 <= shard_of(job_id, shards) < shards
    assert shard_of(job_id, shards) == shard_of(job_id, shards)


def test_a_push_has_a_canonical_uuid_that_is_the_same_at_every_attempt() -> None:
    job_id = a_job_id()
    push_id = push_id_of(job_id, PHONE)
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", push_id)
    assert push_id == push_id_of(job_id, PHONE)
    assert push_id != push_id_of(job_id, TABLET)


@pytest.mark.parametrize(
    ("claim_seq", "settled_seq", "alone", "crashed", "taken_over"),
    [
        (0, 0, False, 0, False),
        (1, 0, False, 0, False),
        (2, 0, False, 1, True),
        (5, 4, True, 0, True),
        (5, 5, False, 0, False),
    ],
)
def test_a_claim_that_follows_a_crash_can_be_told(
    claim_seq: int, settled_seq: int, alone: bool, crashed: int, taken_over: bool
) -> None:
    job = a_job(claim_seq=claim_seq, settled_seq=settled_seq, alone=alone)
    assert (job.crashed_claims, job.taken_over) == (crashed, taken_over)


def test_what_was_sent_late_is_sent() -> None:
    parts = {PHONE: Delivery(attempts=1, code="network_error", due_at_ms=5), TABLET: Delivery()}
    known = with_late(parts, frozenset({PHONE, "gone"}))
    assert known == {PHONE: Delivery(status=DeliveryStatus.SENT, attempts=1), TABLET: Delivery()}


def test_a_job_shows_none_of_its_text() -> None:
    job = a_job(content=some_content(title="s3cret").to_json())
    assert "s3cret" not in repr(job)
