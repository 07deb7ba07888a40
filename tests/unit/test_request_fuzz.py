"""Requests made from the schemas in docs, and bent: each is answered, by field and rule, and nothing is half stored."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from builders import DAY_MS, NOW_MS, a_device, a_recipient
from pushlease.edge import answered
from pushlease.push.preference import Preferences
from registry.handler import actions_of as registry_actions
from send.handler import actions_of
from system import System

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
limits = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def schema(function: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((SCHEMAS / f"{function}.v1.json").read_text())
    return said


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def values(node: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, of the kinds that pydantic writes; long ones cut short."""
    if "$ref" in node:
        return values(defs[node["$ref"].rsplit("/", 1)[-1]], defs)
    if "anyOf" in node:
        return st.one_of([values(part, defs) for part in node["anyOf"]])
    if "const" in node or "enum" in node:
        return st.sampled_from(node.get("enum", [node.get("const")]))
    match node.get("type"):
        case "object":
            return objects(node, defs)
        case "array":
            size = {"min_size": node.get("minItems", 0), "max_size": min(node.get("maxItems", 4), 4)}
            return st.lists(values(node["items"], defs), **size)
        case "string" if "pattern" in node:
            return st.from_regex(node["pattern"].removesuffix("$") + r"\Z")
        case "string":
            return st.text(min_size=node.get("minLength", 0), max_size=min(node.get("maxLength", 50), 50))
        case "integer":
            most = node.get("maximum", node.get("exclusiveMaximum", 2**48))
            return st.integers(node.get("minimum", 0), most) | st.integers(node.get("minimum", 0), most).map(near_now)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return JUNK


def near_now(drawn: int) -> int:
    """What would be an instant of the year 5000, as one of the next weeks."""
    return NOW_MS + drawn % (30 * DAY_MS) if drawn > NOW_MS else drawn


def objects(node: Mapping[str, Any], defs: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "properties" in node:
        parts = {name: values(inner, defs) for name, inner in node["properties"].items()}
        required = {name: parts.pop(name) for name in node.get("required", ())}
        return st.fixed_dictionaries(required, optional=parts)
    held = node.get("additionalProperties", True)
    if not isinstance(held, Mapping):
        return st.dictionaries(st.text(max_size=5), JUNK, max_size=3)
    names = node.get("propertyNames", {"type": "string"})
    return st.dictionaries(values(names, defs), values(held, defs), max_size=3)


@st.composite
def bent(draw: st.DrawFn, function: str, action: str | None = None) -> Any:
    """A request as the schema has it, now and then with a value of another kind somewhere in it."""
    said = draw(requests(function, action))
    if draw(st.booleans()):
        said["app_id"] = "shop"
    if "content" in said and draw(st.booleans()):  # of two free objects hardly any is one that a provider takes
        said["content"] = {"title": draw(st.text(min_size=1, max_size=20))}
    for _ in range(draw(st.integers(0, 2))):
        at: Any = said
        while isinstance(at, dict) and at:
            key = draw(st.sampled_from(sorted(at)))
            if not isinstance(at[key], dict) or draw(st.booleans()):
                at[key] = draw(JUNK)
                break
            at = at[key]
    return said


def one_of(function: str, action: str) -> dict[str, Any]:
    """The schema of one action."""
    ones = schema(function)["oneOf"]
    found: dict[str, Any] = next(one for one in ones if one["properties"]["action"].get("const") == action)
    return found


def requests(function: str, action: str | None = None) -> st.SearchStrategy[dict[str, Any]]:
    whole = schema(function)
    return st.one_of(
        [values(one, whole["$defs"]) for one in ([one_of(function, action)] if action else whole["oneOf"])]
    )


def judged(answer: Mapping[str, Any]) -> bool:
    """Whether it was accepted; a refusal must name fields and rules."""
    json.dumps(answer)
    if answer["ok"]:
        return True
    assert answer["errors"]
    assert all(fault["field"] and fault["rule"] for fault in answer["errors"])
    return False


def asked(request_: Any) -> tuple[System, Mapping[str, Any]]:
    """A system that was asked so, and its answer."""
    system = System()
    system.devices.register(a_device(recipient=a_recipient("0")))
    actions = actions_of(system._send, system.audience, system.statuses, "call-1")
    return system, answered(request_, actions, default="send")


def stored(system: System) -> tuple[int, ...]:
    return len(system.jobs.rows), len(system.notifications.rows), len(system.audiences.heads)


@limits
@given(bent("send"))
def test_whatever_send_is_asked_it_answers_and_stores_all_or_nothing(request_: Any) -> None:
    system, answer = asked(request_)
    if not judged(answer) or request_.get("dry_run"):
        assert stored(system) == (0, 0, 0)
        return
    if request_.get("action", "send") == "send":
        assert {job["job_id"] for job in answer["jobs"]} == set(system.jobs.rows)
        assert all(job["accepted"] for job in answer["jobs"])
    system.deliver()
    system.drain()
    assert system.faults == []


@pytest.mark.parametrize("action", ["send", "cancel", "status", "send_audience"])
def test_some_of_them_are_accepted(action: str) -> None:
    """What only ever refuses would show nothing."""

    def accepted(request_: Any) -> bool:
        return bool(asked(request_)[1]["ok"])

    # Found is found: the smallest one is of no interest.
    searching = settings(max_examples=5_000, deadline=None, phases=[Phase.generate])
    assert find(bent("send", action), accepted, settings=searching)


@limits
@given(bent("registry"))
def test_whatever_the_registry_is_asked_it_answers(request_: Any) -> None:
    system = System()
    before = (len(system.devices.rows), len(system.recipients.rows), len(system.apps.rows))
    answer = answered(request_, registry_actions(system.registry, system.inboxes, system.erasure))
    if not judged(answer):
        assert (len(system.devices.rows), len(system.recipients.rows), len(system.apps.rows)) == before


@limits
@given(values(one_of("registry", "set_preferences"), schema("registry")["$defs"]))
def test_preferences_are_told_as_they_were_set(request_: Any) -> None:
    system = System()
    actions = registry_actions(system.registry, system.inboxes, system.erasure)
    if not judged(answered(request_, actions)):
        assert system.recipients.rows == {}
        return
    who = {name: request_[name] for name in ("app_id", "user_id")}
    told = answered({"action": "get_preferences", **who}, actions)
    again = {name: told[name] for name in ("channels", "muted_until_ms", "quiet_hours", "zone", "locale")}
    first = dict(system.recipients.rows)
    assert judged(answered({"action": "set_preferences", **who, **again}, actions))
    assert system.recipients.rows == first
    assert all(isinstance(wishes, Preferences) for wishes in first.values())
