"""What a provider's rules find in a content: findings as values, and tables of what each key may hold."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pushlease.errors import BadRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that a content breaks. ``field``: a path in the content; ``source``: the document that has the rule.

    ``fatal``: the provider would refuse it, or drop it without a word; else it is a risk that somebody may want.
    """

    field: str
    rule: str
    source: str
    fatal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a value must be: ``rule`` in words, ``fits`` in code."""

    rule: str
    fits: Callable[[object], bool]


def broken(error: BadRequest, *, source: str) -> Finding:
    """The finding that a ``BadRequest`` speaks of."""
    return Finding(field=error.field, rule=error.rule, source=source)


def shaped(block: object, kinds: Mapping[str, Kind], *, at: str, source: str) -> Iterator[Finding]:
    """Hold each key of a JSON object against its kind; a key that no table names is a risk, not a fault."""
    if not isinstance(block, Mapping):
        yield Finding(field=at, rule="must be an object", source=source)
        return
    for key, value in block.items():
        kind = kinds.get(key)
        if kind is None:
            yield Finding(field=f"{at}.{key}", rule="is no key of this object", source=source, fatal=False)
        elif not kind.fits(value):
            yield Finding(field=f"{at}.{key}", rule=f"must be {kind.rule}", source=source)


def nearly_full(size_bytes: int, limit_bytes: int, *, source: str) -> Iterator[Finding]:
    """A risk if less than a tenth of the limit is left: the next longer name breaks it."""
    if limit_bytes * 9 // 10 < size_bytes <= limit_bytes:
        rule = f"has {size_bytes} of {limit_bytes} bytes: little is left for longer texts"
        yield Finding(field="content", rule=rule, source=source, fatal=False)


def needless(block: object, pairs: Mapping[str, str], *, at: str, source: str, fatal: bool = True) -> Iterator[Finding]:
    """Keys of a JSON object that mean nothing without another, by that other's name."""
    for key, other in pairs.items():
        if isinstance(block, Mapping) and key in block and other not in block:
            yield Finding(field=f"{at}.{key}", rule=f"means nothing without {other}", source=source, fatal=fatal)


def number(value: object, least: float = float("-inf"), most: float = float("inf")) -> bool:
    """Whether it is a JSON number within the bounds; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def whole(value: object) -> bool:
    """Whether it is a whole JSON number; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = Kind(rule="a string that is not empty", fits=lambda value: isinstance(value, str) and bool(value))
TEXTS = Kind(
    rule="a list of strings",
    fits=lambda value: isinstance(value, list) and all(isinstance(part, str) for part in value),
)
OBJECT = Kind(rule="an object", fits=lambda value: isinstance(value, Mapping))
BOOLEAN = Kind(rule="true or false", fits=lambda value: isinstance(value, bool))
COUNT = Kind(rule="a whole number, 0 or more", fits=lambda value: whole(value) and number(value, 0))
STRINGS = Kind(
    rule="an object of strings",
    fits=lambda value: isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values()),
)


def one_of(*words: str) -> Kind:
    """One of the words."""
    return Kind(rule=f"one of {', '.join(words)}", fits=lambda value: isinstance(value, str) and value in words)
