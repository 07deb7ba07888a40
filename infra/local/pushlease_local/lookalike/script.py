"""The book of misbehaviour: for each push_token, the steps that its next accepted requests meet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Deed = Literal[
    "accept",  # nothing wrong; with delay_ms, a slow answer
    "answer",  # refuse: `status` and `reason`, or a raw `body`
    "silence",  # never answer
    "reset",  # RST_STREAM with `code`; the push was not taken
    "goaway",  # GOAWAY below this stream, then close: provably not processed
    "hang_up",  # cut the TCP connection; the push was not taken
    "accept_then_503",  # take the push, then say that it failed
    "accept_then_reset",  # take the push, then RST_STREAM with `code`
    "accept_then_hang_up",  # take the push, then cut the TCP connection
]
CANCEL = 8  # RFC 9113 §7: an error code of RST_STREAM that says nothing about processing; 7 is REFUSED_STREAM
ANYBODY = "*"  # scripts filed under it serve every push_token without a script of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens to a request that would otherwise be accepted.

    A request that fails the provider's own checks meets those and uses up no step. `times` None means always.
    `delay_ms` holds the response back; the acceptance is recorded before it, as the worse case for a client that gives
    up. `body` replaces the provider's error format: a JSON value, or a string sent as it is. Raises ValueError for an
    unknown deed, or for an answer without a status.
    """

    do: Deed
    times: int | None = 1
    delay_ms: int = 0
    status: int | None = None
    reason: str = ""
    timestamp_ms: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    code: int = CANCEL

    def __post_init__(self) -> None:
        if self.do not in get_args(Deed):
            raise ValueError(f"do is {self.do!r}, must be one of {', '.join(get_args(Deed))}")
        if self.do == "answer" and self.status is None:
            raise ValueError("status is missing: an answer needs one")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times is {self.times}, must be 1 or more, or null for always")

    @property
    def accepts(self) -> bool:
        return self.do.startswith("accept")


class ScriptBook:
    """Steps by push_token, handed out in order; when they run out the push_token behaves."""

    def __init__(self) -> None:
        self._steps: dict[str, list[tuple[Step, int | None]]] = {}

    def write(self, target: str, steps: Sequence[Step]) -> None:
        """Replace the script of a push_token (`ANYBODY` for all), or of `oauth`, `sts`, `iam`; empty clears it."""
        self._steps[target] = [(step, step.times) for step in steps]

    def clear(self) -> None:
        self._steps.clear()

    def next(self, target: str) -> Step:
        """Take the next step for a push_token that is about to be accepted."""
        pages = self._steps.get(target) or self._steps.get(ANYBODY)
        if not pages:
            return Step(do="accept")
        step, left = pages[0]
        if left is None:
            return step
        if left > 1:
            pages[0] = (step, left - 1)
        else:
            pages.pop(0)
        return step
