"""Virtual time and turn-taking: many workers, one baton, one seed.

Workers are plain synchronous code in threads of their own, of which exactly one runs at a time. Whoever holds the baton
takes the next event off the heap: its own continuation lets it go on without a switch, another worker's hands the baton
over, an action is simply run. Nothing but the heap decides who is next, so a seed is a run.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from builders import NOW_MS


class Killed(BaseException):
    """The worker is dead: a crash, its hard timeout, or the end of the run. Nothing may catch it and go on."""


def closed_gate() -> threading.Lock:
    """A gate that one waits at until another opens it: a bare lock, since a run passes some hundred of them."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class _Runner(threading.Thread):
    """A thread that is lent to one worker after the other."""

    idle: "list[_Runner]" = []  # noqa: RUF012  (one pool for all runs of a process)

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.gate = closed_gate()
        self.work: Callable[[], None] | None = None
        self.start()

    @classmethod
    def lent(cls) -> "_Runner":
        return cls.idle.pop() if cls.idle else cls()

    def run(self) -> None:
        while True:
            self.gate.acquire()
            assert self.work is not None
            self.work()  # returns after the baton is passed on


@dataclass(eq=False, slots=True, kw_only=True)
class Worker:
    """One invocation of a function. ``skew_ms``: how far its clock is ahead; ``dies_at_ms``: its hard timeout.

    ``born_ms``: its start.
    """

    name: str
    kind: str
    skew_ms: int = 0
    born_ms: int = 0
    dies_at_ms: int = 2**60
    dead: bool = False
    finished: bool = False
    runner: _Runner | None = None
    gate: threading.Lock = field(default_factory=lambda: closed_gate())


class Kernel:
    """The clock, the heap of events and the dice of one run."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311  (to be repeated, not to be secret)
        self.now_ms = NOW_MS
        self.main = Worker(name="main", kind="main")
        self.current = self.main
        self.live: set[Worker] = set()
        self.failure: BaseException | None = None
        self._events: list[tuple[int, float, int, Worker | Callable[[], None]]] = []
        self._serial = 0
        self._stopping = False

    def at(self, when_ms: int, what: Callable[[], None] | Worker) -> None:
        """Let an action run, or a worker go on, at an instant; ties are broken by the dice."""
        self._serial += 1
        heappush(self._events, (when_ms, self.rng.random(), self._serial, what))

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        """Let an action run after so many milliseconds."""
        self.at(self.now_ms + delay_ms, what)

    def spawn(self, worker: Worker, work: Callable[[], None]) -> None:
        """Start a worker; it dies at its hard timeout, wherever it then waits."""
        worker.runner = _Runner.lent()
        worker.gate = worker.runner.gate
        worker.runner.work = lambda: self._life(worker, work)
        self.live.add(worker)
        self.at(self.now_ms, worker)

    def wait(self, span_ms: int) -> None:
        """Let time pass for the worker that runs, and others take their turns; raises ``Killed`` at its timeout."""
        me = self.current
        if me.dead:
            raise Killed
        until_ms = self.now_ms + span_ms
        if until_ms >= me.dies_at_ms:
            self.at(max(me.dies_at_ms, self.now_ms), me)
            me.dead = True
        else:
            self.at(until_ms, me)
        self._turn(me)
        if me.dead:
            raise Killed

    def die(self) -> None:
        """Crash the worker that runs."""
        self.current.dead = True
        raise Killed

    def stop(self, failure: BaseException | None = None) -> None:
        """End the run at the next turn."""
        self.failure = self.failure or failure
        self._stopping = True

    def run(self, until_ms: int) -> None:
        """Let events happen until one lies beyond, or somebody stops the run; raises what made it fail."""
        self._stopping = False
        self._until_ms = until_ms
        self._turn(self.main)
        if self.failure:
            raise self.failure

    def close(self) -> None:
        """Kill whoever still waits, so that no thread is left in the middle of something."""
        self._events.clear()
        self._stopping, self._until_ms = False, 2**60
        for worker in self.live:
            worker.dead = True
            self.at(self.now_ms, worker)
        self._turn(self.main)

    def _life(self, worker: Worker, work: Callable[[], None]) -> None:
        try:
            if not worker.dead:
                work()
        except Killed:
            pass
        except BaseException as error:
            self.stop(error)
        worker.finished = True
        self.live.discard(worker)
        assert worker.runner is not None
        _Runner.idle.append(worker.runner)
        self._turn(None)

    def _turn(self, me: Worker | None) -> None:
        """Pass the baton to whom the heap says; returns once it is back."""
        while True:
            following = self._next()
            if following is None:
                continue
            if following is not me:
                self.current = following
                following.gate.release()
                if me is None:
                    return
                me.gate.acquire()
            self.current = me
            return

    def _next(self) -> Worker | None:
        """The worker whose turn it is; None after an action that was run here."""
        if self._stopping or not self._events or self._events[0][0] > self._until_ms:
            return self.main
        when_ms, _, _, what = heappop(self._events)
        self.now_ms = max(self.now_ms, when_ms)
        if isinstance(what, Worker):
            return None if what.finished else what
        try:
            what()
        except BaseException as error:
            self.stop(error)
        return None
