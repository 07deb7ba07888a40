"""One DynamoDB table with one index, in memory: a small honest interpreter of what the store says, and no more.

What it does not understand ends the run, whoever catches faults on the way. A condition compares typed values: an
attribute that is missing, or of another type, fulfils none but "differs". The index is a copy that lags: it may show
old keys, rows that are gone, and miss new ones.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

type Item = dict[str, Any]
type Observer = Callable[[Item | None, Item | None], None]


class Refused(Exception):
    """DynamoDB's error of one statement or call."""

    def __init__(self, code: str, item: Item | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.item = item


class NotUnderstood(BaseException):
    """Something that this interpreter does not know: no code of the project may take it for a fault of DynamoDB."""


def _match(pattern: str | re.Pattern[str], text: str) -> re.Match[str]:
    if found := re.fullmatch(pattern, text):
        return found
    raise NotUnderstood(text)


ROW_BYTES = 409_600  # DynamoDB's own limit


class Table:
    """The rows, and the lagging index over (lane, due_at). ``on_write(before, after)`` is told of every write."""

    def __init__(
        self,
        name: str,
        *,
        on_write: Observer,
        replicate: Callable[[Callable[[], None]], None],
        row_bytes: int = ROW_BYTES,
    ) -> None:
        self.name = name
        self._row_bytes = row_bytes
        self.rows: dict[str, Item] = {}
        self.index: dict[str, tuple[str, int]] = {}
        self._on_write = on_write
        self._replicate = replicate  # runs its argument when the index catches up with one write
        self._versions: dict[str, tuple[int, int]] = {}  # written, shown

    def statement(self, statement: str, parameters: Sequence[Any]) -> Item | None:
        """Execute one PartiQL write; the row as it is now, if it was asked for. Raises ``Refused``."""
        return _compiled(statement, self.name)(self, list(parameters))

    def put(self, key: str, after: Item | None) -> None:
        """Replace one row, None deletes it."""
        before = self.rows.get(key)
        if after is not None and len(str(after)) > self._row_bytes and size_of(after) > self._row_bytes:
            raise Refused("ValidationError")
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after
        written, shown = self._versions.get(key, (0, 0))
        if _index_entry(before) != _index_entry(after):
            written += 1
            self._versions[key] = written, shown
            self._replicate(lambda: self._show(key, written, _index_entry(after)))
        self._on_write(before, after)

    def update(
        self, key: str, change: str, condition: str, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> None:
        """UpdateItem; a row that is not there is made, unless the condition asks for it. Raises ``Refused``."""
        before = self.rows.get(key)
        parts = condition.split(" AND ") if condition else []
        if not all(_holds(part, before or {}, names, values) for part in parts):
            raise Refused("ConditionalCheckFailedException")
        after = dict(before or {"job_id": {"S": key}})
        for verb, changes in re.findall(r"(SET|ADD|REMOVE) (.+?)(?= (?:SET|ADD|REMOVE) |$)", change):
            for one in re.split(r", (?![^(]*\))", changes):
                _change(verb, one, before or {}, after, names, values)
        self.put(key, after)

    def query(self, lane: str, until: int, limit: int, start: tuple[int, str] | None) -> list[tuple[int, str]]:
        """One page of (due_at, key) from the index, oldest first."""
        found = sorted((due, key) for key, (there, due) in self.index.items() if there == lane and due <= until)
        return [entry for entry in found if start is None or entry > start][:limit]

    def _show(self, key: str, version: int, entry: tuple[str, int] | None) -> None:
        written, shown = self._versions[key]
        if version < shown:
            return
        self._versions[key] = written, version
        if entry is None:
            self.index.pop(key, None)
        else:
            self.index[key] = entry


def _index_entry(item: Item | None) -> tuple[str, int] | None:
    if item is None or "S" not in item.get("lane", {}) or "N" not in item.get("due_at", {}):
        return None
    return item["lane"]["S"], int(item["due_at"]["N"])


_SET = re.compile(r'SET "(\w+)" = \?')
_RAISE = re.compile(r'SET "(\w+)" = "(\w+)" \+ 1')
_REMOVE = re.compile(r'REMOVE "(\w+)"')
_COMPARE = re.compile(r'"(\w+)" (=|<|<=) (\?|"(\w+)")')
_IN = re.compile(r'"(\w+)" IN \[(\?(?:, \?)*)\]')


@cache
def _compiled(statement: str, table: str) -> Callable[[Table, list[Any]], Item | None]:
    if found := re.fullmatch(rf'INSERT INTO "{table}" VALUE {{(.+)}}', statement):
        names = [_match(r"'(\w+)': \?", part)[1] for part in found[1].split(", ")]
        return lambda at, given: _insert(at, dict(zip(names, given, strict=True)))
    found = _match(rf'UPDATE "{table}" (.+) WHERE "job_id" = \? AND (.+) RETURNING ALL NEW \*', statement)
    changes = re.findall(r"(?:SET|REMOVE) .+?(?= SET | REMOVE |$)", found[1])
    if " ".join(changes) != found[1]:
        raise NotUnderstood(statement)
    steps = [_step(change) for change in changes]
    tests = [_test(condition) for condition in found[2].split(" AND ")]
    marks = found[1].count("?")

    def run(at: Table, given: list[Any]) -> Item:
        if len(given) != statement.count("?"):
            raise NotUnderstood(statement)
        key = given[marks]["S"]
        before = at.rows.get(key)
        rest = iter(given[marks + 1 :])
        if before is None:
            raise Refused("ConditionalCheckFailed")
        held = [test(before, rest) for test in tests]  # each takes its parameters, whatever the others say
        if not all(held):
            raise Refused("ConditionalCheckFailed", before)
        after = dict(before)
        values = iter(given[:marks])
        for step in steps:
            step(before, after, values)
        at.put(key, after)
        return after

    return run


def _insert(at: Table, item: Item) -> None:
    key = item["job_id"]["S"]
    if key in at.rows:
        raise Refused("DuplicateItem")
    at.put(key, item)


def _step(change: str) -> Callable[[Item, Item, Any], None]:
    if found := _SET.fullmatch(change):
        name = found[1]

        def assign(_before: Item, after: Item, values: Any) -> None:
            after[name] = next(values)

        return assign
    if found := _RAISE.fullmatch(change):
        target, source = found[1], found[2]

        def raise_(before: Item, after: Item, _values: Any) -> None:
            number = before.get(source, {}).get("N")
            if number is None:
                raise Refused("ValidationError")
            after[target] = {"N": str(int(number) + 1)}

        return raise_
    gone = _match(_REMOVE, change)[1]
    return lambda _before, after, _values: after.pop(gone, None) and None


def _test(condition: str) -> Callable[[Item, Any], bool]:
    if found := _IN.fullmatch(condition):
        name, count = found[1], found[2].count("?")
        return lambda item, values: _plain(item.get(name)) in [_plain(next(values)) for _ in range(count)]
    found = _match(_COMPARE, condition)
    left, operator, right = found[1], found[2], found[4]

    def compare(item: Item, values: Any) -> bool:
        one, other = _plain(item.get(left)), _plain(item.get(right) if right else next(values))
        if one is None or other is None or type(one) is not type(other):
            return False
        if operator == "=":
            return bool(one == other)
        return bool(one < other) if operator == "<" else bool(one <= other)

    return compare


def size_of(item: Item) -> int:
    """Bytes of an item as DynamoDB counts them, numbers at their longest."""
    return sum(len(name.encode()) + _size(value) for name, value in item.items())


def _size(value: Any) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "SS":
            return 3 + sum(len(one.encode()) + 1 for one in content)
        case "M":
            return 3 + len(content) + size_of(content)
        case _:
            return 21 if kind == "N" else 1


def _plain(value: Any) -> Any:
    """A typed value for comparison; None where there is none."""
    if value is None:
        return None
    ((kind, content),) = value.items()
    return int(content) if kind == "N" else (kind, str(content))


def _holds(part: str, item: Item, names: Mapping[str, str], values: Mapping[str, Any]) -> bool:
    if found := re.fullmatch(r"attribute_(not_)?exists\((\S+)\)", part):
        return (names.get(found[2], found[2]) in item) != bool(found[1])
    if found := re.fullmatch(r"begins_with\((\S+), (\S+)\)", part):
        return str(item.get(names.get(found[1], found[1]), {}).get("S", "")).startswith(values[found[2]]["S"])
    found = _match(r"(\S+) (=|<>) (\S+)", part)
    there, asked = _plain(item.get(names.get(found[1], found[1]))), _plain(values[found[3]])
    if found[2] == "<>":
        return there != asked  # an attribute that is missing differs from everything
    return there is not None and there == asked


def _change(
    verb: str, one: str, before: Item, after: Item, names: Mapping[str, str], values: Mapping[str, Any]
) -> None:
    if verb == "ADD":
        name, mark = one.split(" ")
        name = names.get(name, name)
        there = before.get(name, {"SS": []})
        if "SS" not in there:
            raise Refused("ValidationException")
        after[name] = {"SS": sorted({*there["SS"], *values[mark]["SS"]})}
        return
    if verb == "REMOVE":
        after.pop(names.get(one, one), None)
        return
    name, value = one.split(" = ")
    name = names.get(name, name)
    if found := re.fullmatch(r"if_not_exists\((\S+), (\S+)\)", value):
        after[name] = before.get(found[1], values[found[2]])
    else:
        after[name] = values[value]
