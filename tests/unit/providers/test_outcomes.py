"""What the providers' answers mean, by the tables of Apple and Google; and that no bytes at all upset the readers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlease.codes import Code
from pushlease.providers.apns import protocol as apns
from pushlease.providers.fcm import protocol as fcm
from pushlease.providers.http import Response, retry_after
from pushlease.providers.meaning import APNS_REASONS, Circumstances
from pushlease.providers.recent import Recent
from pushlease.push.outcome import Accepted, Refused, Remedy, Scope, Verdict

NOW_MS = 1_800_000_000_000  # Fri, 15 Jan 2027 08:00:00 GMT
HEALTHY = Recent(ok=200, bad=2)
FLOOR = timedelta(seconds=60)


def seen(**changes: Any) -> Circumstances:
    """A device registered an hour ago, an app whose pushes work."""
    usual: dict[str, Any] = {
        "registered_at_ms": NOW_MS - 3_600_000,
        "sent_at_ms": NOW_MS - 50,
        "now_ms": NOW_MS,
        "recent": HEALTHY,
    }
    return Circumstances(**(usual | changes))


def answer(status: int, body: object = b"", **headers: str) -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}, body=raw)


def apple(status: int, reason: str = "", circumstances: Circumstances | None = None, **more: Any) -> Verdict:
    headers = {"retry_after": more.pop("retry_after")} if "retry_after" in more else {}
    body = {"reason": reason, **more} if reason else b""
    return apns.interpret(answer(status, body, **headers), circumstances or seen(), floor=FLOOR)


def refused(verdict: Verdict) -> Refused:
    assert isinstance(verdict, Refused)
    return verdict


@dataclass(frozen=True, kw_only=True)
class Google:
    """An error body of FCM: its google.rpc status, its message, its details by their bare type names."""

    http: int
    status: str = ""
    message: str = "said in passing"
    details: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def verdict(self, circumstances: Circumstances | None = None) -> Verdict:
        details = [{"@type": f"type.googleapis.com/google.x.{name}", **detail} for name, detail in self.details.items()]
        error = {"code": self.http, "message": self.message, "status": self.status, "details": details}
        response = answer(self.http, {"error": error}, **self.headers)
        return fcm.interpret(response, circumstances or seen(), floor=FLOOR)


# --- APNs -------------------------------------------------------------------------------------------------------------


def test_apns_accepts_with_its_own_id() -> None:
    verdict = apns.interpret(answer(200, apns_id="0f0e"), seen(), floor=FLOOR)
    assert verdict == Accepted(provider_id="0f0e")


@pytest.mark.parametrize(
    ("registered_at_ms", "dies"), [(NOW_MS - 1, True), (NOW_MS, False), (NOW_MS + 1, False)]
)  # fmt: skip
def test_a_410_disables_only_a_registration_older_than_its_timestamp(registered_at_ms: int, dies: bool) -> None:
    verdict = refused(apple(410, "Unregistered", seen(registered_at_ms=registered_at_ms), timestamp=NOW_MS))
    assert verdict.code is Code.INVALID_TOKEN
    assert verdict.disable_before_ms == (NOW_MS if dies else None)


@pytest.mark.parametrize("timestamp", [None, True, "1800000000000", 1.8e12, -5, 2**70, [], {}])
def test_a_410_without_a_usable_timestamp_is_held_against_the_moment_of_sending(timestamp: object) -> None:
    verdict = refused(apple(410, "ExpiredToken", seen(registered_at_ms=1, sent_at_ms=2), timestamp=timestamp))
    assert (verdict.code, verdict.disable_before_ms) == (Code.EXPIRED_TOKEN, 2)
    assert refused(apple(410, "ExpiredToken", seen(registered_at_ms=2, sent_at_ms=2))).disable_before_ms is None


@pytest.mark.parametrize("reason", ["BadDeviceToken", "DeviceTokenNotForTopic"])
@pytest.mark.parametrize(
    ("recent", "code", "dies", "alarm"),
    [
        pytest.param(Recent(ok=500, bad=3), Code.INVALID_TOKEN, True, False, id="others-get-through"),
        pytest.param(Recent(ok=0, bad=1), Code.INVALID_TOKEN, False, False, id="nobody-got-through-yet"),
        pytest.param(Recent(ok=1, bad=9), Code.INVALID_TOKEN, True, False, id="too-few-for-a-burst"),
        pytest.param(Recent(ok=190, bad=10), Code.INVALID_TOKEN, True, False, id="just-the-share"),
        pytest.param(Recent(ok=189, bad=10), Code.REJECTED, False, True, id="above-the-share"),
        pytest.param(Recent(ok=0, bad=40), Code.REJECTED, False, True, id="wrong-host"),
    ],
)
def test_a_bad_push_token_costs_the_device_only_outside_a_burst(
    reason: str, recent: Recent, code: Code, dies: bool, alarm: bool
) -> None:
    verdict = refused(apple(400, reason, seen(recent=recent)))
    assert (verdict.code, verdict.disable_before_ms is not None, verdict.alarm) == (code, dies, alarm)


ELSEWHERE = Remedy(retry_now=True, reconnect=True)
APNS_ROWS = [
    (400, "TopicDisallowed", Code.PROVIDER_ERROR, Scope.CREDENTIALS, ELSEWHERE),
    (400, "IdleTimeout", Code.NETWORK_ERROR, Scope.REQUEST, ELSEWHERE),
    (400, "BadTopic", Code.REJECTED, Scope.REQUEST, Remedy()),
    (400, "PayloadEmpty", Code.REJECTED, Scope.REQUEST, Remedy()),
    (
        403, "ExpiredProviderToken", Code.PROVIDER_ERROR, Scope.CREDENTIALS,
        Remedy(retry_now=True, new_bearer=True, reconnect=True),
    ),
    (403, "InvalidProviderToken", Code.PROVIDER_ERROR, Scope.CREDENTIALS, Remedy()),
    (403, "UnrelatedKeyIdInToken", Code.PROVIDER_ERROR, Scope.CREDENTIALS, ELSEWHERE),
    (403, "BadEnvironmentKeyInToken", Code.PROVIDER_ERROR, Scope.CREDENTIALS, Remedy()),
    (403, "TopicMismatch", Code.PROVIDER_ERROR, Scope.CREDENTIALS, Remedy()),
    (404, "BadPath", Code.REJECTED, Scope.REQUEST, Remedy()),
    (413, "PayloadTooLarge", Code.PAYLOAD_TOO_LARGE, Scope.REQUEST, Remedy()),
    (429, "TooManyProviderTokenUpdates", Code.PROVIDER_ERROR, Scope.CREDENTIALS, Remedy(reconnect=True)),
    (429, "TooManyRequests", Code.RATE_LIMITED, Scope.DEVICE, Remedy()),
    (500, "InternalServerError", Code.PROVIDER_ERROR, Scope.REQUEST, Remedy()),
    (503, "Shutdown", Code.PROVIDER_ERROR, Scope.REQUEST, ELSEWHERE),
    (400, "SaidNextYear", Code.REJECTED, Scope.REQUEST, Remedy()),
    (429, "SaidNextYear", Code.RATE_LIMITED, Scope.REQUEST, Remedy()),
    (500, "", Code.PROVIDER_ERROR, Scope.REQUEST, Remedy()),
    (302, "", Code.PROVIDER_ERROR, Scope.REQUEST, Remedy()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "reason", "code", "scope", "remedy"), APNS_ROWS, ids=[f"{row[0]}-{row[1]}" for row in APNS_ROWS]
)
def test_apns_reasons_that_leave_the_device_alone(
    status: int, reason: str, code: Code, scope: Scope, remedy: Remedy
) -> None:
    verdict = refused(apple(status, reason))
    assert (verdict.code, verdict.scope, verdict.remedy) == (code, scope, remedy)
    assert verdict.disable_before_ms is None


def test_every_credential_fault_of_apns_calls_a_person_unless_it_heals_itself() -> None:
    for (status, reason), meaning in APNS_REASONS.items():
        if status == 403:
            assert meaning.alarm or meaning.remedy.retry_now, reason


def test_a_front_ends_html_is_the_providers_fault() -> None:
    page = answer(502, b"<html><body>Bad Gateway</body></html>")
    for interpret in (apns.interpret, fcm.interpret):
        verdict = refused(interpret(page, seen(), floor=FLOOR))
        assert (verdict.code, verdict.reason, verdict.disable_before_ms) == (Code.PROVIDER_ERROR, "HTTP 502", None)


def test_apns_5xx_waits_for_the_floor_and_longer_if_asked() -> None:
    assert refused(apple(500)).retry_after == FLOOR
    assert refused(apple(503, "Shutdown", retry_after="20")).retry_after == FLOOR
    assert refused(apple(503, "Shutdown", retry_after="900")).retry_after == timedelta(minutes=15)


def test_a_connection_with_too_many_bearers_rests_for_a_minute() -> None:
    assert refused(apple(429, "TooManyProviderTokenUpdates")).retry_after == timedelta(minutes=1)


# --- Retry-After ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90", timedelta(seconds=90)),
        (" 0 ", timedelta()),
        ("Fri, 15 Jan 2027 08:01:30 GMT", timedelta(seconds=90)),
        ("Fri, 15 Jan 2027 07:00:00 GMT", timedelta()),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 5000, None),
        ("Fri, 99 Jan 2027 08:01:30 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_garbage_is_ignored(text: str, span: timedelta | None) -> None:
    assert retry_after(answer(429, retry_after=text), now_ms=NOW_MS) == span


# --- FCM --------------------------------------------------------------------------------------------------------------

type Details = dict[str, dict[str, object]]
INVALID: Details = {"FcmError": {"errorCode": "INVALID_ARGUMENT"}}


def because(code: str) -> Details:
    return {"FcmError": {"errorCode": code}}


def relayed(reason: str, **status: object) -> Details:
    return {**INVALID, "ApnsError": {"reason": reason, **status}}


def violation(*fields: str) -> Details:
    return {"BadRequest": {"fieldViolations": [{"field": field, "description": "no"} for field in fields]}}


BAD_PUSH_TOKEN = "The registration token is not a valid FCM registration token"
RENEW = Remedy(retry_now=True, new_bearer=True)
FCM_ROWS = {
    "unregistered": (Google(http=404, status="NOT_FOUND", details=because("UNREGISTERED")), Code.INVALID_TOKEN, True),
    "wrong-project": (Google(http=404, status="NOT_FOUND"), Code.PROVIDER_ERROR, False),
    "bad-push-token-by-text": (
        Google(http=400, status="INVALID_ARGUMENT", message=BAD_PUSH_TOKEN, details=INVALID), Code.INVALID_TOKEN, True,
    ),
    "bad-push-token-by-text-without-fcm-error": (
        Google(http=400, status="INVALID_ARGUMENT", message=BAD_PUSH_TOKEN), Code.REJECTED, False,
    ),
    "bad-push-token-by-field": (
        Google(http=400, status="INVALID_ARGUMENT", details=violation("message.token")), Code.INVALID_TOKEN, True,
    ),
    "bad-payload-by-field": (
        Google(http=400, status="INVALID_ARGUMENT", details=violation("message.data[0].value")), Code.REJECTED, False,
    ),
    "payload-that-quotes-the-text": (
        Google(http=400, message=BAD_PUSH_TOKEN, details=INVALID | violation("message.data")),
        Code.REJECTED, False,
    ),
    "push-token-and-payload": (
        Google(http=400, status="INVALID_ARGUMENT", details=violation("message.token", "message.data")),
        Code.REJECTED, False,
    ),
    "too-big": (
        Google(http=400, status="INVALID_ARGUMENT", message="It is too big", details={"BadRequest": {}, **INVALID}),
        Code.PAYLOAD_TOO_LARGE, False,
    ),
    "ambiguous": (Google(http=400, status="INVALID_ARGUMENT", details=INVALID), Code.REJECTED, False),
    "apple-unregistered": (Google(http=400, details=relayed("Unregistered", statusCode=410)), Code.INVALID_TOKEN, True),
    "apple-expired-snake-case": (
        Google(http=400, details=relayed("ExpiredToken", status_code=410)), Code.EXPIRED_TOKEN, True,
    ),
    "apple-without-status": (Google(http=400, details=relayed("Unregistered")), Code.INVALID_TOKEN, True),
    "apple-key": (
        Google(http=400, details=relayed("InvalidProviderToken", statusCode=403)), Code.PROVIDER_ERROR, False,
    ),
    "apple-unheard-of": (Google(http=400, details=relayed("SaidNextYear", statusCode=400)), Code.REJECTED, False),
    "other-project": (
        Google(http=403, status="PERMISSION_DENIED", details=because("SENDER_ID_MISMATCH")), Code.REJECTED, False,
    ),
    "no-permission": (Google(http=403, status="PERMISSION_DENIED"), Code.PROVIDER_ERROR, False),
    "quota": (Google(http=429, details=because("QUOTA_EXCEEDED")), Code.RATE_LIMITED, False),
    "overload": (Google(http=503, status="UNAVAILABLE", details=because("UNAVAILABLE")), Code.PROVIDER_ERROR, False),
    "internal": (Google(http=500, status="INTERNAL", details=because("INTERNAL")), Code.PROVIDER_ERROR, False),
    "gateway-timeout": (Google(http=504, status="DEADLINE_EXCEEDED"), Code.PROVIDER_ERROR, False),
    "request-timeout": (Google(http=408), Code.NETWORK_ERROR, False),
    "unspecified-reads-on": (
        Google(http=403, status="PERMISSION_DENIED", details=because("UNSPECIFIED_ERROR")), Code.PROVIDER_ERROR, False,
    ),
    "code-unheard-of": (Google(http=400, details=because("SAID_NEXT_YEAR")), Code.REJECTED, False),
    "code-of-2018": (
        Google(http=404, details={"FcmErrorCode": {"errorCode": "UNREGISTERED"}}), Code.INVALID_TOKEN, True,
    ),
    "precondition": (Google(http=400, status="FAILED_PRECONDITION"), Code.REJECTED, False),
}  # fmt: skip


@pytest.mark.parametrize(("google", "code", "dies"), FCM_ROWS.values(), ids=FCM_ROWS)
def test_fcm_errors(google: Google, code: Code, dies: bool) -> None:
    verdict = refused(google.verdict())
    assert (verdict.code, verdict.disable_before_ms) == (code, NOW_MS - 50 if dies else None)


def test_a_registration_after_the_sending_survives_fcms_unregistered() -> None:
    verdict = FCM_ROWS["unregistered"][0].verdict(seen(registered_at_ms=NOW_MS))
    assert refused(verdict).disable_before_ms is None


@pytest.mark.parametrize(("body", "name"), [({"name": "projects/p/messages/1"}, "projects/p/messages/1"), ({}, None)])
def test_fcm_accepts_by_status_with_or_without_a_name(body: object, name: str | None) -> None:
    assert fcm.interpret(answer(200, body), seen(), floor=FLOOR) == Accepted(provider_id=name)


def test_only_a_plain_401_is_about_our_own_bearer() -> None:
    assert refused(Google(http=401, status="UNAUTHENTICATED").verdict()).remedy == RENEW
    theirs = Google(http=401, status="UNAUTHENTICATED", details=because("THIRD_PARTY_AUTH_ERROR"))
    assert refused(theirs.verdict()).remedy == Remedy()
    assert refused(theirs.verdict()).alarm


def test_apples_remedies_are_not_ours_behind_fcm() -> None:
    verdict = refused(Google(http=400, details=relayed("ExpiredProviderToken", statusCode=403)).verdict())
    assert (verdict.code, verdict.remedy) == (Code.PROVIDER_ERROR, Remedy())


def test_a_burst_of_bad_push_tokens_behind_fcm_disables_nobody() -> None:
    relay = Google(http=400, details=relayed("BadDeviceToken", statusCode=400))
    assert refused(relay.verdict()).disable_before_ms is not None
    burst = refused(relay.verdict(seen(recent=Recent(ok=0, bad=40))))
    assert (burst.code, burst.alarm, burst.disable_before_ms) == (Code.REJECTED, True, None)


@pytest.mark.parametrize(
    ("details", "scope"),
    [
        ({"ErrorInfo": {"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit": "SendsPerMinutePerProject"}}},
         Scope.PROJECT),
        ({**because("QUOTA_EXCEEDED"), "QuotaFailure": {"violations": [{"subject": "device:x"}]}}, Scope.DEVICE),
        ({**because("QUOTA_EXCEEDED"), "QuotaFailure": {"violations": [{"description": "of the Project"}]}},
         Scope.PROJECT),
        (because("QUOTA_EXCEEDED"), Scope.REQUEST),
        ({}, Scope.REQUEST),
    ],
)  # fmt: skip
def test_a_quota_slows_only_whom_it_names(details: Details, scope: Scope) -> None:
    verdict = refused(Google(http=429, status="RESOURCE_EXHAUSTED", details=details).verdict())
    assert (verdict.code, verdict.scope, verdict.retry_after) == (Code.RATE_LIMITED, scope, FLOOR)


def test_fcms_retry_after_is_obeyed_beyond_one_queue_delay_and_replaces_the_floor() -> None:
    for text in ("1200", "5"):
        slow = Google(http=429, details=because("QUOTA_EXCEEDED"), headers={"retry_after": text})
        assert refused(slow.verdict()).retry_after == timedelta(seconds=int(text))
    ill = Google(http=503, details=because("UNAVAILABLE"))
    assert refused(ill.verdict()).retry_after == timedelta(seconds=10)


# --- anything at all --------------------------------------------------------------------------------------------------

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
WORDS = st.sampled_from(
    [reason for _, reason in APNS_REASONS] + list(fcm.FCM_ERRORS) + list(fcm.STATUSES) + ["INVALID_ARGUMENT"]
)
LOOSE = WORDS | TREES
DETAIL = st.fixed_dictionaries(
    {"@type": st.sampled_from(["x.FcmError", "x.ApnsError", "x.ErrorInfo", "x.QuotaFailure", "x.BadRequest"]) | LOOSE},
    optional={
        key: LOOSE | st.lists(st.fixed_dictionaries({"field": LOOSE, "subject": LOOSE}))
        for key in ("errorCode", "reason", "statusCode", "metadata", "fieldViolations", "violations")
    },
)
ERRORS = st.fixed_dictionaries({}, optional={"status": LOOSE, "message": LOOSE, "details": st.lists(DETAIL) | LOOSE})
BODIES = st.one_of(
    st.binary(),
    st.fixed_dictionaries({}, optional={"reason": LOOSE, "timestamp": LOOSE, "name": LOOSE}).map(json.dumps),
    st.fixed_dictionaries({"error": ERRORS | LOOSE}).map(json.dumps),
    st.integers(1, 3000).map(lambda depth: "[" * depth),
)


@settings(deadline=None)  # a busy machine is no finding
@given(
    status=st.sampled_from([200, 302, 400, 401, 403, 404, 405, 408, 410, 413, 418, 429, 500, 502, 503, 504])
    | st.integers(100, 999),
    body=BODIES,
    header=st.text() | st.dates().map(str) | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ .*"),
    recent=st.builds(Recent, ok=st.integers(0, 100), bad=st.integers(0, 100)),
)
def test_any_answer_has_one_verdict_that_fits_a_row(
    status: int, body: bytes | str, header: str, recent: Recent
) -> None:
    raw = body.encode() if isinstance(body, str) else body
    response = answer(status, raw, retry_after=header)
    for protocol in (apns, fcm):
        protocol.calls_push_token_bad(response)
        verdict = protocol.interpret(response, seen(recent=recent), floor=FLOOR)
        if isinstance(verdict, Accepted):
            assert 200 <= status < 300
            continue
        assert verdict.code not in (Code.PROVIDER_NOT_CONFIGURED, Code.LOST, Code.UNREADABLE, Code.INTERNAL_ERROR)
        assert verdict.reason.encode()
        assert len(verdict.reason) <= 200
        assert verdict.disable_before_ms is None or verdict.code in (Code.INVALID_TOKEN, Code.EXPIRED_TOKEN)
        assert verdict.retry_after is None or verdict.code.retried
