"""Joins the ports to their real forms. The only module of the functions that reads the clock and throws the dice."""

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from pushlease import observe, settings
from pushlease.aws import clients, rows, stores
from pushlease.aws.audience_store import DynamoAudienceStore, S3Lists
from pushlease.aws.device_store import DynamoDeviceStore
from pushlease.aws.flow import DynamoFlow
from pushlease.aws.inbox import DynamoInbox
from pushlease.aws.job_store import DynamoJobStore, Retention
from pushlease.aws.queue import SqsHints, SqsLanes, SqsLetters, SqsPages, SqsPolicy, SqsRefusal, SqsTicks
from pushlease.aws.secrets import SecretsManagerSecrets
from pushlease.aws.statements import Statements
from pushlease.errors import BadRequest
from pushlease.jobs.engine import Engine
from pushlease.jobs.lanes import Lanes
from pushlease.jobs.settle import Policy
from pushlease.providers.preflight import checked, preflight
from pushlease.providers.pusher import ProviderPusher
from pushlease.push.attempt import PushAttempter
from pushlease.push.guard import Guard
from pushlease.push.pace import Pace
from pushlease.push.plan import Planner
from pushlease.records import Record

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# It is asked between a provider's answers and the record of them: it must not use up the time that the record needs.
FLOW_CONNECTION = {"connect_timeout_seconds": 1, "read_timeout_seconds": 1, "max_retry_attempts": 1}


def now_ms() -> int:
    """Epoch milliseconds by this machine's clock."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A fresh random id, 128 bits in hex."""
    return uuid.uuid4().hex


def shuffled[T](items: Sequence[T]) -> Sequence[T]:
    """The items in random order."""
    return random.sample(items, len(items))


def deadline_ms(remaining_ms: int, function_timeout: timedelta) -> int:
    """When attempts must be back: a tenth of the function's time is kept for settling them."""
    return now_ms() + remaining_ms - function_timeout // timedelta(milliseconds=10)


class Parts:
    """The real parts of one function, each made when first asked for and kept across invocations."""

    clock: Callable[[], int] = staticmethod(now_ms)
    dice: Callable[[], float] = staticmethod(random.random)
    new_id: Callable[[], str] = staticmethod(new_id)
    shuffled = staticmethod(shuffled)
    preflight = staticmethod(preflight)
    checked = staticmethod(checked)

    def __init__(self, function: str) -> None:
        self.settings = settings.from_environment()
        self.observer = observe.observer(function)

    @property
    def due_lanes(self) -> Sequence[str]:
        """Every lane that pending jobs may stand in."""
        return [rows.due_lane(shard) for shard in range(self.settings.drained_lanes)]

    @property
    def dead_lanes(self) -> Sequence[str]:
        """Every lane that dead jobs stand in."""
        return [rows.dead_lane(shard) for shard in range(rows.DEAD_LANES)]

    @cached_property
    def dynamodb(self) -> "DynamoDBClient":
        return clients.dynamodb()

    @cached_property
    def jobs(self) -> DynamoJobStore:
        return DynamoJobStore(
            statements=Statements(
                client=self.dynamodb,
                table=self.settings.jobs_table,
                new_id=self.new_id,
                clock=self.clock,
                pause=time.sleep,
                dice=self.dice,
            ),
            lanes=self.settings.lanes,
            retention=Retention(done=self.settings.done_kept, dead=self.settings.dead_kept),
            by_recipient=self.settings.recipient_index,
        )

    @cached_property
    def devices(self) -> DynamoDeviceStore:
        return DynamoDeviceStore(
            rows=rows.bound(rows.DeviceRow, self.settings.devices_table),
            owners=rows.bound(rows.OwnerRow, self.settings.devices_table),
            connection=rows.connection(),
            fcm_stale_after=self.settings.fcm_stale_after,
            pause=time.sleep,
            dice=self.dice,
        )

    @cached_property
    def apps(self) -> stores.DynamoAppStore:
        return stores.DynamoAppStore(rows=rows.bound(rows.AppRow, self.settings.apps_table))

    @cached_property
    def recipients(self) -> stores.DynamoRecipientStore:
        return stores.DynamoRecipientStore(rows=rows.bound(rows.RecipientRow, self.settings.recipients_table))

    @cached_property
    def inbox(self) -> DynamoInbox:
        return DynamoInbox(
            client=self.dynamodb,
            table=self.settings.inbox_table,
            kept=self.settings.inbox_kept,
            pause=time.sleep,
            dice=self.dice,
        )

    @cached_property
    def notifications(self) -> stores.DynamoNotificationStore:
        return stores.DynamoNotificationStore(
            rows=rows.bound(rows.NotificationRow, self.settings.notifications_table), dead_kept=self.settings.dead_kept
        )

    @property
    def planner(self) -> Planner:
        return Planner(grace=self.settings.grace, spread=self.settings.quiet_spread)

    @cached_property
    def hints(self) -> SqsHints:
        return SqsHints(client=clients.sqs(), queue_url=self.settings.work_queue_url)

    @cached_property
    def letters(self) -> SqsLetters:
        return SqsLetters(client=clients.sqs_once(), queue_url=self.settings.burial_queue_url)

    def burial_max_receive_count(self) -> int:
        """After how many receives the burial queue gives a letter up to the dead-letter queue."""
        return SqsPolicy(client=clients.sqs(), queue_url=self.settings.burial_queue_url).max_receive_count()

    @cached_property
    def hand_overs(self) -> SqsLanes:
        return SqsLanes(client=clients.sqs(), queue_url=self.settings.bulk_queue_url)

    @cached_property
    def lanes(self) -> Lanes:
        return Lanes(
            engine=self.engine,
            jobs=self.jobs,
            clock=self.clock,
            shuffle=self.shuffled,
            page=self.settings.drain_batch_size,
        )

    @cached_property
    def audiences(self) -> DynamoAudienceStore:
        return DynamoAudienceStore(rows=rows.bound(rows.AudienceRow, self.settings.audiences_table))

    @cached_property
    def lists(self) -> S3Lists:
        return S3Lists(client=clients.s3(), bucket=self.settings.audience_bucket)

    @cached_property
    def page_sender(self) -> SqsPages:
        return SqsPages(client=clients.sqs(), queue_url=self.settings.bulk_queue_url)

    @cached_property
    def ticks(self) -> SqsTicks:
        return SqsTicks(client=clients.sqs(), queue_url=self.settings.tick_queue_url)

    def refuse(self, records: Sequence[tuple[Record, str]]) -> None:
        """Give messages back at once, so that SQS moves them on; those with a fault are logged."""
        for record, fault in records:
            if fault:
                self.observer.unreadable(record.receipt.message_id, fault)
            refusal = self._refusals.get(record.queue.rsplit(":", 1)[-1])
            if refusal:  # a queue that somebody else mapped here keeps its own pace
                refusal.refuse(record.receipt_handle)

    @cached_property
    def _refusals(self) -> Mapping[str, SqsRefusal]:
        """By the queue's name, which a record's ARN ends with, as its URL does."""
        set_ = self.settings
        urls = (set_.work_queue_url, set_.bulk_queue_url, set_.burial_queue_url, set_.requests_queue_url)
        client = clients.sqs()
        return {url.rsplit("/", 1)[-1]: SqsRefusal(client=client, queue_url=url) for url in urls if url}

    def check_secret(self, field: str, name: str) -> None:
        """Raises ``BadRequest`` for a secret that the functions' roles may not read."""
        if not name.startswith(self.settings.secret_prefix):
            raise BadRequest(field, f"must start with {self.settings.secret_prefix}: no other secret can be read")

    @cached_property
    def engine(self) -> Engine:
        set_ = self.settings
        flow = DynamoFlow(rows=rows.bound(rows.FlowRow, set_.flow_table, **FLOW_CONNECTION))
        provider = ProviderPusher(
            apns_production_url=set_.apns_production_url,
            apns_sandbox_url=set_.apns_sandbox_url,
            fcm_url=set_.fcm_url,
            ca_file=set_.provider_ca_file,
            request_timeout=set_.request_timeout,
            apns_floor=set_.apns_retry_floor,
            fcm_floor=set_.fcm_retry_floor,
            secrets=SecretsManagerSecrets(provider=clients.secrets(), prefix=set_.secret_prefix),
            identity=clients.identity(),
            clock=self.clock,
        )
        paced = Pace(
            pusher=provider,
            flow=flow,
            clock=self.clock,
            dice=self.dice,
            quota=set_.fcm_quota_per_minute,
            on_fault=self.observer.flow_fault,
        )
        guarded = Guard(
            pusher=paced,
            flow=flow,
            clock=self.clock,
            dice=self.dice,
            open_after=set_.breaker_after,
            on_change=self.observer.breaker,
            on_fault=self.observer.flow_fault,
        )
        attempter = PushAttempter(
            apps=self.apps,
            devices=self.devices,
            recipients=self.recipients,
            inbox=self.inbox,
            notifications=stores.CachedNotifications(store=self.notifications, clock=self.clock),
            pusher=guarded,
            dice=self.dice,
            spread=set_.quiet_spread,
            on_fault=self.observer.fault,
            on_alarm=self.observer.alarm,
            fcm_stale_after=set_.fcm_stale_after,
        )
        return Engine(
            store=self.jobs,
            hints=self.hints,
            letters=self.letters,
            attempter=attempter,
            clock=self.clock,
            dice=self.dice,
            new_id=self.new_id,
            policy=Policy(
                retry=set_.retry,
                lease=set_.lease,
                grace=set_.grace,
                burial_check=set_.burial_check,
                dead_codes=set_.dead_codes,
            ),
            least_time=set_.request_timeout,
        )
