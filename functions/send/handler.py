"""The Lambda edge of ``send``: parse, call, shape, log once."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from pushlease.edge import Action, answered
from pushlease.wiring import Parts
from send.request import CancelModel, SendModel
from send.usecase import Send


def handle(event: object, _context: LambdaContext) -> Mapping[str, Any]:
    """Accept or cancel a notification; the answer says what will happen to each delivery."""
    parts, send = _wired()
    actions: dict[str, Action[Any]] = {
        "send": Action(model=SendModel, work=lambda request: send.send(request.submission())),
        "cancel": Action(model=CancelModel, work=lambda request: send.cancel(request.cancellation())),
    }

    def work() -> Mapping[str, Any]:
        answer = answered(event, actions, default="send")
        parts.observer.answered("send", answer)
        return answer

    return parts.observer.flushed(work)


@cache
def _wired() -> tuple[Parts, Send]:
    parts = Parts("send")
    return parts, Send(
        apps=parts.apps,
        devices=parts.devices,
        recipients=parts.recipients,
        notifications=parts.notifications,
        jobs=parts.jobs,
        hints=parts.hints,
        preflight=parts.preflight,
        unhinted=parts.observer.unhinted,
        clock=parts.clock,
        new_id=parts.new_id,
        grace=parts.settings.grace,
        max_attempts=parts.settings.max_attempts,
    )
