"""FCM as a dialect: joins the protocol, the bearers and the clock."""

from collections.abc import Callable
from datetime import timedelta

from pushlease.providers.batch import Oversized
from pushlease.providers.fcm import protocol
from pushlease.providers.fcm.auth import FcmBearers
from pushlease.providers.http import Request, Response
from pushlease.providers.meaning import Circumstances
from pushlease.push.outcome import Refused, Remedy, Verdict
from pushlease.push.ports import Push


class Fcm:
    """Speaks for one project. ``floor``: the least wait after a 429 without Retry-After; ``clock``: epoch ms."""

    def __init__(self, *, project_id: str, bearers: FcmBearers, floor: timedelta, clock: Callable[[], int]) -> None:
        self._project_id, self._bearers, self._floor, self._clock = project_id, bearers, floor, clock

    async def bearer(self, *, timeout_s: float) -> str:
        return await self._bearers.current(timeout_s=timeout_s)

    async def refresh(self, *, timeout_s: float) -> None:
        await self._bearers.refresh(timeout_s=timeout_s)

    def refused(self, bearer: str) -> None:
        self._bearers.refused(bearer)

    def request(self, push: Push, *, bearer: str) -> Request:
        ready = protocol.form(push.content)
        if fault := protocol.oversize(ready):
            raise Oversized("content", fault)
        return protocol.request(push, ready, project_id=self._project_id, bearer=bearer, now_ms=self._clock())

    def probe(self, push: Push, *, bearer: str) -> Request:
        return protocol.probe(push.device, project_id=self._project_id, bearer=bearer)

    def interpret(self, response: Response, circumstances: Circumstances) -> Verdict:
        return protocol.interpret(response, circumstances, floor=self._floor)

    def remedy(self, verdict: Verdict, *, bearer: str) -> Remedy:  # noqa: ARG002  (the verdict says it all)
        return verdict.remedy if isinstance(verdict, Refused) else Remedy()

    def calls_push_token_bad(self, response: Response) -> bool:
        return protocol.calls_push_token_bad(response)
