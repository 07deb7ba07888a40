"""The pusher on a stage: in front of it the look-alike providers, on a thread of their own, over real TLS."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import boto3

from pushlease.aws.identity import RoleIdentity
from pushlease.errors import CredentialsError
from pushlease.providers.pusher import ProviderPusher
from pushlease.push.device import (
    ApnsCredentials,
    App,
    AppId,
    Device,
    DeviceId,
    Environment,
    FcmCredentials,
    Platform,
    Recipient,
    UserId,
)
from pushlease.push.notification import Content
from pushlease.push.outcome import Refused, Verdict
from pushlease.push.ports import Push
from pushlease_local.lookalike import Lookalike, Service, Step
from pushlease_local.lookalike.control import Control

PROJECT = "pushlease-local"
INSTALL = "fcm:device-1"


@dataclass
class Clock:
    """UNIX ms that a test can move on."""

    ahead_ms: int = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@dataclass
class FakeSecrets:
    """Secrets with a cache: what is written is seen only by a fresh read, once it was read before."""

    written: dict[str, str]
    cached: dict[str, str] = field(default_factory=dict)
    fresh_reads: int = 0

    def get(self, name: str, *, fresh: bool = False) -> str:
        self.fresh_reads += fresh
        if fresh or name not in self.cached:
            if name not in self.written:
                raise CredentialsError(f"secret {name}: cannot be read")
            self.cached[name] = self.written[name]
        return self.cached[name]


class Stage:
    """Look-alikes on a thread of their own, and a pusher set up for them."""

    def __init__(self, lookalike: Lookalike, loop: asyncio.AbstractEventLoop, clock: Clock, ca_file: Path) -> None:
        self.lookalike, self.loop, self.clock, self.ca_file = lookalike, loop, clock, ca_file
        role = lookalike.federation
        self.identity = RoleIdentity(
            session=boto3.Session(
                aws_access_key_id=role.access_key_id,
                aws_secret_access_key=role.secret_access_key,
                aws_session_token=role.session,
                region_name="eu-west-1",
            )
        )
        self.secrets = FakeSecrets(
            {"apns": lookalike.apns.key_pem, "fcm": json.dumps(lookalike.service_account.json), "broken": "no key"}
        )
        key = ApnsCredentials(team_id=lookalike.apns.team_id, key_id=lookalike.apns.key_id, secret="apns")
        self.app = App(
            app_id=AppId("app"),
            apns_production=key,
            apns_sandbox=key,
            fcm=FcmCredentials(project_id=PROJECT, secret="fcm"),
        )
        self.pusher = self.new_pusher()

    def new_pusher(self, request_timeout: timedelta = timedelta(seconds=5)) -> ProviderPusher:
        urls = self.lookalike.urls
        return ProviderPusher(
            apns_production_url=urls[Service.APNS_PRODUCTION],
            apns_sandbox_url=urls[Service.APNS_SANDBOX],
            fcm_url=urls[Service.FCM],
            ca_file=str(self.ca_file),
            request_timeout=request_timeout,
            apns_floor=timedelta(seconds=60),
            fcm_floor=timedelta(seconds=60),
            secrets=self.secrets,
            identity=self.identity,
            clock=self.clock,
        )

    def renew_pusher(self) -> None:
        """As in a new execution environment."""
        self.pusher.close()
        self.pusher = self.new_pusher()

    def control[T](self, act: Callable[[Control], T]) -> T:
        async def there() -> T:
            return act(self.lookalike.control)

        return asyncio.run_coroutine_threadsafe(there(), self.loop).result(timeout=10)

    def script(self, push_token: str, step: Step) -> None:
        self.control(lambda control: control.script(push_token, [step]))

    def apns(self, push_token: str = "ab" * 32, environment: Environment = Environment.PRODUCTION) -> Push:
        return self._push(Platform.APNS, push_token, environment)

    def fcm(self, push_token: str = INSTALL) -> Push:
        return self._push(Platform.FCM, push_token, Environment.PRODUCTION)

    def _push(self, platform: Platform, push_token: str, environment: Environment) -> Push:
        device = Device(
            device_id=DeviceId(push_token[-8:]),
            recipient=Recipient(app_id=self.app.app_id, user_id=UserId("user")),
            platform=platform,
            environment=environment,
            push_token=push_token,
            registered_at_ms=self.clock() - 1000,
            topic="com.example.app" if platform is Platform.APNS else None,
        )
        return Push(
            push_id=str(uuid.uuid4()),
            app=self.app,
            device=device,
            content=Content(title="Hello", body="Grüße"),
            collapse_id="once",
            expires_at_ms=self.clock() + 3_600_000,
        )

    def push(self, *pushes: Push, within_s: float = 30) -> list[Verdict]:
        return list(self.pusher.push(pushes, deadline_ms=self.clock() + int(within_s * 1000)))


def refused(verdict: Verdict) -> Refused:
    assert isinstance(verdict, Refused)
    return verdict
