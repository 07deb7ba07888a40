"""Puts the look-alikes together: makes credentials, registers them, opens the ports."""

import datetime as dt
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from pushlease_local.lookalike.apns import Apns
from pushlease_local.lookalike.control import Control, ControlDesk
from pushlease_local.lookalike.credentials import (
    ApnsCredentials,
    Federation,
    ServiceAccount,
    new_apns_credentials,
    new_authority,
    new_federation,
    new_service_account,
)
from pushlease_local.lookalike.desk import ProviderDesk
from pushlease_local.lookalike.fcm import Fcm
from pushlease_local.lookalike.federation import Iam, Sts
from pushlease_local.lookalike.listener import Listener
from pushlease_local.lookalike.memory import Memory
from pushlease_local.lookalike.messages import Provider, Service
from pushlease_local.lookalike.oauth import OAuth
from pushlease_local.lookalike.script import ScriptBook
from pushlease_local.lookalike.world import World

PROVIDERS: Mapping[Service, Provider] = {
    Service.APNS_PRODUCTION: Apns(environment="production"),
    Service.APNS_SANDBOX: Apns(environment="sandbox"),
    Service.FCM: Fcm(),
    Service.OAUTH: OAuth(),
    Service.STS: Sts(),
    Service.IAM: Iam(),
}


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookalike:
    """Running look-alikes: where they are, whom they know, and the control over them."""

    urls: Mapping[Service, str]
    control_url: str
    ca_pem: str
    apns: ApnsCredentials
    service_account: ServiceAccount
    federation: Federation
    control: Control

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        *,
        topics: Sequence[str] = ("com.example.app",),
        project_id: str = "pushlease-local",
        clock: Callable[[], int] = wall_clock_ms,
    ) -> AsyncIterator[Self]:
        """Serve on free loopback ports until the block ends; one team, one project, registered and ready.

        `clock` gives UNIX ms and judges bearers and answers; TLS certificates follow the real one.
        """
        world, memory, book = World(), Memory(), ScriptBook()
        authority = new_authority(dt.datetime.fromtimestamp(time.time(), dt.UTC))
        desks = {
            service: ProviderDesk(service, provider, world=world, memory=memory, book=book, clock=clock)
            for service, provider in PROVIDERS.items()
        }
        listeners = {service: Listener(desk) for service, desk in desks.items()}
        control = Control(world=world, memory=memory, book=book, listeners=listeners)
        async with AsyncExitStack() as stack:

            async def opened(listener: Listener) -> str:
                stack.push_async_callback(listener.close)
                return await listener.open(authority.server_tls)

            urls = {service: await opened(listener) for service, listener in listeners.items()}
            world.token_uri = f"{urls[Service.OAUTH]}/token"
            yield cls(
                urls=urls,
                control_url=await opened(Listener(ControlDesk(control))),
                ca_pem=authority.ca_pem,
                apns=_known_apns_key(control, topics),
                service_account=_known_project(control, project_id, world.token_uri),
                federation=_known_federation(control, project_id, urls),
                control=control,
            )

    def client_tls(self) -> ssl.SSLContext:
        """A client's TLS context that trusts these servers."""
        return ssl.create_default_context(cadata=self.ca_pem)

    def describe(self) -> dict[str, Any]:
        """Everything that a client in another process needs, as JSON; the keys in it are worthless elsewhere."""
        return {
            "control_url": self.control_url,
            "apns": {
                "production_url": self.urls[Service.APNS_PRODUCTION],
                "sandbox_url": self.urls[Service.APNS_SANDBOX],
                "team_id": self.apns.team_id,
                "key_id": self.apns.key_id,
                "key_pem": self.apns.key_pem,
                "topics": list(self.apns.topics),
            },
            "fcm": {
                "url": self.urls[Service.FCM],
                "project_id": self.service_account.json["project_id"],
                "service_account": self.service_account.json,
                "external_account": self.federation.json,
            },
            "aws": {
                "access_key_id": self.federation.access_key_id,
                "secret_access_key": self.federation.secret_access_key,
                "session": self.federation.session,
            },
        }


def _known_apns_key(control: Control, topics: Sequence[str]) -> ApnsCredentials:
    apns = new_apns_credentials(topics)
    control.register_apns_key(
        team_id=apns.team_id, key_id=apns.key_id, public_key_pem=apns.public_key_pem, topics=apns.topics
    )
    return apns


def _known_project(control: Control, project_id: str, token_uri: str) -> ServiceAccount:
    account = new_service_account(project_id, token_uri)
    control.register_project(project_id)
    control.register_service_account(client_email=account.json["client_email"], public_key_pem=account.public_key_pem)
    return account


def _known_federation(control: Control, project_id: str, urls: Mapping[Service, str]) -> Federation:
    federation = new_federation(project_id, sts_url=urls[Service.STS], iam_url=urls[Service.IAM])
    control.register_federation(
        audience=federation.json["audience"],
        access_key_id=federation.access_key_id,
        secret_access_key=federation.secret_access_key,
        session=federation.session,
        client_email=f"push@{project_id}.iam.gserviceaccount.com",
    )
    return federation
