"""The Lambda edge of ``drain``: the schedule's tick, or the drain's own delayed one from the ``tick`` queue."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from drain.audiences import Audiences
from drain.usecase import Drain
from pushlease.wiring import Parts, deadline_ms


def handle(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """Drain what is due. Only the schedule's tick leaves delayed ticks behind, and hands lanes over."""
    parts, drain = _wired()

    def work() -> Mapping[str, Any]:
        scheduled = "Records" not in event
        if scheduled:
            parts.ticks.leave(parts.settings.tick_offsets)
        deadline = deadline_ms(context.get_remaining_time_in_millis(), parts.settings.function_timeout)
        drained = drain.drain(deadline_ms=deadline, hand_over=scheduled)
        parts.observer.throttled(parts.jobs.statements.count_throttled())
        parts.observer.report(drained.report)
        told = {
            "jobs": len(drained.report.decisions),
            "reburied": drained.reburied,
            "unfinished_lanes": len(drained.unfinished),
            "pages": drained.pages,
        }
        parts.observer.drained(told)
        return told

    return parts.observer.flushed(work)


@cache
def _wired() -> tuple[Parts, Drain]:
    parts = Parts("drain")
    return parts, Drain(
        lanes=parts.lanes,
        hand_overs=parts.hand_overs,
        jobs=parts.jobs,
        letters=parts.letters,
        clock=parts.clock,
        new_id=parts.new_id,
        shuffle=parts.shuffled,
        due_lanes=parts.due_lanes,
        dead_lanes=parts.dead_lanes,
        page=parts.settings.drain_batch_size,
        burial_check=parts.settings.burial_check,
        audiences=Audiences(
            audiences=parts.audiences,
            pages=parts.page_sender,
            clock=parts.clock,
            on_end=parts.observer.audience_ended,
            on_fault=parts.observer.request_fault,
        ),
    )
