"""What the look-alikes remember: every accepted push, every request and how it ended; and a signal when that grows."""

import asyncio
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from pushlease_local.lookalike.messages import Accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request. `ending` is the status as text, or the deed that left it without one: silence, reset, goaway …

    `reason` is the provider's word for the refusal, empty when there is none; `accepted` says whether the push was
    taken, whatever the client was told. `bearer` tells bearers apart: they are numbered from 1 as they come, 0 is none.
    """

    service: str
    target: str
    attempt: int
    ending: str
    reason: str
    accepted: bool
    at_ms: int
    bearer: int = 0


class Memory:
    """Grows until `clear`; lists keep the order of arrival."""

    def __init__(self) -> None:
        self.accepted: list[Accepted] = []
        self.requests: list[Seen] = []
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._bearers: dict[bytes, int] = {}  # by digest: what is shown to tests and people is no credential
        self._grown = asyncio.Condition()

    def arrive(self, service: str, target: str) -> int:
        """Count a request for a push_token; returns its attempt number, from 1."""
        self._attempts[service, target] += 1
        return self._attempts[service, target]

    def bearer(self, authorization: str | None) -> int:
        """The number of the bearer in an authorization header."""
        if not authorization:
            return 0
        digest = hashlib.sha256(authorization.encode()).digest()
        return self._bearers.setdefault(digest, len(self._bearers) + 1)

    async def end(self, seen: Seen, accepted: Accepted | None) -> None:
        """Remember how a request ended, and the push if it was taken."""
        self.requests.append(seen)
        if accepted is not None:
            self.accepted.append(replace(accepted, attempt=seen.attempt))
        async with self._grown:
            self._grown.notify_all()

    def counts(self) -> dict[str, dict[str, int]]:
        """Requests by service, then by reason where there was one, else by ending."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for seen in self.requests:
            counts[seen.service][seen.reason or seen.ending] += 1
        return {service: dict(endings) for service, endings in counts.items()}

    async def wait(self, *, accepted: int, requests: int, within_s: float) -> bool:
        """Wait until that many are remembered in all; False when the time is over first."""
        try:
            async with asyncio.timeout(within_s), self._grown:
                await self._grown.wait_for(lambda: len(self.accepted) >= accepted and len(self.requests) >= requests)
        except TimeoutError:
            return False
        return True

    def clear(self) -> None:
        self.accepted.clear()
        self.requests.clear()
        self._attempts.clear()
