"""The client against what the functions really answer: their use cases behind Lambda's one method that it uses."""

import asyncio
import inspect
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions as sdk

from builders import DAY_MS, NOW_MS, PHONE, a_device, a_recipient, some_content
from fakes import counting_ids, fixed_dice
from pushlease.client import (
    Accepted,
    AsyncPushlease,
    AudienceAccepted,
    AudienceMoved,
    BadAnswer,
    CallFailed,
    Cancelled,
    CancelledJob,
    Content,
    Delivery,
    Environment,
    Erased,
    Fault,
    FunctionFailed,
    Job,
    JobStatus,
    Marked,
    Moment,
    NoAnswer,
    NotInvoked,
    PartlyAccepted,
    Platform,
    Pushlease,
    QuietHours,
    Refused,
    Registered,
    Statuses,
    Target,
    TooLarge,
    Transport,
    errors,
    requests,
)
from pushlease.client import Preferences as Wishes
from pushlease.edge import Action, answered
from pushlease.errors import PushleaseError, SettingsError
from pushlease.push.device import DeviceId
from pushlease.push.preference import Preferences
from pushlease.push.quiet import Window
from registry import handler as registry_handler
from send import handler as send_handler
from send.request import MAX_RECIPIENTS
from send.usecase import MAX_RECIPIENTS_OF_ONE
from system import System

ROOT = Path(__file__).parents[2]
SEND, REGISTRY = "the-send-function", "the-registry-function"
WORDS = "It is at the door."
TOKEN = "0123456789abcdef" * 4
EVERYBODY = [f"u{number}" for number in range(1, 1202)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The function raises: what Lambda's runtime makes of it."""

    error_type: str = "KeyError"
    message: str = WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard:
    """The function does what it is asked to, and its answer is lost on the way."""

    error: Exception


class BrokenStream(io.BytesIO):
    """An answer that breaks off."""

    def read(self, *_: object) -> bytes:
        raise sdk.ResponseStreamingError(error="cut off")


class FakeLambda:
    """Lambda's client; what ``script`` holds is met by the next calls, one each, None by the function itself."""

    def __init__(self, system: System) -> None:
        self.script: list[object] = []
        self.asked: list[Mapping[str, Any]] = []
        self._actions: Mapping[str, Mapping[str, Action[Any]]] = {
            SEND: send_handler.actions_of(system._send, system.audience, system.statuses, None),
            REGISTRY: registry_handler.actions_of(system.registry, system.inboxes, system.erasure),
        }

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Mapping[str, Any]:  # noqa: N803  (AWS's names)
        request = json.loads(Payload)
        self.asked.append(request)
        match self.script.pop(0) if self.script else None:
            case None:
                return self._worked(FunctionName, request)
            case Exception() as error:
                raise error
            case Unheard(error=error):
                self._worked(FunctionName, request)
                raise error
            case Raised(error_type=error_type, message=message):
                return _raised(error_type, message)
            case io.BytesIO() as stream:
                return {"StatusCode": 200, "Payload": stream}
            case answer:
                return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}

    def _worked(self, function: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = answered(request, self._actions[function], default="send" if function == SEND else None)
        except PushleaseError as error:
            return _raised(type(error).__name__, str(error))
        return {"StatusCode": 200, "Payload": io.BytesIO(json.dumps(answer).encode())}


def _raised(error_type: str, message: str) -> Mapping[str, Any]:
    told = {"errorMessage": message, "errorType": error_type, "requestId": "r", "stackTrace": [message]}
    return {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": io.BytesIO(json.dumps(told).encode())}


class Pauses(list[float]):
    """The client's pauses, and what happens meanwhile."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def __call__(self, seconds: float) -> None:
        self.append(seconds)
        self.meanwhile()


class Awaited:
    """The asynchronous client, each call awaited in a loop of its own."""

    def __init__(self, client: Pushlease) -> None:
        self._client = AsyncPushlease(client)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: asyncio.run(getattr(self._client, name)(*args, **kwargs))


@pytest.fixture
def system() -> System:
    return System()


@pytest.fixture
def functions(system: System) -> FakeLambda:
    return FakeLambda(system)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def plain(functions: FakeLambda, pauses: Pauses) -> Pushlease:
    return Pushlease(
        send_function=SEND,
        registry_function=REGISTRY,
        lambda_client=functions,
        new_id=counting_ids("key"),
        pause=pauses,
        dice=fixed_dice(),
    )


@pytest.fixture(params=["synchronous", "awaited"])
def client(request: pytest.FixtureRequest, plain: Pushlease) -> Any:
    return plain if request.param == "synchronous" else Awaited(plain)


def aws_error(code: str, status: int) -> sdk.ClientError:
    return sdk.ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Invoke")


def throttled() -> sdk.ClientError:
    return aws_error("TooManyRequestsException", 429)


def timed_out() -> sdk.ReadTimeoutError:
    return sdk.ReadTimeoutError(endpoint_url="https://lambda")


PASSING: Mapping[str, Callable[[], object]] = {
    "throttled": throttled,
    "service error": lambda: aws_error("ServiceException", 500),
    "starting": lambda: aws_error("ResourceNotReadyException", 502),
    "no answer in time": timed_out,
    "no connection in time": lambda: sdk.ConnectTimeoutError(endpoint_url="https://lambda"),
    "no connection": lambda: sdk.EndpointConnectionError(endpoint_url="https://lambda"),
    "closed": lambda: sdk.ConnectionClosedError(endpoint_url="https://lambda"),
    "cut off": BrokenStream,
    "a table without an answer": lambda: Raised(error_type="StoreUnavailable"),
    "a function out of time": lambda: Raised(error_type="Sandbox.Timedout"),
}


# -- Sending


def test_a_send_is_answered_with_a_job_for_each_recipient(system: System, client: Any) -> None:
    accepted = client.send("shop", some_content(), recipients=["u1", "u2"], notification_id="n-1")
    assert accepted == Accepted(
        notification_id="n-1",
        jobs=tuple(
            Job(
                job_id=job.job_id,
                user_id=job.user_id,
                status="pending" if job.user_id == "u1" else "done",
                expires_at_ms=NOW_MS + DAY_MS,
                duplicate=False,
                deliveries={PHONE: Delivery(status="queued")}
                if job.user_id == "u1"
                else {"push": Delivery(status="skipped", code="no_push_token")},
            )
            for job in system.jobs.rows.values()
        ),
    )
    assert len(system.jobs.rows) == 2


def test_all_that_can_be_said_arrives(system: System, functions: FakeLambda, client: Any) -> None:
    client.send(
        "shop",
        some_content(data={"k": "v"}),
        recipients=["u1"],
        devices=[Target(user_id="u2", device_id="pad")],
        transports=[Transport.IN_APP, Transport.PUSH],
        channel="news",
        ttl=timedelta(hours=1, milliseconds=999),
        deliver_at=datetime(2027, 1, 15, 9, 0, 30, tzinfo=timezone(timedelta(hours=1))),
        notification_id="n-1",
        max_attempts=3,
    )
    assert functions.asked == [
        {
            "app_id": "shop",
            "content": {"title": "Your parcel", "body": WORDS, "data": {"k": "v"}},
            "recipients": ["u1"],
            "devices": [{"user_id": "u2", "device_id": "pad"}],
            "transports": ["in_app", "push"],
            "channel": "news",
            "ttl_s": 3600,
            "deliver_at_ms": 1_800_000_030_000,
            "notification_id": "n-1",
            "max_attempts": 3,
        }
    ]
    assert {job.max_attempts for job in system.jobs.rows.values()} == {3}


def test_a_naive_time_is_the_recipients_own(functions: FakeLambda, client: Any) -> None:
    client.send("shop", some_content(), recipients=["u1"], deliver_at=datetime(2027, 2, 1, 9, 0, 0, 7))
    assert functions.asked[0]["deliver_at_local"] == "2027-02-01T09:00:00"
    assert "deliver_at_ms" not in functions.asked[0]


def test_an_expiry_is_an_instant(system: System, functions: FakeLambda, client: Any) -> None:
    client.send("shop", some_content(), recipients=["u1"], expires_at=datetime(2027, 2, 1, tzinfo=UTC))
    assert system.only().expires_at_ms == functions.asked[0]["expires_at_ms"] == 1_801_440_000_000
    with pytest.raises(Refused, match="expires_at: must have a time zone"):
        client.send("shop", some_content(), recipients=["u1"], expires_at=datetime(2027, 2, 1))
    assert len(functions.asked) == 1


def test_a_dry_run_stores_nothing(system: System, client: Any) -> None:
    told = client.send("shop", some_content(), recipients=["u1"], dry_run=True)
    assert told.dry_run
    assert told.jobs[0].deliveries == {PHONE: Delivery(status="queued")}
    assert system.jobs.rows == {}


def test_a_delivery_says_what_it_waits_for(client: Any) -> None:
    later = datetime(2027, 2, 1, tzinfo=UTC)
    (job,) = client.send("shop", some_content(), recipients=["u1"], deliver_at=later).jobs
    assert job.deliveries[PHONE].not_before_ms == later.timestamp() * 1000
    assert job.deliveries[PHONE].why == "deliver_at"


# -- Names and tries


def test_a_send_without_a_name_keeps_one_through_all_its_tries(
    system: System, functions: FakeLambda, client: Any
) -> None:
    functions.script = [throttled(), Unheard(error=timed_out())]
    accepted = client.send("shop", some_content(), recipients=["u1"])
    assert [request["idempotency_key"] for request in functions.asked] == ["key-1"] * 3
    assert accepted.jobs[0].duplicate
    assert accepted.jobs[0].job_id == system.only().job_id


def test_two_sends_without_a_name_are_two(system: System, client: Any) -> None:
    first, second = (client.send("shop", some_content(), recipients=["u1"]) for _ in range(2))
    assert first.notification_id != second.notification_id
    assert len(system.jobs.rows) == 2


@pytest.mark.parametrize("name", ["idempotency_key", "notification_id"])
def test_the_callers_name_is_the_only_one(functions: FakeLambda, client: Any, name: str) -> None:
    accepted = [client.send("shop", some_content(), recipients=["u1"], **{name: "order-1"}) for _ in range(2)]
    assert [each.jobs[0].duplicate for each in accepted] == [False, True]
    assert {"idempotency_key", "notification_id"} & {*functions.asked[0]} == {name}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_what_passes_is_tried_again(
    functions: FakeLambda, pauses: Pauses, client: Any, fault: Callable[[], object]
) -> None:
    functions.script = [fault(), fault()]
    assert len(client.send("shop", some_content(), recipients=["u1"]).jobs) == 1
    assert len(functions.asked) == 3
    assert pauses == pytest.approx([0.15, 0.3])  # three quarters of 0.2 s and 0.4 s, as the dice fall


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_what_does_not_pass_in_four_tries_is_raised(
    functions: FakeLambda, pauses: Pauses, client: Any, fault: Callable[[], object]
) -> None:
    functions.script = [fault() for _ in range(9)]
    with pytest.raises((NoAnswer, FunctionFailed)) as raised:
        client.send("shop", some_content(), recipients=["u1"])
    assert raised.value.passing
    assert raised.value.idempotency_key == "key-1"
    assert (len(functions.asked), len(pauses)) == (4, 3)


def test_no_answer_says_why(functions: FakeLambda, client: Any) -> None:
    functions.script = [timed_out()] * 3 + [throttled()]
    with pytest.raises(NoAnswer, match="TooManyRequestsException") as raised:
        client.status("shop", user_id="u1")
    assert raised.value.code == "TooManyRequestsException"


# -- What is not tried again


def test_a_refusal_names_every_broken_rule_and_is_final(functions: FakeLambda, client: Any) -> None:
    with pytest.raises(Refused, match=r"ttl_s: .*; max_attempts: ") as raised:
        client.send("shop", some_content(), recipients=["u1"], ttl=timedelta(0), max_attempts=101)
    assert [fault.field for fault in raised.value.faults] == ["ttl_s", "max_attempts"]
    assert not raised.value.passing
    assert len(functions.asked) == 1


def test_a_send_to_nobody_is_refused(client: Any) -> None:
    with pytest.raises(Refused, match="recipients: at least one recipient"):
        client.send("shop", some_content())


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (aws_error("AccessDeniedException", 403), "AccessDeniedException"),
        (aws_error("ResourceNotFoundException", 404), "ResourceNotFoundException"),
        (sdk.NoCredentialsError(), "NoCredentialsError"),
    ],
)
def test_what_aws_refuses_is_final(functions: FakeLambda, client: Any, fault: Exception, code: str) -> None:
    functions.script = [fault]
    with pytest.raises(NotInvoked, match=f"{SEND}: not invoked: {code}") as raised:
        client.send("shop", some_content(), recipients=["u1"])
    assert (raised.value.code, raised.value.passing, len(functions.asked)) == (code, False, 1)


@pytest.mark.parametrize(
    "fault", [Raised(), Raised(error_type="PartlyAccepted", message="{}"), Raised(error_type="PartlyAccepted")]
)
def test_a_function_that_raises_is_told_by_the_errors_type(functions: FakeLambda, client: Any, fault: Raised) -> None:
    functions.script = [fault]
    with pytest.raises(FunctionFailed) as raised:
        client.send("shop", some_content(), recipients=["u1"])
    assert str(raised.value) == f"{SEND}: raised {fault.error_type}"
    assert (raised.value.error_type, raised.value.passing, len(functions.asked)) == (fault.error_type, False, 1)


@pytest.mark.parametrize(
    "answer",
    [[], "ok", 7, {}, {"statusCode": 200}, {"ok": True}, {"ok": True, "jobs": [{}]}, {"ok": False}, io.BytesIO(b"<a>")],
)
def test_an_answer_of_some_other_function_is_no_answer(functions: FakeLambda, client: Any, answer: object) -> None:
    functions.script = [answer]
    with pytest.raises(BadAnswer, match="is it the right function"):
        client.send("shop", some_content(), recipients=["u1"])


def test_a_request_beyond_lambdas_limit_is_not_sent(functions: FakeLambda, client: Any) -> None:
    with pytest.raises(TooLarge, match=r"has 62\d{5} bytes as JSON, at most 6291456: Lambda's limit"):
        client.send("shop", Content(data={"k": "x" * 6_291_400}), recipients=["u1"])
    assert functions.asked == []


@pytest.mark.parametrize("said", [{"apns": {"k": {1, 2}}}, {"apns": {"k": float("nan")}}])
def test_what_is_no_json_is_not_sent(functions: FakeLambda, client: Any, said: Mapping[str, Any]) -> None:
    with pytest.raises(Refused, match="must be JSON"):
        client.send("shop", Content(**said), recipients=["u1"])
    assert functions.asked == []


def test_one_text_is_no_list_of_recipients(functions: FakeLambda, client: Any) -> None:
    with pytest.raises(Refused, match="recipients: must be a list of user ids"):
        client.send("shop", some_content(), recipients="ada")
    assert functions.asked == []


# -- Many recipients, and some of them


def test_the_functions_limits_are_the_clients() -> None:
    assert (requests.MAX_TARGETS, requests.MAX_TARGETS_OF_ONE) == (MAX_RECIPIENTS, MAX_RECIPIENTS_OF_ONE)


def test_more_than_a_call_takes_go_in_several_under_one_name(
    system: System, functions: FakeLambda, client: Any
) -> None:
    accepted = client.send("shop", some_content(), recipients=EVERYBODY)
    assert [len(request["recipients"]) for request in functions.asked] == [500, 500, 201]
    assert [job.user_id for job in accepted.jobs] == EVERYBODY
    assert {job.notification_id for job in system.jobs.rows.values()} == {accepted.notification_id}
    assert len(system.jobs.rows) == len(EVERYBODY)


def test_who_is_named_twice_gets_it_once_however_the_calls_are_cut(functions: FakeLambda, client: Any) -> None:
    phone = Target(user_id=EVERYBODY[0], device_id="phone")
    other = Target(user_id="somebody", device_id="phone")
    accepted = client.send("shop", some_content(), recipients=EVERYBODY * 2, devices=[phone, other, other])
    assert [job.user_id for job in accepted.jobs] == [*EVERYBODY, "somebody"]
    assert [request.get("devices") for request in functions.asked] == [
        None,
        None,
        [{"user_id": "somebody", "device_id": "phone"}],
    ]


def test_more_than_a_notification_takes_are_refused_before_any_is_sent(functions: FakeLambda, client: Any) -> None:
    with pytest.raises(Refused, match="at most 5000"):
        client.send("shop", some_content(), recipients=[f"u{number}" for number in range(5001)])
    assert functions.asked == []


def test_what_is_partly_accepted_is_completed_by_the_same_call(
    system: System, functions: FakeLambda, pauses: Pauses, client: Any
) -> None:
    dry = client.send("shop", some_content(), recipients=["u1", "u2", "u3"], notification_id="n-1", dry_run=True)
    system.jobs.unavailable = {dry.jobs[1].job_id}
    pauses.meanwhile = system.jobs.unavailable.clear
    accepted = client.send("shop", some_content(), recipients=["u1", "u2", "u3"], notification_id="n-1")
    assert [job.duplicate for job in accepted.jobs] == [True, False, True]
    assert functions.asked[1] == functions.asked[2]
    assert (len(functions.asked), len(pauses)) == (3, 1)


def test_what_stays_partly_accepted_names_who_is_missing(system: System, functions: FakeLambda, client: Any) -> None:
    pad = Target(user_id="u3", device_id="pad")
    said: Mapping[str, Any] = {"recipients": ["u1", "u2"], "devices": [pad]}
    dry = client.send("shop", some_content(), **said, idempotency_key="key-1", dry_run=True)
    system.jobs.unavailable = {dry.jobs[1].job_id, dry.jobs[2].job_id}
    with pytest.raises(PartlyAccepted, match=f"{dry.notification_id}: 2 of 3 are not accepted") as raised:
        client.send("shop", some_content(), **said)
    partly = raised.value
    assert (partly.indices, partly.of, partly.not_accepted) == ((1, 2), 3, (Target(user_id="u2"), pad))
    assert (partly.notification_id, partly.idempotency_key) == (dry.notification_id, "key-1")
    assert (partly.passing, len(functions.asked)) == (True, 5)
    system.jobs.unavailable = set()
    again = client.send("shop", some_content(), **said, idempotency_key=partly.idempotency_key)
    assert [job.duplicate for job in again.jobs] == [True, False, False]


def test_a_later_call_that_is_partly_accepted_names_who_is_missing_among_all(system: System, client: Any) -> None:
    dry = client.send("shop", some_content(), recipients=EVERYBODY, notification_id="n-1", dry_run=True)
    system.jobs.unavailable = {dry.jobs[502].job_id}
    with pytest.raises(PartlyAccepted) as raised:
        client.send("shop", some_content(), recipients=EVERYBODY, notification_id="n-1")
    assert raised.value.indices == (502, *range(1000, 1201))
    assert [target.user_id for target in raised.value.not_accepted] == [EVERYBODY[502], *EVERYBODY[1000:]]
    assert [job.user_id for job in raised.value.jobs] == EVERYBODY[:500]


@pytest.mark.parametrize(
    ("faults", "passing"), [([throttled() for _ in range(4)], True), ([aws_error("AccessDeniedException", 403)], False)]
)
def test_a_later_call_that_fails_leaves_the_rest_and_the_same_send_completes_it(
    system: System, functions: FakeLambda, client: Any, faults: list[object], passing: bool
) -> None:
    functions.script = [None, *faults]
    with pytest.raises(PartlyAccepted) as raised:
        client.send("shop", some_content(), recipients=EVERYBODY)
    assert raised.value.indices == tuple(range(500, 1201))
    assert [job.user_id for job in raised.value.jobs] == EVERYBODY[:500]
    assert raised.value.passing is passing
    assert isinstance(raised.value.__cause__, NoAnswer if passing else NotInvoked)
    assert len(system.jobs.rows) == 500
    key = raised.value.idempotency_key
    again = client.send("shop", some_content(), recipients=EVERYBODY, idempotency_key=key)
    assert [job.duplicate for job in again.jobs] == [True] * 500 + [False] * 701
    assert len(system.jobs.rows) == len(EVERYBODY)


def test_a_first_call_that_fails_is_told_as_it_is(functions: FakeLambda, client: Any) -> None:
    functions.script = [Raised()]
    with pytest.raises(FunctionFailed):
        client.send("shop", some_content(), recipients=EVERYBODY)
    assert len(functions.asked) == 1


def test_a_dry_run_that_fails_midway_has_accepted_nobody(functions: FakeLambda, client: Any) -> None:
    functions.script = [None, Raised()]
    with pytest.raises(FunctionFailed):
        client.send("shop", some_content(), recipients=EVERYBODY, dry_run=True)


# -- Afterwards


def test_a_cancel_withdraws_for_all_or_for_those_named(system: System, client: Any) -> None:
    for user in ("u2", "u3"):
        system.devices.register(a_device(recipient=a_recipient(user)))
    accepted = client.send("shop", some_content(), recipients=["u1", "u2", "u3"])
    ids = {job.user_id: job.job_id for job in accepted.jobs}
    one = client.cancel("shop", accepted.notification_id, recipients=["u2"])
    assert one == Cancelled(
        notification_id=accepted.notification_id, jobs=(CancelledJob(job_id=ids["u2"], cancelled=True),)
    )
    rest = client.cancel("shop", accepted.notification_id)
    assert {job.job_id: job.cancelled for job in rest.jobs} == {ids["u1"]: True, ids["u2"]: False, ids["u3"]: True}
    assert {job.status for job in system.jobs.rows.values()} == {"cancelled"}


def test_a_cancel_for_many_goes_in_several_calls(functions: FakeLambda, client: Any) -> None:
    accepted = client.send("shop", some_content(), recipients=EVERYBODY)
    functions.asked.clear()
    cancelled = client.cancel("shop", accepted.notification_id, recipients=EVERYBODY)
    assert [job.job_id for job in cancelled.jobs] == [job.job_id for job in accepted.jobs]
    assert [len(request["recipients"]) for request in functions.asked] == [500, 500, 201]


def test_a_status_tells_jobs_with_their_deliveries_and_their_timeline(functions: FakeLambda, client: Any) -> None:
    told = {
        "job_id": "j-1",
        "notification_id": "n-1",
        "user_id": "u1",
        "status": "pending",
        "attempts": 1,
        "redrives": 0,
        "created_at_ms": NOW_MS,
        "expires_at_ms": NOW_MS + DAY_MS,
        "deliveries": {"phone": {"status": "sent", "attempts": 1, "sent_at_ms": NOW_MS, "provider_id": "apns-1"}},
        "timeline": [{"at_ms": NOW_MS, "what": "accepted"}],
    }
    died = {**told, "status": "dead", "died_at_ms": NOW_MS, "last_error": "rejected: apns: BadTopic", "news": "later"}
    functions.script = [{"ok": True, "jobs": [told, died], "next_before_ms": 7}]
    answer = client.status("shop", user_id="u1", limit=2, before_ms=9)
    assert functions.asked == [{"action": "status", "app_id": "shop", "user_id": "u1", "limit": 2, "before_ms": 9}]
    first = JobStatus(
        job_id="j-1",
        notification_id="n-1",
        user_id="u1",
        status="pending",
        attempts=1,
        redrives=0,
        created_at_ms=NOW_MS,
        expires_at_ms=NOW_MS + DAY_MS,
        deliveries={"phone": Delivery(status="sent", attempts=1, sent_at_ms=NOW_MS, provider_id="apns-1")},
        timeline=(Moment(at_ms=NOW_MS, what="accepted"),),
    )
    assert answer == Statuses(jobs=(first, answer.jobs[1]), next_before_ms=7)
    assert (answer.jobs[1].died_at_ms, answer.jobs[1].last_error) == (NOW_MS, "rejected: apns: BadTopic")


def test_a_status_may_be_of_a_notification_of_a_recipient_or_of_one_delivery(system: System, client: Any) -> None:
    system.devices.register(a_device(device_id=DeviceId("pad")))
    accepted = client.send("shop", some_content(), recipients=["u1", "u2"])
    ids = {job.job_id for job in accepted.jobs}
    whole = client.status("shop", notification_id=accepted.notification_id)
    assert ({job.job_id for job in whole.jobs}, whole.next_before_ms) == (ids, None)
    assert whole.jobs[0].timeline[0] == Moment(at_ms=system.clock(), what="accepted")
    (mine,) = client.status("shop", user_id="u1").jobs
    assert {*mine.deliveries} == {PHONE, "pad"}
    (pad,) = client.status("shop", notification_id=accepted.notification_id, user_id="u1", device_id="pad").jobs
    assert pad.deliveries == {"pad": Delivery(status="queued")}


def test_a_recipients_status_goes_on_where_the_last_page_ended(system: System, client: Any) -> None:
    sent = []
    for _ in range(3):
        sent.append(client.send("shop", some_content(), recipients=["u1"]).notification_id)
        system.clock.forward(seconds=1)
    page = client.status("shop", user_id="u1", limit=2)
    rest = client.status("shop", user_id="u1", limit=2, before_ms=page.next_before_ms)
    assert [job.notification_id for job in (*page.jobs, *rest.jobs)] == sent[::-1]
    assert rest.next_before_ms is None


# -- Audiences


def test_an_audience_is_sent_told_of_paused_and_withdrawn(system: System, functions: FakeLambda, client: Any) -> None:
    functions.script = [Unheard(error=timed_out())]
    named = {"u1": {"name": "Ada"}, "u2": {"name": "Grace"}}
    accepted = client.send_audience("shop", Content(title="Hello, {{ name }}"), recipients=named, rate_per_s=5)
    assert accepted == AudienceAccepted(
        notification_id=accepted.notification_id, pages=1, variables=("name",), duplicate=True
    )
    assert [asked["idempotency_key"] for asked in functions.asked] == ["key-1"] * 2
    moved = client.pause_audience("shop", accepted.notification_id)
    assert moved == AudienceMoved(notification_id=accepted.notification_id, state="paused", changed=True)
    assert client.resume_audience("shop", accepted.notification_id).state == "running"
    system.drain()
    system.work_pages()
    told = client.audience_status("shop", accepted.notification_id)
    assert (told.state, told.pages, told.pages_stored, told.faults) == ("running", 1, 1, ())
    assert told.recipients["accepted"] == 2
    withdrawn = client.cancel("shop", accepted.notification_id)
    assert withdrawn == Cancelled(notification_id=accepted.notification_id, jobs=(), state="cancelled")


def test_an_audience_may_be_ids_alone_or_an_object(system: System, functions: FakeLambda, client: Any) -> None:
    system.lists.objects["all.txt"] = b"u1\n{}\n"
    of_object = client.send_audience("shop", some_content(), key="all.txt", notification_id="n-1")
    of_ids = client.send_audience("shop", some_content(), recipients=iter(["u1", "u2"]), notification_id="n-2")
    tried = client.send_audience("shop", some_content(), recipients=["u1"], dry_run=True)
    assert [asked["audience"] for asked in functions.asked] == [
        {"key": "all.txt"},
        {"recipients": [{"user_id": "u1"}, {"user_id": "u2"}]},
        {"recipients": [{"user_id": "u1"}]},
    ]
    assert (of_object.duplicate, of_ids.pages, tried.dry_run) == (False, 1, True)
    system.drain()
    system.work_pages()
    (fault,) = client.audience_status("shop", "n-1").faults
    assert (fault.at, "user_id" in fault.rule) == (3, True)


def test_an_audience_that_is_refused_says_why(client: Any) -> None:
    with pytest.raises(Refused, match=r"audience: must have a key, or recipients") as raised:
        client.send_audience("shop", some_content())
    assert raised.value.idempotency_key == "key-1"
    with pytest.raises(Refused, match="recipients: must be user ids, not a text"):
        client.send_audience("shop", some_content(), recipients="ada")
    with pytest.raises(Refused, match="notification_id: no audience was sent under it"):
        client.audience_status("shop", "unheard-of")


# -- The registry


def test_a_device_is_registered_and_removed(system: System, client: Any) -> None:
    said = {"platform": Platform.APNS, "environment": Environment.SANDBOX, "topic": "com.example.shop"}
    registered = client.register_device("shop", "ada", "pad", push_token=TOKEN, locale="de-AT", **said)
    assert registered == Registered(device_id="pad", registered_at_ms=system.clock())
    device = system.devices.rows[a_recipient("ada"), DeviceId("pad")]
    assert (device.push_token, device.environment, device.locale) == (TOKEN, Environment.SANDBOX, "de-AT")
    assert [client.remove_device("shop", "ada", "pad") for _ in range(2)] == [True, False]


def test_preferences_are_set(system: System, client: Any) -> None:
    client.set_preferences(
        "shop",
        "ada",
        channels={"offers": {Transport.PUSH: False}},
        muted_until={"*": datetime(2027, 2, 1, tzinfo=UTC)},
        quiet_hours=[QuietHours(start="22:00", end="07:00", days=["sat", "sun"])],
        zone="Europe/Vienna",
        locale="de",
    )
    assert system.recipients.rows[a_recipient("ada")] == Preferences(
        channels={"offers": {Transport.PUSH: False}},
        muted_until_ms={"*": 1_801_440_000_000},
        quiet=(Window(days=frozenset({5, 6}), start=22 * 60, end=7 * 60),),
        zone="Europe/Vienna",
        locale="de",
    )
    client.set_preferences("shop", "ada", quiet_hours=[QuietHours(start="22:00", end="07:00")])
    assert system.recipients.rows[a_recipient("ada")].channels == {}
    assert system.recipients.rows[a_recipient("ada")].quiet[0].days == frozenset(range(7))


def test_a_mute_needs_a_zone(client: Any) -> None:
    with pytest.raises(Refused, match=r"muted_until.news: must have a time zone"):
        client.set_preferences("shop", "ada", muted_until={"news": datetime(2027, 2, 1)})


def test_preferences_are_told_as_they_were_set(client: Any) -> None:
    assert client.get_preferences("shop", "ada") == Wishes(
        user_id="ada", channels={}, muted_until_ms={}, quiet_hours=()
    )
    windows = (QuietHours(start="22:00", end="07:00", days=["sat", "sun"]),)
    client.set_preferences(
        "shop",
        "ada",
        channels={"offers": {Transport.PUSH: False}},
        muted_until={"*": datetime(2027, 2, 1, tzinfo=UTC)},
        quiet_hours=windows,
        zone="Europe/Vienna",
        locale="de",
    )
    assert client.get_preferences("shop", "ada") == Wishes(
        user_id="ada",
        channels={"offers": {"push": False}},
        muted_until_ms={"*": 1_801_440_000_000},
        quiet_hours=windows,
        zone="Europe/Vienna",
        locale="de",
    )


def test_devices_are_listed_by_the_ends_of_their_push_tokens(client: Any) -> None:
    said = {"platform": Platform.APNS, "environment": Environment.SANDBOX, "topic": "com.example.shop"}
    client.register_device("shop", "ada", "pad", push_token=TOKEN, zone="Europe/Vienna", app_version="2.1", **said)
    (device,) = client.list_devices("shop", "ada")
    assert (device.device_id, device.platform, device.environment) == ("pad", "apns", "sandbox")
    assert (device.zone, device.app_version, device.stale, device.disabled_code) == (
        "Europe/Vienna",
        "2.1",
        False,
        None,
    )
    assert device.push_token == f"…{TOKEN[-6:]}"
    assert client.list_devices("shop", "grace") == ()


def test_the_inbox_is_paged_and_marked(system: System, client: Any) -> None:
    for number in range(3):
        told = {"transports": [Transport.IN_APP], "notification_id": f"n-{number}"}
        client.send("shop", some_content(), recipients=["ada"], **told)
        system.deliver()
        system.clock.forward(seconds=1)
    assert client.unread_count("shop", "ada") == 3
    page = client.list_inbox("shop", "ada", limit=2)
    assert ([entry.notification_id for entry in page.entries], page.unread) == (["n-2", "n-1"], 3)
    assert page.entries[0].content["title"] == "Your parcel"
    assert client.mark_read("shop", "ada", [page.entries[0].entry]) == Marked(marked=1, unread=2)
    rest = client.list_inbox("shop", "ada", after=page.next)
    assert ([(entry.notification_id, entry.read) for entry in rest.entries], rest.next) == ([("n-0", False)], None)
    assert client.mark_all_read("shop", "ada") == Marked(marked=2, unread=0)


def test_an_erasure_leaves_nothing_to_be_listed(system: System, client: Any) -> None:
    client.send("shop", some_content(), recipients=["u1"], transports=[Transport.IN_APP, Transport.PUSH])
    assert client.erase_recipient("shop", "u1").complete
    assert client.list_devices("shop", "u1") == ()
    assert client.list_inbox("shop", "u1").entries == ()
    assert client.status("shop", user_id="u1").jobs == ()


@pytest.mark.parametrize("complete", [True, False])
def test_an_erasure_says_whether_it_is_complete(functions: FakeLambda, client: Any, complete: bool) -> None:
    functions.script = [throttled(), {"ok": True, "complete": complete, "jobs": 7}]
    assert client.erase_recipient("shop", "ada") == Erased(complete=complete)
    assert functions.asked[1] == {"action": "erase_recipient", "app_id": "shop", "user_id": "ada"}


def test_the_registry_must_be_named_to_be_asked(functions: FakeLambda) -> None:
    client = Pushlease(send_function=SEND, lambda_client=functions)
    with pytest.raises(SettingsError, match="registry_function"):
        client.remove_device("shop", "ada", "pad")
    assert functions.asked == []


# -- What is shown, and what is needed


@pytest.mark.parametrize(
    "script",
    [
        [Raised()],
        [Raised(error_type="PartlyAccepted")],
        [throttled() for _ in range(4)],
        [{"ok": False, "errors": [{"field": "content", "rule": "too long"}]}],
        [{"ok": True}],
    ],
)
def test_no_error_shows_a_text_or_a_push_token(functions: FakeLambda, client: Any, script: list[object]) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.send("shop", some_content(), recipients=["u1"]),
        lambda: client.register_device("shop", "ada", "pad", platform=Platform.FCM, push_token=TOKEN),
    ]
    for call in calls:
        functions.script = [*script]
        with pytest.raises(CallFailed) as raised:
            call()
        chain = [raised.value, raised.value.__cause__, raised.value.__context__]
        shown = " ".join(f"{error} {error!r} {vars(error) if error else ''}" for error in chain)
        assert WORDS not in shown
        assert TOKEN not in shown


def test_a_text_that_is_no_json_is_not_shown(client: Any) -> None:
    with pytest.raises(Refused) as raised:
        client.send("shop", some_content(apns={WORDS: {1}}), recipients=["u1"])
    assert WORDS not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert raised.value.__suppress_context__


def test_the_tree_that_is_drawn_is_the_tree_there_is() -> None:
    def drawn(kind: type[Exception], depth: int = 0) -> Iterator[tuple[int, str]]:
        yield depth, kind.__name__
        for below in kind.__subclasses__():
            yield from drawn(below, depth + 1)

    told = re.findall(r"^([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    assert [(len(indent) // 4, name) for indent, name in told] == [*drawn(CallFailed)]


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> Mapping[str, object]:
        public = inspect.getmembers(kind, lambda found: inspect.isfunction(found))
        return {name: inspect.signature(found) for name, found in public if not name.startswith("_")}

    assert methods(Pushlease) == methods(AsyncPushlease)
    assert len(methods(Pushlease)) == 17


def test_awaited_calls_run_beside_each_other(system: System, plain: Pushlease, functions: FakeLambda) -> None:
    async def both() -> list[Accepted]:
        client = AsyncPushlease(plain)
        return list(await asyncio.gather(*(client.send("shop", some_content(), recipients=[u]) for u in ("u1", "u2"))))

    assert len({accepted.notification_id for accepted in asyncio.run(both())}) == 2
    assert len(system.jobs.rows) == 2


IMPORTED = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused}:
            raise ImportError("not installed: " + name)
sys.meta_path.insert(0, Refusing())
{then}
"""
EXTRAS = {"pydantic", "jinja2", "httpx", "h2", "jwt", "cryptography", "aws_lambda_powertools", "pynamodb"}


def without(refused: set[str], then: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that cannot import these."""
    program = IMPORTED.format(refused=refused, then=then)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603


def test_the_client_is_imported_and_made_with_the_standard_library_alone() -> None:
    done = without(
        {*EXTRAS, "boto3", "botocore"}, "from pushlease.client import Pushlease; Pushlease(send_function='s')"
    )
    assert done.returncode == 0, done.stderr
    assert without({*EXTRAS}, "import pushlease.edge").returncode != 0


def test_the_client_makes_its_call_with_boto3_alone() -> None:
    then = """
from pushlease.client import *
try:
    import os
    os.environ |= {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    Pushlease(send_function="s", tries=1).status("shop", user_id="u1")
except NoAnswer as error:
    print(error.code)
"""
    done = without({*EXTRAS}, then)
    assert done.stdout == "EndpointConnectionError\n", done.stderr


def test_the_documents_snippets_run(functions: FakeLambda, plain: Pushlease, system: System) -> None:
    document = (ROOT / "docs" / "client.md").read_text()
    first, *snippets = re.findall(r"^```python\n(.*?)^```", document, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"push_token": TOKEN}
    exec(first, names)  # noqa: S102  (makes the client, and calls nothing)
    assert isinstance(names["pushlease"], Pushlease)
    names["pushlease"] = plain
    for snippet in snippets:
        exec(snippet, names)  # noqa: S102
    assert [job.cancelled for job in names["withdrawn"].jobs] == [True, False]  # grace has no device: hers was done
    assert names["reminder"].dry_run
    assert names["progress"].state == "running"
    assert names["wishes"].zone == "Europe/Vienna"
    assert [phone.device_id for phone in names["phones"]] == ["ada-iphone"]
    assert {"user-0", "user-1199"} <= {job.user_id for job in system.jobs.rows.values()}
    assert {target.user_id for target in names["reminder"].jobs} == {"ada", "grace"}
    assert functions.script == []


def test_the_documents_tree_of_errors_is_the_codes() -> None:
    document = (ROOT / "docs" / "client.md").read_text()
    named = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert re.findall(r"[├└]── (\w+)", document) == ["SettingsError", *named]


def test_a_fault_says_where_and_what() -> None:
    assert str(Refused([Fault(field="ttl_s", rule="too long")])) == "ttl_s: too long"
