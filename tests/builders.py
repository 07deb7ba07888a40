"""Values for tests: each builder makes a plain, valid one, so that a test names only what it is about."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from pushlease.jobs.burial import Receipt
from pushlease.jobs.job import Delivery, DeliveryId, DeliveryStatus, Job, JobId, Status, job_id_of
from pushlease.jobs.ports import Hint, Lead, Letter
from pushlease.push.device import (
    ApnsCredentials,
    App,
    AppId,
    Device,
    DeviceId,
    Environment,
    FcmCredentials,
    Platform,
    Recipient,
    UserId,
)
from pushlease.push.notification import Content
from pushlease.records import Record

NOW_MS = 1_800_000_000_000  # January 2027; tests count from here
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

PHONE = DeliveryId("phone")
TABLET = DeliveryId("tablet")

_serials = count(1)
push_tokens: set[str] = set()  # of every device that was built, for the scan of what tests print and log


def a_job_id() -> JobId:
    """An id that no other test has."""
    return job_id_of("builders", str(next(_serials)))


def a_job(**said: Any) -> Job:
    """A pending job for one device, due now and never claimed. ``content`` is inline unless a reference is given."""
    values: dict[str, Any] = {
        "job_id": a_job_id(),
        "app_id": "shop",
        "user_id": "u1",
        "notification_id": "n1",
        "fingerprint": "f1",
        "status": Status.PENDING,
        "deliveries": {PHONE: Delivery()},
        "max_attempts": 5,
        "due_at_ms": NOW_MS,
        "content": None if "content_ref" in said else some_content().to_json(),
        "created_at_ms": NOW_MS - MINUTE_MS,
        "expires_at_ms": NOW_MS - MINUTE_MS + DAY_MS,
    }
    return Job(**values | said)


def a_claimed_job(**said: Any) -> Job:
    """A job in the hands of its first claim."""
    return a_job(**{"attempts": 1, "claim_seq": 1, "claim_id": "c1"} | said)


def a_dead_job(**said: Any) -> Job:
    """A job whose only delivery was rejected a minute ago."""
    dead = Delivery(status=DeliveryStatus.FAILED, code="rejected", attempts=1)
    values: dict[str, Any] = {
        "status": Status.DEAD,
        "deliveries": {PHONE: dead},
        "attempts": 1,
        "claim_seq": 1,
        "settled_seq": 1,
        "last_error": "rejected: apns: BadTopic",
        "died_at_ms": NOW_MS - MINUTE_MS,
    }
    return a_job(**values | said)


def deliveries(*names: str, **each: Any) -> Mapping[DeliveryId, Delivery]:
    """Queued deliveries of these names, alike in all else."""
    return {DeliveryId(name): Delivery(**each) for name in names}


def a_lead(job: Job, **said: Any) -> Lead:
    """What the drain would read in the index."""
    values: dict[str, Any] = {"job_id": job.job_id, "due_at_ms": job.due_at_ms}
    return Lead(**values | said)


def a_hinted_lead(job: Job, **said: Any) -> Lead:
    """What a hint sent for this row would say."""
    return a_lead(job, **{"claim_seq": job.claim_seq} | said)


def a_hint(**said: Any) -> Hint:
    values: dict[str, Any] = {"job_id": a_job_id(), "claim_seq": 0, "due_at_ms": NOW_MS, "app_id": "shop"}
    return Hint(**values | said)


def a_letter(job: Job, **said: Any) -> Letter:
    """A letter of the death that the job is in."""
    values: dict[str, Any] = {
        "job_id": job.job_id,
        "redrives": job.redrives,
        "nonce": f"nonce-{next(_serials)}",
        "app_id": job.app_id,
        "code": "rejected",
        "died_at_ms": job.died_at_ms or 0,
    }
    return Letter(**values | said)


def a_record(
    body: str, *, message_id: str = "", sent_at_ms: int = NOW_MS, receive_count: int = 1, queue: str = "work"
) -> Record:
    """A message as a queue's mapping hands it over."""
    name = message_id or f"message-{next(_serials)}"
    return Record(
        body=body,
        receipt_handle=f"handle-{name}",
        queue=f"arn:aws:sqs:eu-west-1:000000000000:{queue}",
        receipt=Receipt(message_id=name, sent_at_ms=sent_at_ms, receive_count=receive_count),
    )


def an_app(**said: Any) -> App:
    """An app with all providers configured."""
    apns = ApnsCredentials(team_id="TEAM000001", key_id="KEY0000001", secret="pushlease/apns")
    values: dict[str, Any] = {
        "app_id": AppId("shop"),
        "apns_production": apns,
        "apns_sandbox": apns,
        "fcm": FcmCredentials(project_id="shop-1", secret="pushlease/fcm"),
    }
    return App(**values | said)


def a_recipient(user_id: str = "u1", app_id: str = "shop") -> Recipient:
    return Recipient(app_id=AppId(app_id), user_id=UserId(user_id))


def a_device(**said: Any) -> Device:
    """An iPhone of ``u1``, registered an hour ago."""
    values: dict[str, Any] = {
        "device_id": DeviceId(PHONE),
        "recipient": a_recipient(),
        "platform": Platform.APNS,
        "environment": Environment.PRODUCTION,
        "push_token": f"{next(_serials):064x}",
        "registered_at_ms": NOW_MS - HOUR_MS,
        "topic": "com.example.shop",
    }
    if said.get("platform") is Platform.FCM:
        values |= {"topic": None}
    device = Device(**values | said)
    push_tokens.add(device.push_token)
    return device


def some_content(**said: Any) -> Content:
    return Content(**{"title": "Your parcel", "body": "It is at the door."} | said)
