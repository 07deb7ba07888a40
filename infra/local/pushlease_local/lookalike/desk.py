"""Where a request meets its provider's judgement, its script and the memory; knows no frames and no sockets."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from pushlease_local.lookalike.memory import Memory, Seen
from pushlease_local.lookalike.messages import Answer, Binding, Provider, Request, Service
from pushlease_local.lookalike.script import ScriptBook, Step
from pushlease_local.lookalike.world import World

Outage = Literal["off", "503", "closed"]


@dataclass(slots=True, kw_only=True)
class Link:
    """What a desk knows of one connection."""

    binding: Binding | None = None
    proved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What the connection does with a request: `answer`, or none and the step's own deed."""

    answer: Answer | None = None
    deed: Literal["answer", "silence", "reset", "goaway", "hang_up"] = "answer"
    code: int = 0
    delay_ms: int = 0


class Desk(Protocol):
    """What a connection asks."""

    outage: Outage

    def max_streams(self, link: Link) -> int:
        """How many streams the connection may have open now."""
        ...

    async def react(self, request: Request, link: Link) -> Reaction:
        """Decide what becomes of a request."""
        ...


class ProviderDesk:
    """The desk of one provider service."""

    def __init__(
        self,
        service: Service,
        provider: Provider,
        *,
        world: World,
        memory: Memory,
        book: ScriptBook,
        clock: Callable[[], int],
    ) -> None:
        self.outage: Outage = "off"
        self._service = service
        self._provider = provider
        self._world = world
        self._memory = memory
        self._book = book
        self._clock = clock

    def max_streams(self, link: Link) -> int:
        """Apple allows one stream until a bearer has been proved on the connection."""
        limit = self._world.max_streams[self._service]
        proving = self._service in {Service.APNS_PRODUCTION, Service.APNS_SANDBOX}
        return min(limit, 1) if proving and not link.proved else limit

    async def react(self, request: Request, link: Link) -> Reaction:
        """Decide one request and remember it."""
        now_ms = self._clock()
        target = self._provider.target(request)
        attempt = self._memory.arrive(self._service, target)
        if self.outage == "503":
            answer, step = self._unavailable(request), Step(do="accept")
        else:
            answer = self._provider.judge(request, world=self._world, binding=link.binding, now_ms=now_ms)
            self._learn(answer, link)
            step = self._book.next(target) if answer.status == 200 else Step(do="accept")
        if step.accepts and answer.issued is not None:
            world = self._world
            bearers = world.federated_bearers if answer.issued.federated else world.access_bearers
            bearers[answer.issued.bearer] = answer.issued.expires_ms
        reaction = self._perform(step, answer, request)
        if reaction.answer is not None:
            self._learn(reaction.answer, link)
        taken = answer.accepted if step.accepts else None
        seen = Seen(
            service=self._service,
            target=target,
            attempt=attempt,
            ending=str(reaction.answer.status) if reaction.answer else reaction.deed,
            reason=reaction.answer.reason if reaction.answer else "",
            accepted=taken is not None,
            at_ms=now_ms,
            bearer=self._memory.bearer(request.header("authorization")),
        )
        await self._memory.end(seen, taken)
        return reaction

    def _learn(self, answer: Answer, link: Link) -> None:
        link.binding = answer.binding or link.binding
        link.proved = link.proved if answer.bearer_ok is None else answer.bearer_ok
        if answer.binding is not None:
            self._world.apns_bearers_seen.add(answer.binding.bearer)

    def _perform(self, step: Step, answer: Answer, request: Request) -> Reaction:
        match step.do:
            case "accept":
                return Reaction(answer=answer, delay_ms=step.delay_ms)
            case "answer":
                return Reaction(answer=self._scripted(step, request), delay_ms=step.delay_ms)
            case "accept_then_503":
                return Reaction(answer=self._unavailable(request), delay_ms=step.delay_ms)
            case "reset" | "accept_then_reset":
                return Reaction(deed="reset", code=step.code, delay_ms=step.delay_ms)
            case "hang_up" | "accept_then_hang_up":
                return Reaction(deed="hang_up", delay_ms=step.delay_ms)
            case "silence" | "goaway":
                return Reaction(deed=step.do, delay_ms=step.delay_ms)

    def _scripted(self, step: Step, request: Request) -> Answer:
        answer = self._provider.error(
            request, status=step.status or 503, reason=step.reason, timestamp_ms=step.timestamp_ms
        )
        if step.body is not None:
            raw = step.body if isinstance(step.body, str) else json.dumps(step.body)
            answer = replace(answer, body=raw.encode())
        return replace(answer, headers={**answer.headers, **step.headers})

    def _unavailable(self, request: Request) -> Answer:
        word = _UNAVAILABLE.get(self._service, "ServiceUnavailable")
        return self._provider.error(request, status=503, reason=word, timestamp_ms=None)


_UNAVAILABLE = {
    Service.FCM: "UNAVAILABLE",
    Service.IAM: "UNAVAILABLE",
    Service.OAUTH: "temporarily_unavailable",
    Service.STS: "temporarily_unavailable",
}
