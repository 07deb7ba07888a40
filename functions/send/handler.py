"""The Lambda edge of ``send``: parse, call, shape, log once."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from pushlease.edge import Action, answered
from pushlease.push.audience import State
from pushlease.wiring import Parts
from send.audience import SendAudience
from send.invocation import Door
from send.request import (
    AudienceStatusModel,
    CancelModel,
    PauseModel,
    ResumeModel,
    SendAudienceModel,
    SendModel,
    StatusModel,
)
from send.status import Statuses
from send.usecase import Cancellation, Send


def handle(event: object, context: LambdaContext) -> Mapping[str, Any]:
    """Accept, cancel and tell of notifications; the answer says what will happen to each delivery, or did."""
    parts, send, audience, statuses = _wired()

    def answer(request: object, invocation_id: str) -> Mapping[str, Any]:
        told = answered(request, actions_of(send, audience, statuses, invocation_id), default="send")
        parts.observer.answered("send", told)
        return told

    door = Door(
        answered=answer,
        refuse=lambda record: parts.refuse([(record, "")]),
        on_fault=parts.observer.request_fault,
    )
    return parts.observer.flushed(lambda: door.enter(event, context.aws_request_id))


def actions_of(
    send: Send, audience: SendAudience, statuses: Statuses, invocation_id: str | None
) -> Mapping[str, Action[Any]]:
    """What can be asked for; what has no name of its own is named by the invocation's id."""

    def cancel(wanted: Cancellation) -> Mapping[str, Any]:
        if not wanted.targets and audience.cancel(wanted.app_id, wanted.notification_id):
            return {"notification_id": wanted.notification_id, "state": State.CANCELLED, "jobs": []}
        return send.cancel(wanted)

    def pause(said: PauseModel | ResumeModel) -> Mapping[str, Any]:
        return audience.pause(said.app_id, said.notification_id, paused=isinstance(said, PauseModel))

    def accept(said: SendAudienceModel) -> Mapping[str, Any]:
        return audience.accept(said.submission(invocation_id))

    def tell(said: AudienceStatusModel) -> Mapping[str, Any]:
        return audience.tell(said.app_id, said.notification_id)

    return {
        "send": Action(model=SendModel, work=lambda said: send.send(said.submission(invocation_id))),
        "cancel": Action(model=CancelModel, work=lambda said: cancel(said.cancellation())),
        "status": Action(model=StatusModel, work=lambda said: statuses.tell(said.question())),
        "send_audience": Action(model=SendAudienceModel, work=accept),
        "audience_status": Action(model=AudienceStatusModel, work=tell),
        "pause_audience": Action(model=PauseModel, work=pause),
        "resume_audience": Action(model=ResumeModel, work=pause),
    }


@cache
def _wired() -> tuple[Parts, Send, SendAudience, Statuses]:
    parts = Parts("send")
    send = Send(
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
    audience = SendAudience(send=send, audiences=parts.audiences, notifications=parts.notifications, lists=parts.lists)
    statuses = Statuses(jobs=parts.jobs, notifications=parts.notifications, by_recipient=parts.settings.recipient_index)
    return parts, send, audience, statuses
