"""The Lambda edge of ``registry``: parse, call, shape, log once."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from pushlease.edge import Action, answered
from pushlease.push.device import DeviceId
from pushlease.wiring import Parts
from registry.erasure import Erasure
from registry.inbox import Inboxes
from registry.request import (
    ConfigureAppModel,
    EraseRecipientModel,
    GetPreferencesModel,
    ListDevicesModel,
    ListInboxModel,
    MarkAllReadModel,
    MarkReadModel,
    RegisterDeviceModel,
    RemoveDeviceModel,
    SetPreferencesModel,
    UnreadCountModel,
)
from registry.usecase import Registry


def handle(event: object, _context: LambdaContext) -> Mapping[str, Any]:
    """Register, refresh, remove or list devices; set preferences; configure apps; show inboxes and mark them read."""
    parts, registry, inboxes, erasure = _wired()

    def work() -> Mapping[str, Any]:
        answer = answered(event, actions_of(registry, inboxes, erasure))
        parts.observer.answered("registry", answer)
        return answer

    return parts.observer.flushed(work)


def actions_of(registry: Registry, inboxes: Inboxes, erasure: Erasure) -> Mapping[str, Action[Any]]:
    """What can be asked for."""
    actions: dict[str, Action[Any]] = {
        "configure_app": Action(model=ConfigureAppModel, work=lambda said: registry.configure_app(said.app())),
        "register_device": Action(model=RegisterDeviceModel, work=lambda said: registry.register(said.registration())),
        "remove_device": Action(
            model=RemoveDeviceModel, work=lambda said: registry.remove(said.recipient(), DeviceId(said.device_id))
        ),
        "list_devices": Action(model=ListDevicesModel, work=lambda said: registry.list_devices(said.recipient())),
        "set_preferences": Action(
            model=SetPreferencesModel,
            work=lambda said: registry.set_preferences(said.recipient(), said.preferences()),
        ),
        "get_preferences": Action(
            model=GetPreferencesModel, work=lambda said: registry.get_preferences(said.recipient())
        ),
        "erase_recipient": Action(model=EraseRecipientModel, work=lambda said: erasure.erase(said.recipient())),
        "list_inbox": Action(
            model=ListInboxModel,
            work=lambda said: inboxes.entries(said.recipient(), limit=said.limit, after=said.after),
        ),
        "mark_read": Action(model=MarkReadModel, work=lambda said: inboxes.mark_read(said.recipient(), said.entries)),
        "mark_all_read": Action(model=MarkAllReadModel, work=lambda said: inboxes.mark_all_read(said.recipient())),
        "unread_count": Action(model=UnreadCountModel, work=lambda said: inboxes.unread_count(said.recipient())),
    }

    return actions


@cache
def _wired() -> tuple[Parts, Registry, Inboxes, Erasure]:
    parts = Parts("registry")
    registry = Registry(
        apps=parts.apps,
        devices=parts.devices,
        recipients=parts.recipients,
        checked=parts.checked,
        check_secret=parts.check_secret,
        clock=parts.clock,
        max_devices=parts.settings.max_devices,
        fcm_stale_after=parts.settings.fcm_stale_after,
    )
    erasure = Erasure(
        devices=parts.devices,
        inbox=parts.inbox,
        recipients=parts.recipients,
        jobs=parts.jobs,
        notifications=parts.notifications,
        by_recipient=parts.settings.recipient_index,
        clock=parts.clock,
    )
    return parts, registry, Inboxes(inbox=parts.inbox, clock=parts.clock), erasure
