"""The queues in SQS: what is sent to them, and how a message is refused until SQS moves it to the dead-letter queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import batched
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from pushlease.jobs.message import LaneHandOver, Page, hint_body, lane_body, letter_body, page_body, tick_body
from pushlease.jobs.ports import Hint, Letter

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

BATCH = 10  # entries of one SendMessageBatch, SQS's own limit
MAX_DELAY_S = 900  # SQS's own limit
CLOCKS_APART_S = 1  # a worker whose clock is a little behind would find the job not due, and give its claim back


def _delay_s(wait: timedelta) -> int:
    """Whole seconds, never less than the wait; none for what is due now."""
    whole_s = -(-wait // timedelta(seconds=1))
    return min(whole_s + CLOCKS_APART_S, MAX_DELAY_S) if whole_s else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsHints:
    """``HintSender`` on the work queue. A hint's group is its app, so that one noisy app does not starve the rest."""

    client: SQSClient
    queue_url: str

    def publish(self, hints: Sequence[Hint]) -> int:
        """See ``HintSender``."""
        return _send(
            self.client,
            self.queue_url,
            [
                {
                    "Id": str(at),
                    "MessageBody": hint_body(hint),
                    "DelaySeconds": _delay_s(hint.delay),
                    "MessageGroupId": hint.app_id,
                }
                for at, hint in enumerate(hints)
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsLetters:
    """``LetterSender`` on the burial queue. ``client`` must not retry: a repeat would carry a nonce seen already."""

    client: SQSClient
    queue_url: str

    def bury(self, letters: Sequence[Letter]) -> int:
        """See ``LetterSender``."""
        entries: list[SendMessageBatchRequestEntryTypeDef] = [
            {"Id": str(at), "MessageBody": letter_body(letter)} for at, letter in enumerate(letters)
        ]
        return _send(self.client, self.queue_url, entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsPolicy:
    """What a queue does with what nobody takes."""

    client: SQSClient
    queue_url: str

    def max_receive_count(self) -> int:
        """The receives after which SQS moves a message away. Raises what botocore raises, and ``KeyError`` if none."""
        attributes = self.client.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["RedrivePolicy"])
        return int(json.loads(attributes["Attributes"]["RedrivePolicy"])["maxReceiveCount"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsLanes:
    """``LaneSender`` on the bulk queue."""

    client: SQSClient
    queue_url: str

    def hand_over(self, lanes: Sequence[str], *, now_ms: int) -> int:
        """See ``LaneSender``."""
        entries: list[SendMessageBatchRequestEntryTypeDef] = [
            {"Id": str(at), "MessageBody": lane_body(LaneHandOver(lane=lane, at_ms=now_ms))}
            for at, lane in enumerate(lanes)
        ]
        return _send(self.client, self.queue_url, entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsPages:
    """``PageSender`` on the bulk queue."""

    client: SQSClient
    queue_url: str

    def hand_out(self, ref: str, pages: Sequence[int]) -> int:
        """See ``PageSender``."""
        entries: list[SendMessageBatchRequestEntryTypeDef] = [
            {"Id": str(at), "MessageBody": page_body(Page(ref=ref, page=page))} for at, page in enumerate(pages)
        ]
        return _send(self.client, self.queue_url, entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsTicks:
    """The drain's own delayed ticks."""

    client: SQSClient
    queue_url: str

    def leave(self, offsets: Sequence[timedelta]) -> int:
        """Let the drain be called again after each of these spans; how many ticks could not be left."""
        return _send(
            self.client,
            self.queue_url,
            [
                {"Id": str(at), "MessageBody": tick_body(), "DelaySeconds": offset // timedelta(seconds=1)}
                for at, offset in enumerate(offsets)
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsRefusal:
    """Gives messages back at once, so that SQS moves them to the dead-letter queue by itself, and soon."""

    client: SQSClient
    queue_url: str

    def refuse(self, receipt_handle: str) -> None:
        """Make the message visible again now. Never raises: unseen for the visibility timeout, it comes back too."""
        try:
            self.client.change_message_visibility(
                QueueUrl=self.queue_url, ReceiptHandle=receipt_handle, VisibilityTimeout=0
            )
        except (ClientError, BotoCoreError):
            return


def _send(client: SQSClient, queue_url: str, entries: Sequence[SendMessageBatchRequestEntryTypeDef]) -> int:
    failed = 0
    for chunk in batched(entries, BATCH, strict=False):
        try:
            answer = client.send_message_batch(QueueUrl=queue_url, Entries=chunk)
        except (ClientError, BotoCoreError):
            failed += len(chunk)
        else:
            failed += len(answer.get("Failed", []))
    return failed
