"""Control over look-alikes that run in another process; synchronous, for demos and integration tests."""

import ssl
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from pushlease_local.lookalike.desk import Outage
from pushlease_local.lookalike.memory import Seen
from pushlease_local.lookalike.messages import Accepted
from pushlease_local.lookalike.script import Step

CALL_TIMEOUT_S = 10.0  # ours: a local call that takes longer has met a dead server


class LookalikeControl:
    """The methods of `Control`, each one HTTP call. Raises ValueError when the server refuses the arguments."""

    def __init__(self, url: str, ca_file: Path | str) -> None:
        self._http = httpx.Client(
            base_url=url,
            verify=ssl.create_default_context(cafile=ca_file),
            http1=False,
            http2=True,
            timeout=CALL_TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def script(self, push_token: str, *steps: Step) -> None:
        """Replace the script of a push_token; "*" is every other push_token, or "oauth", "sts", "iam"."""
        self._call("script", push_token=push_token, steps=[asdict(step) for step in steps])

    def outage(self, service: str, mode: Outage) -> None:
        self._call("outage", service=service, mode=mode)

    def goaway(
        self, service: str, *, graceful: bool = True, last_stream_id: int | None = None, code: int = 0, reason: str = ""
    ) -> int:
        """Send GOAWAY on every open connection of a service; returns how many."""
        sent = self._call(
            "goaway", service=service, graceful=graceful, last_stream_id=last_stream_id, code=code, reason=reason
        )
        return int(sent)

    def expire_bearers(self, provider: Literal["apns", "fcm"]) -> None:
        self._call("expire_bearers", provider=provider)

    def max_concurrent_streams(self, service: str, limit: int) -> None:
        self._call("max_concurrent_streams", service=service, limit=limit)

    def bearer_changes_allowed(self, count: int) -> None:
        self._call("bearer_changes_allowed", count=count)

    def accepted(self, after: int = 0) -> list[Accepted]:
        return [Accepted(**push) for push in self._call("accepted", after=after)]

    def requests(self, after: int = 0) -> list[Seen]:
        return [Seen(**seen) for seen in self._call("requests", after=after)]

    def counts(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = self._call("counts")
        return counts

    def wait(self, *, accepted: int = 0, requests: int = 0, within_s: float = 10.0) -> bool:
        """Wait until so many were accepted and asked since the last reset; False when they were not."""
        self._http.timeout = CALL_TIMEOUT_S + within_s
        try:
            return bool(self._call("wait", accepted=accepted, requests=requests, within_s=within_s))
        finally:
            self._http.timeout = CALL_TIMEOUT_S

    def reset(self) -> None:
        self._call("reset")

    def register_apns_key(
        self,
        *,
        team_id: str,
        key_id: str,
        public_key_pem: str,
        topics: Sequence[str],
        environments: Sequence[str] = ("production", "sandbox"),
    ) -> None:
        self._call(
            "register_apns_key",
            team_id=team_id,
            key_id=key_id,
            public_key_pem=public_key_pem,
            topics=list(topics),
            environments=list(environments),
        )

    def register_project(self, project_id: str) -> None:
        self._call("register_project", project_id=project_id)

    def register_service_account(self, *, client_email: str, public_key_pem: str) -> None:
        self._call("register_service_account", client_email=client_email, public_key_pem=public_key_pem)

    def register_federation(
        self, *, audience: str, access_key_id: str, secret_access_key: str, session: str, client_email: str
    ) -> None:
        self._call(
            "register_federation",
            audience=audience,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session=session,
            client_email=client_email,
        )

    def register_push_token(self, push_token: str, *, environment: str, topic: str) -> None:
        self._call("register_push_token", push_token=push_token, environment=environment, topic=topic)

    def _call(self, method: str, **arguments: Any) -> Any:
        response = self._http.post(f"/{method}", json=arguments)
        answer = response.json()
        if response.status_code != httpx.codes.OK:
            raise ValueError(answer["error"])
        return answer["result"]
