"""The client for asyncio: the same methods, each run in a thread.

Boto3 is synchronous: a call of it would stop the event loop for as long as the function takes. Its clients may be
shared by threads, and an asynchronous SDK would be a second one to trust, so the loop's own pool of threads does it.
A task that is cancelled stops waiting; the call goes on, as one would that has left the machine.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate

from pushlease.client.sync import Pushlease


def _in_thread[**P, T](
    method: Callable[Concatenate[Pushlease, P], T],
) -> "Callable[Concatenate[AsyncPushlease, P], Coroutine[Any, Any, T]]":
    @wraps(method)
    async def awaited(self: "AsyncPushlease", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._pushlease, *args, **kwargs)

    return awaited


class AsyncPushlease:
    """A ``Pushlease`` whose methods are awaited; what they take, answer and raise is the same."""

    def __init__(self, pushlease: Pushlease) -> None:
        self._pushlease = pushlease

    send = _in_thread(Pushlease.send)
    send_audience = _in_thread(Pushlease.send_audience)
    audience_status = _in_thread(Pushlease.audience_status)
    pause_audience = _in_thread(Pushlease.pause_audience)
    resume_audience = _in_thread(Pushlease.resume_audience)
    status = _in_thread(Pushlease.status)
    cancel = _in_thread(Pushlease.cancel)
    register_device = _in_thread(Pushlease.register_device)
    remove_device = _in_thread(Pushlease.remove_device)
    list_devices = _in_thread(Pushlease.list_devices)
    set_preferences = _in_thread(Pushlease.set_preferences)
    get_preferences = _in_thread(Pushlease.get_preferences)
    list_inbox = _in_thread(Pushlease.list_inbox)
    mark_read = _in_thread(Pushlease.mark_read)
    mark_all_read = _in_thread(Pushlease.mark_all_read)
    unread_count = _in_thread(Pushlease.unread_count)
    erase_recipient = _in_thread(Pushlease.erase_recipient)
