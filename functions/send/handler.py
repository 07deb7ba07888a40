"""The Lambda edge of ``send``: parse, call, shape, log once."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from pushlease.edge import Action, answered
from pushlease.wiring import Parts
from send.invocation import Door
from send.request import CancelModel, SendModel
from send.usecase import Send


def handle(event: object, context: LambdaContext) -> Mapping[str, Any]:
    """Accept or cancel notifications; the answer says what will happen to each delivery."""
    parts, send = _wired()

    def answer(request: object, invocation_id: str) -> Mapping[str, Any]:
        actions: dict[str, Action[Any]] = {
            "send": Action(model=SendModel, work=lambda said: send.send(said.submission(invocation_id))),
            "cancel": Action(model=CancelModel, work=lambda said: send.cancel(said.cancellation())),
        }
        told = answered(request, actions, default="send")
        parts.observer.answered("send", told)
        return told

    door = Door(answered=answer, on_fault=parts.observer.request_fault)
    return parts.observer.flushed(lambda: door.enter(event, context.aws_request_id))


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
        planner=parts.planner,
        max_attempts=parts.settings.max_attempts,
        fcm_stale_after=parts.settings.fcm_stale_after,
    )
