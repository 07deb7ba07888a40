"""What a provider would refuse, found before anything is stored. Pure."""

from dataclasses import replace
from itertools import chain

from pushlease.errors import BadRequest
from pushlease.providers import lint
from pushlease.providers.apns import protocol as apns
from pushlease.providers.apns import rules as apns_rules
from pushlease.providers.fcm import protocol as fcm
from pushlease.providers.fcm import rules as fcm_rules
from pushlease.push.device import Address, App, Device, Platform
from pushlease.push.notification import Content

# An install's has 64 today, a Live Activity's more; Apple calls both opaque, and a short one is a piece of one.
APNS_PUSH_TOKEN_CHARACTERS = (64, 200)


def preflight(content: Content, app: App) -> None:
    """Check ``content`` against the limits of each provider that ``app`` has.

    Raises ``BadRequest`` whose field is a path in the content: ``content`` itself for its size in bytes, else such as
    ``content.data.from`` or ``content.apns.priority``.
    """
    found = [lint.findings(content)]
    if app.has_apns:
        found.append(apns_rules.findings(content))
    if app.fcm:
        found.append(fcm_rules.findings(content))
    for finding in chain.from_iterable(found):
        if finding.fatal:
            raise BadRequest(finding.field, finding.rule)


def checked(device: Device) -> Device:
    """The device as its provider writes it; raises ``BadRequest`` for ``push_token`` or ``topic``.

    What passes may stand in a path or a header.
    """
    if device.platform is Platform.FCM:
        return replace(device, push_token=fcm.check_push_token(device.push_token))
    apns.check_topic(device.topic)
    if device.address is Address.CHANNEL:
        return replace(device, push_token=apns.check_channel(device.push_token))
    least, most = APNS_PUSH_TOKEN_CHARACTERS
    if not least <= len(device.push_token) <= most:
        raise BadRequest("push_token", f"APNs: hex digits, {least} to {most}")
    return replace(device, push_token=apns.normalise_push_token(device.push_token))
