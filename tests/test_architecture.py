"""What import rules cannot say of the deployed code, read off its syntax."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import pushlease

FUNCTIONS = Path(__file__).parents[1] / "functions"
SOURCES = sorted(FUNCTIONS.rglob("*.py"))
# Clock, dice and ids are arguments: these modules, and those that may know each. The client is wired by itself.
WIRED = {"pushlease/wiring.py", "pushlease/client/sync.py"}
SOURCES_OF_CHANCE = {"time": WIRED, "random": WIRED, "uuid": WIRED}
SOURCES_OF_CHANCE |= {"secrets": set(), "os": {"pushlease/settings.py"}}
# Mutable on purpose: they gather while they run.
GATHERING = {"_Exchange", "_Window", "Report", "Statements"}


def imported(source: str) -> set[str]:
    """The top-level modules that a source imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def calls_at_import(source: str) -> Iterator[str]:
    """Calls that run when a module is imported, other than those that only make values."""
    harmless = {"frozenset", "NewType", "compile", "timedelta", "Config", "TypeVar", "field", "dict", "set", "Context"}
    harmless |= {"fromkeys", "join", "one_of", "_written"}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) and node.value:
            later = {inner for part in ast.walk(node.value) if isinstance(part, ast.Lambda) for inner in ast.walk(part)}
            for call in (inner for inner in ast.walk(node.value) if isinstance(inner, ast.Call) and inner not in later):
                name = ast.unparse(call.func).rsplit(".", 1)[-1]
                if name not in harmless and not name[0].isupper():
                    yield ast.unparse(call)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FUNCTIONS)))
def test_clock_dice_ids_and_environment_are_read_in_one_place(path: Path) -> None:
    name = str(path.relative_to(FUNCTIONS))
    for module in imported(path.read_text()) & set(SOURCES_OF_CHANCE):
        assert name in SOURCES_OF_CHANCE[module], f"{name} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FUNCTIONS)))
def test_nothing_happens_at_import(path: Path) -> None:
    assert list(calls_at_import(path.read_text())) == []


def test_the_rules_see_what_breaks_them() -> None:
    assert imported("def f():\n    from time import time_ns") == {"time"}
    assert list(calls_at_import("TABLE = boto3.client('dynamodb')")) == ["boto3.client('dynamodb')"]
    assert list(calls_at_import("later = lambda: boto3.client('sqs')")) == []


def test_values_are_frozen_and_slotted() -> None:
    seen = 0
    for module in pkgutil.walk_packages(pushlease.__path__, "pushlease."):
        for name, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if dataclasses.is_dataclass(found) and found.__module__ == module.name and name not in GATHERING:
                seen += 1
                assert found.__dataclass_params__.frozen, name  # type: ignore[attr-defined]
                assert hasattr(found, "__slots__"), name
    assert seen > 40


def test_every_public_thing_says_what_it_is() -> None:
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree) or not tree.body, f"{path.name} says nothing"
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name} says nothing"
