"""The scanner finds what must not be logged, and the formatter keeps it out."""

import io
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from builders import a_device, some_content
from pushlease.observe import RedactingFormatter
from pushlease_local.scan import Finding, findings, push_tokens_of, texts_of
from pushlease_local.stack import event

P8 = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUSH_TOKENS = ["5e" * 32, "pixel:APA91b" + "Q" * 40]
TEXT = "Your biopsy is benign"
_serials = itertools.count()
BEARERS = ["bearer " + "eyJhbGciOiJFUzI1NiJ9." + "e30." + "c2ln" * 8, "ya29." + "a0AfH6SM" * 4]

# Where somebody might put it by mistake: in a field of that name, in a field of another name, in the message itself.
PLANTED = [
    ("secret", {"private_key": P8}),
    ("secret", {"detail": f"cannot parse {P8}"}),
    ("secret", {"inner": [{"deep": P8}]}),
    ("push token", {"push_token": PUSH_TOKENS[0]}),
    ("push token", {"path": f"/3/device/{PUSH_TOKENS[0]}"}),
    ("push token", {"detail": f"unregistered {PUSH_TOKENS[1]}"}),
    ("message text", {"title": TEXT}),
    ("message text", {"content": {"body": TEXT}}),
    ("message text", {"payload": {"aps": {"alert": TEXT}}}),
    ("credential", {"authorization": BEARERS[0]}),
    ("credential", {"headers": {"x": BEARERS[0]}}),
    ("credential", {"detail": f"refused {BEARERS[1]}"}),
]


def logged(fields: dict[str, object], *, redact: bool) -> Sequence[str]:
    stream = io.StringIO()
    # Loggers of one service share their handler, and so their stream: a service of its own for each call.
    service = f"scan-{next(_serials)}"
    Logger(service=service, stream=stream, logger_formatter=RedactingFormatter(redact=redact)).info("planted", **fields)
    return stream.getvalue().splitlines()


def scanned(lines: Sequence[str]) -> list[Finding]:
    return findings(lines, secrets=[P8], push_tokens=PUSH_TOKENS, texts=[TEXT])


@pytest.mark.parametrize(
    ("kind", "fields"), PLANTED, ids=lambda value: value if isinstance(value, str) else "/".join(value)
)
def test_with_redaction_off_the_scanner_finds_it_and_with_redaction_on_there_is_nothing(
    kind: str, fields: dict[str, object]
) -> None:
    assert kind in {finding.kind for finding in scanned(logged(fields, redact=False))}
    lines = logged(fields, redact=True)
    assert lines
    assert scanned(lines) == []


def test_what_a_person_needs_is_not_redacted() -> None:
    (line,) = logged(
        {"job_id": "0123456789abcdef0123456789abcdef01234567", "detail": "apns: 410 Unregistered"}, redact=True
    )
    assert "0123456789abcdef0123456789abcdef01234567" in line
    assert "410 Unregistered" in line


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        ("push token", a_device().push_token),
        ("push token", event("registry/register_android")["push_token"]),
        ("message text", some_content().body),
        ("message text", event("send/one_recipient")["content"]["body"]),
        ("credential", BEARERS[1]),
    ],
    ids=["built-push-token", "events-push-token", "built-text", "events-text", "credential"],
)
def test_the_scan_of_this_runs_own_output_knows_it(pytestconfig: pytest.Config, kind: str, planted: str) -> None:
    scan: Any = pytestconfig.pluginmanager.get_plugin("output-scan")
    assert [finding.kind for finding in scan.scan(["in passing", f"said {planted} aloud"])] == [kind]


def test_what_a_request_says_is_found_however_deep_it_is() -> None:
    said = [{"content": {"title": "Tea", "locales": {"de": {"body": "Tee"}}}, "push_token": "x" * 30}, {"body": 7}]
    assert list(texts_of(said)) == ["Tea", "Tee"]
    assert list(push_tokens_of(said)) == ["x" * 30]


def test_a_finding_never_repeats_what_it_found() -> None:
    assert P8 not in repr(scanned([P8]))
