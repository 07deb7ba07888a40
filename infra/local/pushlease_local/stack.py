"""The template deployed on this machine, with look-alike providers behind it: what the demo and the tests play on.

Time is scaled by the template's own parameters (``SCALED``); no code knows that it runs here.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from pushlease_local.emulator import BUCKET, EmbeddedAws
from pushlease_local.lookalike.client import LookalikeControl

ROOT = Path(__file__).parents[3]
EVENTS = ROOT / "events"
BUILD = ROOT / ".pushlease" / "build"

# Seconds where production has minutes. The lease stays what it must be: the function's timeout and 15 s for clocks.
SCALED: Mapping[str, str] = {
    "FunctionTimeoutS": "10",
    "LeaseS": "26",
    "DispatchMarginS": "1",
    "RetrySchedule": "1 2 3 4",
    "RetryFloorApnsS": "1",
    "RetryFloorFcmS": "1",
    "TickOffsetsS": "4 8 12 16 20 24 28 32 36 40 44 48 52 56",
    "RequestTimeoutS": "5",
    "RedriveSpreadS": "0",
    "WorkConcurrency": "2",
    "BulkConcurrency": "2",
    "SendQueue": "true",
    "SendEventBus": "default",
    "AudienceBucket": BUCKET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running system and the hands that an operator has on it."""

    aws: EmbeddedAws
    clients: Mapping[str, Any]
    outputs: Mapping[str, str]
    providers: LookalikeControl
    lookalike: Mapping[str, Any]

    def invoke(self, function: str, event: object) -> Any:
        """Invoke ``send``, ``registry``, … and return its answer; raises RuntimeError if the function failed."""
        answer = self.clients["lambda"].invoke(
            FunctionName=self.outputs[f"{function.capitalize()}FunctionName"], Payload=json.dumps(event).encode()
        )
        payload = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise RuntimeError(f"{function}: {payload}")
        return payload

    def job(self, job_id: str) -> Mapping[str, Any]:
        """A job's row in plain values."""
        item = self.clients["dynamodb"].get_item(
            TableName=self.outputs["JobsTableName"], Key={"job_id": {"S": job_id}}, ConsistentRead=True
        )
        return {name: _plain(value) for name, value in item.get("Item", {}).items()}

    def log_lines(self) -> list[str]:
        """Everything that the functions and the emulator have logged so far."""
        functions = [value for name, value in self.outputs.items() if name.endswith("FunctionName")]
        lines = [line for function in functions for line in self.aws.function_logs(function)]
        return lines + self.aws.log_file.read_text().splitlines()

    def secrets(self) -> list[str]:
        """The keys that must be in no log."""
        return [self.lookalike["apns"]["key_pem"], self.lookalike["fcm"]["service_account"]["private_key"]]

    def queue(self, name: str) -> str:
        """The URL of ``work``, ``burial``, ``dead-letters``, …"""
        return self.outputs["".join(part.capitalize() for part in name.split("-")) + "QueueUrl"]


@contextmanager
def running(state_dir: Path, *, say: Callable[[str], None] = lambda _: None) -> Iterator[Stack]:
    """The system, deployed and configured as ``events/registry`` says; ends all that it started."""
    with ExitStack() as stack:
        say("starting look-alike APNs and FCM")
        lookalike = stack.enter_context(_lookalike(state_dir / "lookalike"))
        say("starting the embedded AWS")
        aws = stack.enter_context(EmbeddedAws(state_dir / "aws", build_dir=BUILD))
        say("building and deploying the template with the SAM CLI")
        _store_secrets(aws.session(), lookalike)
        outputs = aws.deploy(
            {
                **SCALED,
                "ApnsProductionUrl": lookalike["apns"]["production_url"],
                "ApnsSandboxUrl": lookalike["apns"]["sandbox_url"],
                "FcmUrl": lookalike["fcm"]["url"],
                "ProviderCaFile": lookalike["ca_file"],
            }
        )
        providers = stack.enter_context(LookalikeControl(lookalike["control_url"], lookalike["ca_file"]))
        app = event("registry/configure_app")
        _introduce(providers, app, lookalike)
        session = aws.session()
        clients = {name: session.client(name) for name in ("lambda", "dynamodb", "sqs", "s3", "events")}
        system = Stack(aws=aws, clients=clients, outputs=outputs, providers=providers, lookalike=lookalike)
        say("starting the functions and configuring the demo app")
        # All at once, since each needs a second or two to start. The schedule's own first tick may take a minute.
        first = {
            "registry": app,
            "send": event("send/bad_no_recipient"),
            "deliver": {"Records": []},
            "redrive": {"Records": []},
            "drain": event("drain/tick"),
        }
        with ThreadPoolExecutor(len(first)) as pool:
            list(pool.map(system.invoke, first, first.values()))
        yield system


def register_ada(stack: Stack) -> None:
    """Give the recipient of most events her two devices."""
    for name in ("register_ios", "register_android"):
        stack.invoke("registry", event(f"registry/{name}"))


def event(name: str) -> dict[str, Any]:
    """One of the events below ``events/``."""
    said: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return said


def until[T](what: str, look: Callable[[], T], *, within_s: float = 60.0) -> T:
    """Look until there is something to see; raises TimeoutError naming what was waited for."""
    deadline = time.monotonic() + within_s
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(0.1)
    return seen


@contextmanager
def _lookalike(state_dir: Path) -> Iterator[Mapping[str, Any]]:
    command = [sys.executable, "-m", "pushlease_local.lookalike", "--state-dir", str(state_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not (named := process.stdout.readline()):
                raise RuntimeError("the look-alike providers did not start")
            yield json.loads(Path(named.decode().strip()).read_text())
        finally:
            process.terminate()


def _store_secrets(session: boto3.Session, lookalike: Mapping[str, Any]) -> None:
    secrets = session.client("secretsmanager")
    app = event("registry/configure_app")
    secrets.create_secret(Name=app["apns_production"]["secret"], SecretString=lookalike["apns"]["key_pem"])
    secrets.create_secret(Name=app["fcm"]["secret"], SecretString=json.dumps(lookalike["fcm"]["service_account"]))


def _introduce(providers: LookalikeControl, app: Mapping[str, Any], lookalike: Mapping[str, Any]) -> None:
    """Tell the look-alike APNs of the team and key ids that the events use."""
    key = load_pem_private_key(lookalike["apns"]["key_pem"].encode(), password=None)
    providers.register_apns_key(
        team_id=app["apns_production"]["team_id"],
        key_id=app["apns_production"]["key_id"],
        public_key_pem=key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
        topics=_topics(lookalike),
    )


def _topics(lookalike: Mapping[str, Any]) -> Sequence[str]:
    topics: Sequence[str] = lookalike["apns"]["topics"]
    return topics


def _plain(value: Mapping[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "N":
            return int(inner)
        case "M":
            return {name: _plain(part) for name, part in inner.items()}
        case "L":
            return [_plain(part) for part in inner]
        case _:
            return inner
