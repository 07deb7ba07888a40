"""Workload Identity Federation from AWS, as pure functions: Google's STS and IAM's generateAccessToken.

Source: google-auth's AWS flow, Google's reference of `sts.googleapis.com` and of `iamcredentials.googleapis.com`. The
real STS has AWS answer the signed request that it is given; this one verifies the signature with the role's own key.
"""

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, unquote, urlsplit

from pushlease_local.lookalike.fcm import error_answer
from pushlease_local.lookalike.messages import Answer, Binding, Issued, Request, json_answer, json_object
from pushlease_local.lookalike.oauth import SCOPES, refuse
from pushlease_local.lookalike.sigv4 import signature_fault
from pushlease_local.lookalike.world import World

FIXED = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
    "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
}
FEDERATED_SCOPES = frozenset(
    {"https://www.googleapis.com/auth/iam", "https://www.googleapis.com/auth/cloud-platform"}
)  # either may impersonate
FIELDS = {*FIXED, "audience", "scope", "subject_token"}
# All that an identity needs to show: the session's own proof is among them, its secret key never is.
HEADERS = {"authorization", "host", "x-amz-date", "x-amz-security-token", "x-goog-cloud-target-resource"}
_CALLER_IDENTITY = re.compile(r"https://sts\.[a-z0-9-]+\.amazonaws\.com/?\?Action=GetCallerIdentity&Version=2011-06-15")
_GENERATE = re.compile(r"/v1/projects/-/serviceAccounts/([^/]+):generateAccessToken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sts:
    """Exchanges a signed GetCallerIdentity for a federated bearer, which IAM takes and FCM does not."""

    def target(self, request: Request) -> str:  # noqa: ARG002 - there is one endpoint
        return "sts"

    def judge(self, request: Request, *, world: World, binding: Binding | None, now_ms: int) -> Answer:  # noqa: ARG002 - Google binds no connection
        if request.path != "/v1/token" or request.method != "POST":
            return refuse(404, "not_found", "There is only POST /v1/token here")
        if request.header("content-type") != "application/x-www-form-urlencoded":
            return refuse(400, "invalid_request", "The request must be a form")
        said = parse_qs(request.body.decode(errors="replace"), keep_blank_values=True)
        if set(said) != FIELDS or any(len(values) != 1 for values in said.values()):
            return refuse(400, "invalid_request", f"The form must have each of {', '.join(sorted(FIELDS))}, once")
        form = {name: values[0] for name, values in said.items()}
        for name, value in FIXED.items():
            if form[name] != value:
                return refuse(400, "invalid_request", f"Invalid {name}")
        if form["audience"] not in world.workload_providers:
            return refuse(400, "invalid_target", "The target service indicated by the audience is invalid.")
        if form["scope"] not in FEDERATED_SCOPES:
            return refuse(400, "invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        fault = _subject_fault(form["subject_token"], form["audience"], world)
        if fault:
            return refuse(400, "invalid_grant", fault)
        bearer = f"ya29.federated-{request.request_id}"
        answer = {
            "access_token": bearer,
            "issued_token_type": FIXED["requested_token_type"],
            "token_type": "Bearer",
            "expires_in": 3600,
        }
        issued = Issued(bearer=bearer, expires_ms=now_ms + 3_600_000, federated=True)
        return replace(json_answer(200, answer), issued=issued)

    def error(self, request: Request, *, status: int, reason: str, timestamp_ms: int | None) -> Answer:  # noqa: ARG002 - one shape for all
        return refuse(status, reason, "Scripted refusal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Iam:
    """Lets a federated identity be a service account for an hour."""

    def target(self, request: Request) -> str:  # noqa: ARG002 - there is one endpoint
        return "iam"

    def judge(self, request: Request, *, world: World, binding: Binding | None, now_ms: int) -> Answer:  # noqa: ARG002 - Google binds no connection
        path = _GENERATE.fullmatch(request.path)
        if path is None or request.method != "POST":
            return error_answer(404, "Requested entity was not found.")
        scheme, _, bearer = (request.header("authorization") or "").partition(" ")
        if scheme != "Bearer" or world.federated_bearers.get(bearer, 0) <= now_ms:
            return error_answer(401, "Request had invalid authentication credentials.")
        if path[1] not in world.impersonated:
            return error_answer(403, "Permission 'iam.serviceAccounts.getAccessToken' denied on resource.")
        body = json_object(request.body) or {}
        scopes, lifetime = body.get("scope"), body.get("lifetime", "3600s")
        if not isinstance(scopes, list) or not scopes or not SCOPES.issuperset(scopes):
            return error_answer(400, "Request contains an invalid argument: scope.")
        seconds = int(lifetime[:-1]) if re.fullmatch(r"[0-9]{1,5}s", str(lifetime)) else 0
        if not 1 <= seconds <= world.access_lifetime_s:
            return error_answer(400, "Request contains an invalid argument: lifetime.")
        bearer, expires_ms = f"ya29.impersonated-{request.request_id}", now_ms + seconds * 1000
        moment = dt.datetime.fromtimestamp(expires_ms // 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        granted = json_answer(200, {"accessToken": bearer, "expireTime": moment})
        return replace(granted, issued=Issued(bearer=bearer, expires_ms=expires_ms))

    def error(self, request: Request, *, status: int, reason: str, timestamp_ms: int | None) -> Answer:  # noqa: ARG002 - one shape for all
        return error_answer(status, "Scripted refusal.", reason=reason)


def _subject_fault(subject: str, audience: str, world: World) -> str | None:
    shown = _shown(subject)
    if shown is None:
        return "The subject is not percent-encoded JSON of a url, a method and headers"
    url, headers = shown
    if not _CALLER_IDENTITY.fullmatch(url):
        return "The url must be STS's GetCallerIdentity"
    if not set(headers) <= HEADERS:
        return "There are headers that no identity needs"
    if headers.get("host") != urlsplit(url).netloc:
        return "The host must be the url's"
    if headers.get("x-goog-cloud-target-resource") != audience:
        return "x-goog-cloud-target-resource must be the audience"
    if ";x-goog-cloud-target-resource" not in headers.get("authorization", ""):
        return "x-goog-cloud-target-resource must be signed"
    if any(secret in unquote(subject) for secret in world.aws_keys.values()):
        return "The subject holds a secret"
    if headers.get("x-amz-security-token") not in world.aws_sessions:
        return "The session is unknown"
    return signature_fault(url, headers, world.aws_keys)


def _shown(subject: str) -> tuple[str, Mapping[str, str]] | None:
    """The URL and the headers of the request that the subject is; None for anything else."""
    try:
        request = json.loads(unquote(subject))
        listed = [(str(header["key"]).lower(), str(header["value"])) for header in request["headers"]]
        whole = set(request) == {"url", "method", "headers"} and request["method"] == "POST"
        url = str(request["url"])
    except (ValueError, TypeError, KeyError):
        return None
    headers = dict(listed)
    return (url, headers) if whole and len(headers) == len(listed) and "%" in subject else None
