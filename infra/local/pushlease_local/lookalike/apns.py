"""APNs as a pure function from request to answer; knows no sockets, scripts or clocks.

Source: Apple, "Sending notification requests to APNs" and "Handling notification responses from APNs". Apple names no
order of checks; ours is: method, path, bearer, headers, topic, push_token, payload.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, replace

from pushlease_local.lookalike.apns_bearer import check_bearer
from pushlease_local.lookalike.messages import Accepted, Answer, Binding, Request, json_object
from pushlease_local.lookalike.world import World

# push type → suffix that its topic carries after the bundle ID; an mdm topic is not a bundle ID and is taken as it is.
TOPIC_SUFFIXES = {
    "alert": "",
    "background": "",
    "mdm": "",
    "location": ".location-query",
    "voip": ".voip",
    "complication": ".complication",
    "fileprovider": ".pushkit.fileprovider",
    "liveactivity": ".push-type.liveactivity",
    "pushtotalk": ".voip-ptt",
    "widgets": ".push-type.widgets",
    "controls": ".push-type.controls",
}
STATUSES = {
    "MethodNotAllowed": 405,
    "BadPath": 404,
    "PayloadTooLarge": 413,
    "TooManyProviderTokenUpdates": 429,
    "TooManyRequests": 429,
    "ExpiredToken": 410,
    "Unregistered": 410,
    "InternalServerError": 500,
    "ServiceUnavailable": 503,
    "Shutdown": 503,
    **dict.fromkeys(
        (
            "BadEnvironmentKeyIdInToken",
            "ExpiredProviderToken",
            "Forbidden",
            "InvalidProviderToken",
            "MissingProviderToken",
            "UnrelatedKeyIdInToken",
        ),
        403,
    ),
}
MAX_PAYLOAD_BYTES = 4096
MAX_VOIP_PAYLOAD_BYTES = 5120
MAX_COLLAPSE_ID_BYTES = 64
MAX_PUSH_TOKEN_CHARS = 400  # ours: Apple names none; the longest seen, of a Live Activity, has 160

_PATH = re.compile(r"/3/device/([^/]*)")
_BROADCAST = re.compile(r"/4/broadcasts/apps/([A-Za-z0-9.-]+)")
_CHANNEL = re.compile(r"[A-Za-z0-9+/]{4,}={0,2}")
_PUSH_TOKEN = re.compile(r"([0-9a-f]{2})+")
_TOPIC = re.compile(r"[A-Za-z0-9.-]+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Apns:
    """One of the two APNs hosts; `environment` is "production" or "sandbox"."""

    environment: str

    def target(self, request: Request) -> str:
        if match := _PATH.fullmatch(request.path):
            return match[1].lower()
        return (_BROADCAST.fullmatch(request.path) and request.header("apns-channel-id")) or ""

    def judge(self, request: Request, *, world: World, binding: Binding | None, now_ms: int) -> Answer:
        if request.method != "POST":
            return self._refuse(request, "MethodNotAllowed")
        broadcast = _BROADCAST.fullmatch(request.path)
        if not broadcast and not _PATH.fullmatch(request.path):
            return self._refuse(request, "BadPath")
        bound = check_bearer(request, environment=self.environment, world=world, binding=binding, now_ms=now_ms)
        if isinstance(bound, str):
            return self._refuse(request, bound)
        push_token = self.target(request)
        if broadcast:
            fault = _header_fault(request) or _channel_fault(request) or _payload_fault(request)
        else:
            fault = (
                _header_fault(request)
                or _topic_fault(request, bound)
                or self._push_token_fault(push_token, request, world)
                or _payload_fault(request)
            )
        if fault:
            return replace(self._refuse(request, fault), binding=bound, bearer_ok=True)
        accepted = Accepted(
            provider="apns",
            environment=self.environment,
            push_token=push_token,
            provider_id=_apns_id(request),
            topic=broadcast[1] if broadcast else request.header("apns-topic") or "",
            priority=request.header("apns-priority"),
            collapse_id=request.header("apns-collapse-id"),
            body=json_object(request.body) or {},
            at_ms=now_ms,
        )
        return Answer(
            status=200, headers={"apns-id": _apns_id(request)}, accepted=accepted, binding=bound, bearer_ok=True
        )

    def error(self, request: Request, *, status: int, reason: str, timestamp_ms: int | None) -> Answer:
        body = {"reason": reason} if timestamp_ms is None else {"reason": reason, "timestamp": timestamp_ms}
        return Answer(
            status=status,
            body=json.dumps(body).encode(),
            headers={"apns-id": _apns_id(request), "content-type": "application/json"},
            reason=reason,
            # Apple drops the connection to one stream on an expired bearer, until the next success.
            bearer_ok=False if reason == "ExpiredProviderToken" else None,
        )

    def _refuse(self, request: Request, reason: str) -> Answer:
        return self.error(request, status=STATUSES.get(reason, 400), reason=reason, timestamp_ms=None)

    def _push_token_fault(self, push_token: str, request: Request, world: World) -> str | None:
        if not push_token:
            return "MissingDeviceToken"
        if len(push_token) > MAX_PUSH_TOKEN_CHARS or not _PUSH_TOKEN.fullmatch(push_token):
            return "BadDeviceToken"
        known = world.push_tokens.get(push_token)
        if known is None or (self.environment, request.header("apns-topic")) in known:
            return None
        here = any(environment == self.environment for environment, _ in known)
        return "DeviceTokenNotForTopic" if here else "BadDeviceToken"


def _channel_fault(request: Request) -> str | None:
    channel = request.header("apns-channel-id")
    if not channel:
        return "MissingChannelId"
    if not _CHANNEL.fullmatch(channel):
        return "BadChannelId"
    return None if request.header("apns-push-type") == "liveactivity" else "InvalidPushType"


def _apns_id(request: Request) -> str:
    asked = request.header("apns-id")
    return asked if asked and _UUID.fullmatch(asked) else request.request_id


def _header_fault(request: Request) -> str | None:
    names = Counter(name for name, _ in request.headers if name == "authorization" or name.startswith("apns-"))
    if any(count > 1 for count in names.values()):
        return "DuplicateHeaders"
    apns_id = request.header("apns-id")
    if apns_id is not None and not _UUID.fullmatch(apns_id):
        return "BadMessageId"
    if not re.fullmatch(r"\d{1,18}", request.header("apns-expiration") or "0", re.ASCII):
        return "BadExpirationDate"
    if len((request.header("apns-collapse-id") or "").encode()) > MAX_COLLAPSE_ID_BYTES:
        return "BadCollapseId"
    push_type = _push_type(request)
    if push_type not in TOPIC_SUFFIXES:
        return "InvalidPushType"
    priority = request.header("apns-priority") or "10"
    if priority not in {"1", "5", "10"} or (push_type == "background" and priority == "10"):
        return "BadPriority"
    return None


def _topic_fault(request: Request, binding: Binding) -> str | None:
    topic = request.header("apns-topic")
    if not topic:
        return "MissingTopic"
    suffix = TOPIC_SUFFIXES[_push_type(request)]
    if not _TOPIC.fullmatch(topic) or not topic.endswith(suffix):
        return "BadTopic"
    return None if topic.removesuffix(suffix) in binding.topics else "TopicDisallowed"


def _payload_fault(request: Request) -> str | None:
    push_type = _push_type(request)
    if len(request.body) > (MAX_VOIP_PAYLOAD_BYTES if push_type == "voip" else MAX_PAYLOAD_BYTES):
        return "PayloadTooLarge"
    payload = json_object(request.body)
    # Apple has no reason for "not JSON": such a payload says nothing either.
    if not payload or (push_type == "alert" and not isinstance(payload.get("aps"), dict)):
        return "PayloadEmpty"
    return None


def _push_type(request: Request) -> str:
    """Only watchOS needs the header; without it APNs guesses, and we take the commonest kind."""
    return request.header("apns-push-type") or "alert"
