"""What a provider's refusal means, as data; and Apple's reasons, which FCM relays for the iPhones behind it.

A row says what a reason means; ``refusal`` turns a row and the circumstances into a verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pushlease.codes import Code
from pushlease.providers.recent import Recent
from pushlease.push.outcome import Refused, Remedy, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One row of an outcome table. ``dead``: the device is; ``guarded``: only if the pair works for other devices."""

    code: Code
    scope: Scope = Scope.REQUEST
    dead: bool = False
    guarded: bool = False
    alarm: bool = False
    remedy: Remedy = field(default_factory=Remedy)
    wait: timedelta | None = None  # a floor of its own, for reasons whose vendor names one


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a refusal is read against; instants are epoch ms.

    ``registered_at_ms``: the device's last registration. ``sent_at_ms``: when this request left. ``recent``: how the
    app's other pushes to the environment fared. ``push_token_bad``: a probe of the push token alone was refused too.
    """

    registered_at_ms: int
    sent_at_ms: int
    now_ms: int
    recent: Recent
    push_token_bad: bool = False


def refusal(
    meaning: Meaning,
    reason: str,
    circumstances: Circumstances,
    *,
    retry_after: timedelta | None,
    invalid_since_ms: int | None = None,
) -> Refused:
    """The verdict; ``invalid_since_ms``: since when the provider holds the push token invalid, if it said so."""
    if meaning.guarded and circumstances.recent.burst:
        return Refused(code=Code.REJECTED, reason=reason, scope=Scope.CREDENTIALS, alarm=True)
    doomed = meaning.dead and (not meaning.guarded or circumstances.recent.ok > 0)
    # Without the provider's own instant, the moment of sending: a later registration may have revived the device.
    before_ms = circumstances.sent_at_ms if invalid_since_ms is None else invalid_since_ms
    return Refused(
        code=meaning.code,
        reason=reason,
        scope=meaning.scope,
        retry_after=max((span for span in (retry_after, meaning.wait) if span is not None), default=None),
        disable_before_ms=before_ms if doomed and circumstances.registered_at_ms < before_ms else None,
        alarm=meaning.alarm,
        remedy=meaning.remedy,
    )


_OUR_BUG = Meaning(code=Code.REJECTED)
_BAD_PUSH_TOKEN = Meaning(code=Code.INVALID_TOKEN, scope=Scope.DEVICE, dead=True, guarded=True)
_MISCONFIGURED = Meaning(code=Code.PROVIDER_ERROR, scope=Scope.CREDENTIALS, alarm=True)
_APPLE_IS_ILL = Meaning(code=Code.PROVIDER_ERROR)
_ELSEWHERE = Remedy(retry_now=True, reconnect=True)

# Apple, "Handling notification responses from APNs"; the broadcast rows as seen by client libraries.
APNS_REASONS: Mapping[tuple[int, str], Meaning] = {
    (400, "BadCollapseId"): _OUR_BUG,
    (400, "BadDeviceToken"): _BAD_PUSH_TOKEN,
    (400, "BadExpirationDate"): _OUR_BUG,
    (400, "BadMessageId"): _OUR_BUG,
    (400, "BadPriority"): _OUR_BUG,
    (400, "BadTopic"): Meaning(code=Code.REJECTED, alarm=True),
    (400, "DeviceTokenNotForTopic"): _BAD_PUSH_TOKEN,
    (400, "DuplicateHeaders"): _OUR_BUG,
    (400, "IdleTimeout"): Meaning(code=Code.NETWORK_ERROR, remedy=_ELSEWHERE),
    (400, "InvalidPushType"): _OUR_BUG,
    (400, "MissingDeviceToken"): _OUR_BUG,
    (400, "MissingTopic"): _OUR_BUG,
    (400, "PayloadEmpty"): _OUR_BUG,
    # A connection is bound to the topics that its team had at the first push: a newer topic needs a new one.
    (400, "TopicDisallowed"): Meaning(code=Code.PROVIDER_ERROR, scope=Scope.CREDENTIALS, alarm=True, remedy=_ELSEWHERE),
    (403, "BadCertificate"): _MISCONFIGURED,
    (403, "BadCertificateEnvironment"): _MISCONFIGURED,
    (403, "ExpiredProviderToken"): Meaning(
        code=Code.PROVIDER_ERROR,
        scope=Scope.CREDENTIALS,
        remedy=Remedy(retry_now=True, new_bearer=True, reconnect=True),
    ),
    (403, "Forbidden"): _MISCONFIGURED,
    (403, "InvalidProviderToken"): _MISCONFIGURED,
    (403, "MissingProviderToken"): _MISCONFIGURED,
    (403, "UnrelatedKeyIdInToken"): Meaning(code=Code.PROVIDER_ERROR, scope=Scope.CREDENTIALS, remedy=_ELSEWHERE),
    (403, "BadEnvironmentKeyIdInToken"): _MISCONFIGURED,
    (403, "BadEnvironmentKeyInToken"): _MISCONFIGURED,
    (404, "BadPath"): _OUR_BUG,
    (405, "MethodNotAllowed"): _OUR_BUG,
    (410, "ExpiredToken"): Meaning(code=Code.EXPIRED_TOKEN, scope=Scope.DEVICE, dead=True),
    (410, "Unregistered"): Meaning(code=Code.INVALID_TOKEN, scope=Scope.DEVICE, dead=True),
    (413, "PayloadTooLarge"): Meaning(code=Code.PAYLOAD_TOO_LARGE),
    # The connection's fault, not the device's rate: only a new connection cures it, and never a newer bearer.
    (429, "TooManyProviderTokenUpdates"): Meaning(
        code=Code.PROVIDER_ERROR,
        scope=Scope.CREDENTIALS,
        remedy=Remedy(reconnect=True),
        wait=timedelta(minutes=1),
    ),
    (429, "TooManyRequests"): Meaning(code=Code.RATE_LIMITED, scope=Scope.DEVICE),
    (500, "InternalServerError"): _APPLE_IS_ILL,
    (503, "ServiceUnavailable"): _APPLE_IS_ILL,
    (503, "Shutdown"): Meaning(code=Code.PROVIDER_ERROR, remedy=_ELSEWHERE),
    (400, "FeatureNotEnabled"): _OUR_BUG,
    (400, "MissingChannelId"): _OUR_BUG,
    (400, "BadChannelId"): _OUR_BUG,
    (400, "ChannelNotRegistered"): _OUR_BUG,
    (400, "BadRequestParams"): _OUR_BUG,
    (400, "BadRequestPayload"): _OUR_BUG,
    (400, "MissingPushType"): _OUR_BUG,
    (400, "CannotCreateChannelConfig"): _OUR_BUG,
    (400, "MissingChannelQueueSize"): _OUR_BUG,
    (403, "TopicMismatch"): _MISCONFIGURED,
}

# For reasons that Apple has not told of yet, and for answers of a front end.
_APNS_STATUSES: Mapping[int, Meaning] = {
    410: Meaning(code=Code.INVALID_TOKEN, scope=Scope.DEVICE, dead=True),
    413: Meaning(code=Code.PAYLOAD_TOO_LARGE),
    429: Meaning(code=Code.RATE_LIMITED),
}


def apns_meaning(status: int, reason: str) -> Meaning:
    """What Apple means, for any status that is no success and any reason, known or not."""
    known = APNS_REASONS.get((status, reason)) or _APNS_STATUSES.get(status)
    if known:
        return known
    # Neither a refusal of the request nor an ailing server: whatever answers there is not Apple's push service.
    if not 400 <= status < 600:
        return Meaning(code=Code.PROVIDER_ERROR, alarm=True)
    return _OUR_BUG if status < 500 else _APPLE_IS_ILL
