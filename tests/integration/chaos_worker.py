"""One execution environment of a function, as a process that may be killed: the queue's mapping, and the real handler.

    python chaos_worker.py deliver QUEUE_URL
    python chaos_worker.py drain QUEUE_URL

It takes batches of the queue's messages, calls the function's handler with them, and deletes what the answer does not
keep, until it is killed or the process that started it is gone. A drain that finds no message is ticked as by the
schedule. Everything else comes from the environment, as on Lambda.
"""

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any

import boto3

from pushlease import settings

BATCH = 10  # messages of one ReceiveMessage, SQS's own limit
POLL_S = 1  # short, so that an idle drain ticks once a second


class Context:
    """What the handlers ask of Lambda's context: how much of the function's time is left."""

    def __init__(self, function_timeout: timedelta) -> None:
        self._ends_at_s = time.monotonic() + function_timeout.total_seconds()

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends_at_s - time.monotonic()) * 1000)


def main(function: str, queue_url: str) -> None:
    handle: Any = import_module(f"{function}.handler").handle
    function_timeout = settings.from_environment().function_timeout
    sqs = boto3.client("sqs")
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            messages: Sequence[Mapping[str, Any]] = sqs.receive_message(
                QueueUrl=queue_url,
                MaxNumberOfMessages=BATCH,
                WaitTimeSeconds=POLL_S,
                MessageSystemAttributeNames=["All"],
            ).get("Messages", [])
            if messages:
                answer = handle(event_of(messages, queue_url), Context(function_timeout))
                kept = {failure["itemIdentifier"] for failure in answer.get("batchItemFailures", [])}
                done = [message for message in messages if message["MessageId"] not in kept]
                if done:
                    sqs.delete_message_batch(
                        QueueUrl=queue_url,
                        Entries=[
                            {"Id": str(at), "ReceiptHandle": message["ReceiptHandle"]}
                            for at, message in enumerate(done)
                        ],
                    )
            elif function == "drain":
                handle({"kind": "tick"}, Context(function_timeout))
        except Exception:  # as Lambda: a call that raises leaves its messages in the queue, and the next call comes
            logging.getLogger(__name__).exception("%s failed", function)


def event_of(messages: Sequence[Mapping[str, Any]], queue_url: str) -> Mapping[str, Any]:
    """The event that SQS's mapping makes of a batch."""
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
                "eventSource": "aws:sqs",
                "eventSourceARN": f"arn:aws:sqs:::{queue_url.rsplit('/', 1)[-1]}",
            }
            for message in messages
        ]
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
