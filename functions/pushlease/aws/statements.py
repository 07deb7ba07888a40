"""Conditional writes in batches: BatchExecuteStatement, where each statement stands or fails for itself.

An update is values and named clauses; only where all clauses hold is anything written. Every tagged update carries a
fresh ``claim_id``. A failed condition whose row carries it was our own earlier try, repeated by the SDK after a lost
answer, and counts as written. Throttled statements are repeated here with backoff, and never counted as refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched, count
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from pushlease.errors import StoreUnavailable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchStatementRequestTypeDef, BatchStatementResponseTypeDef

type Value = Mapping[str, Any]  # as the wire has it: {"S": "text"}
type Item = Mapping[str, Any]

BATCH = 25  # statements of one BatchExecuteStatement, keys of one page of reads; DynamoDB's own limit is 25 and 100
TRIES = 6  # of a throttled statement: 50 ms doubling, about 3 s in all, far within a lease
FIRST_PAUSE_S = 0.05

# Errors of a single statement that pass; what they name may have been done all the same.
_PASSING = frozenset(
    {
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "InternalServerError",
        "TransactionConflict",
    }
)

# The same of a whole call.
_PASSING_CALLS = frozenset(
    {
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "InternalServerError",
        "ServiceUnavailable",
    }
)
_UNREAD = (ClientError, BotoCoreError, StoreUnavailable)


@dataclass(frozen=True, slots=True)
class Clause:
    """One named condition of a write, in PartiQL with a mark for each parameter."""

    name: str
    text: str
    parameters: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One conditional write of one row.

    ``values``: attribute to value, None removes it. ``raised``: attributes that rise by one. ``clauses`` must all hold.
    """

    key: str
    clauses: Sequence[Clause]
    values: Mapping[str, Value | None]
    raised: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The clauses held; ``item`` is the row now."""

    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A clause did not hold; ``item`` is the row as it stands, None if there is none."""

    item: Item | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """The row is not shaped as the update needs it: arithmetic on what is no number, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Throttled to the end or out of reach; written or not, the row will tell."""


type Answer = Written | Failed | Malformed | NoAnswer


@dataclass(slots=True, kw_only=True)
class Statements:
    """Reads and conditional writes on one table with the key ``job_id``.

    ``new_id``: a fresh random id a call. ``clock``: epoch ms. ``pause``: waits so many seconds. ``dice``: uniform in
    [0, 1).
    """

    client: DynamoDBClient
    table: str
    new_id: Callable[[], str]
    clock: Callable[[], int]
    pause: Callable[[float], None]
    dice: Callable[[], float]
    throttled: int = 0  # statements that had to be repeated, since ``count_throttled``

    def count_throttled(self) -> int:
        """How many statements had to be repeated since the last count."""
        counted, self.throttled = self.throttled, 0
        return counted

    def update(self, updates: Sequence[Update], *, until_ms: int = 0) -> list[Answer]:
        """One answer an update, in order. Raises nothing: some may have been written before a fault.

        What gets no answer is repeated a few times, or until ``until_ms`` if that is later; then the row is asked.
        """
        ids = [self.new_id() for _ in updates]
        statements = [self._statement(update, id_) for update, id_ in zip(updates, ids, strict=True)]
        answers = self._execute(statements, until_ms=until_ms)
        there = self._read_back([update.key for update, answer in zip(updates, answers, strict=True) if answer is None])
        return [
            Written(item=there[update.key])
            if answer is None and there.get(update.key, {}).get("claim_id") == text(id_)
            else self._answer(update, id_, answer)
            for update, id_, answer in zip(updates, ids, answers, strict=True)
        ]

    def insert(self, items: Sequence[Mapping[str, Any]]) -> list[bool | None]:
        """Whether each item was stored, in order; False where there is one already, None where nobody answered."""
        statements: list[BatchStatementRequestTypeDef] = []
        for item in items:
            marks = ", ".join(f"'{name}': ?" for name in item)
            statements.append(
                {"Statement": f'INSERT INTO "{self.table}" VALUE {{{marks}}}', "Parameters": list(item.values())}
            )
        return [_inserted(answer) for answer in self._execute(statements)]

    def read(self, keys: Sequence[str]) -> dict[str, Item]:
        """The rows that exist, read consistently. Raises ``StoreUnavailable``, or what botocore raises."""
        found: dict[str, Item] = {}
        for chunk in batched(dict.fromkeys(keys), BATCH, strict=False):
            wanted: Any = {self.table: {"Keys": [{"job_id": text(key)} for key in chunk], "ConsistentRead": True}}
            for try_ in range(TRIES):
                answer = self.client.batch_get_item(RequestItems=wanted)
                for item in answer["Responses"].get(self.table, []):
                    found[str(item["job_id"]["S"])] = item
                wanted = answer.get("UnprocessedKeys")
                if not wanted:
                    break
                self._back_off(try_)
            else:
                raise StoreUnavailable(f"rows: still throttled after {TRIES} reads")
        return found

    def _statement(self, update: Update, write_id: str) -> BatchStatementRequestTypeDef:
        words = [f'UPDATE "{self.table}"', 'SET "claim_id" = ?']
        parameters: list[Any] = [text(write_id)]
        words += [f'SET "{name}" = "{name}" + 1' for name in update.raised]
        for name, value in update.values.items():
            if value is None:
                words.append(f'REMOVE "{name}"')
            else:
                words.append(f'SET "{name}" = ?')
                parameters.append(value)
        conditions = ['"job_id" = ?', *(clause.text for clause in update.clauses)]
        words.append(f"WHERE {' AND '.join(conditions)} RETURNING ALL NEW *")
        parameters += [text(update.key), *(value for clause in update.clauses for value in clause.parameters)]
        return {
            "Statement": " ".join(words),
            "Parameters": parameters,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _answer(self, update: Update, write_id: str, answer: BatchStatementResponseTypeDef | None) -> Answer:
        if answer is None:
            return NoAnswer()
        error = answer.get("Error")
        if not error:
            return Written(item=answer.get("Item", {}))
        if error.get("Code") == "ValidationError":
            return Malformed()
        if error.get("Code") != "ConditionalCheckFailed":
            return NoAnswer()
        item: Item | None = error.get("Item") or answer.get("Item")
        if item is None:  # some engines do not show the row that failed a condition
            try:
                item = self.read([update.key]).get(update.key)
            except _UNREAD:
                return NoAnswer()  # the other updates of the batch have answers that must not be lost
        if item is not None and item.get("claim_id") == text(write_id):
            return Written(item=item)
        return Failed(item=item)

    def _read_back(self, keys: Sequence[str]) -> Mapping[str, Item]:
        """The rows whose writes got no answer, as far as they can be read."""
        try:
            return self.read(keys) if keys else {}
        except _UNREAD:
            return {}

    def _execute(
        self, statements: Sequence[BatchStatementRequestTypeDef], *, until_ms: int = 0
    ) -> list[BatchStatementResponseTypeDef | None]:
        """One answer a statement, in order; None where there is none after all tries."""
        answers: list[BatchStatementResponseTypeDef | None] = [None] * len(statements)
        for chunk in batched(range(len(statements)), BATCH, strict=False):
            open_: Sequence[int] = chunk
            for try_ in count():
                if try_:
                    self._back_off(min(try_, TRIES - 1))
                    self.throttled += len(open_)
                try:
                    batch = self.client.batch_execute_statement(Statements=[statements[at] for at in open_])
                except (ClientError, BotoCoreError) as error:
                    # botocore has retried already: only what time may mend is worth more of it.
                    if self.clock() >= until_ms or not _passes(error):
                        break
                    continue
                for at, answer in zip(open_, batch["Responses"], strict=True):
                    answers[at] = None if answer.get("Error", {}).get("Code") in _PASSING else answer
                open_ = [at for at in open_ if answers[at] is None]
                if not open_ or (try_ + 1 >= TRIES and self.clock() >= until_ms):
                    break
        return answers

    def _back_off(self, try_: int) -> None:
        self.pause(FIRST_PAUSE_S * 2**try_ * (0.5 + 0.5 * self.dice()))


def _passes(error: ClientError | BotoCoreError) -> bool:
    """Whether the same call may succeed later; one that DynamoDB refuses as such never will."""
    if isinstance(error, BotoCoreError):
        return True
    code = error.response.get("Error", {}).get("Code", "")
    return code in _PASSING_CALLS or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500


def text(value: str) -> dict[str, str]:
    """A string as the wire has it."""
    return {"S": str(value)}


def number(value: int) -> dict[str, str]:
    """A whole number as the wire has it."""
    return {"N": str(value)}


def _inserted(answer: BatchStatementResponseTypeDef | None) -> bool | None:
    if answer is None:
        return None
    error = answer.get("Error")
    if not error:
        return True
    return False if error.get("Code") == "DuplicateItem" else None
