"""The Lambda edge of ``redrive``: the burial queue's batches, and invocations with a filter."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from pushlease.edge import Action, answered
from pushlease.records import partial, records_of
from pushlease.wiring import Parts
from redrive.request import RedriveModel
from redrive.usecase import Redrive


def handle(event: object, _context: LambdaContext) -> Mapping[str, Any]:
    """See letters on their way, or revive the dead jobs that a filter meets."""
    parts, redrive = _wired()

    def bury(batch: Mapping[str, Any]) -> Mapping[str, Any]:
        outcome = redrive.bury(records_of(batch))
        parts.refuse([*outcome.unreadable, *((record, "") for record in outcome.refused)])
        parts.observer.redriven(outcome.revived)
        return partial([*outcome.refused, *outcome.kept, *(record for record, _ in outcome.unreadable)])

    def revive(request: RedriveModel) -> Mapping[str, Any]:
        redriven = redrive.redrive(request.filter())
        codes = Counter((job.last_error or "").split(":")[0] for job in redriven.matched)
        return {"matched": len(redriven.matched), "revived": list(redriven.revived), "codes": dict(codes)}

    def work() -> Mapping[str, Any]:
        if isinstance(event, Mapping) and "Records" in event:
            return bury(event)
        answer = answered(event, {"redrive": Action(model=RedriveModel, work=revive)}, default="redrive")
        parts.observer.answered("redrive", answer)
        return answer

    return parts.observer.flushed(work)


@cache
def _wired() -> tuple[Parts, Redrive]:
    parts = Parts("redrive")
    return parts, Redrive(
        jobs=parts.jobs,
        clock=parts.clock,
        dice=parts.dice,
        dead_lanes=parts.dead_lanes,
        max_receive_count=parts.burial_max_receive_count,
        spread=parts.settings.redrive_spread,
        on_fault=parts.observer.fault,
    )
