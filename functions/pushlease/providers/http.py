"""Requests and answers as values, and the one header that both providers share. No I/O, no clock."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime

_DELTA_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)  # nine digits are thirty years: more is garbage


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to one host: ``path`` and ``headers`` hold only what a protocol module has validated."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole answer; the names of ``headers`` are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json_object(self) -> Mapping[str, object]:
        """The body as a JSON object; empty for anything else, such as a front end's HTML."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def retry_after(response: Response, *, now_ms: int) -> timedelta | None:
    """How long the answer asks to wait, by either form of Retry-After (RFC 9110 §10.2.3); None if it does not say."""
    text = response.headers.get("retry-after", "").strip()
    if _DELTA_SECONDS.fullmatch(text):
        return timedelta(seconds=int(text))
    try:
        moment = parsedate_to_datetime(text)
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(timedelta(seconds=at_s) - timedelta(milliseconds=now_ms), timedelta())


def compact(value: object) -> bytes:
    """UTF-8 JSON without spaces or escapes, so that text costs its own bytes. Raises ValueError or TypeError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def merged(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """``base`` with ``over`` laid on top: objects are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def said(text: object, *, otherwise: str) -> str:
    """A provider's word, fit for a row and a log line: at most 200 printable characters, or ``otherwise``."""
    if not isinstance(text, str) or not text:
        return otherwise
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:200])
