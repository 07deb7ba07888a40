"""What every way to a bearer of Google's shares: a credentials file's fields, and how an endpoint's answer is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode

from pushlease.errors import CredentialsError
from pushlease.providers.http import Response, said

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
LIFE_S = 3600  # the longest that Google grants, unless an organisation policy allows more
LEAST_LIFE_S = 60  # an answer that says less, or a clock far ahead, would have us ask anew for every push

# RFC 6749 §5.2 and what Google adds: words for "later", whatever the status.
_PASSING_ERRORS = frozenset({"internal_failure", "server_error", "temporarily_unavailable"})
_PASSING_STATUSES = frozenset({408, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A bearer, and for how many seconds it is good."""

    bearer: str
    life_s: int

    def __repr__(self) -> str:
        return f"Grant({self.life_s} s)"


class Post(Protocol):
    """Sends one request; raises ``TransportError``."""

    async def __call__(self, url: str, *, headers: Mapping[str, str], body: bytes) -> Response: ...


class Account(Protocol):
    """Whoever Google lets send, as told by a credentials file."""

    async def grant(self, post: Post, *, now_ms: int) -> Grant:
        """Raises ``CredentialsError`` or ``TransportError``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of ``what``; a fault names the field and its rule, never its value."""

    what: str
    values: Mapping[str, object]

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise self.fault(name, "must be a text")
        return value

    def matched(self, name: str, pattern: re.Pattern[str], rule: str) -> str:
        """A text of the given shape."""
        value = self.text(name)
        if not pattern.fullmatch(value):
            raise self.fault(name, rule)
        return value

    def below(self, name: str) -> "Fields":
        """The fields of an object in the file; none if it is absent."""
        value = self.values.get(name, {})
        if not isinstance(value, Mapping):
            raise self.fault(name, "must be an object")
        return Fields(what=f"{self.what}: {name}", values=value)

    def fault(self, name: str, rule: str) -> CredentialsError:
        return CredentialsError(f"{self.what}: {name} {rule}")


async def posted_form(post: Post, url: str, fields: Mapping[str, str]) -> Response:
    """POST ``fields`` as an HTML form would."""
    return await post(
        url, headers={"content-type": "application/x-www-form-urlencoded"}, body=urlencode(fields).encode()
    )


def granted(response: Response, *, step: str) -> Mapping[str, object]:
    """What the endpoint of ``step`` answered, if it granted anything. Raises ``CredentialsError``."""
    answer = response.json_object()
    if response.status == 200:
        return answer
    error = answer.get("error")  # a word (RFC 6749), or Google's envelope
    spoken = (
        (error.get("status"), error.get("message"))
        if isinstance(error, Mapping)
        else (error, answer.get("error_description"))
    )
    words = [word for word in (said(text, otherwise="") for text in spoken) if word]
    passing = response.status >= 500 or response.status in _PASSING_STATUSES or not _PASSING_ERRORS.isdisjoint(words)
    reason = ": ".join(words) or "no reason given"
    raise CredentialsError(f"{step} refused with HTTP {response.status}, {reason}", passing=passing)


def bearer_in(answer: Mapping[str, object], name: str, *, step: str) -> str:
    """The bearer in the field ``name``, fit for a header. Raises ``CredentialsError``."""
    bearer = answer.get(name)
    if not isinstance(bearer, str) or not re.fullmatch(r"[!-~]+", bearer):
        raise CredentialsError(f"{step} answered without an {name}")
    return bearer


def life_s(seconds: float, *, at_most: int) -> int:
    """How long to believe in a bearer that is said to live for ``seconds``."""
    return int(min(max(seconds, LEAST_LIFE_S), at_most))
