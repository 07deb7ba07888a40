"""One call of a function, tried a few times where nobody answered: every call of the client's may be repeated.

The SDK's own retries are switched off for the client that is made here, so that tries are counted in one place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Protocol

from pushlease.client.errors import (
    BadAnswer,
    CallFailed,
    Fault,
    FunctionFailed,
    NoAnswer,
    NotInvoked,
    PartlyAccepted,
    Refused,
)
from pushlease.client.requests import encoded
from pushlease.jobs.retry import RetryPolicy, exponential

_CONNECT_S = 3
_READ_S = 70  # longer than a function may take by the template's default, so that its end is heard
_CONNECTIONS = 32  # as many as asyncio.to_thread has threads at most


class LambdaClient(Protocol):
    """What is used of boto3's client of Lambda."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Mapping[str, Any]: ...  # noqa: N803  (AWS's names)


def lambda_client() -> Any:
    """Boto3's client; endpoint, region and credentials come from the environment."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        max_pool_connections=_CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 1},
    )
    # A session of its own: boto3's default one must not be made by two threads at once.
    return boto3.Session().client("lambda", config=config)


def backoff() -> RetryPolicy:
    """0.2 s, 0.4 s, … up to 5 s, half of it by the dice."""
    return exponential(base=timedelta(milliseconds=200), cap=timedelta(seconds=5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoker:
    """Asks functions. ``client`` gives Lambda's client; ``tries`` is how often a call is made at most."""

    client: Callable[[], LambdaClient]
    pause: Callable[[float], None]
    dice: Callable[[], float]
    backoff: RetryPolicy
    tries: int

    def ask(self, function: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a request; raises ``CallFailed``."""
        payload = encoded(request)
        for attempt in count(1):
            try:
                return _answer(function, *self._invoked(function, payload))
            except CallFailed as error:
                if not error.passing or attempt >= self.tries:
                    raise
            self.pause(self.backoff.delay(attempt, dice=self.dice()).total_seconds())
        raise AssertionError("unreachable")

    def _invoked(self, function: str, payload: bytes) -> tuple[bytes, bool]:
        """What came back, and whether the function raised it."""
        from botocore import exceptions as sdk

        try:
            answer = self.client().invoke(FunctionName=function, Payload=payload)
            return answer["Payload"].read(), "FunctionError" in answer
        except sdk.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            passing = status == 429 or status >= 500
            raise (NoAnswer if passing else NotInvoked)(function, code) from error
        except (sdk.ConnectionError, sdk.HTTPClientError, sdk.IncompleteReadError) as error:
            raise NoAnswer(function, type(error).__name__) from error
        except sdk.BotoCoreError as error:
            raise NotInvoked(function, type(error).__name__) from error


def _answer(function: str, payload: bytes, raised: bool) -> Mapping[str, Any]:
    try:
        said = json.loads(payload)
    except ValueError:
        raise BadAnswer(function) from None
    match said:
        case {"errorType": "PartlyAccepted", "errorMessage": str(message)} if raised:
            raise _partly(function, message)
        case _ if raised:
            raise FunctionFailed(function, str(said.get("errorType")) if isinstance(said, dict) else "unknown")
        case {"ok": True}:
            return dict(said)
        case {"ok": False, "errors": [*errors]}:
            raise Refused([_fault(error) for error in errors])
        case _:
            raise BadAnswer(function)


def _partly(function: str, message: str) -> CallFailed:
    try:
        told = json.loads(message)
        return PartlyAccepted(
            notification_id=str(told["notification_id"]),
            indices=[int(at) for at in told["not_accepted"]],
            of=told["of"],
        )
    except (ValueError, TypeError, KeyError):
        return FunctionFailed(function, "PartlyAccepted")


def _fault(said: Any) -> Fault:
    known = said if isinstance(said, dict) else {}
    return Fault(field=str(known.get("field", "request")), rule=str(known.get("rule", "refused")))
