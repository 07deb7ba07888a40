"""Workload Identity Federation: the function's AWS role stands in for a key of Google's (AIP-4117).

    GetCallerIdentity, signed and not sent ──► Google's STS, who has AWS answer it ──► a federated bearer
                     federated bearer ──► IAM's generateAccessToken ──► the service account's bearer

No step needs a secret of ours: the file only names the pool, the provider and the service account.
"""

import asyncio
import json
import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Self
from urllib.parse import quote

from pushlease.providers.fcm.grant import LIFE_S, SCOPE, Fields, Grant, Post, bearer_in, granted, life_s, posted_form
from pushlease.providers.http import compact
from pushlease.providers.identity import CallerIdentity

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange"
SUBJECT_TYPE = "urn:ietf:params:aws:token-type:aws4_request"
BEARER_TYPE = "urn:ietf:params:oauth:token-type:access_token"
IAM_SCOPE = "https://www.googleapis.com/auth/iam"  # all that generateAccessToken wants of the federated bearer
CALLER_IDENTITY_URL = "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
RESOURCE_HEADER = "x-goog-cloud-target-resource"  # binds the signed request to one provider: no other can use it
LIFE_RANGE_S = (600, 43_200)  # what the file may ask for; more than an hour needs an organisation policy

_WHAT = "FCM external account"
_EXCHANGE, _IMPERSONATION = f"{_WHAT}: exchange", f"{_WHAT}: impersonation"
_AUDIENCE = re.compile(
    r"//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+",
    re.ASCII,
)
_ORIGIN = r"https://(?P<host>[a-z0-9.-]+)(:[0-9]{1,5})?"
_TOKEN_URL = re.compile(rf"{_ORIGIN}/v1/token", re.ASCII)
_IMPERSONATION_URL = re.compile(
    rf"{_ORIGIN}/v1/projects/-/serviceAccounts/[A-Za-z0-9@._-]+:generateAccessToken", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalAccount:
    """What a credential configuration of type ``external_account``, environment ``aws1``, says."""

    audience: str
    token_url: str
    impersonation_url: str
    life_s: int
    identity: CallerIdentity

    @classmethod
    def of(cls, fields: Fields, *, identity: CallerIdentity, host: str) -> Self:
        """Raises ``CredentialsError``. ``host``: of FCM, trusted with bearers as Google's own hosts are."""
        source = fields.below("credential_source")
        if source.values.get("environment_id") != "aws1":
            raise source.fault("environment_id", "must be aws1: the functions run at AWS")
        if source.values.get("regional_cred_verification_url") != CALLER_IDENTITY_URL:
            raise source.fault("regional_cred_verification_url", f"must be {CALLER_IDENTITY_URL}")
        if fields.values.get("subject_token_type") != SUBJECT_TYPE:
            raise fields.fault("subject_token_type", f"must be {SUBJECT_TYPE}")
        if not fields.values.get("service_account_impersonation_url"):
            raise fields.fault(
                "service_account_impersonation_url",
                "is missing: FCM may refuse federated bearers, so make the file with --service-account",
            )
        return cls(
            audience=fields.matched(
                "audience",
                _AUDIENCE,
                "must be the provider's whole name, //iam.googleapis.com/projects/NUMBER/…/providers/PROVIDER",
            ),
            token_url=_url(fields, "token_url", _TOKEN_URL, host),
            impersonation_url=_url(fields, "service_account_impersonation_url", _IMPERSONATION_URL, host),
            life_s=_asked_life_s(fields.below("service_account_impersonation")),
            identity=identity,
        )

    async def grant(self, post: Post, *, now_ms: int) -> Grant:
        """See ``Account``."""
        subject = await asyncio.to_thread(self._subject)  # outside Lambda the credentials may have to be fetched
        return await self._impersonated(post, await self._federated(post, subject), now_ms)

    def _subject(self) -> str:
        """GetCallerIdentity as Google's STS wants it: JSON, percent-encoded, besides what the form does to it."""
        url = CALLER_IDENTITY_URL.format(region=self.identity.region())
        headers = self.identity.signed(url, {RESOURCE_HEADER: self.audience})
        listed = [{"key": _CASED.get(name, name), "value": value} for name, value in headers.items()]
        return quote(compact({"url": url, "method": "POST", "headers": listed}))

    async def _federated(self, post: Post, subject: str) -> str:
        form = {
            "grant_type": GRANT_TYPE,
            "audience": self.audience,
            "scope": IAM_SCOPE,
            "requested_token_type": BEARER_TYPE,
            "subject_token": subject,
            "subject_token_type": SUBJECT_TYPE,
        }
        answer = granted(await posted_form(post, self.token_url, form), step=_EXCHANGE)
        return bearer_in(answer, "access_token", step=_EXCHANGE)

    async def _impersonated(self, post: Post, federated: str, now_ms: int) -> Grant:
        headers = {"authorization": f"Bearer {federated}", "content-type": "application/json"}
        body = json.dumps({"scope": [SCOPE], "lifetime": f"{self.life_s}s"}).encode()
        answer = granted(await post(self.impersonation_url, headers=headers, body=body), step=_IMPERSONATION)
        bearer = bearer_in(answer, "accessToken", step=_IMPERSONATION)
        return Grant(bearer=bearer, life_s=life_s(_left_s(answer.get("expireTime"), now_ms), at_most=self.life_s))


_CASED = {"authorization": "Authorization"}  # as Google writes it; the others it writes in lower case


def _url(fields: Fields, name: str, pattern: re.Pattern[str], host: str) -> str:
    url = fields.text(name)
    match = pattern.fullmatch(url)
    if match is None or not (match["host"] == host or match["host"].endswith(".googleapis.com")):
        raise fields.fault(name, "must be an https URL at googleapis.com, of the path that Google documents")
    return url


def _asked_life_s(fields: Fields) -> int:
    asked = fields.values.get("token_lifetime_seconds", LIFE_S)
    least, most = LIFE_RANGE_S
    if type(asked) is not int or not least <= asked <= most:
        raise fields.fault("token_lifetime_seconds", f"must be a whole number from {least} to {most}")
    return asked


def _left_s(expires_at: object, now_ms: int) -> float:
    """Until Google's instant (RFC 3339) by our clock; without one, as long as we asked for."""
    try:
        moment = datetime.fromisoformat(str(expires_at))
    except ValueError:
        return math.inf
    return moment.timestamp() - now_ms / 1000 if moment.tzinfo else math.inf
