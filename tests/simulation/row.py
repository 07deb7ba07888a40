"""A job's raw row and a claim of it, as they look from outside: nothing here uses the code that is judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulation.kernel import Worker

type Item = Mapping[str, Any]
type Key = tuple[str, str]  # job, delivery

CODES_BEYOND_CURE = {"invalid_token", "expired_token", "device_deleted", "expired"}


@dataclass(frozen=True, slots=True)
class Row:
    """A raw row, read leniently."""

    item: Item

    def number(self, name: str) -> int:
        digits = self.item.get(name, {}).get("N", "0")
        return int(digits) if digits.lstrip("-").isdigit() else 0

    def text(self, name: str) -> str:
        return str(self.item.get(name, {}).get("S", ""))

    @property
    def status(self) -> str:
        return self.text("status")

    @property
    def lane(self) -> str:
        return self.text("lane")

    @property
    def due(self) -> int:
        return self.number("due_at")

    @property
    def open(self) -> bool:
        return self.number("settled_seq") < self.number("claim_seq")

    @property
    def spoiled(self) -> bool:
        """As persons spoil rows here: ``attempts`` is no number."""
        return "N" not in self.item.get("attempts", {})

    @property
    def life(self) -> int:
        return self.number("redrives")

    @property
    def deliveries(self) -> dict[str, dict[str, Any]]:
        raw = self.item.get("deliveries", {}).get("M", {})
        return {
            name: {key: int(value["N"]) if "N" in value else value.get("S") for key, value in part["M"].items()}
            for name, part in raw.items()
            if "M" in part
        }

    def ended_since(self, old: "Row") -> bool:
        """Whether a delivery was ended here, but for folding in what was recorded late."""
        before, after = old.deliveries, self.deliveries
        return any(after[name]["status"] != before[name]["status"] for name in set(before) - old.late)

    @property
    def late(self) -> set[str]:
        return set(self.item.get("sent_late", {}).get("SS", ()))

    @property
    def sent(self) -> set[str]:
        there = {name for name, part in self.deliveries.items() if part.get("status") in ("sent", "delivered")}
        return self.late | there

    def differs(self, other: "Row") -> set[str]:
        return {name for name in {*self.item, *other.item} if self.item.get(name) != other.item.get(name)}


@dataclass(eq=False, slots=True, kw_only=True)
class Claim:
    """A claim as the row shows it: whose it is, and what was known when it was taken."""

    job_id: str
    seq: int
    worker: Worker
    row: Row  # as the claim left it
    recorded: set[str]
    crashed_before: int
    batch: int = 0
    verdicts: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    pushed: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    ended: bool = False
    giving_up: bool = False  # a settle or release is under way, or got no answer
    uncertain: bool = False  # a provider took a push, and its answer was lost
    void: bool = False  # its worker was shown that it had been ended meanwhile

    @property
    def taken_over(self) -> bool:
        return self.crashed_before > 0 or "alone" in self.row.item
