"""SQS records as values, and the partial answer of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pushlease.errors import BadRequest
from pushlease.jobs.burial import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message as the queue's mapping hands it over."""

    body: str
    receipt_handle: str
    queue: str  # the queue's ARN
    receipt: Receipt


def records_of(event: object) -> Sequence[Record]:
    """The event's records, in order; raises ``BadRequest``, naming the field that no mapping would leave out.

    It is raised and not answered: a queue's mapping takes any answer without failures for the batch's success.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise BadRequest("Records", "must be a list of SQS records, as the queue's mapping sends them")
    return [_record(record, f"Records.{at}") for at, record in enumerate(records)]


def _record(record: object, where: str) -> Record:
    return Record(
        body=_field(record, where, "body"),
        receipt_handle=_field(record, where, "receiptHandle"),
        queue=_field(record, where, "eventSourceARN"),
        receipt=Receipt(
            message_id=_field(record, where, "messageId"),
            sent_at_ms=_number(record, where, "SentTimestamp"),
            receive_count=_number(record, where, "ApproximateReceiveCount"),
        ),
    )


def _field(record: object, where: str, name: str) -> str:
    value = record.get(name) if isinstance(record, Mapping) else None
    if not isinstance(value, str):
        raise BadRequest(f"{where}.{name}", "must be text")
    return value


def _number(record: object, where: str, name: str) -> int:
    attributes = record.get("attributes") if isinstance(record, Mapping) else None
    digits = _field(attributes, f"{where}.attributes", name)
    if not digits.isdecimal():
        raise BadRequest(f"{where}.attributes.{name}", "must be a whole number as text")
    return int(digits)


def partial(failed: Sequence[Record]) -> Mapping[str, Any]:
    """The answer that keeps just these messages in their queue; all others are deleted by the mapping."""
    return {"batchItemFailures": [{"itemIdentifier": record.receipt.message_id} for record in failed]}
