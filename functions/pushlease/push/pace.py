"""Keeps pushes within what a provider takes: a project's quota, and a device's share of collapsible messages.

What is held back comes back as ``NotTried`` and spends no attempt.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pushlease.push.device import Platform
from pushlease.push.flow import WINDOW_MS, quota_share
from pushlease.push.outcome import NotTried, Verdict
from pushlease.push.ports import FlowStore, Push, Pusher

# Of each window an environment sends so many without asking, so that a small deployment never pays for the question.
# A hundred environments at that stay within a sixth of Google's quota.
UNCOUNTED = 100
HELD_MS = 30_000  # over which what a window did not take is spread

# Google: of collapsible messages a device takes 20 at once, and one more every three minutes.
DEVICE_BURST = 20
DEVICE_REFILL_MS = 180_000
MAX_DEVICES = 10_000  # that one process remembers


@dataclass(slots=True, kw_only=True)
class _Window:
    """What this process sent of a quota's window; ``previous``: the fleet's count of the one before, once asked for."""

    number: int
    sent: int = 0
    previous: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """``Pusher``: what may leave now goes to ``pusher``.

    ``quota``: pushes a minute to a Firebase project, shared by the fleet. A device's share is kept by each process for
    itself: what they overlook together, FCM answers with 429. ``on_fault`` is told of a store that did not answer.
    """

    pusher: Pusher
    flow: FlowStore
    clock: Callable[[], int]
    dice: Callable[[], float]
    quota: int
    on_fault: Callable[[Exception], None]
    _windows: dict[str, _Window] = field(default_factory=dict, init=False)
    _rested_at_ms: dict[str, int] = field(default_factory=dict, init=False)  # when a device's share is whole again

    def push(self, pushes: Sequence[Push], *, deadline_ms: int) -> Sequence[Verdict]:
        """See ``Pusher``."""
        now_ms = self.clock()
        verdicts: dict[int, Verdict] = {}
        projects: dict[str, list[int]] = defaultdict(list)
        for index, push in enumerate(pushes):
            if push.device.platform is not Platform.FCM or push.app.fcm is None:
                continue
            if (until_ms := self._device(push, now_ms)) is not None:
                verdicts[index] = NotTried(until_ms=until_ms)
            else:
                projects[push.app.fcm.project_id].append(index)
        next_ms = (now_ms // WINDOW_MS + 1) * WINDOW_MS
        for project, indices in projects.items():
            for index in indices[self._share(project, len(indices), now_ms) :]:
                verdicts[index] = NotTried(until_ms=next_ms + round(HELD_MS * self.dice()))

        leaving = [index for index in range(len(pushes)) if index not in verdicts]
        answers = self.pusher.push([pushes[index] for index in leaving], deadline_ms=deadline_ms) if leaving else []
        verdicts.update(zip(leaving, answers, strict=True))
        return [verdicts[index] for index in range(len(pushes))]

    def _share(self, project: str, wanted: int, now_ms: int) -> int:
        """How many of the wanted may leave in this window."""
        number = now_ms // WINDOW_MS
        window = self._windows.get(project)
        if window is None or window.number != number:
            window = self._windows[project] = _Window(number=number)
        free = min(max(UNCOUNTED - window.sent, 0), wanted)
        share = free
        if wanted > free:
            share += self._counted(project, window, wanted - free)
        window.sent += share
        return share

    def _counted(self, project: str, window: _Window, wanted: int) -> int:
        quota = f"fcm#{project}"
        try:
            if window.previous is None:
                window.previous = self.flow.reserved(quota, window=window.number - 1)
            before = self.flow.reserve(quota, window=window.number, count=wanted)
            limit = self.quota * WINDOW_MS // 60_000
            share = quota_share(limit, before=before, previous=window.previous, wanted=wanted)
            if share < wanted:  # what is not sent must not count as sent in the next window's ramp
                self.flow.reserve(quota, window=window.number, count=share - wanted)
        except Exception as error:  # a quota that cannot be asked for is the provider's to enforce
            self.on_fault(error)
            return wanted
        return share

    def _device(self, push: Push, now_ms: int) -> int | None:
        """When a device may have another collapsible message, None if it may now."""
        if push.content.collapse_key is None:
            return None
        device = push.device.push_token
        rested_at_ms = max(self._rested_at_ms.pop(device, now_ms), now_ms)
        if rested_at_ms - now_ms > (DEVICE_BURST - 1) * DEVICE_REFILL_MS:
            self._rested_at_ms[device] = rested_at_ms
            return rested_at_ms - (DEVICE_BURST - 1) * DEVICE_REFILL_MS
        self._rested_at_ms[device] = rested_at_ms + DEVICE_REFILL_MS
        if len(self._rested_at_ms) > MAX_DEVICES:
            del self._rested_at_ms[next(iter(self._rested_at_ms))]
        return None
