"""What the stores of plain rows share: a table that does not answer, and a recipient as a key."""

from collections.abc import Callable
from functools import wraps

from botocore.exceptions import BotoCoreError
from pynamodb.exceptions import PynamoDBConnectionError, TransactWriteError

from pushlease.aws.rows import recipient_key
from pushlease.errors import StoreUnavailable
from pushlease.push.device import AppId, Recipient, UserId


def answered[**P, T](method: Callable[P, T]) -> Callable[P, T]:
    """A method whose table may not answer: it raises ``StoreUnavailable`` then, and nothing of PynamoDB's."""

    @wraps(method)
    def asked(*args: P.args, **said: P.kwargs) -> T:
        try:
            return method(*args, **said)
        except (PynamoDBConnectionError, TransactWriteError, BotoCoreError) as error:
            raise StoreUnavailable(f"{method.__qualname__}: {type(error).__name__}") from error

    return asked


def key_of(recipient: Recipient) -> str:
    """A recipient as a key."""
    return recipient_key(recipient.app_id, recipient.user_id)


def recipient_of(key: str) -> Recipient:
    """The recipient whose key it is."""
    app_id, _, user_id = key.partition("#")
    return Recipient(app_id=AppId(app_id), user_id=UserId(user_id))
