"""What travels through the queues."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_dead_job, a_hint, a_job_id, a_letter
from pushlease.errors import Unreadable
from pushlease.jobs.job import JobId
from pushlease.jobs.message import Tick, hint_body, letter_body, parse, tick_body
from pushlease.jobs.ports import Hint, Lead, Letter

names = st.text(st.characters(max_codepoint=127), min_size=1, max_size=128)
counts = st.integers(min_value=0, max_value=2**53 - 1)


@given(job_id=names, claim_seq=counts, due_at_ms=counts, hops=counts, app_id=names)
def test_a_hint_comes_back_as_a_lead(job_id: str, claim_seq: int, due_at_ms: int, hops: int, app_id: str) -> None:
    hint = Hint(job_id=JobId(job_id), claim_seq=claim_seq, due_at_ms=due_at_ms, hops=hops, app_id=app_id)
    assert parse(hint_body(hint)) == Lead(job_id=JobId(job_id), claim_seq=claim_seq, due_at_ms=due_at_ms, hops=hops)


@given(job_id=names, redrives=counts, nonce=names, app_id=names, code=names, died_at_ms=counts)
def test_a_letter_comes_back_as_it_was(
    job_id: str, redrives: int, nonce: str, app_id: str, code: str, died_at_ms: int
) -> None:
    letter = Letter(
        job_id=JobId(job_id), redrives=redrives, nonce=nonce, app_id=app_id, code=code, died_at_ms=died_at_ms
    )
    assert parse(letter_body(letter)) == letter


def test_a_tick_comes_back_as_hinted() -> None:
    assert parse(tick_body()) == Tick(hinted=True)
    assert parse('{"kind":"tick"}') == Tick(hinted=False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
FIELDS = ("job_id", "claim_seq", "due_at", "hops", "redrives", "nonce", "app_id", "code", "died_at", "hinted")


def _parsed_or_unreadable(body: str) -> None:
    try:
        message = parse(body)
    except Unreadable:
        return
    assert isinstance(message, Lead | Letter | Tick)
    if isinstance(message, Lead | Letter):
        message.job_id.encode()  # DynamoDB takes it
        assert message.job_id


@given(body=st.text())
def test_no_text_makes_the_parser_raise_anything_else(body: str) -> None:
    _parsed_or_unreadable(body)


@given(
    said=st.dictionaries(st.sampled_from(FIELDS), json_values | names | counts),
    kind=st.sampled_from(["hint", "letter", "tick"]) | json_values,
)
def test_no_json_makes_the_parser_raise_anything_else(said: dict[str, Any], kind: Any) -> None:
    _parsed_or_unreadable(json.dumps({"kind": kind, **said}))


@pytest.mark.parametrize("body", ["[" * 100_000, "9" * 5_000, '{"kind":' * 5_000, "", "null", "[]", '"hint"', "NaN"])
def test_hostile_bodies_are_unreadable(body: str) -> None:
    with pytest.raises(Unreadable):
        parse(body)


@pytest.mark.parametrize("field", ["job_id", "claim_seq", "due_at", "hops"])
@pytest.mark.parametrize("value", [None, True, -1, 1.5, 2**53, [], {}, "", "\ud800", "ß", "x" * 129])
def test_a_hint_with_a_wrong_field_is_unreadable_and_the_fault_names_the_field(field: str, value: object) -> None:
    said = json.loads(hint_body(a_hint())) | {field: value}
    with pytest.raises(Unreadable, match=rf"message\.{field}"):
        parse(json.dumps(said))


@pytest.mark.parametrize("field", ["job_id", "redrives", "nonce", "app_id", "code", "died_at"])
def test_a_letter_without_a_field_is_unreadable(field: str) -> None:
    said = json.loads(letter_body(a_letter(a_dead_job())))
    del said[field]
    with pytest.raises(Unreadable, match=rf"message\.{field}"):
        parse(json.dumps(said))


def test_the_fault_never_quotes_the_message() -> None:
    said = {"kind": "hint", "job_id": a_job_id(), "claim_seq": "s3cret"}
    with pytest.raises(Unreadable) as fault:
        parse(json.dumps(said))
    assert "s3cret" not in str(fault.value)
