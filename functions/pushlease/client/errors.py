"""What the client raises, in one tree; no text in it is a message's, and no push token's.

PushleaseError
└── CallFailed              a call did not do what it was asked to
    ├── Refused             it breaks rules, all of them named by field; repeating it cannot mend it
    │   └── TooLarge        it has more bytes than Lambda takes, and was not sent
    ├── NotInvoked          AWS refuses the call itself: no such function, no permission, no credentials
    ├── NoAnswer            throttled, timed out or cut off at every try: done or not, the same call again finds out
    ├── FunctionFailed      the function raised; what, is in its log
    ├── BadAnswer           what came back is no answer of this function's: is it the right one?
    └── PartlyAccepted      a send is accepted for some of its recipients; the same call again completes it
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pushlease.client.answers import Job
from pushlease.errors import PushleaseError
from pushlease.push.plan import Target

# What the functions raise where the same call may well succeed a moment later.
_PASSING = frozenset({"StoreUnavailable", "Sandbox.Timedout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One broken rule: ``field`` is the path within the request, ``rule`` says what holds and its limit."""

    field: str
    rule: str


class CallFailed(PushleaseError):
    """A call did not do what it was asked to.

    ``passing``: the same call may succeed a moment later; the client has tried a few times already.
    ``idempotency_key``: the name of the send that failed, the client's own if the caller gave none: a repeat under it
    is the same send.
    """

    passing: bool = False
    idempotency_key: str | None = None


class Refused(CallFailed):
    """A request breaks rules, and this try of it stored nothing; ``faults`` are all that it breaks."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{fault.field}: {fault.rule}" for fault in faults))
        self.faults = tuple(faults)


class TooLarge(Refused):
    """A request has more bytes than Lambda takes; it was not sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__([Fault(field="request", rule=f"has {size} bytes as JSON, at most {limit}: Lambda's limit")])


class NotInvoked(CallFailed):
    """AWS refuses the call itself; ``code`` is AWS's, or the SDK's name for what is missing."""

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"{function}: not invoked: {code}")
        self.code = code


class NoAnswer(CallFailed):
    """Nobody answered, at any try; ``code`` says why the last one failed. What was asked may have been done."""

    passing = True

    def __init__(self, function: str, code: str) -> None:
        super().__init__(f"{function}: no answer: {code}")
        self.code = code


class FunctionFailed(CallFailed):
    """The function raised ``error_type``. Its message stays in the function's log: anything may stand in it."""

    def __init__(self, function: str, error_type: str) -> None:
        super().__init__(f"{function}: raised {error_type}")
        self.error_type = error_type
        self.passing = error_type in _PASSING


class BadAnswer(CallFailed):
    """What came back cannot be read as an answer of this function's."""

    def __init__(self, function: str) -> None:
        super().__init__(f"{function}: no answer of pushlease's; is it the right function?")


class PartlyAccepted(CallFailed):
    """A send is accepted for some of its recipients, or may be, and not known to be for the others.

    ``not_accepted``: those others, and ``indices`` where they stand among the call's ``of`` targets (recipients, then
    devices, each once). ``jobs``: of the calls that were answered whole. ``__cause__``: why the last one was not.
    """

    passing = True

    def __init__(
        self,
        *,
        notification_id: str,
        indices: Sequence[int],
        of: int,
        not_accepted: Sequence[Target] = (),
        jobs: Sequence[Job] = (),
    ) -> None:
        super().__init__(f"{notification_id}: {len(indices)} of {of} are not accepted")
        self.notification_id = notification_id
        self.indices = tuple(indices)
        self.of = of
        self.not_accepted = tuple(not_accepted)
        self.jobs = tuple(jobs)
