"""Finds in logs what must never be there: credentials, whole push tokens, message text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Any PEM, JWT, Google access token or bearer header, whoever's it is.
_CREDENTIAL = re.compile(
    r"BEGIN [A-Z ]*PRIVATE KEY|\beyJ[\w-]{10,}\.[\w-]{10,}|\bya29\.[\w-]{10,}|\b[Bb]earer [\w.~+/-]{20,}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What kind of thing stands in which line; never the thing itself."""

    kind: str
    line: int


def texts_of(said: Any) -> Iterator[str]:
    """What people would read of a notification: every title, subtitle and body, however deep in a request it is."""
    return _under(said, frozenset({"title", "subtitle", "body"}))


def push_tokens_of(said: Any) -> Iterator[str]:
    """Every whole push token in a request; a malformed one that is short names nobody."""
    return (push_token for push_token in _under(said, frozenset({"push_token"})) if len(push_token) > 20)


def _under(said: Any, names: frozenset[str]) -> Iterator[str]:
    if isinstance(said, Mapping):
        for name, inner in said.items():
            if name in names and isinstance(inner, str):
                yield inner
            else:
                yield from _under(inner, names)
    elif isinstance(said, list):
        for inner in said:
            yield from _under(inner, names)


def findings(
    lines: Sequence[str], *, secrets: Iterable[str], push_tokens: Iterable[str], texts: Iterable[str]
) -> list[Finding]:
    """All findings, in order of lines. ``secrets`` may be PEMs: any line of their body counts."""
    needles = [("secret", part) for secret in secrets for part in secret.splitlines() if len(part) >= 20]
    needles += [("push token", push_token) for push_token in push_tokens]
    needles += [("message text", text) for text in texts]
    found: list[Finding] = []
    for number, line in enumerate(lines, start=1):
        found += [Finding(kind=kind, line=number) for kind, needle in needles if needle in line]
        if _CREDENTIAL.search(line):
            found.append(Finding(kind="credential", line=number))
    return found
