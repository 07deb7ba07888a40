"""The faults that are raised, in one tree; expected faults are values (``push.outcome``, the ports' answers).

PushleaseError
├── SettingsError       the deployment is misconfigured; names every fault at once
├── BadRequest          what a caller sent breaks a rule; names field, rule and limit
├── Unreadable          a stored row or a message in a queue cannot be parsed
├── StoreUnavailable    a table gave no answer, throttled or out of reach: try again
├── CredentialsError    an app's secret is missing, malformed or refused: becomes ``provider_error``
└── TransportError      no answer from a provider: becomes ``network_error``
"""


class PushleaseError(Exception):
    """The root of everything that this package raises on purpose."""


class SettingsError(PushleaseError):
    """The settings break a rule; the message lists all faults, one a line."""


class BadRequest(PushleaseError):
    """A request breaks a rule: ``field`` is the path within the request, ``rule`` says what holds and its limit."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class Unreadable(PushleaseError):
    """A stored row or a queue's message cannot be parsed, so no retry can help it."""


class StoreUnavailable(PushleaseError):
    """A table gave no answer: written or not, the same call again finds out."""


class CredentialsError(PushleaseError):
    """An app's provider credentials cannot be read, parsed or exchanged; the text never holds the secret.

    ``passing``: whoever exchanges them is ailing or overloaded, and there is nothing to mend.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class TransportError(PushleaseError):
    """A request got no answer; ``unprocessed`` only if the provider provably did not act on it.

    ``untried``: it waited for its turn until its time was up.
    """

    def __init__(self, reason: str, *, unprocessed: bool = False, untried: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unprocessed = unprocessed or untried
        self.untried = untried
