"""What the functions' edges share: how a request is parsed, and how a bad one is answered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from zoneinfo import available_timezones

from aws_lambda_powertools.utilities.parser import BaseModel, ValidationError, parse
from pydantic import AfterValidator, ConfigDict, StringConstraints

from pushlease.errors import BadRequest
from pushlease.push.device import USER_ID
from pushlease.push.plan import RESERVED_IDS

# An answer names so many faults, and so much of a field's name: both are the caller's to make long.
MAX_ERRORS = 20
MAX_FIELD_CHARACTERS = 128


# Where the parser's own words say less than ours.
_RULES = {"extra_forbidden": "is no field of this request", "missing": "must be given"}


def _not_reserved(device_id: str) -> str:
    if device_id in RESERVED_IDS:
        raise ValueError(f"must not be one of {', '.join(sorted(RESERVED_IDS))}, which name other deliveries")
    return device_id


def _known_zone(name: str) -> str:
    if name not in available_timezones():
        raise ValueError("must be the name of an IANA time zone, such as Europe/Vienna")
    return name


# An app's id stands in keys before a "#", and is a queue's message group.
AppIdText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
# A notification's id is a collapse id by default, which APNs limits to 64 bytes.
NotificationIdText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
UserIdText = Annotated[str, StringConstraints(pattern=f"^{USER_ID.pattern}$")]
DeviceIdText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,64}$"), AfterValidator(_not_reserved)]
LocaleText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{2,35}$")]  # a language tag, such as de-AT
ZoneText = Annotated[str, StringConstraints(max_length=64), AfterValidator(_known_zone)]  # as Europe/Vienna
ChannelText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Request(BaseModel):
    """A request's model: strict types, and no unknown field, since a misspelt one would be silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action[M: Request]:
    """One thing that a function can be asked for: the request's model, and what to do with it."""

    model: type[M]
    work: Callable[[M], Mapping[str, Any]]


def answered(event: object, actions: Mapping[str, Action[Any]], *, default: str | None = None) -> Mapping[str, Any]:
    """Do what the event's ``action`` asks for, and answer; a request that breaks a rule is answered with the rule.

    The answer is ``{"ok": true, …}`` or ``{"ok": false, "errors": [{"field", "rule"}, …]}``. A bad request is an
    answer and not an exception: repeating it, as an asynchronous invocation would, cannot mend it.
    """
    if not isinstance(event, Mapping):
        return _refused([{"field": "request", "rule": "must be a JSON object"}])
    name = event.get("action", default)
    action = actions.get(name) if isinstance(name, str) else None
    if action is None:
        return _refused([{"field": "action", "rule": f"must be one of {', '.join(sorted(actions))}"}])
    try:
        request = parse(event=dict(event), model=action.model)
        return {"ok": True, **action.work(request)}
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_ERRORS]
        return _refused([{"field": _where(fault["loc"]), "rule": _rule(fault)} for fault in faults])
    except BadRequest as error:
        return _refused([{"field": _told(error.field), "rule": error.rule}])


def _where(location: Sequence[int | str]) -> str:
    return _told(".".join(map(str, location))) or "request"


def _rule(fault: Mapping[str, Any]) -> str:
    return _RULES.get(fault["type"], str(fault["msg"]))


def _told(field: str) -> str:
    """A field's name that any log and any answer can carry: the caller may have made it of anything."""
    printable = field.encode("ascii", "backslashreplace").decode("ascii")
    return printable if len(printable) <= MAX_FIELD_CHARACTERS else f"{printable[:MAX_FIELD_CHARACTERS]}…"


def _refused(errors: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
    return {"ok": False, "errors": list(errors)}
