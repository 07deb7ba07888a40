"""What a recipient wants to receive, and when: channels, mutes, quiet hours. Pure decisions over values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pushlease.push.quiet import Stretch, Window, stretch_at

EVERYTHING = "*"  # where a mute names a channel: all of them, and what has none


class Transport(StrEnum):
    """How a notification reaches a recipient."""

    PUSH = "push"
    IN_APP = "in_app"


class Unknown(StrEnum):
    """What becomes of a notification on a channel that its app does not know."""

    ALLOW = "allow"
    SUPPRESS = "suppress"
    REFUSE = "refuse"


class Objection(StrEnum):
    """Why a recipient does not get a notification this way."""

    CHANNEL_OFF = "channel_off"
    MUTED = "muted"
    UNKNOWN_CHANNEL = "unknown_channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """An app's channels: channel → transport → whether it is on for who has not said otherwise."""

    defaults: Mapping[str, Mapping[Transport, bool]] = field(default_factory=dict)
    unknown: Unknown = Unknown.ALLOW

    def knows(self, channel: str | None) -> bool:
        """Whether it is one of the app's; an app that names none knows them all."""
        return channel is None or not self.defaults or channel in self.defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a recipient said. What is not named is as the app has it; without a channel only a mute of all matters.

    ``muted_until_ms``: channel, or ``EVERYTHING``, → until when no push is wanted. ``quiet``: in ``zone``, an IANA
    name. ``locale``: the language of what is shown in the inbox.
    """

    channels: Mapping[str, Mapping[Transport, bool]] = field(default_factory=dict)
    muted_until_ms: Mapping[str, int] = field(default_factory=dict)
    quiet: tuple[Window, ...] = ()
    zone: str | None = None
    locale: str | None = None

    def objection(self, app: Channels, channel: str | None, transport: Transport, now_ms: int) -> Objection | None:
        """Why a notification of this channel must not go this way now, None if it may."""
        if not app.knows(channel) and app.unknown is Unknown.SUPPRESS:
            return Objection.UNKNOWN_CHANNEL
        if channel is not None:
            said = self.channels.get(channel, {}).get(transport)
            if not (app.defaults.get(channel, {}).get(transport, True) if said is None else said):
                return Objection.CHANNEL_OFF
        if transport is Transport.PUSH:
            muted = max(self.muted_until_ms.get(EVERYTHING, 0), self.muted_until_ms.get(channel or EVERYTHING, 0))
            if now_ms < muted:
                return Objection.MUTED
        return None

    def quiet_at(self, at_ms: int, *, zone: str | None) -> Stretch | None:
        """The quiet stretch that an instant falls into; ``zone`` is the app's, for who has none."""
        return stretch_at(self.quiet, zone_of(self.zone or zone), at_ms) if self.quiet else None


@lru_cache(maxsize=1024)
def zone_of(name: str | None) -> tzinfo:
    """The time zone of an IANA name; UTC without one, and for one that the zones' own file no longer has."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
