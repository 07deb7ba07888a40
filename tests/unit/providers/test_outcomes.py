"""What the providers' answers mean, by the tables of Apple and Google; and that no bytes at all upset the readers."""

import json
import re
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


def told(verdict: Verdict) -> set[str]:
    """All that a verdict says, in words: its code, whom it concerns beyond the request, what it asks for."""
    if isinstance(verdict, Accepted):
        return {"ok"}
    answer = refused(verdict)
    remedy, wait = answer.remedy, answer.retry_after
    said = {
        "disables": answer.disable_before_ms is not None,
        "alarm": answer.alarm,
        "again": remedy.retry_now,
        "new_bearer": remedy.new_bearer,
        "elsewhere": remedy.reconnect,
        f"of_{answer.scope.value}": answer.scope is not Scope.REQUEST,
        f"after_{wait.total_seconds():.0f}s" if wait else "": wait is not None,
    }
    return {answer.code.value} | {word for word, holds in said.items() if holds}


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


def test_a_410_of_the_future_disables_no_registration_to_come() -> None:
    verdict = refused(apple(410, "Unregistered", seen(registered_at_ms=1), timestamp=2**62))
    assert verdict.disable_before_ms is not None
    assert verdict.disable_before_ms <= seen(registered_at_ms=1).now_ms


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


# What Apple's documentation lists, then what client libraries have met on broadcast channels. The device was registered
# before the push, and 500 of the app's other pushes got through: only then may a bad push token disable it.
APNS_TABLE = {
    (400, "BadCollapseId"): "rejected",
    (400, "BadDeviceToken"): "invalid_token disables of_device",
    (400, "BadExpirationDate"): "rejected",
    (400, "BadMessageId"): "rejected",
    (400, "BadPriority"): "rejected",
    (400, "BadTopic"): "rejected alarm",
    (400, "DeviceTokenNotForTopic"): "invalid_token disables of_device",
    (400, "DuplicateHeaders"): "rejected",
    (400, "IdleTimeout"): "network_error again elsewhere",
    (400, "InvalidPushType"): "rejected",
    (400, "MissingDeviceToken"): "rejected",
    (400, "MissingTopic"): "rejected",
    (400, "PayloadEmpty"): "rejected",
    (400, "TopicDisallowed"): "provider_error of_credentials alarm again elsewhere",
    (403, "BadCertificate"): "provider_error of_credentials alarm",
    (403, "BadCertificateEnvironment"): "provider_error of_credentials alarm",
    (403, "ExpiredProviderToken"): "provider_error of_credentials again new_bearer elsewhere",
    (403, "Forbidden"): "provider_error of_credentials alarm",
    (403, "InvalidProviderToken"): "provider_error of_credentials alarm",
    (403, "MissingProviderToken"): "provider_error of_credentials alarm",
    (403, "UnrelatedKeyIdInToken"): "provider_error of_credentials again elsewhere",
    (403, "BadEnvironmentKeyIdInToken"): "provider_error of_credentials alarm",
    (403, "BadEnvironmentKeyInToken"): "provider_error of_credentials alarm",
    (404, "BadPath"): "rejected",
    (405, "MethodNotAllowed"): "rejected",
    (410, "ExpiredToken"): "expired_token disables of_device",
    (410, "Unregistered"): "invalid_token disables of_device",
    (413, "PayloadTooLarge"): "payload_too_large",
    (429, "TooManyProviderTokenUpdates"): "provider_error of_credentials elsewhere after_60s",  # with the same bearer
    (429, "TooManyRequests"): "rate_limited of_device",
    (500, "InternalServerError"): "provider_error after_60s",
    (503, "ServiceUnavailable"): "provider_error after_60s",
    (503, "Shutdown"): "provider_error again elsewhere after_60s",
    (400, "FeatureNotEnabled"): "rejected",
    (400, "MissingChannelId"): "rejected",
    (400, "BadChannelId"): "rejected",
    (400, "ChannelNotRegistered"): "rejected",
    (400, "BadRequestParams"): "rejected",
    (400, "BadRequestPayload"): "rejected",
    (400, "MissingPushType"): "rejected",
    (400, "CannotCreateChannelConfig"): "rejected",
    (400, "MissingChannelQueueSize"): "rejected",
    (403, "TopicMismatch"): "provider_error of_credentials alarm",
}
# A reason that nobody has heard of: the status alone decides.
APNS_BY_STATUS = {
    302: "provider_error alarm",  # no server of Apple's push service answers so
    400: "rejected",
    402: "rejected",
    403: "rejected",
    404: "rejected",
    405: "rejected",
    410: "invalid_token disables of_device",
    413: "payload_too_large",
    429: "rate_limited",
    499: "rejected",
    500: "provider_error after_60s",
    502: "provider_error after_60s",
    503: "provider_error after_60s",
    599: "provider_error after_60s",
}
OTHERS_GET_THROUGH = Recent(ok=500, bad=0)


def kebab(reason: str) -> str:
    return re.sub(r"(?<=.)([A-Z])", r"-\1", reason).lower()


def test_the_table_has_a_row_for_each_reason_that_the_code_knows() -> None:
    assert set(APNS_TABLE) == set(APNS_REASONS)


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        pytest.param(status, reason, said, id=f"apns-{status}-{kebab(reason)}")
        for (status, reason), said in APNS_TABLE.items()
    ],
)
def test_what_apple_means(status: int, reason: str, said: str) -> None:
    assert told(apple(status, reason, seen(recent=OTHERS_GET_THROUGH))) == set(said.split())


@pytest.mark.parametrize("reason", ["SaidNextYear", ""])
@pytest.mark.parametrize(
    ("status", "said"), APNS_BY_STATUS.items(), ids=[f"apns-{status}-unknown-reason" for status in APNS_BY_STATUS]
)
def test_what_apple_means_by_a_status_alone(status: int, said: str, reason: str) -> None:
    assert told(apple(status, reason, seen(recent=OTHERS_GET_THROUGH))) == set(said.split())


# Answers as they come over the wire, each with what it is read against.
APNS_ANSWERS = {
    "apns-200": (answer(200, apns_id="0f0e"), seen(), "ok"),
    "apns-410-old-registration": (
        answer(410, {"reason": "Unregistered", "timestamp": NOW_MS}),
        seen(registered_at_ms=NOW_MS - 1),
        "invalid_token disables of_device",
    ),
    "apns-410-newer-registration": (
        answer(410, {"reason": "Unregistered", "timestamp": NOW_MS}),
        seen(registered_at_ms=NOW_MS),
        "invalid_token of_device",
    ),
    "apns-410-no-timestamp": (
        answer(410, {"reason": "ExpiredToken"}),
        seen(registered_at_ms=1, sent_at_ms=2),
        "expired_token disables of_device",
    ),
    "apns-400-bad-device-token-healthy": (
        answer(400, {"reason": "BadDeviceToken"}),
        seen(recent=Recent(ok=500, bad=3)),
        "invalid_token disables of_device",
    ),
    "apns-400-bad-device-token-burst": (
        answer(400, {"reason": "BadDeviceToken"}),
        seen(recent=Recent(ok=0, bad=40)),
        "rejected of_credentials alarm",
    ),
    "apns-429-token-updates": (
        answer(429, {"reason": "TooManyProviderTokenUpdates"}, retry_after="7"),
        seen(),
        "provider_error of_credentials elsewhere after_60s",
    ),
    "apns-429-device": (
        answer(429, {"reason": "TooManyRequests"}, retry_after="7"),
        seen(),
        "rate_limited of_device after_7s",
    ),
    "apns-429-retry-after-date": (
        answer(429, {"reason": "TooManyRequests"}, retry_after="Fri, 15 Jan 2027 08:01:30 GMT"),
        seen(),
        "rate_limited of_device after_90s",
    ),
    "apns-unknown-reason": (answer(400, {"reason": "SaidNextYear"}), seen(), "rejected"),
    "apns-500-empty-body": (answer(500), seen(), "provider_error after_60s"),
    "apns-502-html": (answer(502, b"<html><p>Bad gateway</p></html>"), seen(), "provider_error after_60s"),
}


@pytest.mark.parametrize(("response", "circumstances", "said"), APNS_ANSWERS.values(), ids=APNS_ANSWERS)
def test_what_an_answer_of_apple_means(response: Response, circumstances: Circumstances, said: str) -> None:
    assert told(apns.interpret(response, circumstances, floor=FLOOR)) == set(said.split())


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
QUOTA_OF_A_PROJECT: Details = {
    "ErrorInfo": {"reason": "RATE_LIMIT_EXCEEDED", "metadata": {"quota_limit": "SendsPerMinutePerProject"}}
}
DENIED = "PERMISSION_DENIED"
REFUSED = "INVALID_ARGUMENT"
# The same circumstances: a device registered before the push, an app whose other pushes get through.
FCM_TABLE = {
    # 400: the push token, the payload, its size, or Apple behind Google
    "fcm-400-bad-token": (
        Google(http=400, status=REFUSED, message=BAD_PUSH_TOKEN, details=INVALID), "invalid_token disables of_device",
    ),
    "fcm-400-bad-token-by-text-alone": (Google(http=400, status=REFUSED, message=BAD_PUSH_TOKEN), "rejected"),
    "fcm-400-bad-token-by-field": (
        Google(http=400, status=REFUSED, details=violation("message.token")), "invalid_token disables of_device",
    ),
    "fcm-400-bad-installation-by-field": (
        Google(http=400, status=REFUSED, details=violation("message.fid")), "invalid_token disables of_device",
    ),
    "fcm-400-payload-field": (
        Google(http=400, status=REFUSED, details=violation("message.data[0].value")), "rejected",
    ),
    "fcm-400-payload-that-quotes-the-text": (
        Google(http=400, message=BAD_PUSH_TOKEN, details=INVALID | violation("message.data")), "rejected",
    ),
    "fcm-400-token-and-payload-fields": (
        Google(http=400, status=REFUSED, details=violation("message.token", "message.data")), "rejected",
    ),
    "fcm-400-too-big": (
        Google(http=400, status=REFUSED, message="It is too big", details={"BadRequest": {}, **INVALID}),
        "payload_too_large",
    ),
    "fcm-400-generic": (Google(http=400, status=REFUSED, details=INVALID), "rejected"),
    "fcm-400-precondition": (Google(http=400, status="FAILED_PRECONDITION"), "rejected"),
    "fcm-400-code-unheard-of": (Google(http=400, details=because("SAID_NEXT_YEAR")), "rejected"),
    "fcm-400-apns-behind": (
        Google(http=400, status=REFUSED, details=relayed("Unregistered", statusCode=410)),
        "invalid_token disables of_device",
    ),
    "fcm-400-apns-behind-snake-case": (
        Google(http=400, details=relayed("ExpiredToken", status_code=410)), "expired_token disables of_device",
    ),
    "fcm-400-apns-behind-without-status": (
        Google(http=400, details=relayed("Unregistered")), "invalid_token disables of_device",
    ),
    "fcm-400-apns-behind-bad-key": (
        Google(http=400, details=relayed("InvalidProviderToken", statusCode=403)),
        "provider_error of_credentials alarm",
    ),
    "fcm-400-apns-behind-slower": (
        Google(http=400, details=relayed("TooManyRequests", statusCode=429)), "rate_limited of_device after_60s",
    ),
    "fcm-400-apns-behind-unheard-of": (
        Google(http=400, details=relayed("SaidNextYear", statusCode=400)), "rejected",
    ),
    # 401: the key that the project holds for Apple, or our own bearer
    "fcm-401-third-party": (
        Google(http=401, status="UNAUTHENTICATED", details=because("THIRD_PARTY_AUTH_ERROR")),
        "provider_error of_credentials alarm",
    ),
    "fcm-401-third-party-by-its-old-name": (
        Google(http=401, status="UNAUTHENTICATED", details=because("APNS_AUTH_ERROR")),
        "provider_error of_credentials alarm",
    ),
    "fcm-401-expired-bearer": (
        Google(http=401, status="UNAUTHENTICATED"), "provider_error of_credentials again new_bearer",
    ),
    "fcm-401-expired-bearer-error-info": (
        Google(http=401, status="UNAUTHENTICATED", details={"ErrorInfo": {"reason": "ACCESS_TOKEN_EXPIRED"}}),
        "provider_error of_credentials again new_bearer",
    ),
    # 403
    "fcm-403-sender-mismatch": (
        Google(http=403, status=DENIED, details=because("SENDER_ID_MISMATCH")), "rejected of_device",
    ),
    "fcm-403-no-permission": (Google(http=403, status=DENIED), "provider_error of_credentials alarm"),
    "fcm-403-api-not-enabled": (
        Google(http=403, status=DENIED, details={"ErrorInfo": {"reason": "SERVICE_DISABLED"}}),
        "provider_error of_credentials alarm",
    ),
    "fcm-403-unspecified": (
        Google(http=403, status=DENIED, details=because("UNSPECIFIED_ERROR")), "provider_error of_credentials alarm",
    ),
    # 404
    "fcm-404-unregistered": (
        Google(http=404, status="NOT_FOUND", details=because("UNREGISTERED")), "invalid_token disables of_device",
    ),
    "fcm-404-unregistered-as-said-in-2018": (
        Google(http=404, details={"FcmErrorCode": {"errorCode": "UNREGISTERED"}}), "invalid_token disables of_device",
    ),
    "fcm-404-wrong-project": (Google(http=404, status="NOT_FOUND"), "provider_error of_project alarm"),
    # 408, 429
    "fcm-408": (Google(http=408), "network_error"),
    "fcm-429-quota": (
        Google(http=429, status="RESOURCE_EXHAUSTED", details=because("QUOTA_EXCEEDED")), "rate_limited after_60s",
    ),
    "fcm-429-project-quota-errorinfo": (
        Google(http=429, status="RESOURCE_EXHAUSTED", details=QUOTA_OF_A_PROJECT), "rate_limited of_project after_60s",
    ),
    "fcm-429-retry-after": (
        Google(http=429, details=because("QUOTA_EXCEEDED"), headers={"retry-after": "1200"}),
        "rate_limited after_1200s",  # longer than one delay of SQS can be
    ),
    # 5xx
    "fcm-500-internal": (
        Google(http=500, status="INTERNAL", details=because("INTERNAL")), "provider_error after_10s",
    ),
    "fcm-503": (
        Google(http=503, status="UNAVAILABLE", details=because("UNAVAILABLE"), headers={"retry-after": "30"}),
        "provider_error after_30s",
    ),
    "fcm-503-without-retry-after": (
        Google(http=503, status="UNAVAILABLE", details=because("UNAVAILABLE")), "provider_error after_10s",
    ),
    "fcm-504": (Google(http=504, status="DEADLINE_EXCEEDED"), "provider_error after_10s"),
}  # fmt: skip
# A front end's page, or nothing at all: the status alone decides.
FCM_BY_STATUS = {
    302: "provider_error alarm",
    400: "rejected",
    401: "provider_error of_credentials again new_bearer",
    403: "provider_error of_credentials alarm",
    404: "provider_error of_project alarm",
    408: "network_error",
    413: "payload_too_large",
    418: "rejected",
    429: "rate_limited after_60s",
    500: "provider_error after_10s",
    502: "provider_error after_10s",
    503: "provider_error after_10s",
    504: "provider_error after_10s",
}


@pytest.mark.parametrize(("google", "said"), FCM_TABLE.values(), ids=FCM_TABLE)
def test_what_google_means(google: Google, said: str) -> None:
    verdict = google.verdict(seen(recent=OTHERS_GET_THROUGH))
    assert told(verdict) == set(said.split())
    if "disables" in said:
        assert refused(verdict).disable_before_ms == seen().sent_at_ms


def test_every_code_of_fcm_has_a_row() -> None:
    rows = {google.details.get("FcmError", {}).get("errorCode") for google, _ in FCM_TABLE.values()}
    assert set(fcm.FCM_ERRORS) <= rows


@pytest.mark.parametrize("body", [b"<!DOCTYPE html><title>Error</title>", b""], ids=["html", "empty-body"])
@pytest.mark.parametrize(
    ("status", "said"), FCM_BY_STATUS.items(), ids=[f"fcm-{status}-status-only" for status in FCM_BY_STATUS]
)
def test_what_google_means_by_a_status_alone(status: int, said: str, body: bytes) -> None:
    verdict = fcm.interpret(answer(status, body), seen(recent=OTHERS_GET_THROUGH), floor=FLOOR)
    assert told(verdict) == set(said.split())


def test_a_registration_after_the_sending_survives_fcms_unregistered() -> None:
    verdict = FCM_TABLE["fcm-404-unregistered"][0].verdict(seen(registered_at_ms=NOW_MS))
    assert refused(verdict).disable_before_ms is None


@pytest.mark.parametrize(
    ("body", "name"),
    [({"name": "projects/p/messages/1"}, "projects/p/messages/1"), ({}, None)],
    ids=["fcm-200", "fcm-200-no-name"],
)
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
