"""The values that pass between the connection driver, the judges and the memory; no I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pushlease_local.lookalike.world import World


class Service(StrEnum):
    """One listener each, so that one can fail alone."""

    APNS_PRODUCTION = "apns-production"
    APNS_SANDBOX = "apns-sandbox"
    FCM = "fcm"
    OAUTH = "oauth"
    STS = "sts"
    IAM = "iam"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One whole HTTP/2 request. `request_id` is a fresh UUID: judges roll no dice, they name their answers by it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    request_id: str

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A push that a look-alike took responsibility for, as the provider would when it answers 200.

    `environment` is "production" or "sandbox" for APNs, the project id for FCM. `provider_id` is the apns-id or the
    message name. `attempt` counts the requests that named this push_token so far, this one included.
    """

    provider: str
    environment: str
    push_token: str
    provider_id: str
    topic: str
    priority: str | None
    collapse_id: str | None
    body: Mapping[str, Any]
    at_ms: int
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What an APNs connection is bound to by its first valid bearer, and the bearer that it uses now.

    `topics` is a snapshot: a topic registered later is refused until the client reconnects, as Apple documents.
    """

    team_id: str
    key_id: str
    topics: frozenset[str]
    bearer: str
    issued_s: int
    changed_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """An access bearer that was granted; a federated one is good for IAM alone."""

    bearer: str
    expires_ms: int
    federated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response, and what the world must remember if it is given.

    `reason` is the provider's own word for a refusal, empty for an acceptance. `bearer_ok` is True when the request
    proved its bearer, False when the bearer was found expired, None when it says nothing: the connection's stream limit
    follows it.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    accepted: Accepted | None = None
    binding: Binding | None = None
    issued: Issued | None = None
    bearer_ok: bool | None = None


class Provider(Protocol):
    """One provider's protocol: pure functions of a request and of what is registered."""

    def target(self, request: Request) -> str:
        """Name what scripts and counts go by: the push_token in the request, "" when there is none."""
        ...

    def judge(self, request: Request, *, world: World, binding: Binding | None, now_ms: int) -> Answer:
        """Answer as the provider would."""
        ...

    def error(self, request: Request, *, status: int, reason: str, timestamp_ms: int | None) -> Answer:
        """Shape a refusal with the given status and reason in the provider's format."""
        ...


def json_answer(status: int, body: Any, *, reason: str = "", headers: Mapping[str, str] | None = None) -> Answer:
    """An answer with a JSON body and its content type."""
    return Answer(
        status=status,
        body=json.dumps(body).encode(),
        headers={"content-type": "application/json; charset=UTF-8", **(headers or {})},
        reason=reason,
    )


def json_object(body: bytes) -> dict[str, Any] | None:
    """Read a JSON object; None for anything else."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
