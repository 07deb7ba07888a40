"""Google's OAuth endpoint for service accounts, `POST /token` with a signed assertion, as a pure function.

Source: google-auth's service-account flow and Google's "Using OAuth 2.0 for server to server applications".
"""

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

import jwt

from pushlease_local.lookalike.messages import Answer, Binding, Issued, Request, json_answer
from pushlease_local.lookalike.world import World

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SCOPES = frozenset(
    {"https://www.googleapis.com/auth/firebase.messaging", "https://www.googleapis.com/auth/cloud-platform"}
)
MAX_LIFETIME_S = 3600
TARGET = "oauth"  # what a script for this endpoint is filed under, where a push has its push_token


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Grants access bearers that the FCM look-alike accepts."""

    def target(self, request: Request) -> str:  # noqa: ARG002 - there is one endpoint
        return TARGET

    def judge(self, request: Request, *, world: World, binding: Binding | None, now_ms: int) -> Answer:  # noqa: ARG002 - Google binds no connection
        if request.path != "/token" or request.method != "POST":
            return refuse(404, "not_found", "There is only POST /token here")
        form = parse_qs(request.body.decode(errors="replace"))
        is_form = (request.header("content-type") or "").startswith("application/x-www-form-urlencoded")
        if not is_form or "grant_type" not in form:
            return refuse(400, "invalid_request", "Required parameter is missing: grant_type")
        if form["grant_type"] != [GRANT]:
            return refuse(400, "unsupported_grant_type", "Invalid grant_type")
        if "assertion" not in form:
            return refuse(400, "invalid_request", "Required parameter is missing: assertion")
        fault = _assertion_fault(form["assertion"][0], world, now_ms // 1000)
        if fault:
            return refuse(400, *fault)
        bearer = f"ya29.lookalike-{request.request_id}"
        granted = json_answer(
            200, {"access_token": bearer, "expires_in": world.access_lifetime_s - 1, "token_type": "Bearer"}
        )
        return replace(granted, issued=Issued(bearer=bearer, expires_ms=now_ms + world.access_lifetime_s * 1000))

    def error(self, request: Request, *, status: int, reason: str, timestamp_ms: int | None) -> Answer:  # noqa: ARG002 - one shape for all
        return refuse(status, reason, "Scripted refusal")


def refuse(status: int, error: str, description: str) -> Answer:
    """A refusal as RFC 6749 writes it."""
    return json_answer(status, {"error": error, "error_description": description}, reason=error)


def _assertion_fault(assertion: str, world: World, now_s: int) -> tuple[str, str] | None:
    try:
        claims: dict[str, Any] = jwt.decode(assertion, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return "invalid_grant", "Bad Request"
    public_key_pem = world.service_accounts.get(str(claims.get("iss")))
    if public_key_pem is None:
        return "invalid_grant", "Invalid grant: account not found"
    try:
        # Times and audience are judged below, by the look-alike's own clock and address.
        jwt.decode(assertion, public_key_pem, algorithms=["RS256"], options=_SIGNATURE_ONLY)
    except jwt.InvalidTokenError:
        return "invalid_grant", "Invalid JWT Signature."
    if claims.get("aud") != world.token_uri:
        return "invalid_grant", "Invalid JWT: Failed audience check."
    issued_s, expires_s = claims.get("iat"), claims.get("exp")
    if type(issued_s) is not int or type(expires_s) is not int or not _is_timely(issued_s, expires_s, now_s):
        return "invalid_grant", "Invalid JWT: it must be short-lived (60 minutes) and in a reasonable timeframe."
    scopes = str(claims.get("scope", "")).split()
    if not scopes or not SCOPES.issuperset(scopes):
        return "invalid_scope", "Invalid OAuth scope or ID token audience provided."
    return None


def _is_timely(issued_s: int, expires_s: int, now_s: int) -> bool:
    """Both ends must be near: a minute of skew ahead is forgiven, an expired assertion is not."""
    return issued_s <= now_s + 60 and now_s < expires_s <= issued_s + MAX_LIFETIME_S


_SIGNATURE_ONLY: Any = {"verify_iat": False, "verify_exp": False, "verify_nbf": False, "verify_aud": False}
