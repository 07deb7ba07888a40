"""Breakers and quotas in DynamoDB: one row each, read seldom and written only when something changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pynamodb.exceptions import DoesNotExist, UpdateError
from pynamodb.expressions.condition import Condition

from pushlease.aws.rows import FlowRow
from pushlease.push.flow import PROBE_MS, WINDOW_MS, Breaker, Way

BREAKER_KEPT_S = 30 * 86_400  # after its last change: it tells when an outage began, for people to look at
QUOTA_KEPT_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoFlow:
    """``FlowStore`` on the flow table."""

    rows: type[FlowRow]

    def read(self, ways: Sequence[Way]) -> Mapping[Way, Breaker]:
        """See ``FlowStore``."""
        names = {str(way): way for way in ways}
        return {
            names[row.name]: Breaker(
                opened_at_ms=_whole(row.opened_at),
                probe_at_ms=_whole(row.probe_at) or 0,
                closed_at_ms=_whole(row.closed_at),
                paused_until_ms=_whole(row.paused_until) or 0,
            )
            for row in self.rows.batch_get(list(names))
        }

    def open(self, way: Way, *, now_ms: int) -> bool:
        """See ``FlowStore``."""
        rows = self.rows
        return self._changed(
            way,
            now_ms,
            [rows.opened_at.set(now_ms), rows.probe_at.set(now_ms + PROBE_MS), rows.closed_at.remove()],
            rows.opened_at.does_not_exist() | rows.closed_at.exists(),
        )

    def take_probe(self, way: Way, breaker: Breaker, *, now_ms: int) -> bool:
        """See ``FlowStore``."""
        rows = self.rows
        return self._changed(
            way,
            now_ms,
            [rows.probe_at.set(now_ms + PROBE_MS)],
            (rows.probe_at == breaker.probe_at_ms) & rows.closed_at.does_not_exist(),
        )

    def close(self, way: Way, breaker: Breaker, *, now_ms: int) -> bool:
        """See ``FlowStore``."""
        rows = self.rows
        return self._changed(
            way,
            now_ms,
            [rows.closed_at.set(now_ms)],
            (rows.opened_at == breaker.opened_at_ms) & rows.closed_at.does_not_exist(),
        )

    def pause(self, way: Way, *, until_ms: int) -> None:
        """See ``FlowStore``."""
        rows = self.rows
        longer = rows.paused_until.does_not_exist() | (rows.paused_until < until_ms)
        self._changed(way, until_ms, [rows.paused_until.set(until_ms)], longer)

    def reserve(self, quota: str, *, window: int, count: int) -> int:
        """See ``FlowStore``."""
        row = self.rows(_window(quota, window))
        kept_until_s = (window + 1) * WINDOW_MS // 1000 + QUOTA_KEPT_S
        row.update(actions=[self.rows.taken.add(count), self.rows.ttl.set(kept_until_s)])
        return int(row.taken or 0) - count

    def reserved(self, quota: str, *, window: int) -> int:
        """See ``FlowStore``."""
        try:
            return int(self.rows.get(_window(quota, window)).taken or 0)
        except DoesNotExist:
            return 0

    def _changed(self, way: Way, now_ms: int, actions: list[Any], condition: Condition) -> bool:
        kept = self.rows.ttl.set(now_ms // 1000 + BREAKER_KEPT_S)
        try:
            self.rows(str(way)).update(actions=[*actions, kept], condition=condition)
        except UpdateError as error:
            if error.cause_response_code == "ConditionalCheckFailedException":
                return False
            raise
        return True


def _window(quota: str, window: int) -> str:
    return f"{quota}#{window}"


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
