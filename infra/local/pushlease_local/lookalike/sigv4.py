"""AWS Signature Version 4, as its reader: whether a request was signed with a key that is known.

Source: AWS, "Create a signed AWS API request". Knows no clock: how old a signature may be is AWS's matter.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>(?P<day>\d{8})/(?P<region>[a-z0-9-]+)/sts/aws4_request), ?"
    r"SignedHeaders=(?P<signed>[a-z0-9;-]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


def signature_fault(url: str, headers: Mapping[str, str], keys: Mapping[str, str]) -> str | None:
    """What is wrong with a signed POST without a body; `keys` are the secrets by access key id, names lower-case."""
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None:
        return "The request is not signed with Signature Version 4 for sts"
    secret, stamp, signed = keys.get(match["key"]), headers.get("x-amz-date", ""), match["signed"].split(";")
    if secret is None:
        return "The access key ID is unknown"
    if not re.fullmatch(rf"{match['day']}T\d{{6}}Z", stamp):
        return "X-Amz-Date is not the credential's day"
    if signed != sorted(signed) or not {"host", "x-amz-date"} <= set(signed) <= set(headers):
        return "SignedHeaders must be sorted, present and name the host and the date"
    canonical = "\n".join(
        [
            "POST",
            urlsplit(url).path or "/",
            "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in sorted(parse_qsl(urlsplit(url).query))),
            *(f"{name}:{' '.join(headers[name].split())}" for name in signed),
            "",
            match["signed"],
            hashlib.sha256(b"").hexdigest(),
        ]
    )
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{match['scope']}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (*match["scope"].split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    return None if hmac.compare_digest(key.hex(), match["signature"]) else "The signature does not match"
