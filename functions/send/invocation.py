"""The ways in which a request reaches ``send``, told apart by what AWS wraps around it.

::

    Lambda's own invoke     {"app_id": …}                                 the request itself; the caller gets the answer
    EventBridge             {"detail-type": …, "id": …, "detail": {…}}    nobody waits: what raises is invoked again
    SQS                     {"Records": [{"body": "{…}"}, …]}             a partial batch answer
    Function URL            {"requestContext": {"http": …}, "body": …}    an HTTP answer

Each has an id of its own that stays the same when AWS repeats the call, so that a request without a name of its own
is accepted once.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pushlease.records import Record, partial, records_of

type Answer = Mapping[str, Any]
type Answered = Callable[[object, str], Answer]  # from a request and its invocation's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Lets requests in.

    ``answered`` never raises for a bad request. ``refuse`` gives a message back at once, so that SQS soon moves it to
    where its owner looks. ``on_fault`` is told what nobody waits for.
    """

    answered: Answered
    refuse: Callable[[Record], None]
    on_fault: Callable[[Exception], None]

    def enter(self, event: object, request_id: str) -> Answer:
        """Answer an invocation in the manner of whoever made it; ``request_id`` is Lambda's."""
        if not isinstance(event, Mapping):
            return self.answered(event, request_id)
        if isinstance(event.get("Records"), list):
            return self._of_queue(event)
        if "detail-type" in event and "detail" in event:
            return self.answered(event["detail"], str(event.get("id") or request_id))
        context = event.get("requestContext")
        if isinstance(context, Mapping) and "http" in context:
            return self._of_http(event, request_id)
        return self.answered(event, request_id)

    def _of_queue(self, event: Mapping[str, Any]) -> Answer:
        """A bad request is refused until SQS moves it; one that failed comes back after the visibility timeout."""
        failed = []
        for record in records_of(event):
            try:
                answer = self.answered(_json(record.body), record.receipt.message_id)
            except Exception as error:  # one request's fault must not send its neighbours round again
                self.on_fault(error)
                failed.append(record)
                continue
            if not answer["ok"]:
                self.refuse(record)
                failed.append(record)
        return partial(failed)

    def _of_http(self, event: Mapping[str, Any], request_id: str) -> Answer:
        body = str(event.get("body") or "")
        if event.get("isBase64Encoded"):
            body = _decoded(body)
        answer = self.answered(_json(body), request_id)
        return {
            "statusCode": 200 if answer["ok"] else 400,
            "headers": {"content-type": "application/json"},
            "body": json.dumps(answer),
        }


def _decoded(text: str) -> str:
    try:
        return b64decode(text, validate=True).decode()
    except ValueError:
        return ""


def _json(text: str) -> object:
    """What a text says, None if it is no JSON: then it is refused like anything else that is no object."""
    try:
        said: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said
