"""The linter: all that both providers' rules find in a content, and how large it travels, without sending anything."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pushlease.errors import BadRequest
from pushlease.providers.apns import protocol as apns
from pushlease.providers.apns import rules as apns_rules
from pushlease.providers.fcm import protocol as fcm
from pushlease.providers.fcm import rules as fcm_rules
from pushlease.providers.rules import OBJECT, STRINGS, Finding, Kind, number, one_of, shaped, whole
from pushlease.push.device import Platform
from pushlease.push.notification import LOCAL_TEXTS, MAX_BADGE, MAX_TEXT, Content, Priority

CONTENT = "pushlease, what a content may hold"
_WORDS = Kind(
    rule=f"a string of {MAX_TEXT} characters at most",
    fits=lambda value: isinstance(value, str) and len(value) <= MAX_TEXT,
)
_BADGE = Kind(
    rule=f"a whole number from 0 to {MAX_BADGE}", fits=lambda value: whole(value) and number(value, 0, MAX_BADGE)
)
_OWN: Mapping[str, Kind] = {
    "data": STRINGS,
    "apns": OBJECT,
    "fcm": OBJECT,
    "badge": _BADGE,
    "priority": one_of(*Priority),
    "locales": Kind(
        rule="an object of languages, each an object with title, subtitle or body",
        fits=lambda value: isinstance(value, Mapping) and all(map(_local_texts, value.values())),
    ),
}
KINDS: Mapping[str, Kind] = {**dict.fromkeys(Content.__dataclass_fields__, _WORDS), **_OWN}


def _local_texts(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(key in LOCAL_TEXTS and _WORDS.fits(text) for key, text in value.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a content travels to one provider; ``what``: its push type or its kind of message."""

    platform: Platform
    what: str
    size_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found, the fatal first; ``sizes`` of what can be written at all."""

    findings: Sequence[Finding]
    sizes: Sequence[Size]

    @property
    def fatal(self) -> bool:
        return any(finding.fatal for finding in self.findings)


def lint(said: Mapping[str, object]) -> Report:
    """Hold the content of a send request, as JSON has it, against every rule."""
    own = [
        finding if finding.fatal else _unknown(finding) for finding in shaped(said, KINDS, at="content", source=CONTENT)
    ]
    if own:
        return Report(findings=own, sizes=[])
    found: list[Finding] = []
    sizes: list[Size] = []
    for where, content in Content.from_json_object(said).variants():
        of_one = [*findings(content), *apns_rules.findings(content), *fcm_rules.findings(content)]
        found += [_at(where, finding) for finding in of_one if finding not in found]
        sizes += _sizes(content)
    found.sort(key=lambda finding: not finding.fatal)
    return Report(findings=list(dict.fromkeys(found)), sizes=_largest(sizes))


def findings(content: Content) -> Iterator[Finding]:
    """What is wrong with a content whoever carries it."""
    for key, taken in (("link", content.link), ("image", content.image)):
        if taken and key in content.data:
            rule = f"is where content.{key} travels: give one of the two"
            yield Finding(field=f"content.data.{key}", rule=rule, source=CONTENT)


def _at(where: str, finding: Finding) -> Finding:
    """The finding where its texts stand: what only one language breaks is said of that language."""
    return replace(finding, field=finding.field.replace("content", where, 1))


def _largest(sizes: Sequence[Size]) -> list[Size]:
    """Of each kind the language that travels largest."""
    kinds = dict.fromkeys((size.platform, size.what) for size in sizes)
    return [
        max((size for size in sizes if (size.platform, size.what) == kind), key=lambda size: size.size_bytes)
        for kind in kinds
    ]


def _unknown(finding: Finding) -> Finding:
    return Finding(field=finding.field, rule=f"is no field; there are {', '.join(KINDS)}", source=CONTENT)


def _sizes(content: Content) -> Iterator[Size]:
    measures: Sequence[Callable[[Content], Size]] = (_apns_size, _fcm_size)
    for measure in measures:
        try:
            yield measure(content)
        except BadRequest:  # the findings tell why
            continue


def _apns_size(content: Content) -> Size:
    ready = apns.form(content)
    limit_bytes = apns.PUSH_TYPES[ready.push_type].limit_bytes
    return Size(platform=Platform.APNS, what=ready.push_type, size_bytes=len(ready.body), limit_bytes=limit_bytes)


def _fcm_size(content: Content) -> Size:
    ready = fcm.form(content)
    what = "notification" if "notification" in ready.message else "data"
    return Size(platform=Platform.FCM, what=what, size_bytes=ready.size_bytes, limit_bytes=fcm.LIMIT_BYTES)
