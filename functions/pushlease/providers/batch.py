"""Sends a batch of pushes over one line: workers, deadlines, remedies. Speaks no provider's language itself."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from pushlease.codes import Code
from pushlease.errors import BadRequest, CredentialsError, TransportError
from pushlease.providers.http import Request, Response
from pushlease.providers.http2 import Connection
from pushlease.providers.meaning import Circumstances
from pushlease.providers.recent import Windows
from pushlease.providers.transport import Line
from pushlease.push.outcome import Accepted, NotTried, Refused, Remedy, Scope, Verdict
from pushlease.push.ports import Push

# A batch: where more are in doubt, they share a payload, and the first probes tell of it.
PROBES = 3


class Oversized(BadRequest):
    """A push grew beyond what its provider takes: its verdict has a code of its own."""


class Dialect(Protocol):
    """How one provider is spoken to, with one set of credentials."""

    async def bearer(self, *, timeout_s: float) -> str:
        """Raises ``CredentialsError`` or ``TransportError`` if there is none."""
        ...

    async def refresh(self, *, timeout_s: float) -> None:
        """Renew a bearer that is near its end while ``bearer`` serves it on; raises nothing."""
        ...

    def refused(self, bearer: str) -> None:
        """The provider holds ``bearer`` to be stale: get another next time."""
        ...

    def request(self, push: Push, *, bearer: str) -> Request:
        """Raises ``BadRequest`` for a push that must not be sent."""
        ...

    def probe(self, push: Push, *, bearer: str) -> Request | None:
        """A request that sends nothing and tells whether the push token is good, if the provider has such."""
        ...

    def interpret(self, response: Response, circumstances: Circumstances) -> Verdict: ...

    def remedy(self, verdict: Verdict, *, bearer: str) -> Remedy:
        """What to cure before the push goes out again; told of every answer to ``bearer``, as it comes."""
        ...

    def calls_push_token_bad(self, response: Response) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What came back for one push, to be read once the whole batch is in."""

    response: Response
    sent_at_ms: int
    now_ms: int
    push_token_bad: bool = False  # as a probe found it


class Batch:
    """Sends batches through one dialect over one line, one batch at a time.

    ``windows`` are the app's recent answers, shared by all lines. ``clock`` gives epoch ms.
    """

    def __init__(
        self,
        dialect: Dialect,
        line: Line,
        *,
        windows: Windows,
        clock: Callable[[], int],
        request_timeout: timedelta,
    ) -> None:
        self._dialect, self._line, self._windows, self._clock = dialect, line, windows, clock
        self._request_timeout_s = request_timeout.total_seconds()
        self._probes_left, self._counted = 0, True

    async def push(self, pushes: Sequence[Push], *, deadline_ms: int, counted: bool = True) -> list[Verdict]:
        """One verdict a push, in order, by ``deadline_ms``; raises nothing for one push's sake.

        ``counted``: whether the answers count among the app's recent ones.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (deadline_ms - self._clock()) / 1000
        results: list[_Answer | Refused | NotTried] = [NotTried()] * len(pushes)
        self._probes_left, self._counted = PROBES, counted
        todo = iter(enumerate(pushes))
        await self._line.begin()

        async def work() -> None:
            for index, push in todo:
                results[index] = await self._one(push, until)

        # A fixed set of workers: a task a push under a semaphore costs several times the processor time.
        async with asyncio.TaskGroup() as workers:
            # Beside the pushes and no longer than the batch: whatever outlived it would freeze with the process.
            workers.create_task(self._dialect.refresh(timeout_s=min(self._request_timeout_s, until - loop.time())))
            for _ in range(min(self._line.streams, len(pushes))):
                workers.create_task(work())
        await self._line.close_retired()
        # Read only now, so that a burst of bad push tokens is seen before it costs the first device.
        return [
            self._interpret(push, result) if isinstance(result, _Answer) else result
            for push, result in zip(pushes, results, strict=True)
        ]

    async def close(self) -> None:
        await self._line.close()

    async def _one(self, push: Push, until: float) -> _Answer | Refused | NotTried:
        try:
            answer, remedy = await self._try(push, until)
            if remedy.retry_now and until > asyncio.get_running_loop().time():
                again, _ = await self._try(push, until)
                return answer if isinstance(again, NotTried) else again
            if remedy.probe and isinstance(answer, _Answer) and self._probes_left:
                self._probes_left -= 1
                return await self._probed(push, answer, until)
        except Exception as error:  # ours, or of a library: this push's alone
            return Refused(code=Code.INTERNAL_ERROR, reason=type(error).__name__)
        return answer

    async def _probed(self, push: Push, answer: _Answer, until: float) -> _Answer:
        """The answer, and whether the provider refuses the push token itself; without a clear word it does not."""
        loop = asyncio.get_running_loop()
        left_s = min(self._request_timeout_s, until - loop.time())
        try:
            request = self._dialect.probe(push, bearer=await self._dialect.bearer(timeout_s=left_s))
            if request is None:
                return answer
            response, _ = await self._line.send(request, until=loop.time() + left_s)
        except (CredentialsError, TransportError):
            return answer
        convicted = replace(answer, response=response, push_token_bad=True)
        verdict = self._interpret(push, convicted)
        bad = isinstance(verdict, Refused) and verdict.code is Code.INVALID_TOKEN
        return replace(answer, push_token_bad=bad)

    async def _try(self, push: Push, until: float) -> tuple[_Answer | Refused | NotTried, Remedy]:
        """Send once, and cure the line and the bearer of what the answer complains about."""
        left_s = min(self._request_timeout_s, until - asyncio.get_running_loop().time())
        if left_s <= 0:
            return NotTried(), Remedy()
        try:
            bearer = await self._dialect.bearer(timeout_s=left_s)
            request = self._dialect.request(push, bearer=bearer)
        except CredentialsError as error:
            return credentials_fault(error), Remedy()
        except TransportError as error:
            return _fault(f"no bearer: {error.reason}"), Remedy()
        except BadRequest as error:
            code = Code.PAYLOAD_TOO_LARGE if isinstance(error, Oversized) else Code.REJECTED
            return Refused(code=code, reason=str(error)[:200]), Remedy()
        sent_at_ms = self._clock()
        try:
            response, connection = await self._line.send(
                request, until=min(until, asyncio.get_running_loop().time() + self._request_timeout_s)
            )
        except TransportError as error:
            return NotTried() if error.untried else _fault(error.reason), Remedy()
        answer = _Answer(response=response, sent_at_ms=sent_at_ms, now_ms=self._clock())
        return answer, self._heed(push, answer, bearer, connection)

    def _heed(self, push: Push, answer: _Answer, bearer: str, connection: Connection) -> Remedy:
        verdict = self._interpret(push, answer)
        bad = self._dialect.calls_push_token_bad(answer.response)
        if self._counted and (bad or isinstance(verdict, Accepted)):
            self._windows.of(_pair(push)).record(bad=bad, now_ms=answer.now_ms)
        remedy = self._dialect.remedy(verdict, bearer=bearer)
        if remedy.new_bearer:
            self._dialect.refused(bearer)
        if remedy.reconnect:
            self._line.retire(connection)
        return remedy

    def _interpret(self, push: Push, answer: _Answer) -> Verdict:
        recent = self._windows.of(_pair(push)).recent(now_ms=answer.now_ms)
        circumstances = Circumstances(
            registered_at_ms=push.device.registered_at_ms,
            sent_at_ms=answer.sent_at_ms,
            now_ms=answer.now_ms,
            recent=recent,
            push_token_bad=answer.push_token_bad,
        )
        return self._dialect.interpret(answer.response, circumstances)


def credentials_fault(error: CredentialsError) -> Refused:
    """The verdict on every push that credentials of ours have failed; it strikes all devices, so it alarms.

    Not so if whoever exchanges them is ailing: that is an outage like the provider's own.
    """
    if error.passing:
        return Refused(code=Code.PROVIDER_ERROR, reason=str(error)[:200])
    return Refused(code=Code.PROVIDER_ERROR, reason=str(error)[:200], scope=Scope.CREDENTIALS, alarm=True)


def _fault(reason: str) -> Refused:
    return Refused(code=Code.NETWORK_ERROR, reason=reason)


def _pair(push: Push) -> tuple[str, str, str]:
    return (push.app.app_id, push.device.platform, push.device.environment)
