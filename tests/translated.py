"""The store's PartiQL statements as the single calls that they stand for (PutItem, UpdateItem).

For DynamoDBs whose PartiQL falls short: one that counts no index writes in a batch, one that has no conditions there.
Only what ``pushlease.aws.statements`` says is understood, and answered in BatchExecuteStatement's own words.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import boto3
from botocore.exceptions import ClientError

_INSERT = re.compile(r'INSERT INTO "([\w-]+)" VALUE \{(.*)\}')
_UPDATE = re.compile(r'UPDATE "([\w-]+)" (.*) WHERE "job_id" = \? AND (.*) RETURNING ALL NEW \*')
_RAISED = re.compile(r'SET "(\w+)" = "\1" \+ 1')
_SET = re.compile(r'SET "(\w+)" = \?')
_REMOVE = re.compile(r'REMOVE "(\w+)"')

# A statement's own errors (API reference, BatchStatementError); all else fails the call, and is raised.
_ERRORS = {
    "ConditionalCheckFailedException": "ConditionalCheckFailed",
    "ValidationException": "ValidationError",
    "ProvisionedThroughputExceededException": "ProvisionedThroughputExceeded",
    "ThrottlingException": "ThrottlingError",
}


class Translated:
    """A DynamoDB client that takes batches of statements, and makes each one call. All other calls pass through."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_item(self, **call: Any) -> Any:
        return self._client.put_item(**call)

    def update_item(self, **call: Any) -> Any:
        return self._client.update_item(**call)

    def batch_execute_statement(self, *, Statements: Sequence[Mapping[str, Any]]) -> Any:  # noqa: N803 (boto3's name)
        assert 1 <= len(Statements) <= 25, "DynamoDB refuses the whole call"
        return {"Responses": [self._response(statement) for statement in Statements]}

    def _response(self, statement: Mapping[str, Any]) -> Any:
        said, parameters = statement["Statement"], statement["Parameters"]
        try:
            if insert := _INSERT.fullmatch(said):
                return self._insert(insert[1], insert[2], parameters)
            update = _UPDATE.fullmatch(said)
            assert update, f"not a statement of the store: {said}"
            on_failure = statement.get("ReturnValuesOnConditionCheckFailure", "NONE")
            return self._update(update[1], update[2], update[3], parameters, on_failure)
        except ClientError as error:
            response: Mapping[str, Any] = error.response
            code, message = response["Error"]["Code"], response["Error"]["Message"]
            if code not in _ERRORS:
                raise
            shown = {"Item": response["Item"]} if "Item" in response else {}
            return {"Error": {"Code": _ERRORS[code], "Message": message, **shown}}

    def _insert(self, table: str, value: str, parameters: Sequence[Any]) -> Any:
        item = dict(zip(re.findall(r"'(\w+)': \?", value), parameters, strict=True))
        try:
            self.put_item(TableName=table, Item=item, ConditionExpression="attribute_not_exists(job_id)")
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return {"Error": {"Code": "DuplicateItem", "Message": "Duplicate primary key exists in table"}}
        return {}

    def _update(self, table: str, changes: str, where: str, parameters: Sequence[Any], on_failure: str) -> Any:
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
        assert not list(left), f"more parameters than marks: {changes}"
        if raised:
            values[":one"] = {"N": "1"}
        removed = [f"#{name}" for name in _REMOVE.findall(changes)]
        removals = [f"REMOVE {', '.join(removed)}"] if removed else []
        names = dict.fromkeys(re.findall(r"#(\w+)", " ".join([*raised, *sets, *removed, condition])))
        answer = self.update_item(
            TableName=table,
            Key={"job_id": key},
            UpdateExpression=" ".join([f"SET {', '.join(raised + sets)}", *removals]),
            ConditionExpression=condition,
            ExpressionAttributeNames={f"#{name}": name for name in names},
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure=on_failure,
        )
        return {"Item": answer["Attributes"]}


def moto_dynamodb() -> Any:
    """A client of moto's DynamoDB, in this process.

    Only this client's requests are answered by moto (``mock_aws`` would take everybody's, and set the environment), and
    none of them leaves the process. Its rows are the process's: a test makes a table of its own.

    Where moto 5.2 is not DynamoDB: no PartiQL with conditions (hence ``Translated``); its conditional writes are not
    atomic between threads; a condition that compares values of two types raises, where DynamoDB's does not hold; the
    index never lags; the consumed capacity is made up.
    """
    from moto.core.botocore_stubber import BotocoreStubber  # most of a second, which most runs need not pay

    answers = BotocoreStubber()
    answers.enabled = True
    session = boto3.Session(aws_access_key_id="moto", aws_secret_access_key="moto", region_name="eu-west-1")
    client: Any = session.client("dynamodb", endpoint_url="https://dynamodb.eu-west-1.amazonaws.com")
    client.meta.events.register_first("before-send.dynamodb", answers)
    return client
