"""One run: the real engine, store, queues and use cases over the fake wire, with functions and persons around them."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from builders import NOW_MS, a_device, a_recipient, an_app, some_content
from deliver.pages import Pages
from deliver.usecase import Deliver
from drain.audiences import Audiences
from drain.usecase import Drain
from fakes import (
    FakeAppStore,
    FakeAudienceStore,
    FakeDeviceStore,
    FakeFlow,
    FakeInbox,
    FakeNotificationStore,
    FakePages,
    FakeRecipientStore,
)
from pushlease.aws import rows
from pushlease.aws.job_store import DynamoJobStore
from pushlease.aws.queue import SqsHints, SqsLanes, SqsLetters, SqsRefusal, SqsTicks
from pushlease.aws.statements import Statements
from pushlease.errors import BadRequest, PushleaseError
from pushlease.jobs.engine import Engine, Report
from pushlease.jobs.job import DeliveryId, JobId, push_id_of
from pushlease.jobs.lanes import Lanes
from pushlease.jobs.retry import RetryPolicy, listed
from pushlease.jobs.settle import Policy
from pushlease.push.attempt import PushAttempter
from pushlease.push.device import DeviceId, Platform
from pushlease.push.flow import Way
from pushlease.push.guard import Guard
from pushlease.push.plan import Planner, Target
from pushlease.push.preference import Preferences, Transport
from pushlease.records import partial as partial_answer
from pushlease.records import records_of
from redrive.usecase import Filter, Redrive
from send.usecase import Send, Submission
from simulation.dynamodb import Table
from simulation.invariants import SPANS_S, Invariant, Rules, Watch
from simulation.kernel import Kernel, Worker
from simulation.pace import Limits
from simulation.provider import Entries, Overheard, Provider, Unsteady
from simulation.row import Row
from simulation.shape import CHANNEL, DAY, HOUR, MINUTE, Order, Shape
from simulation.sqs import Message, Queue
from simulation.wire import FakeDynamoDb, FakeSqs, Faults, Wire

# What a port may raise, and a handler with it; anything else is a fault in the code.
FAULTS = (PushleaseError, ClientError, BotoCoreError)


class World:
    """Everything of one run. All of its parts share one kernel, and so one seed."""

    def __init__(self, seed: int, faults: Faults, shape: Shape | None = None) -> None:
        self.shape = shape = shape or Shape()
        self.kernel = Kernel(seed)
        self.rng = self.kernel.rng
        grace = shape.lease + timedelta(seconds=60)
        self.watch = Watch(
            Rules(grace_ms=_ms(grace), max_skew_ms=shape.max_skew_ms, page=max(shape.page, shape.batch)),
            Limits(
                grace_ms=_ms(grace),
                late_ms=2 * MINUTE + 2 * shape.max_skew_ms + shape.index_lag_ms[1],
                timeout_ms=_ms(shape.timeout),
                max_hops=10,
            ),
        )
        self.wire = Wire(self.kernel, faults, latency_ms=shape.latency_ms, freeze_ms=shape.freeze_ms)
        self.wire.before_call = self.watch.before_call
        self.wire.on_shown = self.watch.on_shown
        self.watch.pace.unsent = self.wire.unsent
        self.watch.frozen, self.watch.unanswered = self.wire.frozen, self.wire.unanswered
        self.table = Table("jobs", on_write=self._on_write, replicate=self._replicate, row_bytes=shape.row_bytes)
        self.happened: Counter[str] = Counter()
        self.pruned: set[str] = set()
        self.calm = False  # no more faults of the platform: what is left must come to rest
        self._serial = 0
        self._busy: Counter[str] = Counter()  # running invocations by queue
        self._tick_at: int | None = None
        self._polls: dict[str, int] = {}
        self._at_writes: dict[int, Callable[[str], None]] = {}
        self._writes = 0
        self._people = 0  # persons who have not acted yet
        self.queues = self._queues()
        self._wire_up(grace)

    # --- making

    def _queues(self) -> dict[str, Queue]:
        queue = partial(Queue, new_id=self.new_id, visibility_ms=self.shape.visibility_ms, manners=self.shape.manners)
        dead_letters = queue("dead-letters")
        dying = partial(queue, dead_letters=dead_letters, max_receives=self.shape.max_receives)
        burial = partial(dying, max_receives=self.shape.burial_receives)
        return {
            "work": dying("work"),
            "bulk": dying("bulk"),
            "burial": burial("burial"),
            "tick": queue("tick"),
            "dead-letters": dead_letters,
        }

    def _wire_up(self, grace: timedelta) -> None:
        shape = self.shape
        sqs = self._sqs()
        self.provider = Provider(self)
        self.statements = Statements(
            client=cast(Any, FakeDynamoDb(self.wire, self.table, hidden_rows=shape.hidden_rows)),
            table="jobs",
            new_id=self.new_id,
            clock=self.clock,
            pause=lambda seconds: self.kernel.wait(int(seconds * 1000)),
            dice=self.rng.random,
        )
        self.jobs = DynamoJobStore(statements=self.statements, lanes=shape.lanes)
        self.hints = SqsHints(client=sqs, queue_url="work")
        self.letters = SqsLetters(client=self._sqs(tries=1), queue_url="burial")
        self.ticks = SqsTicks(client=sqs, queue_url="tick")
        self.refusals = {name: SqsRefusal(client=sqs, queue_url=name) for name in ("work", "bulk", "burial")}
        self.devices, self.notifications, self.recipients = (
            FakeDeviceStore(),
            FakeNotificationStore(),
            FakeRecipientStore(),
        )
        apps: Any = self._unsteady("apps", FakeAppStore(an_app(), an_app(app_id="bank")))
        devices: Any = self._unsteady("devices", self.devices)
        notifications: Any = self._unsteady("notifications", self.notifications)
        recipients: Any = self._unsteady("recipients", self.recipients)
        guard = Guard(
            pusher=self.provider,
            flow=cast(Any, self._unsteady("flow", FakeFlow())),
            clock=self.clock,
            dice=self.rng.random,
            open_after=shape.breaker_after,
            on_change=self._breaker,
            on_fault=lambda _error: None,
        )
        retry = RetryPolicy(schedule=listed([timedelta(seconds=span) for span in SPANS_S]))
        self.engine = Engine(
            store=self.jobs,
            hints=self.hints,
            letters=self.letters,
            attempter=PushAttempter(
                apps=apps,
                devices=devices,
                recipients=recipients,
                inbox=cast(Any, self._unsteady("inbox", Entries(self, FakeInbox()))),
                notifications=notifications,
                pusher=Overheard(self, guard),
                dice=self.rng.random,
                spread=timedelta(minutes=10),
                on_fault=self._fault,
                on_alarm=lambda *_: None,
            ),
            clock=self.clock,
            dice=self.rng.random,
            new_id=self.new_id,
            policy=Policy(retry=retry, lease=shape.lease, grace=grace),
            least_time=timedelta(seconds=10),
        )
        spread = timedelta(seconds=5)
        dead_lanes = [rows.dead_lane(shard) for shard in range(rows.DEAD_LANES)]
        lanes = Lanes(engine=self.engine, jobs=self.jobs, clock=self.clock, shuffle=self._shuffled, page=shape.page)
        self.deliver = Deliver(
            engine=self.engine,
            jobs=self.jobs,
            clock=self.clock,
            dice=self.rng.random,
            lanes=lanes,
            pages=cast(Pages, None),  # no audience is sent here
            redrive_spread=spread,
            on_fault=self._fault,
        )
        self.drain = Drain(
            lanes=lanes,
            hand_overs=SqsLanes(client=sqs, queue_url="bulk"),
            jobs=self.jobs,
            letters=self.letters,
            clock=self.clock,
            new_id=self.new_id,
            shuffle=self._shuffled,
            due_lanes=[rows.due_lane(shard) for shard in range(shape.lanes)],
            dead_lanes=dead_lanes,
            page=shape.page,
            burial_check=self.engine.policy.burial_check,
            audiences=Audiences(
                audiences=FakeAudienceStore(),
                pages=FakePages(),
                clock=self.clock,
                on_end=lambda *_: None,
                on_fault=lambda _error: None,
            ),
        )
        self.redrive = Redrive(
            jobs=self.jobs,
            clock=self.clock,
            dice=self.rng.random,
            dead_lanes=dead_lanes,
            max_receive_count=lambda: shape.burial_receives,
            spread=spread,
            on_fault=self._fault,
        )
        self.send = Send(
            apps=apps,
            devices=devices,
            recipients=recipients,
            notifications=notifications,
            jobs=self.jobs,
            hints=self.hints,
            preflight=lambda _content, _app: None,
            clock=self.clock,
            new_id=self.new_id,
            planner=Planner(grace=grace, spread=timedelta(minutes=10)),
            unhinted=lambda _hints: None,
            max_attempts=5,
        )

    def _unsteady(self, name: str, store: object) -> Unsteady:
        return Unsteady(self, name, store)

    def _sqs(self, **said: int) -> Any:
        return FakeSqs(self.wire, self.queues, on_sent=self._on_sent, on_visible=self._poll_soon, **said)

    def clock(self) -> int:
        """The clock of the machine whose turn it is."""
        return self.kernel.now_ms + self.kernel.current.skew_ms

    def _shuffled[T](self, items: Sequence[T]) -> Sequence[T]:
        return self.rng.sample(items, len(items))

    def new_id(self) -> str:
        """Ids in order: as fresh as random ones, and the same for the same seed."""
        self._serial += 1
        return f"id-{self._serial}"

    # --- functions

    def invoke(self, kind: str, work: Callable[[Worker], None], *, then: Callable[[bool], None] | None = None) -> None:
        """Start one invocation; ``then`` is told whether it returned, or died and raised."""
        self._serial += 1
        skew = self.shape.max_skew_ms
        worker = Worker(
            name=f"{kind}-{self._serial}",
            kind=kind,
            born_ms=self.kernel.now_ms,
            skew_ms=self.rng.randint(-skew, skew),
            dies_at_ms=self.kernel.now_ms + _ms(self.shape.timeout),
        )

        def life() -> None:
            returned = False
            try:
                work(worker)
                returned = True
                assert not worker.dead, f"{worker.name} goes on after its death"
                self.watch.on_end(worker, self.table.rows)
            except FAULTS as error:  # fails this invocation, and no more
                self.happened[f"{kind} raised"] += 1
                self.wire.note(f"{worker.name} raised {type(error).__name__}: {error}")
            finally:
                self.wire.note(f"{worker.name} {'returned' if returned else 'did not return'}")
                if not returned:
                    self.watch.pace.died_ms.append(self.kernel.now_ms)
                if then:
                    then(returned)

        self.wire.note(f"{worker.name} starts, skew {worker.skew_ms} ms")
        self.kernel.spawn(worker, life)

    def _deadline_ms(self, worker: Worker) -> int:
        return worker.born_ms + worker.skew_ms + _ms(self.shape.timeout) * 9 // 10

    def _noted(self, worker: Worker, report: Report) -> None:
        for decision in report.decisions:
            self.happened[decision.event] += 1
            if decision.event in ("unclaimed", "unsettled", "unended"):
                self.watch.excused[worker].add(decision.job_id)

    def _fault(self, job_id: JobId, error: Exception) -> None:
        """A fault that a use case contains: of the platform it is expected, of our own it ends the run."""
        self.happened["contained"] += 1
        self.wire.note(f"{self.kernel.current.name} contains {type(error).__name__} of {job_id[:6]}")
        if not isinstance(error, FAULTS):
            self.kernel.stop(error)
            self.kernel.die()

    def _breaker(self, way: Way, event: str) -> None:
        self.happened[f"breaker {event}"] += 1
        self.wire.note(f"{self.kernel.current.name} {event} the breaker of {way}")

    def _worker_of_work(self, worker: Worker, event: Mapping[str, Any], deleted: list[str]) -> None:
        records = records_of(event)
        for message in (json.loads(record.body) for record in records):
            if message["kind"] == "hint":
                self.watch.pace.hops[worker, message["job_id"]].add(message["hops"])
        outcome = self.deliver.deliver(records, deadline_ms=self._deadline_ms(worker))
        self._noted(worker, outcome.report)
        for record, _ in outcome.unreadable:
            self.refusals[record.queue.rsplit(":", 1)[-1]].refuse(record.receipt_handle)
        self.happened["letter revives from work"] += len(outcome.revived)
        deleted += _deleted(event, partial_answer([*outcome.kept, *(record for record, _ in outcome.unreadable)]))
        for record in records:
            message = json.loads(record.body)
            if record.receipt_handle in deleted and message["kind"] == "hint":
                dropped = self.watch.pace.dropped_hint(message, Row(self.table.rows.get(message["job_id"], {})))
                self.watch.hold(Invariant.IN_TIME, not dropped, f"{worker.name} drops a hint that nobody served")

    def _worker_of_burial(self, worker: Worker, event: Mapping[str, Any], deleted: list[str]) -> None:
        outcome = self.redrive.bury(records_of(event))
        for record in [*outcome.refused, *(record for record, _ in outcome.unreadable)]:
            self.refusals["burial"].refuse(record.receipt_handle)
        self.happened["letter given back"] += len(outcome.refused)
        self.happened["letter revives"] += len(outcome.revived)
        kept = [*outcome.refused, *outcome.kept, *(record for record, _ in outcome.unreadable)]
        deleted += _deleted(event, partial_answer(kept))

    def _worker_of_tick(self, worker: Worker, event: Mapping[str, Any], deleted: list[str]) -> None:
        self._drain(worker, scheduled=False)
        deleted += _deleted(event, partial_answer([]))

    def _drain(self, worker: Worker, *, scheduled: bool) -> None:
        drained = self.drain.drain(deadline_ms=self._deadline_ms(worker), hand_over=scheduled)
        self._noted(worker, drained.report)
        self.happened["reburied"] += drained.reburied

    # --- the platform

    def _poll_soon(self, name: str) -> None:
        """Let a queue's mapping look when its next message is to be seen."""
        visible_ms = self.queues[name].next_visible_ms()
        if name == "dead-letters" or visible_ms is None:
            return
        at_ms = max(visible_ms, self.kernel.now_ms) + 1
        known = self._polls.get(name)
        if known is None or at_ms < known or known <= self.kernel.now_ms:
            self._polls[name] = at_ms
            self.kernel.at(at_ms, lambda: self._poll(name, at_ms))

    def _poll(self, name: str, at_ms: int) -> None:
        if self._polls.get(name) != at_ms:
            return
        self._polls.pop(name)
        queue = self.queues[name]
        if name == "burial" and self.kernel.now_ms < NOW_MS + self.shape.burial_read_from_ms:
            self.kernel.at(NOW_MS + self.shape.burial_read_from_ms, lambda: self._poll_soon(name))
            return
        if self._busy[name] >= self.shape.concurrency:
            self.kernel.after(500, lambda: self._poll_soon(name))
            return
        limit = 1 if name == "tick" else self.rng.randint(1, self.shape.batch)
        messages = queue.receive(limit, now_ms=self.kernel.now_ms, rng=self.rng)
        self._poll_soon(name)
        if not messages:
            self._rest()
            return
        if not self.calm and self.rng.random() < self.shape.throttled_pulls:
            self.happened["throttled pull"] += 1  # received, and nobody was there to take them
            return
        work, kind = {
            "burial": (self._worker_of_burial, "redrive"),
            "tick": (self._worker_of_tick, "drain"),
        }.get(name, (self._worker_of_work, "deliver"))
        event = {"Records": [_record(message, name) for message in messages]}
        deleted: list[str] = []
        self._busy[name] += 1

        def then(returned: bool) -> None:
            self._busy[name] -= 1
            for handle in deleted if returned else []:
                if self.calm or self.rng.random() >= self.shape.lost_deletes:
                    queue.delete(handle)
                else:
                    self.happened["lost delete"] += 1
            self._poll_soon(name)
            self._rest()

        self.invoke(kind, lambda worker: work(worker, event, deleted), then=then)

    def _tick_for(self, due_ms: int) -> None:
        """The schedule's next tick that may find something, by the fastest clock; others change nothing."""
        ready_ms = max(due_ms - self.shape.max_skew_ms, self.kernel.now_ms) + 1
        at_ms = NOW_MS - (NOW_MS - ready_ms) // MINUTE * MINUTE
        if self._tick_at is None or at_ms < self._tick_at:
            self._tick_at = at_ms
            self.kernel.at(at_ms, lambda: self._tick(at_ms))

    def _tick(self, at_ms: int) -> None:
        if self._tick_at != at_ms:
            return
        self._tick_at = None
        for _ in range(self.shape.ticks):
            self.invoke("drain", self._scheduled, then=lambda _returned: self._rest())
        # Whatever this tick does not see through, the next one meets.
        self.kernel.after(1, self._next_tick)

    def _next_tick(self) -> None:
        due = [Row(item).due for item in self.table.rows.values() if Row(item).lane]
        due += [due_ms for _, due_ms in self.table.index.values()]
        if due:
            self._tick_for(max(min(due), self.kernel.now_ms))

    def _scheduled(self, worker: Worker) -> None:
        if self.shape.second_ticks:
            self.ticks.leave([timedelta(seconds=30)])
        self._drain(worker, scheduled=True)

    def _replicate(self, show: Callable[[], None]) -> None:
        lag_ms = self.rng.randint(*self.shape.index_lag_ms)
        self.kernel.after(lag_ms, show)

    def prune(self) -> None:
        """What TTL does some day after the instant, and what the dead-letter queue's retention does."""
        dead_letters = self.queues["dead-letters"].messages
        dead_letters[:] = [message for message in dead_letters if message.sent_at_ms > self.kernel.now_ms - 14 * DAY]
        for key, item in list(self.table.rows.items()):
            if 0 < Row(item).number("ttl") < self.kernel.now_ms // 1000:
                self.pruned.add(key)
                self.table.put(key, None)

    def _on_write(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        worker = self.wire.acting
        kind = self.watch.on_write(before, after, worker, self.kernel.now_ms)
        self.happened[f"row: {kind}"] += 1
        self._writes += 1
        if before is not None and after is None:
            self.wire.note(f"{Row(before).text('job_id')[:6]} is deleted")
        if after is not None:
            row = Row(after)
            if act := self._at_writes.pop(self._writes, None):
                act(row.text("job_id"))
            self.wire.note(
                f"{worker.name} {kind} {row.text('job_id')[:6]} {row.status} attempts {row.number('attempts')} "
                f"seq {row.number('settled_seq')}/{row.number('claim_seq')} due in {row.due - self.kernel.now_ms}"
            )
            if row.lane:
                self._tick_for(row.due)

    def _on_sent(self, worker: Worker, queue: str, entry: dict[str, Any], taken: bool) -> None:
        message = json.loads(entry["MessageBody"])
        row = Row(self.table.rows.get(message.get("job_id", ""), {}))
        delay = entry.get("DelaySeconds", 0)
        self.watch.on_sent(worker, queue, message, delay, self.kernel.now_ms, row)
        self.happened[f"{message['kind']} {'sent' if taken else 'refused'}"] += 1

    # --- people

    def order(self, order: Order, *, at_ms: int = 0) -> None:
        """A caller sends at an instant of the run, and again until it is told that it is accepted, or too late."""
        self.watch.causes.orders[order.job_id] = order
        for device, script in order.scripts.items():
            self.provider.scripts[order.job_id, device] = list(script)
            self.provider.keys[push_id_of(order.job_id, DeliveryId(device))] = (order.job_id, device)
            platform = Platform.FCM if device.startswith("fcm") else Platform.APNS
            recipient = a_recipient(order.user, order.app)
            token = f"{order.app}-{order.user}-{device}"
            self.devices.register(
                a_device(device_id=DeviceId(device), recipient=recipient, platform=platform, push_token=token)
            )
        start_ms = NOW_MS + at_ms
        submission = Submission(
            app_id=order.app,
            content=some_content(body="x" * 2_000) if order.large else some_content(),
            targets=[Target(user_id=order.user)],
            notification_id=order.notification_id,
            channel=CHANNEL if order.channel else None,
            transports=frozenset({Transport.PUSH, *([Transport.IN_APP] if order.in_app else [])}),
            expires_at_ms=start_ms + order.deliver_in_ms + order.expires_in_s * 1000,
            deliver_at_ms=start_ms + order.deliver_in_ms,
            max_attempts=order.max_attempts,
        )
        self._people += 1
        self.kernel.at(start_ms, lambda: self._submit(order, submission))

    def _submit(self, order: Order, submission: Submission) -> None:
        refused: list[BadRequest] = []

        def then(returned: bool) -> None:
            if returned:
                self.watch.accepted_jobs.add(order.job_id)
            elif refused:
                self.happened["sent too late"] += 1
            else:
                self.kernel.after(3_000, lambda: self._submit(order, submission))
            self._people -= returned or bool(refused)
            self._rest()

        def work(_worker: Worker) -> None:
            try:
                self.send.send(submission)
            except BadRequest as error:
                refused.append(error)
                raise

        self.invoke("send", work, then=then)

    def person(self, at_ms: int, act: Callable[[], None]) -> None:
        """Somebody acts at an instant of the run."""
        self._people += 1

        def acted() -> None:
            self._people -= 1
            act()
            self._rest()

        self.kernel.at(NOW_MS + at_ms, acted)

    def at_write(self, number: int, after_ms: int, act: Callable[[str], None]) -> None:
        """Let somebody act on a row soon after it was written, as the so many-th write of the run."""
        self._at_writes[number] = lambda job_id: self.kernel.after(after_ms, lambda: act(job_id))

    def cancel(self, job_id: str) -> None:
        """A person cancels one job."""
        self.watch.causes.cancelled.add(job_id)

        def work(_worker: Worker) -> None:
            (done,) = self.jobs.cancel([JobId(job_id)], now_ms=self.clock())
            self.happened["cancelled by a person" if done else "cancelled too late"] += 1

        self.invoke("person", work, then=lambda _returned: self._rest())

    def withdraw(self) -> None:
        """A person withdraws the large notifications: their jobs find no content any more."""
        for ref in list(self.notifications.rows):
            self.notifications.withdraw(ref)
        self.watch.causes.withdrawn = True
        self.happened["withdrawn"] += 1

    def mute(self, order: Order) -> None:
        """A recipient switches the channel's pushes off."""
        self.recipients.put(
            a_recipient(order.user, order.app), Preferences(channels={CHANNEL: {Transport.PUSH: False}})
        )
        if order.channel:
            self.watch.causes.muted.add(order.job_id)
        self.happened["muted"] += 1

    def remove(self, order: Order) -> None:
        """A recipient signs out on one device."""
        device = next(iter(order.scripts))
        self.devices.remove(a_recipient(order.user, order.app), DeviceId(device))
        self.watch.causes.removed.add((order.job_id, device))
        self.happened["device removed"] += 1

    def spoil(self, job_id: str) -> None:
        """A person's script writes nonsense into a pending row."""
        row = self.table.rows.get(job_id)
        if row and Row(row).status == "pending":
            self.happened["spoiled"] += 1
            self.table.rows[job_id] = row | {"attempts": {"S": "many"}}

    def erase(self, job_id: str) -> None:
        """A person erases a row, as the law may ask; not while its send may still be under way, and write it again."""
        row = self.table.rows.get(job_id)
        if row and Row(row).number("created_at") < self.kernel.now_ms - 110_000:
            self.happened["erased"] += 1
            self.watch.erased.add(job_id)
            self.pruned.add(job_id)
            self.table.put(job_id, None)

    def redrive_by_function(self, *job_ids: str) -> None:
        """A person invokes the redrive function; no ids: for whatever is dead."""

        def work(_worker: Worker) -> None:
            wanted = Filter(job_ids=[JobId(job_id) for job_id in job_ids], limit=100)
            self.happened["redriven by function"] += len(self.redrive.redrive(wanted).revived)

        self.invoke("person", work, then=lambda _returned: self._rest())

    def redrive_by_console(self, destination: str | None = None) -> None:
        """A person starts the console's move task on what now lies in the dead-letter queue."""
        dead_letters = self.queues["dead-letters"]
        for message in list(dead_letters.messages):
            said = json.loads(message.body)
            target = destination or message.source
            self.watch.hold(Invariant.DEAD_IS_REDRIVABLE, target is not None, "CouldNotDetermineMessageSource")
            assert target is not None
            if said["kind"] == "letter":
                self._asked(said, destination or "to its source")
            dead_letters.messages.remove(message)
            self.queues[target].take_back(message, now_ms=self.kernel.now_ms)
            self.happened[f"moved by console to {destination or 'its source'}"] += 1
            self._poll_soon(target)

    def _asked(self, letter: Mapping[str, Any], where: str) -> None:
        death = (letter["job_id"], letter["redrives"])
        self.watch.asked.add(death)
        row = Row(self.table.rows.get(death[0], {}))
        sighted = any(sight.startswith(f"{letter['nonce']} ") for sight in row.item.get("sights", {}).get("SS", ()))
        if self.calm and sighted and row.status == "dead" and row.life == death[1]:
            self.watch.redriven[death] = where

    # --- running

    def _rest(self) -> None:
        """Stop once nothing is left to happen soon."""
        if self._people or any(worker.kind != "main" for worker in self.kernel.live if not worker.finished):
            self.kernel.after(1, self._rest_if_quiet)
        else:
            self._rest_if_quiet()

    def _rest_if_quiet(self) -> None:
        soon = self.kernel.now_ms + 12 * HOUR
        quiet = (
            not self._people
            and not any(not worker.finished for worker in self.kernel.live)
            and not any(self.queues[name].messages for name in ("work", "bulk", "burial", "tick"))
            and all(not Row(item).lane or Row(item).due > soon for item in self.table.rows.values())
            and self.table.index == {k: (Row(v).lane, Row(v).due) for k, v in self.table.rows.items() if Row(v).lane}
        )
        if quiet:
            self.kernel.stop()

    def run(self, *, days: float = 2) -> None:
        """Run until all is quiet, for so many days at most, and judge what is left."""
        self.kernel.run(self.kernel.now_ms + int(days * DAY))
        self.judge()

    def judge(self) -> None:
        """Hold the world at rest against the invariants."""
        letters = [
            json.loads(message.body) | {"source": message.source} for message in self.queues["dead-letters"].messages
        ]
        self.watch.at_rest(
            self.table.rows,
            self.table.index,
            [letter for letter in letters if letter["kind"] == "letter"],
            self.kernel.now_ms,
            self.pruned,
        )


def _record(message: Message, queue: str) -> Mapping[str, Any]:
    return {
        "messageId": message.message_id,
        "receiptHandle": message.handle,
        "body": message.body,
        "eventSourceARN": f"arn:aws:sqs:eu-west-1:000000000000:{queue}",
        "attributes": {
            "SentTimestamp": str(message.sent_at_ms),
            "ApproximateReceiveCount": str(message.receive_count),
        },
    }


def _deleted(event: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """What the mapping deletes: all that the answer does not name."""
    kept = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    return [record["receiptHandle"] for record in event["Records"] if record["messageId"] not in kept]


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
