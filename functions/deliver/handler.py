"""The Lambda edge of ``deliver``: a batch of SQS messages in, a partial batch response out."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from deliver.pages import Pages
from deliver.usecase import Deliver
from pushlease.records import partial, records_of
from pushlease.wiring import Parts, deadline_ms


def handle(event: object, context: LambdaContext) -> Mapping[str, Any]:
    """Work the hints of one batch; what stays in its queue is named in ``batchItemFailures``."""
    parts, deliver = _wired()

    def work() -> Mapping[str, Any]:
        records = records_of(event)
        deadline = deadline_ms(context.get_remaining_time_in_millis(), parts.settings.function_timeout)
        outcome = deliver.deliver(records, deadline_ms=deadline)
        parts.refuse(outcome.unreadable)
        parts.observer.throttled(parts.jobs.statements.count_throttled())
        parts.observer.report(outcome.report)
        parts.observer.redriven(outcome.revived)
        return partial([*outcome.kept, *(record for record, _ in outcome.unreadable)])

    return parts.observer.flushed(work)


@cache
def _wired() -> tuple[Parts, Deliver]:
    parts = Parts("deliver")
    return parts, Deliver(
        engine=parts.engine,
        jobs=parts.jobs,
        clock=parts.clock,
        lanes=parts.lanes,
        pages=Pages(
            audiences=parts.audiences,
            lists=parts.lists,
            apps=parts.apps,
            devices=parts.devices,
            recipients=parts.recipients,
            notifications=parts.notifications,
            jobs=parts.jobs,
            engine=parts.engine,
            planner=parts.planner,
            preflight=parts.preflight,
            clock=parts.clock,
            fcm_stale_after=parts.settings.fcm_stale_after,
            in_hand=parts.settings.drain_batch_size,
        ),
        dice=parts.dice,
        redrive_spread=parts.settings.redrive_spread,
        on_fault=parts.observer.fault,
    )
