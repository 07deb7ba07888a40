"""What a recipient wants to receive: per channel, pushes and the in-app inbox can be switched off."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Transport(StrEnum):
    """How a notification reaches a recipient."""

    PUSH = "push"
    IN_APP = "in_app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Channel → transport → whether wanted. What is not named is wanted, and so is what has no channel."""

    channels: Mapping[str, Mapping[Transport, bool]] = field(default_factory=dict)

    def allow(self, channel: str | None, transport: Transport) -> bool:
        """Whether a notification of this channel may go this way."""
        return channel is None or self.channels.get(channel, {}).get(transport, True)
