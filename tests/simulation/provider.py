"""APNs and FCM in one: it answers by script, accepts what it answers ``ok``, and remembers that it did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pushlease.codes import Code
from pushlease.errors import StoreUnavailable
from pushlease.jobs.job import job_id_of
from pushlease.push.device import Platform, Recipient
from pushlease.push.outcome import Accepted, NotTried, Refused, Verdict
from pushlease.push.ports import Inbox, Push, Pusher
from simulation.kernel import Worker
from simulation.shape import IN_APP
from simulation.wire import Outcome

if TYPE_CHECKING:
    from simulation.world import World

OK = "ok"
POISON = "poison"  # the push kills its worker

# What a provider may answer, by a name for scripts: a code and its Retry-After in seconds.
ANSWERS: Mapping[str, tuple[Code, int | None]] = {
    "busy": (Code.RATE_LIMITED, None),
    "busy 100": (Code.RATE_LIMITED, 100),
    "busy 1200": (Code.RATE_LIMITED, 1200),
    "busy 7200": (Code.RATE_LIMITED, 7200),
    "reset": (Code.NETWORK_ERROR, None),
    "down": (Code.PROVIDER_ERROR, None),
    "down 60": (Code.PROVIDER_ERROR, 60),
    "gone": (Code.INVALID_TOKEN, None),
    "bad": (Code.REJECTED, None),
    "large": (Code.PAYLOAD_TOO_LARGE, None),
}


class Provider:
    """APNs and FCM in one: answers by script, and remembers what it accepted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.scripts: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.keys: dict[str, tuple[str, str]] = {}
        self.accepted_ms: dict[tuple[str, str], int] = {}  # by the kernel's clock
        self.on_accept: Callable[[tuple[str, str], int], object] = lambda _key, _now_ms: None
        self.outages: list[tuple[Platform, int, int]] = []  # from, until, by the kernel's clock

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        """See ``pushlease.push.ports.Pusher``. A crash or a lost answer may strike between any two pushes."""
        world, kernel = self._world, self._world.kernel
        worker = kernel.current
        world.watch.on_batch(worker)
        started_at = world.clock()

        def perform(outcome: Outcome) -> list[Verdict]:
            whole = outcome in (Outcome.OK, Outcome.SLOW, Outcome.CRASH_AFTER, Outcome.FREEZE)
            reached = len(pushes) if whole else kernel.rng.randint(0, len(pushes))
            verdicts = [self._one(push, worker, started_at, lost=not whole) for push in pushes[:reached]]
            if outcome is Outcome.MURKY:
                kernel.die()
            return verdicts

        verdicts = self._call(perform)
        missing = [Refused(code=Code.NETWORK_ERROR, reason="no answer")] * (len(pushes) - len(verdicts))
        return [*verdicts, *missing]

    def out(self, platform: Platform) -> bool:
        """Whether this one answers nothing but 5xx now."""
        now_ms = self._world.kernel.now_ms
        return any(platform is whose and since <= now_ms < until for whose, since, until in self.outages)

    def _call(self, perform: Callable[[Outcome], list[Verdict]]) -> list[Verdict]:
        """One try: the pusher's own client decides what is repeated, not the SDK. A lost answer is a lost verdict."""
        world, wire, kernel = self._world, self._world.wire, self._world.kernel
        worker = kernel.current
        outcome = wire.faults.draw(worker, "push")
        wire.met["push", outcome] += 1
        if outcome is not Outcome.OK:
            wire.note(f"{worker.name} push: {outcome}")
        if outcome is Outcome.CRASH_BEFORE:
            kernel.die()
        kernel.wait(kernel.rng.randint(*world.shape.latency_ms))
        if outcome is Outcome.FREEZE:
            frozen_ms = wire.freeze(worker)
        if outcome is Outcome.ERROR:
            return []
        verdicts = perform(outcome)
        if outcome is Outcome.FREEZE:
            kernel.wait(frozen_ms)
        if outcome is Outcome.CRASH_AFTER:
            kernel.die()
        kernel.wait(9_000 if outcome is Outcome.SLOW else kernel.rng.randint(*world.shape.latency_ms))
        return verdicts

    def _one(self, push: Push, worker: Worker, started_at: int, *, lost: bool) -> Verdict:
        world = self._world
        key = self.keys[push.push_id]
        claim = world.watch.on_push(key, worker, started_at)
        script = self.scripts[key]
        answer = script.pop(0) if len(script) > 1 else script[0]
        if self.out(push.device.platform):
            answer = "down"
        world.wire.note(f"{worker.name} pushes {key[0][:6]}/{key[1]}: {answer}{', answer lost' if lost else ''}")
        if answer == POISON:
            world.happened["poison"] += 1
            world.watch.on_poison(key[0], worker)
            world.kernel.die()
        world.happened[f"answer: {answer}"] += 1
        if answer == "gone":
            world.watch.causes.gone.add(key)
        if answer == OK:
            self.accepted_ms.setdefault(key, world.kernel.now_ms)
            world.watch.on_accept(key, claim, uncertain=lost)
            self.on_accept(key, world.kernel.now_ms)
            if lost:
                return Refused(code=Code.NETWORK_ERROR, reason="answer lost")
            return Accepted(provider_id=push.push_id)
        code, retry_after_s = ANSWERS[answer]
        retry_after = None if retry_after_s is None else timedelta(seconds=retry_after_s)
        disable = push.device.registered_at_ms + 1 if code is Code.INVALID_TOKEN else None
        return Refused(code=code, reason=answer, retry_after=retry_after, disable_before_ms=disable)


class Overheard:
    """``Pusher`` that lets the invariants hear what another tells the attempt."""

    def __init__(self, world: World, pusher: Pusher) -> None:
        self._world, self._pusher = world, pusher

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        """See ``pushlease.push.ports.Pusher``."""
        world = self._world
        worker, keys = world.kernel.current, world.provider.keys
        verdicts = self._pusher.push(pushes, deadline_ms=deadline_ms)
        told = {keys[push.push_id]: verdict for push, verdict in zip(pushes, verdicts, strict=True)}
        for key in [key for key, verdict in told.items() if isinstance(verdict, NotTried)]:
            world.happened["held back"] += 1
            world.watch.on_held(worker, key)
            del told[key]
        if told:
            world.watch.on_verdicts(worker, {key: _said(verdict) for key, verdict in told.items()}, world.clock())
        return verdicts


class Entries:
    """``Inbox`` that lets the invariants hear what it keeps."""

    def __init__(self, world: World, inbox: Inbox) -> None:
        self._world, self._inbox = world, inbox

    def put(self, recipient: Recipient, *, notification_id: str, content: str, created_at_ms: int, now_ms: int) -> None:
        """See ``pushlease.push.ports.Inbox``."""
        world = self._world
        self._inbox.put(
            recipient,
            notification_id=notification_id,
            content=content,
            created_at_ms=created_at_ms,
            now_ms=now_ms,
        )
        key = job_id_of(recipient.app_id, notification_id, recipient.user_id), IN_APP
        world.watch.on_inbox(world.kernel.current, key, world.clock())


class Unsteady:
    """Any store of ours beside the jobs' own: at times it gives no answer."""

    def __init__(self, world: World, name: str, store: object) -> None:
        self._world, self._name, self._store = world, name, store

    def __getattr__(self, method: str) -> Callable[..., object]:
        def call(*args: object, **said: object) -> object:
            world = self._world
            if world.wire.faults.silent(self._name):
                world.happened[f"{self._name}: no answer"] += 1
                world.watch.pace.starved.add(world.kernel.current)
                raise StoreUnavailable(f"{self._name}: no answer")
            answer: object = getattr(self._store, method)(*args, **said)
            return answer

        return call


def _said(answer: Verdict) -> tuple[str, int | None]:
    """The verdict as an invariant judges it: its code, and the floor in seconds."""
    if isinstance(answer, Refused):
        return answer.code, None if answer.retry_after is None else int(answer.retry_after.total_seconds())
    return OK, None
