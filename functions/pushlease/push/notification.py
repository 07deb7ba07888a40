"""What a caller wants said. Fixed once accepted, stored as compact JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NewType, Self

from pushlease.errors import Unreadable

MAX_TEXT = 4096  # characters: longer text than a payload can carry is refused by its field's name, not by its size
MAX_BADGE = 99_999
LOCAL_TEXTS = ("title", "subtitle", "body")

NotificationId = NewType("NotificationId", str)


class Priority(StrEnum):
    """How soon: ``urgent`` passes quiet hours, ``low`` may wait for the device to wake by itself."""

    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The words and the switches of one notification.

    ``apns`` and ``fcm`` are raw overrides, merged last. ``apns``: optional keys ``push_type`` (str), ``priority``
    (1, 5 or 10), ``storage`` (``until_expiry``, ``apple`` or ``none``: how long Apple keeps it for a device that is
    off), ``payload`` (object merged into the payload). ``fcm``: an object merged into FCM's ``message``.
    ``locales``: language tag → the texts (``LOCAL_TEXTS``) that stand for the others where it is spoken.
    ``collapse_key``: a later push with the same key replaces an earlier one; by default the notification's own id,
    so that a repeat of one push replaces itself.
    """

    title: str | None = None
    body: str | None = None
    subtitle: str | None = None
    image: str | None = None
    link: str | None = None
    badge: int | None = None
    sound: str | None = None
    category: str | None = None
    thread: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    locales: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    apns: Mapping[str, object] = field(default_factory=dict)
    fcm: Mapping[str, object] = field(default_factory=dict)
    priority: Priority = Priority.NORMAL
    collapse_key: str | None = None

    def __repr__(self) -> str:
        """Without the message's text, which is personal data."""
        return f"Content({self.priority}, {len(self.to_json())} bytes)"

    @property
    def silent(self) -> bool:
        """Whether there is nothing to show: then it travels as a background push."""
        return not (self.title or self.body or self.badge is not None or self.sound)

    def localised(self, locale: str | None) -> Self:
        """The content as a device of this locale shows it: ``de-AT`` finds its own texts, else those of ``de``."""
        if not self.locales:
            return self
        tags = {tag.lower(): tag for tag in self.locales}
        parts = (locale or "").lower().replace("_", "-").split("-")
        for length in range(len(parts), 0, -1):
            if tag := tags.get("-".join(parts[:length])):
                texts: dict[str, Any] = dict(self.locales[tag])
                return replace(self, locales={}, **texts)
        return replace(self, locales={})

    def variants(self) -> Iterator[tuple[str, Self]]:
        """Every form that the content may be shown in, and where in it its texts stand."""
        yield "content", self.localised(None)
        for tag in self.locales:
            yield f"content.locales.{tag}", self.localised(tag)

    def linked(self, notification_id: str) -> Self:
        """The content with the notification's name in its data, unless the caller put another there."""
        return replace(self, data={"notification_id": notification_id, **self.data})

    def to_json(self) -> str:
        """Compact JSON without what is left at its default."""
        said = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) not in (None, {})}
        if self.priority is Priority.NORMAL:
            del said["priority"]
        return json.dumps(said, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ``Unreadable`` if the text is not what ``to_json`` writes."""
        try:
            return cls.from_json_object(json.loads(text))
        except (ValueError, TypeError, AttributeError) as error:
            raise Unreadable(f"content: not a stored notification ({type(error).__name__})") from None

    @classmethod
    def from_json_object(cls, said: Mapping[str, Any]) -> Self:
        """From what JSON has by field; raises ``TypeError`` or ``ValueError`` for what is no field or no priority."""
        return cls(**{**said, "priority": Priority(said.get("priority", Priority.NORMAL))})
