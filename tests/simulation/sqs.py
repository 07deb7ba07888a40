"""SQS in memory: at least once, in any order, with delays, visibility, receive counts and SQS's own dead-lettering."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

MAX_DELAY_S = 900
MAX_BYTES = 1_048_576


@dataclass(eq=False, slots=True, kw_only=True)
class Message:
    """A message in a queue. ``source``: the queue that SQS itself moved it from; a person's redrive needs it.

    ``returned``: it came back with its old receive count, and is handed out once more nevertheless.
    """

    message_id: str
    body: str
    sent_at_ms: int
    visible_at_ms: int
    receive_count: int = 0
    handle: str = ""
    source: str | None = None
    returned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """What AWS and its emulators do differently, and what SQS may do to a message at any time.

    ``keeps_id``, ``keeps_time``, ``counts_on``: of a message that is moved by the console's task; a real move renews
    all three, and each look-alike at least one. ``doubled``: how often a receive leaves the message visible too.
    """

    keeps_id: bool = False
    keeps_time: bool = False
    counts_on: bool = False
    move_keeps_id: bool = True  # the native move into the dead-letter queue
    doubled: float = 0.0


class Queue:
    """One queue. ``max_receives``: how often a message is received before it is moved to ``dead_letters``."""

    def __init__(
        self,
        name: str,
        *,
        new_id: Callable[[], str],
        visibility_ms: int,
        dead_letters: "Queue | None" = None,
        max_receives: int = 0,
        manners: Manners,
    ) -> None:
        self.name = name
        self.visibility_ms = visibility_ms
        self.messages: list[Message] = []
        self._new_id = new_id
        self._dead_letters = dead_letters
        self._max_receives = max_receives
        self._manners = manners
        self._handles: dict[str, Message] = {}

    def send(self, body: str, *, delay_s: int, now_ms: int) -> Message:
        """Take a message."""
        message = Message(
            message_id=self._new_id(), body=body, sent_at_ms=now_ms, visible_at_ms=now_ms + delay_s * 1000
        )
        self.messages.append(message)
        return message

    def receive(self, limit: int, *, now_ms: int, rng: Random) -> list[Message]:
        """Some of the visible messages, as they are at this receive; what had its receives is moved away instead."""
        received: list[Message] = []
        visible = [message for message in self.messages if message.visible_at_ms <= now_ms]
        rng.shuffle(visible)
        for message in visible:
            if len(received) == limit:
                break
            if self._dead_letters and message.receive_count >= self._max_receives and not message.returned:
                self._move(message, self._dead_letters)
                continue
            message.receive_count += 1
            message.returned = False
            message.handle = self._new_id()
            self._handles[message.handle] = message
            if rng.random() >= self._manners.doubled:
                message.visible_at_ms = now_ms + self.visibility_ms
            received.append(replace(message))
        return received

    def delete(self, handle: str) -> None:
        """Forget a message."""
        message = self._handles.get(handle)
        if message in self.messages:
            self.messages.remove(message)

    def make_visible(self, handle: str, *, now_ms: int) -> bool:
        """End a receive early; False for a message that is gone or not in flight."""
        message = self._handles.get(handle)
        if message is None or message not in self.messages or message.visible_at_ms <= now_ms:
            return False
        message.visible_at_ms = now_ms
        return True

    def take_back(self, message: Message, *, now_ms: int) -> None:
        """Take a message that a person's move task brings from the dead-letter queue."""
        manners = self._manners
        self.messages.append(
            Message(
                message_id=message.message_id if manners.keeps_id else self._new_id(),
                body=message.body,
                sent_at_ms=message.sent_at_ms if manners.keeps_time else now_ms,
                visible_at_ms=now_ms,
                receive_count=message.receive_count if manners.counts_on else 0,
                returned=manners.counts_on,
            )
        )

    def next_visible_ms(self) -> int | None:
        """When the next message is to be seen."""
        return min((message.visible_at_ms for message in self.messages), default=None)

    def _move(self, message: Message, dead_letters: "Queue") -> None:
        self.messages.remove(message)
        moved = replace(message, source=self.name)
        if not self._manners.move_keeps_id:
            moved.message_id = self._new_id()
        dead_letters.messages.append(moved)


def entry_fault(entries: Sequence[dict[str, object]]) -> str | None:
    """Why SQS refuses a whole SendMessageBatch, if it does."""
    if not 1 <= len(entries) <= 10:
        return "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
    if len({str(entry["Id"]) for entry in entries}) != len(entries):
        return "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"
    if sum(len(str(entry["MessageBody"]).encode()) for entry in entries) > MAX_BYTES:
        return "AWS.SimpleQueueService.BatchRequestTooLong"
    return None
