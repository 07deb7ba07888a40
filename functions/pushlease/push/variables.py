"""Fills a content's ``{{ names }}`` with what is said of one recipient.

The syntax is Jinja's, and of that only names: no expression, no filter, no attribute, so that a text can name a value
and do nothing else. What is filled in is never read as a template again; in an address (link, image) it is
percent-encoded. A name without a value is a fault, not an empty text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, TemplateSyntaxError, nodes

from pushlease.errors import BadRequest
from pushlease.push.notification import LOCAL_TEXTS, Content

MAX_VARIABLES = 50
MAX_VALUE = 1024  # characters

_TOKENS = frozenset({"data", "variable_begin", "variable_end", "whitespace", "name", "string"})

type Part = nodes.TemplateData | nodes.Name | nodes.Const
type Rendered = Callable[[str, str], str]  # from a field's name and its text


def names_in(content: Content) -> frozenset[str]:
    """The names that a content needs values for; raises ``BadRequest``, naming the field, for what is no template."""
    found: set[str] = set()

    def look(field: str, text: str) -> str:
        found.update(part.name for part in _parts(field, text) if isinstance(part, nodes.Name))
        return text

    _mapped(content, look)
    return frozenset(found)


def filled(content: Content, variables: Mapping[str, str]) -> Content:
    """The content for one recipient; raises ``BadRequest`` for a name without a value."""

    def fill(field: str, text: str) -> str:
        address = field in ("content.link", "content.image")
        return "".join(_said(field, part, variables, address=address) for part in _parts(field, text))

    return _mapped(content, fill)


def _said(field: str, part: Part, variables: Mapping[str, str], *, address: bool) -> str:
    if not isinstance(part, nodes.Name):
        return str(part.data if isinstance(part, nodes.TemplateData) else part.value)
    if part.name not in variables:
        raise BadRequest(f"variables.{part.name}", f"must be given: {field} names it")
    value = variables[part.name]
    return quote(value, safe="") if address else value


def _mapped(content: Content, change: Rendered) -> Content:
    """The content with every text of it changed, by its field's name."""
    texts: dict[str, Any] = {
        name: change(f"content.{name}", text)
        for name in (*LOCAL_TEXTS, "image", "link")
        if (text := getattr(content, name))
    }
    return replace(
        content,
        **texts,
        data=_deep(content.data, "content.data", change),
        locales=_deep(content.locales, "content.locales", change),
        apns=_deep(content.apns, "content.apns", change),
        fcm=_deep(content.fcm, "content.fcm", change),
    )


def _deep(value: Any, field: str, change: Rendered) -> Any:
    if isinstance(value, str):
        return change(field, value)
    if isinstance(value, Mapping):
        return {key: _deep(inner, f"{field}.{key}", change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_deep(inner, field, change) for inner in value]
    return value


def _parts(field: str, text: str) -> Sequence[Part]:
    """A text as what stands there and what is to be filled in; raises ``BadRequest`` for whatever else it asks for."""
    if "{" not in text:
        return [nodes.TemplateData(text)]
    try:
        tokens = {kind for _, kind, _ in _syntax().lex(text)}
        body = _syntax().parse(text).body
    except (TemplateSyntaxError, RecursionError):
        raise BadRequest(field, "must be text with {{ names }}; braces themselves are written {{ '{{' }}") from None
    parts = [part for output in body for part in (output.nodes if isinstance(output, nodes.Output) else [output])]
    if not (tokens <= _TOKENS and all(map(_plain, parts))):
        raise BadRequest(field, "may name values as {{ name }}: no expression, filter, block or comment")
    return cast("list[Part]", parts)


def _plain(part: object) -> bool:
    return isinstance(part, nodes.TemplateData | nodes.Name) or (
        isinstance(part, nodes.Const) and isinstance(part.value, str)
    )


@cache
def _syntax() -> Environment:
    """Jinja reads the syntax; it never runs anything. Nothing is HTML here, so nothing is escaped as such."""
    return Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701
