"""Why deliveries end. No end is its own reason: each is traced to something that happened in the world.

What a provider said, what a person did, what time it is. So a job that is ended early, withdrawn by nobody or given up
with attempts left is found, however well its row looks.
"""

from dataclasses import dataclass, field

from simulation.row import CODES_BEYOND_CURE, Claim, Key, Row
from simulation.shape import IN_APP, Order

RETRIED = {"rate_limited", "network_error", "provider_error", "internal_error"}
OK = "ok"


@dataclass(slots=True, kw_only=True)
class Causes:
    """What persons and providers did, as far as it may end a delivery. ``gone``: whose device a provider disowned."""

    orders: dict[str, Order] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    withdrawn: bool = False
    muted: set[str] = field(default_factory=set)
    removed: set[Key] = field(default_factory=set)
    gone: set[Key] = field(default_factory=set)

    def unplanned(self, row: Row) -> list[str]:
        """Deliveries of a new row that are not as they were ordered, and those that are missing."""
        job_id, deliveries = row.text("job_id"), row.deliveries
        order = self.orders[job_id]
        wanted = {*order.scripts, *([IN_APP] if order.in_app else [])}
        known = {name for name in wanted if (job_id, name) not in self.removed | self.gone}
        missing = [] if "push" in deliveries else sorted(known - set(deliveries))
        return missing + [name for name, part in deliveries.items() if not self._planned(job_id, name, part, wanted)]

    def _planned(self, job_id: str, name: str, part: dict[str, object], wanted: set[str]) -> bool:
        lost = {device for job, device in self.removed | self.gone if job == job_id}
        match part["status"]:
            case "queued":
                return name in wanted
            case "suppressed":
                return name in wanted and name != IN_APP and job_id in self.muted
            case _:
                return name == "push" and wanted - {IN_APP} <= lost

    def without_cause(
        self, old: Row, new: Row, kind: str, claim: Claim | None, *, clock: int, latest_retry: int
    ) -> list[str]:
        """Deliveries that a write has ended, or changed after their end, for no reason that is known here.

        ``latest_retry``: when, at the latest, what was tried just now would be tried again.
        """
        odd: list[str] = []
        for name, part in new.deliveries.items():
            before = old.deliveries[name]
            same = part["status"] == before["status"] and (part["status"] == "queued" or part == before)
            verdict = claim.verdicts.get(name, ("",))[0] if claim and kind == "settle" else ""
            if name in old.late or (same and verdict != OK):
                continue
            if before["status"] != "queued" or not self._caused(old, name, part, kind, verdict, clock, latest_retry):
                odd.append(f"{name}: {before['status']} → {part['status']} {part.get('code', '')}".strip())
        return odd

    def _caused(
        self, old: Row, name: str, part: dict[str, object], kind: str, verdict: str, clock: int, latest_retry: int
    ) -> bool:
        job_id = old.text("job_id")
        spent = int(str(part.get("attempts", 0))) >= old.number("max_attempts")
        expires_at = old.number("expires_at")
        match part["status"], part.get("code"):
            case (("sent" | "delivered" as status), _):
                return verdict == OK and (status == "delivered") == (name == IN_APP)
            case "suppressed", _:
                return name != IN_APP and job_id in self.muted
            case "cancelled", _:
                return kind == "cancel"
            case "failed", "expired":
                return clock >= expires_at or (verdict in RETRIED and latest_retry >= expires_at)
            case "failed", "device_deleted":
                return (job_id, name) in self.removed
            case "failed", "invalid_token":
                return (job_id, name) in self.gone
            case "failed", code if kind == "end":
                before = old.deliveries[name].get("code")
                return spent and old.open and code == (before or "lost")
            case "failed", code:
                return code == verdict and (spent or code not in RETRIED)
            case _:
                return False

    def may_cancel(self, job_id: str, worker_kind: str) -> bool:
        """Whether somebody has asked for it."""
        return job_id in self.cancelled if worker_kind == "person" else self.withdrawn and self.orders[job_id].large


def ending(row: Row) -> str:
    """The status that a job's deliveries give it."""
    parts = row.deliveries.values()
    if any(part["status"] == "queued" for part in parts):
        return "pending"
    failed = {part.get("code") for part in parts if part["status"] == "failed"}
    return "dead" if failed - CODES_BEYOND_CURE else "done"
