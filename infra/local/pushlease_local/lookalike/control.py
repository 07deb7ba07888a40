"""Everything a test may ask of running look-alikes, and the same over HTTP/2: `POST /<method>`, arguments as JSON."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

from pushlease_local.lookalike.desk import Link, Outage, Reaction
from pushlease_local.lookalike.listener import Listener
from pushlease_local.lookalike.memory import Memory, Seen
from pushlease_local.lookalike.messages import Accepted, Request, Service, json_answer
from pushlease_local.lookalike.script import ScriptBook, Step
from pushlease_local.lookalike.world import BEARER_CHANGES_ALLOWED, MAX_STREAMS, ApnsKey, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """In-process control; `LookalikeControl` has the same methods for another process.

    Services are "apns-production", "apns-sandbox", "fcm", "oauth", "sts" and "iam".
    """

    world: World
    memory: Memory
    book: ScriptBook
    listeners: Mapping[Service, Listener]

    def script(self, push_token: str, steps: Sequence[Step]) -> None:
        """Replace the script of a push_token; "*" is every other push_token, or "oauth", "sts", "iam"."""
        self.book.write(push_token, steps)

    def outage(self, service: str, mode: Outage) -> None:
        """Answer everything 503, or cut all connections, the coming ones too; "off" ends it."""
        if mode not in {"off", "503", "closed"}:
            raise ValueError(f"mode is {mode!r}, must be off, 503 or closed")
        listener = self.listeners[Service(service)]
        listener.desk.outage = mode
        if mode == "closed":
            listener.cut()

    def goaway(
        self,
        service: str,
        *,
        graceful: bool = True,
        last_stream_id: int | None = None,
        code: int = 0,
        reason: str = "",
    ) -> int:
        """Send GOAWAY on every open connection of a service; returns how many. `reason` goes in as Apple's JSON."""
        data = json.dumps({"reason": reason}).encode() if reason else b""
        connections = tuple(self.listeners[Service(service)].connections)
        for connection in connections:
            connection.go_away(graceful=graceful, last_stream_id=last_stream_id, code=code, data=data)
        return len(connections)

    def expire_bearers(self, provider: Literal["apns", "fcm"]) -> None:
        """Refuse every bearer used so far: APNs says ExpiredProviderToken, FCM 401, until a new one comes."""
        match provider:
            case "apns":
                self.world.apns_bearers_revoked |= self.world.apns_bearers_seen
            case "fcm":
                self.world.access_bearers.clear()
            case _:
                raise ValueError(f"provider is {provider!r}, must be apns or fcm")

    def max_concurrent_streams(self, service: str, limit: int) -> None:
        """Change the stream limit, on open connections too."""
        self.world.max_streams[Service(service)] = limit
        for connection in self.listeners[Service(service)].connections:
            connection.sync_max_streams()

    def bearer_changes_allowed(self, count: int) -> None:
        """How many new bearers an APNs connection may see within 20 minutes."""
        self.world.bearer_changes_allowed = count

    def accepted(self, after: int = 0) -> list[Accepted]:
        """The accepted pushes in order, without the first `after`."""
        return self.memory.accepted[after:]

    def requests(self, after: int = 0) -> list[Seen]:
        """Every request in order, without the first `after`."""
        return self.memory.requests[after:]

    def counts(self) -> dict[str, dict[str, int]]:
        """Requests by service and by how they ended."""
        return self.memory.counts()

    async def wait(self, *, accepted: int = 0, requests: int = 0, within_s: float = 10.0) -> bool:
        """Wait until so many were accepted and asked since the last reset; False when they were not."""
        return await self.memory.wait(accepted=accepted, requests=requests, within_s=within_s)

    def reset(self) -> None:
        """Forget what happened, behave again within the usual limits; what is registered stays."""
        self.memory.clear()
        self.book.clear()
        self.world.apns_bearers_revoked.clear()
        self.bearer_changes_allowed(BEARER_CHANGES_ALLOWED)
        for service in self.listeners:
            self.outage(service, "off")
            self.max_concurrent_streams(service, MAX_STREAMS[service])

    def register_apns_key(
        self,
        *,
        team_id: str,
        key_id: str,
        public_key_pem: str,
        topics: Sequence[str],
        environments: Sequence[str] = ("production", "sandbox"),
    ) -> None:
        """Make a provider key known, for bundle IDs and hosts."""
        self.world.apns_keys[team_id, key_id] = ApnsKey(
            team_id=team_id,
            key_id=key_id,
            public_key_pem=public_key_pem,
            topics=frozenset(topics),
            environments=frozenset(environments),
        )

    def register_project(self, project_id: str) -> None:
        """Make a Firebase project known."""
        self.world.projects.add(project_id)

    def register_service_account(self, *, client_email: str, public_key_pem: str) -> None:
        """Let a service account ask for access bearers."""
        self.world.service_accounts[client_email] = public_key_pem

    def register_federation(
        self, *, audience: str, access_key_id: str, secret_access_key: str, session: str, client_email: str
    ) -> None:
        """Let an AWS role's session be a service account, through a provider of a workload identity pool."""
        self.world.workload_providers.add(audience)
        self.world.aws_keys[access_key_id] = secret_access_key
        self.world.aws_sessions.add(session)
        self.world.impersonated.add(client_email)

    def register_push_token(self, push_token: str, *, environment: str, topic: str) -> None:
        """Tie an APNs push_token to an environment and a topic; elsewhere it is refused from now on."""
        self.world.push_tokens.setdefault(push_token.lower(), set()).add((environment, topic))


class ControlDesk:
    """Serves a `Control` over HTTP/2."""

    outage: Outage = "off"

    def __init__(self, control: Control) -> None:
        self._control = control

    def max_streams(self, link: Link) -> int:  # noqa: ARG002 - all callers are ours
        return 100

    async def react(self, request: Request, link: Link) -> Reaction:  # noqa: ARG002 - stateless
        name = request.path.removeprefix("/")
        if request.method != "POST" or name not in METHODS:
            return Reaction(answer=json_answer(404, {"error": f"no such method: {request.method} {request.path}"}))
        try:
            arguments = json.loads(request.body or b"{}")
            if "steps" in arguments:
                arguments["steps"] = [Step(**step) for step in arguments["steps"]]
            result = getattr(self._control, name)(**arguments)
            if inspect.isawaitable(result):
                result = await result
        except (TypeError, ValueError, KeyError) as fault:
            return Reaction(answer=json_answer(400, {"error": str(fault)}))
        return Reaction(answer=json_answer(200, {"result": _plain(result)}))


METHODS = frozenset(
    name for name, member in vars(Control).items() if inspect.isfunction(member) and not name.startswith("_")
)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [asdict(item) if is_dataclass(item) and not isinstance(item, type) else item for item in value]
    return value
