"""The look-alikes as a process of their own, and the control over it."""

import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from pushlease_local.lookalike import LookalikeControl, Step

PUSH_TOKEN = "ab" * 32

pytestmark = pytest.mark.slow  # processes start and end


def start(state_dir: Path, *, parent_pid: int | None = None) -> subprocess.Popen[bytes]:
    parent = [] if parent_pid is None else ["--parent-pid", str(parent_pid)]
    command = [sys.executable, "-m", "pushlease_local.lookalike", "--state-dir", str(state_dir), *parent]
    return subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 - our own module


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def read_state(process: subprocess.Popen[bytes], state_dir: Path) -> dict[str, Any]:
    """Wait for the line that says that it serves, and read what it serves."""
    assert process.stdout is not None
    assert process.stdout.readline().decode().strip() == str(state_dir / "lookalike.json")
    state: dict[str, Any] = json.loads((state_dir / "lookalike.json").read_text())
    return state


@dataclass(frozen=True, kw_only=True)
class Server:
    process: subprocess.Popen[bytes]
    state: dict[str, Any]
    bearer: str
    control: LookalikeControl
    http: httpx.Client

    def push(self, body: bytes = b'{"aps":{"alert":"hi"}}') -> int:
        """Send one push to the sandbox; returns the status."""
        apns = self.state["apns"]
        headers = {"authorization": f"bearer {self.bearer}", "apns-topic": apns["topics"][0]}
        url = f"{apns['sandbox_url']}/3/device/{PUSH_TOKEN}"
        return self.http.post(url, headers=headers, content=body).status_code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    process = start(tmp_path)
    try:
        state = read_state(process, tmp_path)
        apns = state["apns"]
        claims = {"iss": apns["team_id"], "iat": int(time.time())}
        bearer = jwt.encode(claims, apns["key_pem"], "ES256", headers={"kid": apns["key_id"]})
        tls = ssl.create_default_context(cafile=state["ca_file"])
        with (
            LookalikeControl(state["control_url"], state["ca_file"]) as control,
            httpx.Client(http1=False, http2=True, verify=tls) as http,
        ):
            yield Server(process=process, state=state, bearer=bearer, control=control, http=http)
    finally:
        end(process)


def test_the_state_file_holds_what_a_client_needs(server: Server, tmp_path: Path) -> None:
    assert server.state["pid"] == server.process.pid
    assert len(server.state["apns"]["team_id"]) == len(server.state["apns"]["key_id"]) == 10
    assert server.state["fcm"]["service_account"]["token_uri"].endswith("/token")
    assert (tmp_path / "lookalike.json").stat().st_mode & 0o077 == 0
    assert server.push() == 200


def test_the_control_drives_and_reads_another_process(server: Server) -> None:
    control = server.control
    control.script(PUSH_TOKEN, Step(do="accept_then_503"), Step(do="answer", status=410, reason="Unregistered"))
    assert [server.push() for _ in range(3)] == [503, 410, 200]
    assert control.wait(accepted=2, requests=3)
    assert not control.wait(accepted=3, within_s=0.01)
    assert [push.attempt for push in control.accepted()] == [1, 3]
    assert [seen.ending for seen in control.requests(after=1)] == ["410", "200"]
    assert control.counts() == {"apns-sandbox": {"ServiceUnavailable": 1, "Unregistered": 1, "200": 1}}
    control.outage("apns-sandbox", "503")
    assert server.push() == 503
    control.reset()
    assert server.push() == 200
    assert len(control.accepted()) == 1
    assert control.goaway("apns-sandbox") == 1


def test_what_is_registered_over_the_control_counts(server: Server) -> None:
    server.control.register_push_token(PUSH_TOKEN, environment="production", topic="com.example.app")
    assert server.push() == 400
    assert server.control.counts() == {"apns-sandbox": {"BadDeviceToken": 1}}


def test_a_long_list_of_pushes_fits_through_the_flow_control_window(server: Server) -> None:
    body = json.dumps({"aps": {"alert": "x" * 4000}}).encode()
    assert {server.push(body) for _ in range(40)} == {200}
    assert sum(len(push.body["aps"]["alert"]) for push in server.control.accepted()) == 160_000


def test_the_control_refuses_what_it_does_not_understand(server: Server) -> None:
    with pytest.raises(ValueError, match="not a valid Service"):
        server.control.outage("carrier-pigeon", "503")
    with pytest.raises(ValueError, match="must be off, 503 or closed"):
        server.control.outage("fcm", "maybe")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(server: Server, number: signal.Signals) -> None:
    assert server.push() == 200  # an open connection does not keep it
    server.process.send_signal(number)
    assert server.process.wait(timeout=10) == 0


def test_it_ends_with_the_process_that_it_was_started_for(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # ends when told
    process = start(tmp_path, parent_pid=owner.pid)
    try:
        read_state(process, tmp_path)
        owner.communicate(b"\n")
        assert process.wait(timeout=10) == 0
    finally:
        end(process)
        end(owner)
