"""SQS records as values, and the partial answer of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pushlease.jobs.burial import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message as the queue's mapping hands it over."""

    body: str
    receipt_handle: str
    queue: str  # the queue's ARN
    receipt: Receipt


def records_of(event: Mapping[str, Any]) -> Sequence[Record]:
    """The event's records, in order."""
    return [
        Record(
            body=record["body"],
            receipt_handle=record["receiptHandle"],
            queue=record["eventSourceARN"],
            receipt=Receipt(
                message_id=record["messageId"],
                sent_at_ms=int(record["attributes"]["SentTimestamp"]),
                receive_count=int(record["attributes"]["ApproximateReceiveCount"]),
            ),
        )
        for record in event["Records"]
    ]


def partial(failed: Sequence[Record]) -> Mapping[str, Any]:
    """The answer that keeps just these messages in their queue; all others are deleted by the mapping."""
    return {"batchItemFailures": [{"itemIdentifier": record.receipt.message_id} for record in failed]}
