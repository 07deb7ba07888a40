"""The Lambda edge of ``drain``: the schedule's tick, or the drain's own delayed one from the ``tick`` queue."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from drain.usecase import Drain
from pushlease.wiring import Parts, deadline_ms


def handle(event: Mapping[str, Any], context: LambdaContext) -> Mapping[str, Any]:
    """Drain what is due. The schedule's tick leaves delayed ticks behind; a delayed one leaves none."""
    parts, drain = _wired()

    def work() -> Mapping[str, Any]:
        if "Records" not in event:
            parts.ticks.leave(parts.settings.tick_offsets)
        deadline = deadline_ms(context.get_remaining_time_in_millis(), parts.settings.function_timeout)
        drained = drain.drain(deadline_ms=deadline)
        for report in drained.reports:
            parts.observer.report(report)
        jobs = sum(len(report.decisions) for report in drained.reports)
        parts.observer.drained(jobs=jobs, reburied=drained.reburied, finished=drained.finished)
        return {"jobs": jobs, "reburied": drained.reburied, "finished": drained.finished}

    return parts.observer.flushed(work)


@cache
def _wired() -> tuple[Parts, Drain]:
    parts = Parts("drain")
    return parts, Drain(
        engine=parts.engine,
        jobs=parts.jobs,
        letters=parts.letters,
        clock=parts.clock,
        new_id=parts.new_id,
        shuffle=parts.shuffled,
        due_lanes=parts.due_lanes,
        dead_lanes=parts.dead_lanes,
        page=parts.settings.drain_batch_size,
        burial_check=parts.settings.burial_check,
    )
