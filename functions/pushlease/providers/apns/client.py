"""APNs as a dialect: joins the protocol, the bearers and the clock."""

from collections.abc import Callable
from datetime import timedelta

from pushlease.providers.apns import protocol
from pushlease.providers.apns.auth import ApnsBearers
from pushlease.providers.batch import Oversized
from pushlease.providers.http import Request, Response
from pushlease.providers.meaning import Circumstances
from pushlease.push.outcome import Accepted, Refused, Remedy, Verdict
from pushlease.push.ports import Push


class Apns:
    """Speaks for one team and key. ``floor``: the least wait after a 5xx; ``clock``: epoch ms."""

    def __init__(self, *, bearers: ApnsBearers, floor: timedelta, clock: Callable[[], int]) -> None:
        self._bearers, self._floor, self._clock = bearers, floor, clock

    async def bearer(self, *, timeout_s: float) -> str:  # noqa: ARG002  (minted here: nothing to wait for)
        return self._bearers.current(now_ms=self._clock())

    async def refresh(self, *, timeout_s: float) -> None:
        """Nothing to do: a bearer is minted in no time."""

    def refused(self, bearer: str) -> None:
        self._bearers.refused(bearer, now_ms=self._clock())

    def request(self, push: Push, *, bearer: str) -> Request:
        ready = protocol.form(push.content)
        if fault := protocol.oversize(ready):
            raise Oversized("content", fault)
        return protocol.request(push, ready, bearer=bearer)

    def probe(self, push: Push, *, bearer: str) -> None:
        """Apple has no request without a push."""

    def interpret(self, response: Response, circumstances: Circumstances) -> Verdict:
        return protocol.interpret(response, circumstances, floor=self._floor)

    def remedy(self, verdict: Verdict, *, bearer: str) -> Remedy:
        now_ms = self._clock()
        match verdict:
            case Accepted():
                self._bearers.proved(bearer, now_ms=now_ms)
            case Refused(reason="InternalServerError") if self._bearers.doubtful(bearer, now_ms=now_ms):
                return Remedy(retry_now=True, new_bearer=True, reconnect=True)
            case Refused(remedy=remedy):
                return remedy
        return Remedy()

    def calls_push_token_bad(self, response: Response) -> bool:
        return protocol.calls_push_token_bad(response)
