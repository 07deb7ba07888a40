"""What a provider's answer means, as a value. Knows no provider's words: those are in ``providers``."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from pushlease.codes import Code
from pushlease.push.device import Environment


class Scope(StrEnum):
    """What a refusal speaks about, so that one device's limit does not slow a whole project."""

    DEVICE = "device"
    PROJECT = "project"
    CREDENTIALS = "credentials"
    REQUEST = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What the client does before its next request because of a refusal."""

    retry_now: bool = False  # once, inside the attempt: the request was provably not acted on
    new_bearer: bool = False
    reconnect: bool = False
    probe: bool = False  # push token or payload? One request without the payload tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The provider took the push; ``provider_id`` is its name for it (apns-id, FCM message name), if it gave one.

    ``environment``: where it was taken, if that is not where the device's row has its push token.
    """

    provider_id: str | None = None
    environment: Environment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The provider did not take the push, or we cannot know.

    ``reason`` is the provider's own word, at most 200 characters. ``retry_after`` is a floor. ``disable_before_ms``:
    the device is dead, provided its registration is older than this instant (epoch ms); None: leave the device alone.
    ``alarm``: a person must look, since the fault is in keys, topics or hosts and strikes every device.
    """

    code: Code
    reason: str
    scope: Scope = Scope.REQUEST
    retry_after: timedelta | None = None
    disable_before_ms: int | None = None
    alarm: bool = False
    remedy: Remedy = field(default_factory=Remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTried:
    """It was held back, or no time was left for it: no attempt is spent. It may be tried at ``until_ms``, or now."""

    until_ms: int = 0


type Verdict = Accepted | Refused | NotTried
