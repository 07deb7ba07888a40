"""The bearer that Apple wants: an ES256 JWT of a team's p8 key (Apple, "Establishing a token-based connection")."""

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pushlease.errors import CredentialsError

LIFE_MS = 45 * 60_000  # Apple refuses a bearer after 60 minutes; a quarter of an hour is left for queues and clocks
RENEWAL_MS = 20 * 60_000  # more than one new bearer in 20 minutes draws TooManyProviderTokenUpdates
SKEW_MS = 30_000  # a clock that runs ahead of Apple's would make the bearer one from the future


class ApnsBearers:
    """Mints the bearer of one team and key, and keeps it; shared by all connections of the pair.

    Instants are epoch ms by a clock that may jump: put back, it never has a bearer minted that Apple did not refuse.
    Raises ``CredentialsError`` unless ``p8`` is the PEM of a P-256 key.
    """

    def __init__(self, *, team_id: str, key_id: str, p8: str) -> None:
        self._team_id, self._key_id = team_id, key_id
        self._key = _parsed(p8, key_id)
        self._bearer = ""
        self._minted_at_ms = 0
        self._proved_at_ms = 0
        self._renewed = False

    def current(self, *, now_ms: int) -> str:
        """The bearer to send, minted afresh once it has lived 45 minutes."""
        if not self._bearer or now_ms - self._minted_at_ms >= LIFE_MS:
            self._mint(now_ms)
            self._renewed = False
        return self._bearer

    def refused(self, bearer: str, *, now_ms: int) -> None:
        """Apple called ``bearer`` expired: replace it, once in 20 minutes, unless that has been done already."""
        age_ms = now_ms - self._minted_at_ms
        just_renewed = self._renewed and -SKEW_MS <= age_ms < RENEWAL_MS  # else the clock was put back, or it is old
        if bearer == self._bearer and not just_renewed:
            self._mint(now_ms)
            self._renewed = True

    def proved(self, bearer: str, *, now_ms: int) -> None:
        """Apple accepted a push with ``bearer``."""
        if bearer == self._bearer:
            self._proved_at_ms = now_ms

    def doubtful(self, bearer: str, *, now_ms: int) -> bool:
        """Whether a 500 may be about ``bearer``: nothing was accepted for 20 minutes, or another has replaced it.

        After an hour without pushes Apple was seen to answer an expired bearer so (pushy#408).
        """
        return bearer != self._bearer or now_ms - max(self._minted_at_ms, self._proved_at_ms) >= RENEWAL_MS

    def _mint(self, now_ms: int) -> None:
        claims = {"iss": self._team_id, "iat": (now_ms - SKEW_MS) // 1000}
        self._bearer = jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": self._key_id})
        self._minted_at_ms = now_ms


def _parsed(p8: str, key_id: str) -> EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(p8.encode(), password=None)
    except Exception:  # whatever the parser says may quote the key, so none of it is passed on
        raise CredentialsError(f"APNs key {key_id}: the secret is not an unencrypted PEM (.p8)") from None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise CredentialsError(f"APNs key {key_id}: the secret is not a P-256 key")
    return key
