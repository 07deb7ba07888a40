"""Reads the price of the store's writes off DynamoDB's own answers.

In a batch of statements the emulator counts no index writes. So each statement is translated to the single call that it
stands for (PutItem, UpdateItem), whose ConsumedCapacity it reports whole: table and index.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

_RAISED = re.compile(r'SET "(\w+)" = "\1" \+ 1')
_SET = re.compile(r'SET "(\w+)" = \?')
_REMOVE = re.compile(r'REMOVE "(\w+)"')


class Metered:
    """A DynamoDB client that sums up what its writes cost in ``units``, and keeps each in ``bill``."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.bill: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @property
    def units(self) -> float:
        return sum(self.bill)

    def update_item(self, **call: Any) -> Any:
        return self._billed(self._client.update_item, call)

    def put_item(self, **call: Any) -> Any:
        return self._billed(self._client.put_item, call)

    def batch_execute_statement(self, *, Statements: Sequence[Mapping[str, Any]]) -> Any:  # noqa: N803 (boto3's name)
        return {"Responses": [self._statement(said["Statement"], said["Parameters"]) for said in Statements]}

    def _billed(self, write: Any, call: Mapping[str, Any]) -> Any:
        answer = write(**call, ReturnConsumedCapacity="INDEXES")
        self.bill.append(answer["ConsumedCapacity"]["CapacityUnits"])
        return answer

    def _statement(self, text: str, parameters: Sequence[Any]) -> Any:
        if insert := re.fullmatch(r'INSERT INTO "([\w-]+)" VALUE \{(.*)\}', text):
            names = re.findall(r"'(\w+)': \?", insert[2])
            item = dict(zip(names, parameters, strict=True))
            self.put_item(TableName=insert[1], Item=item, ConditionExpression="attribute_not_exists(job_id)")
            return {}
        table, changes, where = re.fullmatch(
            r'UPDATE "([\w-]+)" (.*) WHERE "job_id" = \? AND (.*) RETURNING ALL NEW \*', text
        ).groups()  # type: ignore[union-attr]
        left = iter(parameters)
        values: dict[str, Any] = {}

        def marked(words: str) -> str:
            def mark(_: re.Match[str]) -> str:
                values[f":p{len(values)}"] = next(left)
                return f":p{len(values) - 1}"

            return re.sub(r'"(\w+)"', r"#\1", re.sub(r"\?", mark, words)).replace("[", "(").replace("]", ")")

        raised = [f"#{name} = #{name} + :one" for name in _RAISED.findall(changes)]
        sets = [marked(f'"{name}" = ?') for name in _SET.findall(changes)]
        key = next(left)
        condition = marked(where)
        if raised:
            values[":one"] = {"N": "1"}
        removed = [f"#{name}" for name in _REMOVE.findall(changes)]
        removals = [f"REMOVE {', '.join(removed)}"] if removed else []
        names = dict.fromkeys(re.findall(r"#(\w+)", " ".join([*raised, *sets, *removed, condition])))
        try:
            answer = self.update_item(
                TableName=table,
                Key={"job_id": key},
                UpdateExpression=" ".join([f"SET {', '.join(raised + sets)}", *removals]),
                ConditionExpression=condition,
                ExpressionAttributeNames={f"#{name}": name for name in names},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            return {"Error": {"Code": "ConditionalCheckFailed", "Item": error.response.get("Item")}}
        return {"Item": answer["Attributes"]}


def size_of(item: Mapping[str, Any]) -> int:
    """An item's size as DynamoDB bills it: names, values, 3 bytes a map or list and 1 an element of it."""
    return sum(len(name.encode()) + _value(value) for name, value in item.items())


def _value(value: Mapping[str, Any]) -> int:
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(inner.encode())
        case "N":
            return (len(inner.lstrip("-").replace(".", "").strip("0") or "0") + 1) // 2 + 1
        case "BOOL":
            return 1
        case "SS":
            return sum(len(text.encode()) for text in inner)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value(part) for name, part in inner.items())
        case _:
            raise ValueError(f"no job row holds a value of type {kind}")
