"""The clients that boto3 would make, and everything that can happen to a call on its way.

A call is tried as often as botocore's standard mode would: an error of the service or a lost answer is repeated as it
was, so that what is done twice must be known again by the code that asked for it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError

from simulation.dynamodb import Refused, Table
from simulation.kernel import Kernel, Worker
from simulation.sqs import MAX_DELAY_S, Queue, entry_fault

SDK_TRIES = 3  # as pushlease.aws.clients sets it; once for letters
CONFLICT = 0.15  # how often somebody else gets a turn between two statements of a batch


class Outcome(StrEnum):
    """What happens to one try of one call."""

    OK = "ok"
    ERROR = "error, not done"
    LOST_ANSWER = "done, but error"
    LATE = "done later than the client waits"
    SLOW = "slow"
    THROTTLED = "some statements throttled"
    MURKY = "some statements done, but error"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    FREEZE = "frozen past its lease"


UNHEARD = frozenset({Outcome.LOST_ANSWER, Outcome.LATE})
BATCH_ONLY = frozenset({Outcome.THROTTLED, Outcome.MURKY})


class Faults(Protocol):
    """Decides what happens to a try."""

    def draw(self, worker: Worker, call: str) -> Outcome: ...

    def silent(self, store: str) -> bool: ...


class Wire:
    """Carries calls. ``before_call(worker, name)`` is told of each, ``on_shown`` of rows in answers that arrive.

    ``frozen``: who was.
    """

    def __init__(
        self, kernel: Kernel, faults: Faults, *, latency_ms: tuple[int, int], freeze_ms: tuple[int, int]
    ) -> None:
        self.kernel = kernel
        self.faults = faults
        self.latency_ms = latency_ms
        self.freeze_ms = freeze_ms
        self.before_call: Callable[[Worker, str, Any], None] = lambda _worker, _name, _what: None
        self.acting = kernel.main  # whose call is being performed, dead or alive
        self.met: Counter[tuple[str, Outcome]] = Counter()
        self.frozen: set[Worker] = set()
        self.unanswered: set[Worker] = set()  # who had a statement fail for good
        self.unsent: set[Worker] = set()  # who had a message refused
        self.on_shown: Callable[[Worker, Any], None] = lambda _worker, _item: None
        self.trace: list[str] = []

    def call(self, name: str, perform: Callable[[Outcome], Any], *, what: Any = None, tries: int = SDK_TRIES) -> Any:
        """One call as the SDK makes it. Raises what botocore raises, or ``Killed``."""
        kernel, worker = self.kernel, self.kernel.current
        if worker.dead:
            kernel.wait(0)
        self.before_call(worker, name, what)
        for try_ in range(tries):
            if try_:
                kernel.wait(100 * 2**try_)
            outcome = self.faults.draw(worker, name)
            self.met[name, outcome] += 1
            if outcome is not Outcome.OK:
                self.note(f"{worker.name} {name}: {outcome}")
            if outcome is Outcome.CRASH_BEFORE:
                kernel.die()
            self._travel(worker, outcome)
            if outcome is Outcome.LATE:
                kernel.after(kernel.rng.randint(1, 90_000), lambda: self._perform_late(worker, perform))
                kernel.wait(5_000)
            elif outcome is not Outcome.ERROR:
                answer = self._perform(worker, perform, outcome)
            if outcome is Outcome.CRASH_AFTER:
                kernel.die()
            kernel.wait(self._latency())
            if outcome not in (Outcome.ERROR, Outcome.LOST_ANSWER, Outcome.LATE):
                if isinstance(answer, Refused):
                    raise _client_error(answer, name)
                return answer
        if name == "batch_execute_statement":
            self.unanswered.add(worker)
        if name.startswith("send"):
            self.unsent.add(worker)
        if kernel.rng.random() < 0.5:
            raise ReadTimeoutError(endpoint_url="https://nowhere.invalid")
        raise _client_error(Refused("InternalServerError"), name)

    def note(self, line: str) -> None:
        """Add to the trace."""
        self.trace.append(f"{self.kernel.now_ms % 10**9:>9} {line}")

    def freeze(self, worker: Worker) -> int:
        """Let a worker's timeout stand still for a while, as its whole machine does; for how long."""
        span_ms = self.kernel.rng.randint(*self.freeze_ms)
        self.frozen.add(worker)
        worker.dies_at_ms += span_ms
        return span_ms

    def _travel(self, worker: Worker, outcome: Outcome) -> None:
        if outcome is Outcome.FREEZE:
            self.kernel.wait(self.freeze(worker))
        self.kernel.wait(4_000 if outcome is Outcome.SLOW else self._latency())

    def _perform(self, worker: Worker, perform: Callable[[Outcome], Any], outcome: Outcome) -> Any:
        self.acting = worker
        try:
            return perform(outcome)
        except Refused as refused:
            return refused

    def _perform_late(self, worker: Worker, perform: Callable[[Outcome], Any]) -> None:
        self.acting = worker
        try:
            perform(Outcome.LATE)
        except Refused:
            return

    def _latency(self) -> int:
        return self.kernel.rng.randint(*self.latency_ms)


class FakeDynamoDb:
    """The DynamoDB client, as far as the job store uses it."""

    def __init__(self, wire: Wire, table: Table, *, hidden_rows: float) -> None:
        self._wire = wire
        self._table = table
        self._hidden_rows = hidden_rows  # how often a failed condition does not show its row

    def batch_execute_statement(self, *, Statements: Sequence[Any]) -> Any:  # noqa: N803  (boto3's names)
        def perform(outcome: Outcome) -> Any:
            if not 1 <= len(Statements) <= 25:
                raise Refused("ValidationException")
            rng, answers = self._wire.kernel.rng, list[Any]()
            acting = self._wire.acting
            for at, statement in enumerate(Statements):
                struck = outcome in BATCH_ONLY and rng.random() < 0.5
                if struck and outcome is Outcome.THROTTLED:
                    answers.append({"Error": {"Code": "ThrottlingError"}})
                    continue
                if at and outcome is not Outcome.LATE and rng.random() < CONFLICT:
                    self._wire.kernel.wait(1)
                    self._wire.acting = acting
                answer = self._execute(statement)
                if not struck and outcome not in UNHEARD and "Item" in (shown := answer.get("Error", answer)):
                    self._wire.on_shown(acting, shown["Item"])
                answers.append({"Error": {"Code": "InternalServerError"}} if struck else answer)
            return {"Responses": answers}

        return self._wire.call("batch_execute_statement", perform, what=Statements)

    def batch_get_item(self, *, RequestItems: Any) -> Any:  # noqa: N803
        def perform(outcome: Outcome) -> Any:
            keys = [key["job_id"]["S"] for key in RequestItems[self._table.name]["Keys"]]
            if not 1 <= len(keys) <= 100 or len(set(keys)) != len(keys):
                raise Refused("ValidationException")
            kept = keys[: len(keys) // 2] if outcome is Outcome.THROTTLED else keys
            left = [{"job_id": {"S": key}} for key in keys if key not in kept]
            found = [dict(self._table.rows[key]) for key in kept if key in self._table.rows]
            for item in found if outcome not in UNHEARD else ():
                self._wire.on_shown(self._wire.acting, item)
            unprocessed = {self._table.name: {"Keys": left, "ConsistentRead": True}} if left else {}
            return {"Responses": {self._table.name: found}, "UnprocessedKeys": unprocessed}

        return self._wire.call("batch_get_item", perform)

    def query(
        self,
        *,
        TableName: str,  # noqa: N803
        IndexName: str,  # noqa: N803
        KeyConditionExpression: str,  # noqa: N803
        ExpressionAttributeValues: Any,  # noqa: N803
        Limit: int,  # noqa: N803
        ExclusiveStartKey: Any = None,  # noqa: N803
    ) -> Any:
        assert (TableName, IndexName) == (self._table.name, "due")
        assert KeyConditionExpression == "lane = :lane AND due_at <= :now"
        lane, until = ExpressionAttributeValues[":lane"]["S"], int(ExpressionAttributeValues[":now"]["N"])
        start = (int(ExclusiveStartKey["due_at"]["N"]), ExclusiveStartKey["job_id"]["S"]) if ExclusiveStartKey else None

        def perform(_outcome: Outcome) -> Any:
            page = self._table.query(lane, until, Limit, start)
            return {"Items": [{"job_id": {"S": key}, "due_at": {"N": str(due)}} for due, key in page]}

        return self._wire.call("query", perform)

    def update_item(
        self,
        *,
        TableName: str,  # noqa: N803
        Key: Any,  # noqa: N803
        UpdateExpression: str,  # noqa: N803
        ConditionExpression: str,  # noqa: N803
        ExpressionAttributeNames: Any,  # noqa: N803
        ExpressionAttributeValues: Any,  # noqa: N803
    ) -> Any:
        assert TableName == self._table.name

        def perform(_outcome: Outcome) -> Any:
            self._table.update(
                Key["job_id"]["S"],
                UpdateExpression,
                ConditionExpression,
                ExpressionAttributeNames,
                ExpressionAttributeValues,
            )
            return {}

        return self._wire.call("update_item", perform, what=UpdateExpression)

    def _execute(self, statement: Any) -> Any:
        try:
            item = self._table.statement(statement["Statement"], statement["Parameters"])
        except Refused as refused:
            hidden = self._hidden_rows and self._wire.kernel.rng.random() < self._hidden_rows
            shown = {"Item": dict(refused.item)} if refused.item and not hidden else {}
            return {"Error": {"Code": refused.code, **shown}}
        return {"Item": dict(item)} if item else {}


class FakeSqs:
    """The SQS client, sending side. ``tries``: 1 for the client that must not repeat."""

    def __init__(
        self,
        wire: Wire,
        queues: dict[str, Queue],
        *,
        on_sent: Callable[[Worker, str, dict[str, Any], bool], None],
        on_visible: Callable[[str], None],
        tries: int = SDK_TRIES,
    ) -> None:
        self._wire = wire
        self._queues = queues
        self._on_sent = on_sent
        self._on_visible = on_visible
        self._tries = tries

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Any]) -> Any:  # noqa: N803
        def perform(outcome: Outcome) -> Any:
            if fault := entry_fault(Entries):
                raise Refused(fault)
            failed: list[Any] = []
            for entry in Entries:
                delay = entry.get("DelaySeconds", 0)
                taken = isinstance(delay, int) and 0 <= delay <= MAX_DELAY_S
                if outcome is Outcome.THROTTLED and self._wire.kernel.rng.random() < 0.5:
                    taken = False
                self._on_sent(self._wire.acting, QueueUrl, entry, taken)
                if taken:
                    self._queues[QueueUrl].send(entry["MessageBody"], delay_s=delay, now_ms=self._wire.kernel.now_ms)
                else:
                    self._wire.unsent.add(self._wire.acting)
                    failed.append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
            self._on_visible(QueueUrl)
            return {"Failed": failed} if failed else {}

        return self._wire.call(f"send to {QueueUrl}", perform, what=Entries, tries=self._tries)

    def change_message_visibility(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        ReceiptHandle: str,  # noqa: N803
        VisibilityTimeout: int,  # noqa: N803
    ) -> Any:
        assert VisibilityTimeout == 0

        def perform(_outcome: Outcome) -> Any:
            if not self._queues[QueueUrl].make_visible(ReceiptHandle, now_ms=self._wire.kernel.now_ms):
                raise Refused("MessageNotInflight")
            self._on_visible(QueueUrl)
            return {}

        return self._wire.call("change_message_visibility", perform, what=QueueUrl)


def _client_error(refused: Refused, name: str) -> ClientError:
    return ClientError({"Error": {"Code": refused.code, "Message": refused.code}}, name)
