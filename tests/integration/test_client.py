"""The client against the deployed functions, through a real Lambda client."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from pushlease.client import (
    AsyncPushlease,
    Content,
    FunctionFailed,
    NotInvoked,
    Platform,
    Pushlease,
    QuietHours,
    Refused,
    Transport,
)
from pushlease_local.stack import Stack, until

pytestmark = pytest.mark.slow

PUSH_TOKEN = "clara" + "0" * 140
HELLO = Content(title="From the client")


@pytest.fixture(scope="module")
def client(stack: Stack) -> Pushlease:
    return Pushlease(
        send_function=stack.outputs["SendFunctionName"],
        registry_function=stack.outputs["RegistryFunctionName"],
        lambda_client=stack.clients["lambda"],
    )


@pytest.fixture
def clara(client: Pushlease) -> str:
    """A recipient with a Pixel."""
    registered = client.register_device("demo", "clara", "clara-pixel", platform=Platform.FCM, push_token=PUSH_TOKEN)
    assert registered.device_id == "clara-pixel"
    return "clara"


def test_what_is_sent_is_delivered_and_sent_again_under_its_key_is_the_same(
    stack: Stack, client: Pushlease, clara: str
) -> None:
    first, again = (client.send("demo", HELLO, recipients=[clara], idempotency_key="client-1") for _ in range(2))
    assert [first.jobs[0].duplicate, again.jobs[0].duplicate] == [False, True]
    assert first.jobs[0].job_id == again.jobs[0].job_id
    job_id = first.jobs[0].job_id
    until("the delivery", lambda: stack.job(job_id)["status"] == "done")
    (told,) = client.status("demo", notification_id=first.notification_id, user_id=clara).jobs
    assert (told.job_id, told.status, told.deliveries["clara-pixel"].status) == (job_id, "done", "sent")
    assert told.timeline[0].what == "accepted"


def test_a_dry_run_stores_nothing(stack: Stack, client: Pushlease, clara: str) -> None:
    told = client.send("demo", HELLO, recipients=[clara], dry_run=True)
    assert told.dry_run
    assert told.jobs[0].deliveries["clara-pixel"].status == "queued"
    assert stack.job(told.jobs[0].job_id) == {}


def test_what_is_cancelled_ends_so(stack: Stack, client: Pushlease, clara: str) -> None:
    later = datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=1)
    accepted = client.send("demo", HELLO, recipients=[clara, "nobody"], deliver_at=later)
    assert accepted.jobs[0].deliveries["clara-pixel"].why == "deliver_at"
    cancelled = client.cancel("demo", accepted.notification_id)
    assert {job.job_id: job.cancelled for job in cancelled.jobs} == {
        accepted.jobs[0].job_id: True,
        accepted.jobs[1].job_id: False,  # has no device: it was over when it was accepted
    }
    assert stack.job(accepted.jobs[0].job_id)["status"] == "cancelled"


def test_preferences_are_kept_and_a_removed_device_gets_nothing(client: Pushlease, clara: str) -> None:
    client.set_preferences(
        "demo",
        "claude",
        channels={"offers": {Transport.IN_APP: False}},
        quiet_hours=[QuietHours(start="22:00", end="07:00")],
    )
    off = client.send(
        "demo", HELLO, recipients=["claude"], channel="offers", transports=[Transport.IN_APP], dry_run=True
    )
    assert off.jobs[0].deliveries["in_app"].code == "channel_off"
    assert [client.remove_device("demo", clara, "clara-pixel") for _ in range(2)] == [True, False]
    told = client.send("demo", HELLO, recipients=[clara], dry_run=True)
    assert told.jobs[0].deliveries["push"].status == "skipped"


def test_what_is_refused_and_what_cannot_be_invoked_are_told_apart(stack: Stack, client: Pushlease) -> None:
    with pytest.raises(Refused, match="app_id: no such app"):
        client.send("no-such-app", HELLO, recipients=["clara"])
    nowhere = Pushlease(send_function="no-such-function", lambda_client=stack.clients["lambda"])
    with pytest.raises(NotInvoked, match="ResourceNotFoundException"):
        nowhere.send("demo", HELLO, recipients=["clara"])


def test_a_function_that_raises_is_told_so(stack: Stack) -> None:
    """The function that delivers takes no sends."""
    wrong = Pushlease(send_function=stack.outputs["DeliverFunctionName"], lambda_client=stack.clients["lambda"])
    with pytest.raises(FunctionFailed) as raised:
        wrong.send("demo", HELLO, recipients=["clara"])
    assert not raised.value.passing


def test_awaited_sends_go_side_by_side(client: Pushlease, clara: str) -> None:
    async def many() -> set[str]:
        awaited = AsyncPushlease(client)
        sends = (awaited.send("demo", HELLO, recipients=[clara], dry_run=True) for _ in range(8))
        return {accepted.notification_id for accepted in await asyncio.gather(*sends)}

    assert len(asyncio.run(many())) == 8


def test_a_send_that_reaches_the_registry_is_refused(stack: Stack) -> None:
    wrong = Pushlease(send_function=stack.outputs["RegistryFunctionName"], lambda_client=stack.clients["lambda"])
    with pytest.raises(Refused, match="action: must be one of"):
        wrong.send("demo", HELLO, recipients=["clara"])
