"""What people see of the system, and what nobody must."""

import io
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from hypothesis import given
from hypothesis import strategies as st

from builders import a_dead_job, a_job_id, a_letter
from pushlease.jobs.engine import Decision, Report
from pushlease.observe import REDACTED, Observer, RedactingFormatter, redacted

APNS_PUSH_TOKEN = "0a" * 29 + "c0ffee"
FCM_PUSH_TOKEN = "dQw4w9WgXcQ-abc:APA91b" + "X" * 30 + "tail42"
JWT = "eyJhbGciOiJFUzI1NiJ9" + ".eyJpc3MiOiJURUFNIn0.c2lnbmF0dXJl"
GOOGLE = "ya29" + ".a0AfB_byC-secret_part"
PEM = "-----BEGIN " + "PRIVATE KEY-----\nMIGTAgEAMBMG\n-----END PRIVATE KEY-----"
_serials = count(1)


@pytest.mark.parametrize("secret", [JWT, GOOGLE, PEM, PEM[:60], "Bearer abcdefghijklmnop1234", "bearer " + "x" * 40])
@pytest.mark.parametrize("where", ["{}", "answered {} at last", "a\n{}\nb"])
def test_what_looks_like_a_credential_is_cut_from_any_text(secret: str, where: str) -> None:
    cut = redacted({"detail": [where.format(secret)]})["detail"][0]
    assert secret.split()[-1][:30] not in cut
    assert REDACTED in cut


@pytest.mark.parametrize("push_token", [APNS_PUSH_TOKEN, APNS_PUSH_TOKEN.upper(), FCM_PUSH_TOKEN])
def test_a_push_token_keeps_its_last_six_characters(push_token: str) -> None:
    assert redacted(f"to {push_token}: gone") == f"to …{push_token[-6:]}: gone"
    assert redacted({"push_token": push_token}) == {"push_token": f"…{push_token[-6:]}"}


@pytest.mark.parametrize(
    "key", ["title", "body", "content", "data", "payload", "Authorization", "private_key", "bearer"]
)
def test_fields_that_name_personal_data_or_secrets_lose_their_value(key: str) -> None:
    assert redacted({"a": [{key: {"deep": "s3cret"}}]}) == {"a": [{key: REDACTED}]}


def test_ids_and_numbers_stay_as_they_are() -> None:
    said: dict[str, Any] = {"job_id": a_job_id(), "attempts": 3, "status": "dead", "ok": None, "jobs": ["n1", 2.5]}
    assert redacted(said) == said


@given(before=st.text(max_size=30), after=st.text(max_size=30))
def test_a_planted_private_key_never_comes_through(before: str, after: str) -> None:
    assert "MIGTAgEAMBMG" not in redacted(before + PEM + after)


# ---- Lines and metrics


class Seen:
    """An observer whose lines and metrics a test can read."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._stream = io.StringIO()
        self._capsys = capsys
        # Loggers and metrics of one service are shared: a service of its own for each test.
        service = f"observe-{next(_serials)}"
        self.observer = Observer(
            Logger(service=service, stream=self._stream, logger_formatter=RedactingFormatter(), level="INFO"),
            Metrics(service=service, namespace="pushlease"),
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]

    def metrics(self) -> dict[str, Any]:
        self.observer.flushed(lambda: None)
        printed = self._capsys.readouterr().out.splitlines()
        return dict(json.loads(printed[-1])) if printed else {}


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str]) -> Iterator[Seen]:
    seen = Seen(capsys)
    yield seen
    seen.metrics()  # Powertools keeps what was not flushed for whoever comes next


def test_every_decision_is_one_line_and_counted(seen: Seen) -> None:
    job_id = a_job_id()
    dead = Decision(
        event="settled", job_id=job_id, app_id="shop", status="dead", deliveries={"phone": "failed(rejected)"}
    )
    lost = Decision(event="lease_lost", job_id=job_id)
    seen.observer.report(Report(decisions=[dead, lost], unpublished=2, unburied=1))
    lines = seen.lines()
    assert [(line["message"], line["level"], line["job_id"]) for line in lines[:2]] == [
        ("settled", "INFO", job_id),
        ("lease_lost", "WARNING", job_id),
    ]
    assert [line["message"] for line in lines[2:]] == ["hints_unpublished", "letters_unsent"]
    assert lines[0]["deliveries"] == {"phone": "failed(rejected)"}
    metrics = seen.metrics()
    assert metrics["settled"] == [1.0]
    assert metrics["dead"] == [1.0]
    assert metrics["hints_unpublished"] == [2.0]
    assert metrics["letters_unsent"] == [1.0]


def test_a_fault_says_where_and_not_what(seen: Seen) -> None:
    with pytest.raises(ValueError, match="s3cret") as raised:
        int("s3cret")
    seen.observer.fault(a_job_id(), raised.value)
    (line,) = seen.lines()
    assert (line["message"], line["error"]) == ("fault", "ValueError")
    assert "test_a_fault_says_where" in line["at"][-1]
    assert "s3cret" not in json.dumps(line)


def test_a_refused_request_is_a_warning_with_its_fields(seen: Seen) -> None:
    seen.observer.answered("send", {"ok": False, "errors": [{"field": "app_id", "rule": "no such app"}]})
    seen.observer.answered("send", {"ok": True, "notification_id": "n1", "jobs": [{}, {}]})
    refused, accepted = seen.lines()
    assert (refused["level"], refused["errors"][0]["field"]) == ("WARNING", "app_id")
    assert (accepted["level"], accepted["notification_id"], accepted["jobs"]) == ("INFO", "n1", 2)
    assert {"send", "bad_request"} <= seen.metrics().keys()


def test_unreadable_messages_and_redrives_are_seen(seen: Seen) -> None:
    seen.observer.unreadable("m1", "message: not JSON")
    seen.observer.redriven([a_letter(a_dead_job(redrives=2))])
    unreadable, redriven = seen.lines()
    assert (unreadable["level"], unreadable["message_id"]) == ("ERROR", "m1")
    assert redriven["redrives"] == 3


def test_metrics_are_written_even_if_the_work_fails(seen: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        seen.observer.unreadable("m1", "x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        seen.observer.flushed(work)
    assert json.loads(capsys.readouterr().out)["unreadable_message"] == [1.0]
