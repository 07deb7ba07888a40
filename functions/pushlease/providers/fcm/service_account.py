"""A service account's key: a signed assertion, exchanged for a bearer (RFC 7523).

Source: Google, "Using OAuth 2.0 for server to server applications".
"""

import re
from dataclasses import dataclass
from typing import Self

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pushlease.providers.fcm.grant import LIFE_S, SCOPE, Fields, Grant, Post, bearer_in, granted, life_s, posted_form

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SKEW_S = 30  # a clock that runs ahead of Google's would make the assertion one from the future

_STEP = "FCM grant"
_TOKEN_URI = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[\w./-]*)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """What of the JSON of a service account's key a grant needs."""

    client_email: str
    private_key_id: str
    private_key: RSAPrivateKey
    token_uri: str

    def __repr__(self) -> str:
        return f"ServiceAccount({self.client_email})"

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """Raises ``CredentialsError``."""
        token_uri = fields.matched("token_uri", _TOKEN_URI, "must be an https URL")
        try:
            key = load_pem_private_key(fields.text("private_key").encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, RSAPrivateKey):
            raise fields.fault("private_key", "is not the PEM of an RSA key")
        return cls(
            client_email=fields.text("client_email"),
            private_key_id=fields.text("private_key_id"),
            private_key=key,
            token_uri=token_uri,
        )

    async def grant(self, post: Post, *, now_ms: int) -> Grant:
        """See ``Account``."""
        form = {"grant_type": GRANT_TYPE, "assertion": self.assertion(now_ms=now_ms)}
        answer = granted(await posted_form(post, self.token_uri, form), step=_STEP)
        try:
            said_s = int(str(answer.get("expires_in")))  # some endpoints write the number as a string
        except ValueError:
            said_s = LIFE_S
        return Grant(bearer=bearer_in(answer, "access_token", step=_STEP), life_s=life_s(said_s, at_most=LIFE_S))

    def assertion(self, *, now_ms: int) -> str:
        """The signed claim to be this account, good for one grant."""
        issued_s = now_ms // 1000 - SKEW_S
        claims = {
            "iss": self.client_email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": issued_s,
            "exp": issued_s + LIFE_S,
        }
        return jwt.encode(claims, self.private_key, algorithm="RS256", headers={"kid": self.private_key_id})
