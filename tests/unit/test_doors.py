"""How requests come in: from Lambda's invoke, from EventBridge, from SQS, by URL."""

import json
from base64 import b64encode
from typing import Any

import pytest

from pushlease.errors import BadRequest, StoreUnavailable
from send.invocation import Door


class Desk:
    """Answers by script what a door lets in, and keeps what that was."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, str]] = []
        self.faults: list[str] = []
        self.refused: list[str] = []
        self.door = Door(
            answered=self._answer,
            refuse=lambda record: self.refused.append(record.receipt.message_id),
            on_fault=lambda error: self.faults.append(type(error).__name__),
        )

    def _answer(self, request: object, invocation_id: str) -> dict[str, Any]:
        self.asked.append((request, invocation_id))
        if request == {"say": "fault"}:
            raise StoreUnavailable("no answer")
        return {"ok": request == {"say": "yes"}, "errors": []}


def a_record(message_id: str, body: str) -> dict[str, Any]:
    return {
        "messageId": message_id,
        "receiptHandle": f"handle-{message_id}",
        "body": body,
        "eventSourceARN": "arn:aws:sqs:eu-west-1:000000000000:requests",
        "attributes": {"SentTimestamp": "1", "ApproximateReceiveCount": "1"},
    }


@pytest.mark.parametrize("request_", [{"say": "yes"}, {"say": "no"}, [], None, "text", {"requestContext": None}])
def test_an_invocation_is_the_request_itself(request_: object) -> None:
    desk = Desk()
    assert desk.door.enter(request_, "call-1")["ok"] == (request_ == {"say": "yes"})
    assert desk.asked == [(request_, "call-1")]


def test_an_event_is_named_by_its_own_id_which_stays_when_it_is_repeated() -> None:
    desk = Desk()
    event = {"id": "event-1", "detail-type": "pushlease.send", "source": "orders", "detail": {"say": "yes"}}
    for call in ("call-1", "call-2"):
        assert desk.door.enter(event, call)["ok"]
    assert desk.asked == [({"say": "yes"}, "event-1")] * 2


def test_what_an_event_cannot_be_answered_is_raised_so_that_it_is_repeated() -> None:
    desk = Desk()
    with pytest.raises(StoreUnavailable):
        desk.door.enter({"id": "event-1", "detail-type": "pushlease.send", "detail": {"say": "fault"}}, "call-1")


def test_of_a_batch_only_what_was_not_accepted_stays_in_its_queue() -> None:
    desk = Desk()
    bodies = ['{"say": "yes"}', '{"say": "no"}', "{", '{"say": "fault"}', '{"say": "yes"}', "[" * 100_000]
    event = {"Records": [a_record(f"m{at}", body) for at, body in enumerate(bodies)]}
    answer = desk.door.enter(event, "call-1")
    assert [failed["itemIdentifier"] for failed in answer["batchItemFailures"]] == ["m1", "m2", "m3", "m5"]
    assert desk.faults == ["StoreUnavailable"]
    assert desk.refused == ["m1", "m2", "m5"]
    assert [id_ for _, id_ in desk.asked] == [f"m{at}" for at in range(6)]


def test_a_batch_that_is_none_is_raised() -> None:
    with pytest.raises(BadRequest):
        Desk().door.enter({"Records": [{"body": "{}"}]}, "call-1")


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(("said", "status"), [({"say": "yes"}, 200), ({"say": "no"}, 400)])
def test_an_http_call_gets_an_http_answer(encoded: bool, said: dict[str, str], status: int) -> None:
    body = json.dumps(said)
    event = {
        "requestContext": {"http": {"method": "POST"}},
        "body": b64encode(body.encode()).decode() if encoded else body,
        "isBase64Encoded": encoded,
    }
    answer = Desk().door.enter(event, "call-1")
    assert (answer["statusCode"], json.loads(answer["body"])["ok"]) == (status, status == 200)


@pytest.mark.parametrize("body", [None, "", "{", "\ud800", 7, "!!"])
def test_an_http_call_without_json_is_refused(body: object) -> None:
    for encoded in (False, True):
        event = {"requestContext": {"http": {}}, "body": body, "isBase64Encoded": encoded}
        assert Desk().door.enter(event, "call-1")["statusCode"] == 400
