"""Checks of the APNs provider bearer; knows nothing of topics, payloads or connections' streams.

Source: Apple, "Establishing a token-based connection to APNs".
"""

from dataclasses import replace
from typing import Any

import jwt

from pushlease_local.lookalike.messages import Binding, Request
from pushlease_local.lookalike.world import ApnsKey, World

MAX_AGE_S = 3600  # Apple: issued no more than one hour ago
MAX_SKEW_S = 60  # ours: how far ahead of us a client's clock may be; Apple names no figure
CHANGE_WINDOW_MS = 20 * 60 * 1000  # Apple: refresh no more than once every 20 minutes


def check_bearer(
    request: Request, *, environment: str, world: World, binding: Binding | None, now_ms: int
) -> Binding | str:
    """Return the connection's binding after this request, or the reason for which the bearer is refused."""
    scheme, _, bearer = (request.header("authorization") or "").partition(" ")
    bearer = bearer.strip()
    if scheme.lower() != "bearer" or not bearer:
        return "MissingProviderToken"
    if bearer in world.apns_bearers_revoked:
        return "ExpiredProviderToken"
    if binding is not None and binding.bearer == bearer:  # proved before on this connection: only its age can change
        return binding if _is_fresh(binding.issued_s, now_ms) else "ExpiredProviderToken"
    key = _verified_key(bearer, world)
    if key is None:
        return "InvalidProviderToken"
    issued_s = _issued_s(bearer)
    if issued_s is None or issued_s - now_ms / 1000 > MAX_SKEW_S:
        return "InvalidProviderToken"
    if not _is_fresh(issued_s, now_ms):
        return "ExpiredProviderToken"
    if environment not in key.environments:
        return "BadEnvironmentKeyIdInToken"
    if binding is None:
        return Binding(team_id=key.team_id, key_id=key.key_id, topics=key.topics, bearer=bearer, issued_s=issued_s)
    return _rebind(binding, key, bearer, issued_s, world=world, now_ms=now_ms)


def _rebind(binding: Binding, key: ApnsKey, bearer: str, issued_s: int, *, world: World, now_ms: int) -> Binding | str:
    if key.team_id != binding.team_id:
        return "Forbidden"
    if key.key_id != binding.key_id:
        return "UnrelatedKeyIdInToken"
    recent = tuple(at for at in binding.changed_ms if now_ms - at < CHANGE_WINDOW_MS)
    if len(recent) >= world.bearer_changes_allowed:
        return "TooManyProviderTokenUpdates"
    return replace(binding, bearer=bearer, issued_s=issued_s, changed_ms=(*recent, now_ms))


def _verified_key(bearer: str, world: World) -> ApnsKey | None:
    """Find the registered key that the bearer names and was signed with."""
    try:
        header = jwt.get_unverified_header(bearer)
        key = world.apns_keys.get((str(_claims(bearer).get("iss")), str(header.get("kid"))))
        if key is not None:
            jwt.decode(bearer, key.public_key_pem, algorithms=["ES256"], options=_SIGNATURE_ONLY)
    except jwt.InvalidTokenError:
        return None
    return key


# Age and skew are judged here, by the look-alike's own clock.
_SIGNATURE_ONLY: Any = {"verify_iat": False, "verify_exp": False, "verify_nbf": False, "verify_aud": False}


def _claims(bearer: str) -> dict[str, Any]:
    return jwt.decode(bearer, options={"verify_signature": False})


def _issued_s(bearer: str) -> int | None:
    issued = _claims(bearer).get("iat")
    return issued if type(issued) is int else None


def _is_fresh(issued_s: int, now_ms: int) -> bool:
    return now_ms / 1000 - issued_s <= MAX_AGE_S
