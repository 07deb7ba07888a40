"""FCM's HTTP v1 `messages:send` as a pure function from request to answer; knows no sockets, scripts or clocks.

Source: Firebase's reference of projects.messages and of ErrorCode, and the bodies seen in SDK issue threads.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from pushlease_local.lookalike.fcm_message import (
    MAX_BYTES,
    MAX_TOPIC_BYTES,
    field_faults,
    get,
    measured_bytes,
    target_names,
)
from pushlease_local.lookalike.messages import Accepted, Answer, Binding, Request, json_answer, json_object
from pushlease_local.lookalike.world import World

FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
STATUS_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_PATH = re.compile(r"/v1/projects/([^/]+)/messages:send")
_PUSH_TOKEN = re.compile(r"[A-Za-z0-9_:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fcm:
    """The send endpoint of every registered project."""

    def target(self, request: Request) -> str:
        message = (json_object(request.body) or {}).get("message")
        if not isinstance(message, dict):
            return ""
        return next((str(message[name]) for name in target_names(message)), "")

    def judge(self, request: Request, *, world: World, binding: Binding | None, now_ms: int) -> Answer:  # noqa: ARG002 - Google binds no connection
        path = _PATH.fullmatch(request.path)
        if path is None or request.method != "POST":
            return error_answer(404, "Requested entity was not found.")
        scheme, _, bearer = (request.header("authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or world.access_bearers.get(bearer, 0) <= now_ms:
            return error_answer(401, "Request had invalid authentication credentials.")
        if path[1] not in world.projects:
            return error_answer(404, "Requested entity was not found.")
        body = json_object(request.body)
        if body is None:
            return error_answer(400, "Invalid JSON payload received.", {"@type": BAD_REQUEST})
        faults = field_faults(body)
        if faults:
            violations = [{"field": field, "description": description} for field, description in faults]
            return error_answer(400, faults[0][1], {"@type": BAD_REQUEST, "fieldViolations": violations})
        return self._judge_message(body, project=path[1], request=request, now_ms=now_ms)

    def error(self, request: Request, *, status: int, reason: str, timestamp_ms: int | None) -> Answer:  # noqa: ARG002 - FCM has no timestamp
        details = [{"@type": FCM_ERROR, "errorCode": reason}] if reason else []
        return error_answer(status, "Scripted refusal.", *details, reason=reason)

    def _judge_message(self, body: dict[str, Any], *, project: str, request: Request, now_ms: int) -> Answer:
        message = body["message"]
        (kind,) = target_names(message)
        target = str(message[kind])
        invalid = {"@type": FCM_ERROR, "errorCode": "INVALID_ARGUMENT"}
        if kind in {"token", "fid"} and not _PUSH_TOKEN.fullmatch(target):
            return error_answer(
                400, "The registration token is not a valid FCM registration token", invalid, reason="INVALID_ARGUMENT"
            )
        if measured_bytes(message) > (MAX_TOPIC_BYTES if kind == "topic" else MAX_BYTES):
            return error_answer(400, "Message is too big", {"@type": BAD_REQUEST}, invalid, reason="INVALID_ARGUMENT")
        if get(body, "validate_only"):
            return json_answer(200, {"name": f"projects/{project}/messages/fake_message_id"})
        name = f"projects/{project}/messages/0:{request.request_id}"
        android = message.get("android", {})
        accepted = Accepted(
            provider="fcm",
            environment=project,
            push_token=target,
            provider_id=name,
            topic=target if kind == "topic" else "",
            priority=android.get("priority"),
            collapse_id=get(android, "collapse_key"),
            body=message,
            at_ms=now_ms,
        )
        return replace(json_answer(200, {"name": name}), accepted=accepted)


def error_answer(status: int, message: str, *details: dict[str, Any], reason: str = "") -> Answer:
    """Google's error envelope; `details` is left out when there are none, as in a 401 for a stale bearer."""
    word = STATUS_WORDS.get(status, "UNKNOWN")
    error: dict[str, Any] = {"code": status, "message": message, "status": word}
    if details:
        error["details"] = list(details)
    return json_answer(status, {"error": error}, reason=reason or word)
