"""Audiences: one job a recipient however often a page is worked, progress, pace, pause, cancel."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS, PHONE, a_device, a_recipient, some_content
from pushlease.codes import Code
from pushlease.errors import BadRequest
from pushlease.jobs.job import Status
from pushlease.push.audience import (
    MAX_LINE_BYTES,
    PAGE_BYTES,
    Entry,
    Fault,
    Listed,
    State,
    entries_of,
    listed_text,
    span_of,
)
from pushlease.push.notification import Content
from pushlease.push.outcome import Refused
from pushlease.push.plan import Target, target_job_id
from pushlease.push.preference import Preferences, Transport
from system import System

USERS = [f"user-{at:04d}" for at in range(1000)]


@pytest.fixture
def system() -> System:
    return System()


def with_devices(system: System, users: list[str]) -> None:
    for user in users:
        system.devices.register(a_device(recipient=a_recipient(user)))


def run(system: System, *, ticks: int = 20) -> None:
    """Tick, work what is given out, a minute apart."""
    for _ in range(ticks):
        system.drain()
        system.work_pages()
        system.clock.forward(seconds=61)


def seen(told: Any) -> dict[str, int]:
    """An audience's progress, without what there is none of."""
    return {word: count for word, count in told["recipients"].items() if count}


# ---- Lists


def pages_of(text: bytes) -> list[list[Entry | Fault]]:
    listed = Listed(size_bytes=len(text))
    found = []
    for page in range(listed.pages):
        start, end = span_of(page, listed)
        found.append(list(entries_of(text[start:end], page)))
    return found


LONG = "x" * (MAX_LINE_BYTES - 1)
LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=40)
    | st.sampled_from(["x" * 100, "x" * 128, "", "user", "ü" * 60, LONG, LONG * 3]),
    max_size=200,
)


@settings(max_examples=200, deadline=None)
@given(LINES, st.booleans())
def test_every_line_is_of_one_page_whatever_its_length(lines: list[str], ended: bool) -> None:
    text = "\n".join(lines).encode() + (b"\n" if ended else b"")
    found = [line for page in pages_of(text) for line in page]
    wanted = [line.strip().removeprefix("\ufeff") for line in lines]
    entries = [line.user_id for line in found if isinstance(line, Entry)]
    faults = [line for line in found if isinstance(line, Fault)]
    assert len(found) == sum(bool(line) or len(line) > MAX_LINE_BYTES for line in wanted)
    assert entries == [line for line in wanted if line in set(entries)]
    starts = {0} | {at + 1 for at, byte in enumerate(text) if byte == 10}
    assert all(fault.at in starts for fault in faults)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("two words", "user_id: must be 1 to 128"),
        ("x" * 129, "user_id: must be 1 to 128"),
        ("{", "JSON object"),
        ('{"user_id": 1}', "user_id"),
        ('{"user": "ada"}', "user_id and variables alone"),
        ('{"user_id": "ada", "variables": []}', "variables: must be an object"),
        ('{"user_id": "ada", "variables": {"a b": "x"}}', "a name must be"),
        ('{"user_id": "ada", "variables": {"a": 1}}', "variables.a: must be text"),
        ('{"user_id": "ada", "variables": {"a": "\\ud800"}}', "variables.a: must be text"),
        ('{"user_id": "ada", "variables": {"a": "' + "x" * 1025 + '"}}', "variables.a: must be text"),
        ("x" * 5000, "at most 4096 bytes"),
        ("[" * 3000, "user_id"),
        ('{"a":' * 700, "JSON object"),
    ],
)
def test_a_line_that_is_no_entry_says_why(line: str, rule: str) -> None:
    (fault,) = pages_of(line.encode())[0]
    assert isinstance(fault, Fault)
    assert rule in fault.rule


def test_a_line_that_is_no_text_costs_only_itself() -> None:
    found = pages_of(b"\xef\xbb\xbfada\r\n\xff\xfe\r\n\r\nalan\r\n")[0]
    assert [line.user_id if isinstance(line, Entry) else line.at for line in found] == ["ada", 8, "alan"]


def test_entries_are_written_as_they_are_read() -> None:
    entries = [Entry(user_id="ada"), Entry(user_id="ålan", variables={"name": "Å\n"}), Entry(user_id="{odd")]
    assert [line for page in pages_of(listed_text(entries)) for line in page][:2] == entries[:2]


# ---- Accepted, once


def test_an_audience_is_sent_page_by_page_and_told_of(system: System) -> None:
    with_devices(system, USERS[:-10])
    system.lists.objects["all.txt"] = "\n".join(USERS).encode()
    accepted = system.send_audience(key="all.txt", notification_id="sale")
    assert accepted == {"notification_id": "sale", "pages": 3, "variables": [], "duplicate": False}
    assert system.jobs.rows == {}
    run(system)
    assert len(system.jobs.rows) == 1000
    assert Counter(push.device.recipient.user_id for push in system.pusher.pushed) == Counter(USERS[:-10])
    told = system.audience.tell("shop", "sale")
    assert seen(told) == {"accepted": 1000, "sent": 990, "skipped": 10}
    assert (told["state"], told["pages_stored"], system.ended) == ("finished", 3, [("shop#sale", "finished")])


@settings(max_examples=10, deadline=None)  # of a second each
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 2), max_size=12))
def test_pages_worked_again_in_any_order_make_one_job_a_recipient(dice: random.Random, again: list[int]) -> None:
    system = System()
    with_devices(system, USERS)
    system.lists.objects["all.txt"] = "\n".join([*USERS, *USERS[:50]]).encode()
    system.send_audience(key="all.txt", notification_id="sale")
    system.drain()
    pages = [system.pages.given[at % len(system.pages.given)] for at in again] + system.pages.given
    dice.shuffle(pages)
    system.pages.given = pages
    system.work_pages()
    run(system, ticks=5)
    assert len(system.jobs.rows) == 1000 == len(system.pusher.pushed)
    recipients = system.audience.tell("shop", "sale")["recipients"]
    assert (recipients["sent"], recipients["duplicate"]) == (1000, 50)


def test_a_worker_that_dies_between_two_writes_leaves_a_page_that_is_met_again(system: System) -> None:
    with_devices(system, USERS[:100])
    system.send_audience(*USERS[:100], notification_id="sale")
    system.drain()
    system.jobs.unavailable.add(target_job_id("shop", "sale", Target(user_id="user-0042")))
    system.work_pages()
    assert (len(system.jobs.rows), system.audiences.tallies, system.faults) == (99, {}, ["StoreUnavailable"])
    system.jobs.unavailable.clear()
    run(system)
    assert len(system.jobs.rows) == 100 == len(system.pusher.pushed)
    assert system.audience.tell("shop", "sale")["recipients"]["sent"] == 100


def test_a_page_whose_message_got_lost_is_given_out_again(system: System) -> None:
    with_devices(system, USERS[:3])
    system.send_audience(*USERS[:3], notification_id="sale")
    system.drain()
    system.pages.given.clear()
    run(system)
    assert len(system.pusher.pushed) == 3
    assert system.ended == [("shop#sale", "finished")]


def test_the_same_request_again_is_the_same_audience_and_another_list_is_refused(system: System) -> None:
    first = system.send_audience("ada", "alan", idempotency_key="k")
    again = system.send_audience("ada", "alan", idempotency_key="k")
    assert (again["duplicate"], again["notification_id"]) == (True, first["notification_id"])
    with pytest.raises(BadRequest) as refusal:
        system.send_audience("ada", "grace", idempotency_key="k")
    assert refusal.value.field == "idempotency_key"


def test_a_dry_run_stores_nothing(system: System) -> None:
    told = system.send_audience("ada", dry_run=True, content=some_content(title="Hi {{ name }}"))
    assert (told["dry_run"], told["variables"]) == (True, ["name"])
    assert (system.audiences.heads, system.notifications.rows) == ({}, {})


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "audience"),
        ({"key": "all.txt", "entries": [Entry(user_id="ada")]}, "audience"),
        ({"key": "none.txt"}, "audience.key"),
        (
            {"entries": [Entry(user_id="ada", variables=dict.fromkeys("abcde", "x" * 1000))]},
            "audience.recipients.0",
        ),
        ({"entries": [Entry(user_id="ada")], "content": some_content(title="{{ a.b }}")}, "content.title"),
        ({"entries": [Entry(user_id="ada")], "content": some_content(body="x" * 5000)}, "content"),
        ({"entries": [Entry(user_id="ada")], "expires_at_ms": NOW_MS - 1}, "expires_at_ms"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(system: System, said: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        system.send_audience(**said)
    assert refusal.value.field == field
    assert (system.audiences.heads, system.notifications.rows) == ({}, {})


# ---- What each recipient gets


def test_variables_are_filled_for_each(system: System) -> None:
    with_devices(system, ["ada", "alan", "grace"])
    content = Content(title="Hi {{ name }}", body="y" * 3300, locales={"de": {"title": "Hallo {{ name }}"}})
    entries = [
        Entry(user_id="ada", variables={"name": "Ada"}),
        Entry(user_id="alan"),
        Entry(user_id="grace", variables={"name": "x" * 1000}),
    ]
    system.recipients.put(a_recipient("ada"), Preferences(locale="de"))
    system.send_audience(entries=entries, content=content, notification_id="hi")
    run(system)
    assert [push.content.title for push in system.pusher.pushed] == ["Hallo Ada"]
    told = system.audience.tell("shop", "hi")
    assert seen(told) == {"accepted": 1, "sent": 1, "invalid": 2}
    assert [fault["rule"] for fault in told["faults"]] == [
        "alan: variables.name: must be given: content.title names it",
        "grace: content: must be at most 4096 bytes",
    ]


def test_wishes_are_respected_and_counted(system: System) -> None:
    with_devices(system, ["ada", "alan"])
    system.recipients.put(a_recipient("alan"), Preferences(channels={"news": {Transport.PUSH: False}}))
    system.send_audience("ada", "alan", "nobody", channel="news", notification_id="n")
    run(system)
    told = system.audience.tell("shop", "n")
    assert seen(told) == {"accepted": 3, "sent": 1, "suppressed": 1, "skipped": 1}


def test_a_rate_spreads_the_recipients(system: System) -> None:
    with_devices(system, USERS[:120])
    system.send_audience(*USERS[:120], notification_id="slow", rate_per_s=1)
    system.drain()
    system.work_pages()
    due = sorted(job.deliveries[PHONE].due_at_ms or NOW_MS for job in system.jobs.rows.values())
    assert due == [NOW_MS + second * 1000 for second in range(120)]
    assert len(system.pusher.pushed) == 1
    sent = []
    for _ in range(4):
        system.clock.forward(seconds=30)
        system.drain()
        sent.append(len(system.pusher.pushed))
    assert sent == [31, 61, 91, 120]


def test_jobs_of_an_audience_send_no_hints(system: System) -> None:
    with_devices(system, ["ada"])
    system.send_audience("ada", notification_id="n")
    system.drain()
    system.work_pages()
    assert system.hints.published == []


# ---- Pause, resume, cancel, and the end


def test_a_paused_audience_sends_nothing_until_it_is_resumed(system: System) -> None:
    with_devices(system, USERS[:10])
    system.send_audience(*USERS[:10], notification_id="n", rate_per_s=1)
    system.drain()
    system.work_pages()
    assert system.audience.pause("shop", "n", paused=True)["changed"]
    before = len(system.pusher.pushed)
    run(system, ticks=3)
    assert len(system.pusher.pushed) == before
    assert system.audience.tell("shop", "n")["state"] == "paused"
    assert system.audience.pause("shop", "n", paused=False)["state"] == "running"
    run(system, ticks=12)
    assert len(system.pusher.pushed) == 10
    assert all(job.deliveries[PHONE].attempts == 1 for job in system.jobs.rows.values())


def test_a_cancelled_audience_sends_nothing_more(system: System) -> None:
    with_devices(system, USERS[:10])
    system.send_audience(*USERS[:10], notification_id="n", rate_per_s=1)
    system.drain()
    system.work_pages()
    assert system.audience.cancel("shop", "n")
    run(system)
    assert len(system.pusher.pushed) == 1
    assert Counter(job.status for job in system.jobs.rows.values()) == {Status.DONE: 1, Status.CANCELLED: 9}
    assert not system.audience.pause("shop", "n", paused=False)["changed"]
    assert not system.audience.cancel("shop", "other")


def test_a_list_that_was_changed_fails_the_audience_and_says_so(system: System) -> None:
    system.lists.objects["all.txt"] = b"ada\n"
    system.send_audience(key="all.txt", notification_id="n")
    system.lists.objects["all.txt"] = b"mallory\n"
    run(system, ticks=3)
    told = system.audience.tell("shop", "n")
    assert (told["state"], system.jobs.rows) == ("failed", {})
    assert "changed or deleted" in told["fault"]


def test_an_audience_that_takes_too_long_is_given_up_and_says_so(system: System) -> None:
    system.send_audience("ada", notification_id="n", expires_at_ms=NOW_MS + HOUR_MS)
    system.clock.now_ms += HOUR_MS
    run(system, ticks=1)
    assert "expired" in system.audience.tell("shop", "n")["fault"]


def test_what_is_unknown_is_refused_by_name(system: System) -> None:
    with pytest.raises(BadRequest) as refusal:
        system.audience.tell("shop", "never")
    assert refusal.value.field == "notification_id"


def test_retries_of_an_audience_are_counted_when_they_are_through(system: System) -> None:
    with_devices(system, ["ada"])
    system.send_audience("ada", notification_id="n", ttl_s=2 * DAY_MS // 1000)
    (device,) = (device for device in system.devices.rows.values() if device.recipient == a_recipient("ada"))
    system.pusher.script[device.push_token] = Refused(code=Code.PROVIDER_ERROR, reason="503")
    run(system, ticks=2)
    assert system.audience.tell("shop", "n")["recipients"]["pending"] == 1
    assert system.hints.published == []
    del system.pusher.script[device.push_token]
    run(system, ticks=10)
    assert system.audience.tell("shop", "n")["recipients"]["sent"] == 1


def test_the_list_of_a_request_is_dropped_once_it_is_worked(system: System) -> None:
    system.send_audience(*USERS[:600], notification_id="n")
    assert b"user-0000" in b"".join(system.audiences.texts.values())
    run(system)
    assert system.audiences.texts == {}


def test_states_that_are_over() -> None:
    assert [state for state in State if not state.over] == [State.RUNNING, State.PAUSED]
    assert replace(Listed(size_bytes=PAGE_BYTES), size_bytes=PAGE_BYTES + 1).pages == 2
    assert MINUTE_MS
