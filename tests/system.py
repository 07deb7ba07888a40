"""All five functions over one set of fakes: what tests of situations play on."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from builders import (
    PHONE,
    SECOND_MS,
    a_device,
    a_recipient,
    a_record,
    an_app,
    some_content,
)
from deliver.pages import Pages
from deliver.usecase import Deliver, Delivered
from drain.audiences import Audiences
from drain.usecase import Drain, Drained
from fakes import (
    FakeAppStore,
    FakeAudienceStore,
    FakeClock,
    FakeDeviceStore,
    FakeHints,
    FakeInbox,
    FakeJobStore,
    FakeLanes,
    FakeLetters,
    FakeLists,
    FakeNotificationStore,
    FakePages,
    FakePusher,
    FakeRecipientStore,
    counting_ids,
    fixed_dice,
)
from pushlease.aws.rows import DEAD_LANES, dead_lane, due_lane
from pushlease.errors import BadRequest
from pushlease.jobs.engine import Engine
from pushlease.jobs.job import DeliveryId, Job, Status
from pushlease.jobs.lanes import Lanes
from pushlease.jobs.message import hint_body, lane_body, letter_body, page_body
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Policy
from pushlease.push.attempt import PushAttempter
from pushlease.push.audience import Entry
from pushlease.push.device import (
    App,
    DeviceId,
)
from pushlease.push.outcome import Verdict
from pushlease.push.plan import Planner, Target
from pushlease.records import Record
from redrive.usecase import Buried, Redrive
from registry.erasure import Erasure
from registry.inbox import Inboxes
from registry.usecase import Registry
from send.audience import AudienceSubmission, SendAudience
from send.status import Statuses
from send.usecase import Cancellation, Send, Submission

LEASE = timedelta(seconds=120)
GRACE = timedelta(seconds=180)
SPREAD = timedelta(minutes=10)
POLICY = Policy(
    retry=RetryPolicy(schedule=listed([timedelta(seconds=s) for s in (30, 120, 480, 1920, 3600)])),
    lease=LEASE,
    grace=GRACE,
)
TABLET = DeliveryId("tablet")
LIMIT_BYTES = 4096
MAX_RECEIVE_COUNT = 3


class WorkerDied(BaseException):
    """The process is gone: nothing that catches exceptions sees it."""


class System:
    """All five functions over one set of fakes: app ``shop``, user ``u1`` with an iPhone."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.clock = FakeClock()
        self.jobs = FakeJobStore()
        self.hints = FakeHints()
        self.letters = FakeLetters()
        self.apps = FakeAppStore(an_app())
        self.devices = FakeDeviceStore(a_device())
        self.recipients = FakeRecipientStore()
        self.inbox = FakeInbox()
        self.notifications = FakeNotificationStore()
        self.pusher = FakePusher()
        self.faults: list[str] = []
        self.unhinted: list[int] = []
        self.alarms: list[tuple[str, ...]] = []
        self.burial: list[Record] = []  # letters on the burial queue, as they will be received next
        self.dead_letters: list[Record] = []  # what SQS has moved to the dead-letter queue
        self._buried = 0
        dice, new_id = fixed_dice(), counting_ids()
        self.engine = Engine(
            store=self.jobs,
            hints=self.hints,
            letters=self.letters,
            attempter=PushAttempter(
                apps=self.apps,
                devices=self.devices,
                recipients=self.recipients,
                inbox=self.inbox,
                notifications=self.notifications,
                pusher=self.pusher,
                dice=fixed_dice(),
                spread=SPREAD,
                on_fault=lambda _, error: self.faults.append(type(error).__name__),
                on_alarm=lambda *alarm: self.alarms.append(alarm),
            ),
            clock=self.clock,
            dice=dice,
            new_id=new_id,
            policy=policy,
            least_time=timedelta(seconds=10),
        )
        self._send = Send(
            apps=self.apps,
            devices=self.devices,
            recipients=self.recipients,
            notifications=self.notifications,
            jobs=self.jobs,
            hints=self.hints,
            preflight=_preflight,
            unhinted=self.unhinted.append,
            clock=self.clock,
            new_id=new_id,
            planner=Planner(grace=GRACE, spread=SPREAD),
            max_attempts=5,
        )
        self.audiences = FakeAudienceStore()
        self.lists = FakeLists()
        self.pages = FakePages()
        self.ended: list[tuple[str, str]] = []
        self.audience = SendAudience(
            send=self._send, audiences=self.audiences, notifications=self.notifications, lists=self.lists
        )
        self.statuses = Statuses(jobs=self.jobs, notifications=self.notifications, by_recipient=True)
        self.hand_overs = FakeLanes()
        self.lanes = Lanes(
            engine=self.engine, jobs=self.jobs, clock=self.clock, shuffle=lambda leads: list(reversed(leads)), page=50
        )
        self._deliver = Deliver(
            engine=self.engine,
            jobs=self.jobs,
            clock=self.clock,
            dice=dice,
            lanes=self.lanes,
            pages=Pages(
                audiences=self.audiences,
                lists=self.lists,
                apps=self.apps,
                devices=self.devices,
                recipients=self.recipients,
                notifications=self.notifications,
                jobs=self.jobs,
                engine=self.engine,
                planner=Planner(grace=GRACE, spread=SPREAD),
                preflight=_preflight,
                clock=self.clock,
                fcm_stale_after=timedelta(days=270),
                in_hand=50,
            ),
            redrive_spread=timedelta(0),
            on_fault=lambda _, error: self.faults.append(type(error).__name__),
        )
        self._drain = Drain(
            lanes=self.lanes,
            hand_overs=self.hand_overs,
            jobs=self.jobs,
            letters=self.letters,
            clock=self.clock,
            new_id=new_id,
            shuffle=lambda items: list(reversed(items)),
            due_lanes=[due_lane(shard) for shard in range(16)],
            dead_lanes=[dead_lane(shard) for shard in range(DEAD_LANES)],
            page=50,
            burial_check=policy.burial_check,
            audiences=Audiences(
                audiences=self.audiences,
                pages=self.pages,
                clock=self.clock,
                on_end=lambda audience, state: self.ended.append((audience.ref, state)),
                on_fault=lambda error: self.faults.append(type(error).__name__),
            ),
        )
        self.redrive = Redrive(
            jobs=self.jobs,
            clock=self.clock,
            dice=dice,
            dead_lanes=[dead_lane(shard) for shard in range(DEAD_LANES)],
            max_receive_count=lambda: MAX_RECEIVE_COUNT,
            spread=timedelta(0),
            on_fault=lambda _, error: self.faults.append(type(error).__name__),
        )
        self.registry = Registry(
            apps=self.apps,
            devices=self.devices,
            recipients=self.recipients,
            checked=lambda device: device,
            check_secret=lambda _field, _name: None,
            clock=self.clock,
        )
        self.inboxes = Inboxes(inbox=self.inbox, clock=self.clock)

        self.inboxes = Inboxes(inbox=self.inbox, clock=self.clock)
        self.erasure = self.eraser(by_recipient=True)

    def eraser(self, *, by_recipient: bool) -> Erasure:
        return Erasure(
            devices=self.devices,
            inbox=self.inbox,
            recipients=self.recipients,
            jobs=self.jobs,
            notifications=self.notifications,
            by_recipient=by_recipient,
            clock=self.clock,
        )

    # -- What callers, SQS and the schedule do

    def send(self, *users: str, **said: Any) -> Mapping[str, Any]:
        values: dict[str, Any] = {
            "app_id": "shop",
            "content": some_content(),
            "targets": tuple(Target(user_id=user) for user in users or ("u1",)),
        }
        return self._send.send(Submission(**values | said))

    def cancel(self, notification_id: str, *users: str) -> list[bool]:
        targets = tuple(Target(user_id=user) for user in users)
        answer = self._send.cancel(Cancellation(app_id="shop", notification_id=notification_id, targets=targets))
        return [job["cancelled"] for job in answer["jobs"]]

    def send_audience(self, *users: str, **said: Any) -> Mapping[str, Any]:
        """To a list of users, or to an object's ``key``."""
        whole = {name: said.pop(name) for name in ("key", "entries", "rate_per_s") if name in said}
        if users:
            whole["entries"] = [Entry(user_id=user) for user in users]
        values: dict[str, Any] = {"app_id": "shop", "content": some_content(), "targets": ()}
        return self.audience.accept(AudienceSubmission(submission=Submission(**values | said), **whole))

    def work_pages(self) -> None:
        """Work all pages that were given out."""
        given, self.pages.given = self.pages.given, []
        for page in given:
            self.deliver(a_record(page_body(page), queue="bulk"))

    def deliver(self, *records: Record, seconds: float = 45) -> Delivered:
        """Hand over a batch; without one, every hint that was published so far."""
        if not records:
            records = tuple(a_record(hint_body(hint)) for hint in self.hints.published)
            self.hints.published.clear()
        return self._deliver.deliver(records, deadline_ms=self.clock() + int(seconds * SECOND_MS))

    def drain(self, *, seconds: float = 45, hand_over: bool = True) -> Drained:
        """A tick, and the workers that lanes were handed to."""
        drained = self._drain.drain(deadline_ms=self.clock() + int(seconds * SECOND_MS), hand_over=hand_over)
        handed, self.hand_overs.handed = self.hand_overs.handed, []
        for message in handed:
            drained.report.add(self.deliver(a_record(lane_body(message), queue="bulk"), seconds=seconds).report)
        return drained

    def until_over(self, job: Job, *, ticks: int = 2000) -> Job:
        """A drain every 30 s, until the job is no longer pending."""
        for _ in range(ticks):
            self.drain()
            if self.row(job).status is not Status.PENDING:
                return self.row(job)
            self.clock.forward(seconds=30)
        raise AssertionError("the job never ended")

    def bury(self) -> list[Buried]:
        """Let the redrive function meet each new letter until SQS moves it."""
        for letter in self.letters.sent[self._buried :]:
            self.burial.append(a_record(letter_body(letter), sent_at_ms=self.clock(), queue="burial"))
        self._buried = len(self.letters.sent)
        outcomes = []
        while self.burial:
            record = self.burial.pop(0)
            outcome = self.redrive.bury([record])
            outcomes.append(outcome)
            if [*outcome.refused, *(refused for refused, _ in outcome.unreadable)]:
                again = replace(record, receipt=replace(record.receipt, receive_count=record.receipt.receive_count + 1))
                (self.burial if again.receipt.receive_count <= MAX_RECEIVE_COUNT else self.dead_letters).append(again)
        return outcomes

    def move_letters_back(self) -> list[Buried]:
        """The console's default button: every dead letter becomes a new message of the burial queue."""
        self.burial += [a_record(record.body, sent_at_ms=self.clock.forward(seconds=1)) for record in self.dead_letters]
        self.dead_letters.clear()
        return self.bury()

    # -- What a test says and sees

    def row(self, job: Job) -> Job:
        return self.jobs.rows[job.job_id]

    def only(self) -> Job:
        """The one job there is."""
        (job,) = self.jobs.rows.values()
        return job

    def answer(self, *verdicts: Verdict, user: str = "u1", device: str = PHONE) -> None:
        """What the provider says of a device, push after push; the last word stays."""
        left = list(verdicts)
        token = self.devices.rows[a_recipient(user), DeviceId(device)].push_token

        def speak(_: object) -> None:
            if left:
                self.pusher.script[token] = left.pop(0)

        self.pusher.during = speak

    def pushed_to(self) -> list[str]:
        """The devices that pushes went to, in order."""
        return [str(push.device.device_id) for push in self.pusher.pushed]

    def accepted(self, user: str = "u1") -> int:
        """How many pushes went to a user."""
        return sum(push.device.recipient.user_id == user for push in self.pusher.pushed)


def _preflight(content: Any, _app: App) -> None:
    if len(content.to_json().encode()) > LIMIT_BYTES:
        raise BadRequest("content", f"must be at most {LIMIT_BYTES} bytes")
