"""FCM HTTP v1, sans-I/O: what a push looks like on the wire, what breaks Google's rules, what an answer means.

Facts: Firebase, reference of projects.messages and ErrorCode, "Throttling and quotas", "Scale to millions".
An error names itself in up to five places, read in this order:

FcmError.errorCode → ApnsError → ErrorInfo.reason → error.status → the HTTP status
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pushlease.codes import Code
from pushlease.errors import BadRequest
from pushlease.providers.http import Request, Response, compact, merged, retry_after, said
from pushlease.providers.meaning import APNS_REASONS, Circumstances, Meaning, apns_meaning, refusal
from pushlease.push.device import Address, Device
from pushlease.push.notification import Content, Priority
from pushlease.push.outcome import Accepted, Remedy, Scope, Verdict
from pushlease.push.ports import Push

LIMIT_BYTES = 4000  # FCM counts 4096 bytes of keys and values, and which envelope counts is not documented
TTL_MAX_S = 2_419_200  # 28 days
SERVER_FLOOR = timedelta(seconds=10)  # Google: the first retry after a 5xx waits at least this long
_PROJECT_ID = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}", re.ASCII)  # an id, a number, or an old domain-scoped id
_PUSH_TOKEN = re.compile(r"[A-Za-z0-9_:-]{1,2048}", re.ASCII)  # opaque, so no length is assumed within reason
_RESERVED = re.compile(r"from|message_type|google\..*|gcm.*", re.DOTALL)
_TARGETS = ("token", "fid", "topic", "condition")
_BLOCKS = ("notification", "data", "android", "apns", "webpush", "fcm_options")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What of a push is the same for every device; ``size_bytes`` is what FCM's limit is held against."""

    message: Mapping[str, object]
    size_bytes: int


def form(content: Content) -> Form:
    """Shape and check ``content``; raises ``BadRequest`` with the field of the content that breaks a rule."""
    for key, block in content.fcm.items():
        if key in _TARGETS:
            raise BadRequest(f"content.fcm.{key}", "the device is the target")
        if key not in _BLOCKS:
            raise BadRequest(f"content.fcm.{key}", f"FCM knows only {', '.join(_BLOCKS)}")
        if not isinstance(block, Mapping):
            raise BadRequest(f"content.fcm.{key}", "must be an object")
    _check_data(content.data, "content.data")
    _check_data(_object(content.fcm.get("data")), "content.fcm.data")
    message = merged(_message(content), content.fcm)
    try:
        size_bytes = max(len(compact(carried)) for carried in _carried(message))
    except (ValueError, TypeError):
        raise BadRequest("content.fcm", "must be JSON: no NaN, no lone surrogates") from None
    return Form(message=message, size_bytes=size_bytes)


def oversize(ready: Form) -> str | None:
    """What is wrong with the message's size, None if nothing is."""
    if ready.size_bytes <= LIMIT_BYTES:
        return None
    return f"FCM would carry {ready.size_bytes} bytes of UTF-8 JSON to one platform; at most {LIMIT_BYTES} are safe"


def request(push: Push, ready: Form, *, project_id: str, bearer: str, now_ms: int) -> Request:
    """The request for one device. Raises ``BadRequest`` for what must not reach the path or the message."""
    ttl_s = min(max((push.expires_at_ms - now_ms) // 1000, 0), TTL_MAX_S)
    aged: dict[str, object] = {"ttl": f"{ttl_s}s"}
    if "notification" in ready.message:
        aged["notification"] = {"tag": push.collapse_id}  # a repeat replaces the first on the screen
    message = merged({"android": aged}, ready.message)
    return _request(project_id, bearer, {"message": {**_target(push.device), **message}})


def _target(device: Device) -> Mapping[str, object]:
    return {"fid" if device.address is Address.FID else "token": check_push_token(device.push_token)}


def _request(project_id: str, bearer: str, body: Mapping[str, object]) -> Request:
    return Request(
        path=f"/v1/projects/{check_project_id(project_id)}/messages:send",
        headers={
            "authorization": f"Bearer {bearer}",
            "content-type": "application/json",
            "x-goog-api-format-version": "2",  # errors in the form that the tables below read
        },
        body=compact(body),
    )


def check_push_token(push_token: str) -> str:
    """The push token itself; raises ``BadRequest`` for what cannot be a registration token."""
    if not _PUSH_TOKEN.fullmatch(push_token):
        raise BadRequest("push_token", "FCM: letters, digits, '_', '-' and ':', at most 2048")
    return push_token


def check_project_id(project_id: str) -> str:
    """The project's id itself; raises ``BadRequest`` for what must not be put into a path."""
    if not _PROJECT_ID.fullmatch(project_id):
        raise BadRequest("project_id", "FCM: lower-case letters, digits, '-', '.' and ':', at most 63")
    return project_id


def interpret(response: Response, circumstances: Circumstances, *, floor: timedelta) -> Verdict:
    """What the answer means: exactly one verdict for any bytes, never an exception.

    ``floor`` is the least wait after a 429 without Retry-After (Google: 60 s).
    """
    body = response.json_object()
    if 200 <= response.status < 300:  # without a name too: it was accepted, and a second try would double it
        name = body.get("name")
        return Accepted(provider_id=said(name, otherwise="") or None)
    error = _Error.of(body)
    reason, meaning = _meaning(error, response.status)
    if meaning.remedy.probe and circumstances.push_token_bad:
        meaning = _DEAD
    wait = retry_after(response, now_ms=circumstances.now_ms)
    if wait is None and meaning.code is Code.RATE_LIMITED:
        wait = floor
    elif wait is None and response.status >= 500:
        wait = SERVER_FLOOR
    return refusal(meaning, reason, circumstances, retry_after=wait if meaning.code.retried else None)


def calls_push_token_bad(response: Response) -> bool:
    """Whether a wrong project, or a wrong Apple key or topic in it, would draw the same answer for every push token."""
    return response.status >= 400 and _meaning(_Error.of(response.json_object()), response.status)[1].guarded


def probe(device: Device, *, project_id: str, bearer: str) -> Request:
    """A request that sends nothing: it asks whether FCM knows the push token, with a message that has no fault."""
    message = {**_target(device), "data": {"probe": "1"}}
    return _request(project_id, bearer, {"validate_only": True, "message": message})


# --- the message ------------------------------------------------------------------------------------------------------


def _message(content: Content) -> dict[str, object]:
    data = dict(content.data) | ({"link": content.link} if content.link else {})
    texts = {"title": content.title, "body": content.body, "image": content.image}
    notification = {key: text for key, text in texts.items() if text} if content.title or content.body else {}
    urgent = content.priority is Priority.URGENT or (notification and content.priority is Priority.NORMAL)
    android: dict[str, object] = {"priority": "HIGH" if urgent else "NORMAL"}
    if content.collapse_key is not None:  # at most four keys a device are safe, so never one by default
        android["collapse_key"] = content.collapse_key
    if notification and content.sound:
        android["notification"] = {"sound": content.sound}
    parts = {"notification": notification, "data": data, "android": android}
    return {key: part for key, part in parts.items() if part}


def _carried(message: Mapping[str, object]) -> list[list[object]]:
    """What of the message reaches each platform: the limit holds for each."""
    common = [message[key] for key in ("notification", "data") if key in message]
    android, webpush = _object(message.get("android")), _object(message.get("webpush"))
    return [
        common + [android[key] for key in ("notification", "data") if key in android],
        common + [webpush[key] for key in ("notification", "data", "headers") if key in webpush],
        [_object(message.get("apns")).get("payload", {})],
    ]


def _check_data(data: Mapping[str, object], field: str) -> None:
    for key, value in data.items():
        if _RESERVED.fullmatch(key):
            raise BadRequest(f"{field}.{key}", "is a key that FCM reserves: from, message_type, google.…, gcm…")
        if not isinstance(value, str):
            raise BadRequest(f"{field}.{key}", "must be a string")


# --- the answer -------------------------------------------------------------------------------------------------------

_OUR_BUG = Meaning(code=Code.REJECTED)
_AMBIGUOUS = Meaning(code=Code.REJECTED, remedy=Remedy(probe=True))
_DEAD = Meaning(code=Code.INVALID_TOKEN, scope=Scope.DEVICE, dead=True)
_TOO_BIG = Meaning(code=Code.PAYLOAD_TOO_LARGE)
_GOOGLE_IS_ILL = Meaning(code=Code.PROVIDER_ERROR)
_SLOWER = Meaning(code=Code.RATE_LIMITED)
_MISCONFIGURED = Meaning(code=Code.PROVIDER_ERROR, scope=Scope.CREDENTIALS, alarm=True)
_STALE_BEARER = Meaning(
    code=Code.PROVIDER_ERROR, scope=Scope.CREDENTIALS, remedy=Remedy(retry_now=True, new_bearer=True)
)

# FcmError.errorCode. INVALID_ARGUMENT is missing: it needs a closer look. UNSPECIFIED_ERROR says nothing: read on.
FCM_ERRORS: Mapping[str, Meaning] = {
    "UNREGISTERED": _DEAD,
    # The push token is another Firebase project's: its own fault if alone, ours if many say so. Disables nobody.
    "SENDER_ID_MISMATCH": Meaning(code=Code.REJECTED, scope=Scope.DEVICE, guarded=True),
    "QUOTA_EXCEEDED": _SLOWER,
    "UNAVAILABLE": _GOOGLE_IS_ILL,
    "INTERNAL": _GOOGLE_IS_ILL,
    # The key of Apple or of web push that the Firebase project holds: our own bearer is fine.
    "THIRD_PARTY_AUTH_ERROR": _MISCONFIGURED,
    "APNS_AUTH_ERROR": _MISCONFIGURED,
}

# google.rpc.ErrorInfo.reason.
ERROR_INFOS: Mapping[str, Meaning] = {"RATE_LIMIT_EXCEEDED": _SLOWER}

# error.status: google.rpc.Code. INVALID_ARGUMENT, as above.
STATUSES: Mapping[str, Meaning] = {
    "UNAUTHENTICATED": _STALE_BEARER,
    "PERMISSION_DENIED": _MISCONFIGURED,
    "NOT_FOUND": Meaning(code=Code.PROVIDER_ERROR, scope=Scope.PROJECT, alarm=True),  # of the project, not the device
    "FAILED_PRECONDITION": _OUR_BUG,
    "OUT_OF_RANGE": _OUR_BUG,
    "RESOURCE_EXHAUSTED": _SLOWER,
    "INTERNAL": _GOOGLE_IS_ILL,
    "UNKNOWN": _GOOGLE_IS_ILL,
    "ABORTED": _GOOGLE_IS_ILL,
    "UNAVAILABLE": _GOOGLE_IS_ILL,
    "DEADLINE_EXCEEDED": _GOOGLE_IS_ILL,
}

HTTP_STATUSES: Mapping[int, Meaning] = {
    401: _STALE_BEARER,
    403: _MISCONFIGURED,
    404: STATUSES["NOT_FOUND"],
    408: Meaning(code=Code.NETWORK_ERROR),
    413: _TOO_BIG,
    429: _SLOWER,
}

# Who exceeded a quota, by the words of ErrorInfo's quota_limit or of a QuotaFailure.
_QUOTA_SCOPES = {"project": Scope.PROJECT, "device": Scope.DEVICE, "token": Scope.DEVICE}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Error:
    """The parts of an error body that decide, each empty if it is missing or of an odd type."""

    status: str
    message: str
    fcm_code: str
    apns: Mapping[str, object]
    info_reason: str
    violated_fields: tuple[str, ...]
    quota: str

    @classmethod
    def of(cls, body: Mapping[str, object]) -> "_Error":
        error = _object(body.get("error"))
        details = {_kind(detail): detail for detail in reversed(list(_objects(error.get("details"))))}
        info = details.get("ErrorInfo", {})
        quota = [_text(_object(info.get("metadata")).get("quota_limit"))]
        for violation in _objects(details.get("QuotaFailure", {}).get("violations")):
            quota += [_text(violation.get("subject")), _text(violation.get("description"))]
        violations = _objects(details.get("BadRequest", {}).get("fieldViolations"))
        return cls(
            status=_text(error.get("status")),
            message=_text(error.get("message")),
            fcm_code=_text(details.get("FcmError", {}).get("errorCode")),
            apns=details.get("ApnsError", {}),
            info_reason=_text(info.get("reason")),
            violated_fields=tuple(_text(violation.get("field")) for violation in violations),
            quota=" ".join(quota).lower(),
        )


def _meaning(error: _Error, http_status: int) -> tuple[str, Meaning]:
    """The word that decided, and what it means."""
    if known := FCM_ERRORS.get(error.fcm_code):
        return said(error.fcm_code, otherwise=""), _scoped(known, error)
    if error.apns:
        return _relayed(error.apns)
    if known := ERROR_INFOS.get(error.info_reason):
        return error.info_reason, _scoped(known, error)
    if "INVALID_ARGUMENT" in (error.fcm_code, error.status):
        return "INVALID_ARGUMENT", _invalid_argument(error)
    if known := STATUSES.get(error.status):
        return error.status, _scoped(known, error)
    word = said(error.fcm_code or error.status, otherwise=f"HTTP {http_status}")
    if known := HTTP_STATUSES.get(http_status):
        return word, known
    if not 400 <= http_status < 600:
        return word, Meaning(code=Code.PROVIDER_ERROR, alarm=True)
    return word, _OUR_BUG if http_status < 500 else _GOOGLE_IS_ILL


def _invalid_argument(error: _Error) -> Meaning:
    """The push token or the payload? Only a clear word against the push token costs a device."""
    if error.violated_fields:
        blamed = all(field in ("message.token", "message.fid") for field in error.violated_fields)
        return _DEAD if blamed else _OUR_BUG
    if not error.fcm_code:
        return _AMBIGUOUS
    text = error.message.lower()
    if "not a valid fcm registration token" in text:  # no field says it: the text alone does
        return _DEAD
    return _TOO_BIG if "too big" in text else _AMBIGUOUS


def _relayed(apns: Mapping[str, object]) -> tuple[str, Meaning]:
    """Apple's answer to FCM. Its remedies are FCM's business: the bearer and the connection are not ours."""
    status = next(
        (s for key in ("statusCode", "status_code") if isinstance(s := apns.get(key), int) and 100 <= s < 600), 0
    )
    reason = _text(apns.get("reason"))
    by_reason = (meaning for (_, known), meaning in APNS_REASONS.items() if known == reason)
    meaning = apns_meaning(status, reason) if status else next(by_reason, _OUR_BUG)
    return said(reason, otherwise=f"APNs {status}"), Meaning(
        code=meaning.code,
        scope=meaning.scope,
        dead=meaning.dead,
        guarded=meaning.guarded,
        alarm=meaning.alarm,
        wait=meaning.wait,
    )


def _scoped(meaning: Meaning, error: _Error) -> Meaning:
    if meaning.code is not Code.RATE_LIMITED:
        return meaning
    scope = next((scope for word, scope in _QUOTA_SCOPES.items() if word in error.quota), Scope.REQUEST)
    return Meaning(code=meaning.code, scope=scope)


def _kind(detail: Mapping[str, object]) -> str:
    """The message's bare name; bodies of 2018 said FcmErrorCode."""
    return _text(detail.get("@type")).rsplit(".", 1)[-1].replace("FcmErrorCode", "FcmError")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
