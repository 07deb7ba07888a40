"""Write what can be asked of the functions into docs: a JSON Schema each, and the tables of docs/requests.md.

`uv run python infra/schema.py` writes; `--check` changes nothing and fails when a file is not what the models say.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from redrive.request import RedriveModel
from registry import request as registry
from send import request as send

ROOT = Path(__file__).parent.parent
SCHEMAS = ROOT / "docs" / "schema"
REFERENCE = ROOT / "docs" / "requests.md"
VERSION = 1

# By function and action, in the order of the reference.
REQUESTS: Mapping[str, Mapping[str, type[BaseModel]]] = {
    "send": {
        "send": send.SendModel,
        "cancel": send.CancelModel,
        "status": send.StatusModel,
        "send_audience": send.SendAudienceModel,
        "audience_status": send.AudienceStatusModel,
        "pause_audience": send.PauseModel,
        "resume_audience": send.ResumeModel,
    },
    "registry": {
        "configure_app": registry.ConfigureAppModel,
        "register_device": registry.RegisterDeviceModel,
        "remove_device": registry.RemoveDeviceModel,
        "list_devices": registry.ListDevicesModel,
        "set_preferences": registry.SetPreferencesModel,
        "get_preferences": registry.GetPreferencesModel,
        "list_inbox": registry.ListInboxModel,
        "mark_read": registry.MarkReadModel,
        "mark_all_read": registry.MarkAllReadModel,
        "unread_count": registry.UnreadCountModel,
        "erase_recipient": registry.EraseRecipientModel,
    },
    "redrive": {"redrive": RedriveModel},
}


def wanted() -> dict[Path, str]:
    """The text that each file should have."""
    files = {SCHEMAS / f"{function}.v{VERSION}.json": _schema(function) for function in REQUESTS}
    return files | {REFERENCE: _with_tables(REFERENCE.read_text())}


def _schema(function: str) -> str:
    definitions: dict[str, Any] = {}
    requests = []
    for model in REQUESTS[function].values():
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        requests.append(schema)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pushlease:{function}:v{VERSION}",
        "title": f"What {function} can be asked for",
        "oneOf": requests,
        "$defs": dict(sorted(definitions.items())),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _with_tables(text: str) -> str:
    """The reference with every table between its marks made anew."""
    lines: list[str] = []
    skipping = False
    for line in text.splitlines():
        if line.startswith("<!-- fields: "):
            function, _, action = line.removeprefix("<!-- fields: ").removesuffix(" -->").partition(" ")
            lines += [line, "", *_table(REQUESTS[function][action]), ""]
            skipping = True
        elif line == "<!-- end -->":
            skipping = False
            lines.append(line)
        elif not skipping:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _table(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    yield "| field | is | unless given |"
    yield "|---|---|---|"
    for name, field in _fields(schema, definitions, ""):
        required = "**must be given**" if field.get("required") else _default(field.get("default"))
        yield f"| `{name}` | {_kind(field, definitions)} | {required} |"


def _fields(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], within: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, field in schema["properties"].items():
        if name == "version":
            continue
        yield f"{within}{name}", {**field, "required": name in schema.get("required", ())}
        inner, mark = _inner(field, definitions)
        if inner:
            yield from _fields(inner, definitions, f"{within}{name}{mark}.")


def _inner(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    """The object that a field holds, if it is one of its own, and how its fields are reached."""
    for part in _parts(field):
        if "$ref" in part:
            found = definitions[part["$ref"].rsplit("/", 1)[-1]]
            return (found, "") if "properties" in found else (None, "")
        for holder, mark in (("items", "[]"), ("additionalProperties", ".*")):
            held = part.get(holder)
            if isinstance(held, Mapping) and "$ref" in held:
                found = definitions[held["$ref"].rsplit("/", 1)[-1]]
                return (found, mark) if "properties" in found else (None, "")
    return None, ""


def _parts(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for part in field.get("anyOf", [field]) if part.get("type") != "null"]


def _kind(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    return " or ".join(_one_kind(part, definitions) for part in _parts(field))


def _one_kind(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in part:
        found = definitions[part["$ref"].rsplit("/", 1)[-1]]
        return _one_kind(found, definitions)
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if "enum" in part:
        return ", ".join(f"`{word}`" for word in part["enum"])
    match part.get("type"):
        case "array":
            held = _kind(part["items"], definitions)
            return f"list of {held}" + _bounds(part, "minItems", "maxItems", "")
        case "object" if "properties" not in part and isinstance(part.get("additionalProperties"), Mapping):
            return f"object of {_kind(part['additionalProperties'], definitions)}" + _bounds(
                part, "", "maxProperties", "names"
            )
        case "string":
            pattern = f" like `{part['pattern']}`".replace("|", "\\|") if "pattern" in part else ""
            return "text" + _bounds(part, "minLength", "maxLength", "characters") + pattern
        case "integer":
            return "whole number" + _bounds(part, "minimum", "maximum", "")
        case "boolean":
            return "true or false"
        case _:
            return "object"


def _bounds(part: Mapping[str, Any], least: str, most: str, unit: str) -> str:
    low, high = part.get(least), part.get(most, part.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    said = f"{low:,} to {high:,}" if low is not None and high is not None else f"at most {high:,}"
    if high is None:
        said = f"at least {low:,}"
    return f", {said} {unit}".rstrip()


def _default(value: object) -> str:
    return "" if value in (None, [], {}) else f"`{json.dumps(value, ensure_ascii=False)}`"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a file is stale")
    check = parser.parse_args().check
    stale = {path: text for path, text in wanted().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        print(f"{path.relative_to(ROOT)} {'is stale' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
