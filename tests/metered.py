"""Reads the price of the store's writes off DynamoDB's own answers.

In a batch of statements the emulator counts no index writes; of single calls it reports the whole: table and index.
"""

from collections.abc import Mapping
from typing import Any

from translated import Translated


class Metered(Translated):
    """A DynamoDB client that sums up what its writes cost in ``units``, and keeps each in ``bill``."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.bill: list[float] = []

    @property
    def units(self) -> float:
        return sum(self.bill)

    def update_item(self, **call: Any) -> Any:
        return self._billed(super().update_item(**call, ReturnConsumedCapacity="INDEXES"))

    def put_item(self, **call: Any) -> Any:
        return self._billed(super().put_item(**call, ReturnConsumedCapacity="INDEXES"))

    def _billed(self, answer: Any) -> Any:
        self.bill.append(answer["ConsumedCapacity"]["CapacityUnits"])
        return answer


def size_of(item: Mapping[str, Any]) -> int:
    """An item's size as DynamoDB bills it: names, values, 3 bytes a map or list and 1 an element of it."""
    return sum(len(name.encode()) + _value(value) for name, value in item.items())


def _value(value: Mapping[str, Any]) -> int:
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(inner.encode())
        case "N":
            return (len(inner.lstrip("-").replace(".", "").strip("0") or "0") + 1) // 2 + 1
        case "BOOL":
            return 1
        case "SS":
            return sum(len(text.encode()) for text in inner)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value(part) for name, part in inner.items())
        case _:
            raise ValueError(f"no job row holds a value of type {kind}")
