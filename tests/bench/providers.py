"""CPU and memory of our provider clients, beside httpx's own transport, aioapns and firebase-admin.

    uv run --group bench python tests/bench/providers.py [--pushes 5000] [--rounds 3] [--memory]

All push to one HTTP/2 server over TLS on the loopback, which reads whole bodies: HAProxy if it is installed, else a
small server of Python's, and the run says which. Each client runs in a process of its own, on a warm connection; what
is measured is that process's user and system time, and every answer is checked. The floor is h2load, when installed.
The ratios are what counts: seconds differ from machine to machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

PROJECT, TEAM, KEY, TOPIC = "bench", "TEAMID1234", "KEYID12345", "com.example.shop"
BODY = {"title": "Your parcel is on its way", "body": "It should arrive tomorrow, between nine and eleven."}
STREAMS = 1000  # as Apple's servers have offered

HAPROXY = """
global
    tune.h2.max-concurrent-streams {streams}
defaults
    mode http
    timeout client 60s
    timeout http-request 60s
    option http-buffer-request
frontend push
    bind 127.0.0.1:{port} ssl crt {pem} alpn h2
    http-request return status 200 hdr apns-id "%[req.hdr(apns-id)]" if {{ path_beg /3/device/ }}
    http-request return status 200 content-type application/json file {answer}
"""
# A grant and a message's name at once: whoever asks takes what it knows.
ANSWER = b'{"access_token":"a","expires_in":3600,"name":"projects/bench/messages/1"}'


# ---- The server


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for localhost and its key: alone, and with the key behind it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.fromtimestamp(time.time(), UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca, both = directory / "ca.pem", directory / "server.pem"
    ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    both.write_bytes(ca.read_bytes() + pem_of(key).encode())
    return ca, both


def pem_of(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@contextlib.contextmanager
def server(directory: Path, both: Path) -> Iterator[tuple[str, int]]:
    """Which server, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if haproxy:
        configuration, answer = directory / "haproxy.cfg", directory / "answer.json"
        answer.write_bytes(ANSWER)
        configuration.write_text(HAPROXY.format(port=port, pem=both, streams=STREAMS, answer=answer))
        name = (
            subprocess.run([haproxy, "-v"], capture_output=True, text=True, check=True).stdout.split(" - ")[0].strip()
        )
        command = [haproxy, "-q", "-f", str(configuration)]
    else:
        name = "this script's own server, on h2"
        command = [sys.executable, __file__, "--serve", str(port), str(both)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield name, port
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    """Until somebody listens; ten seconds at most."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


class Answering(asyncio.Protocol):
    """Answers every request with 200 and a message name, once its body is in."""

    def __init__(self) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._ids: dict[int, list[Any]] = {}

    def connection_made(self, transport: Any) -> None:
        from h2.settings import SettingCodes

        self._transport = transport
        self._h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS})
        self._h2.initiate_connection()
        transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        from h2.events import DataReceived, RequestReceived, StreamEnded

        for event in self._h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self._ids[event.stream_id] = [header for header in event.headers or () if header[0] == b"apns-id"]
            elif isinstance(event, DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                ids = self._ids.pop(event.stream_id, [])
                self._h2.send_headers(event.stream_id, [(b":status", b"200"), *ids])
                self._h2.send_data(event.stream_id, b"" if ids else ANSWER, end_stream=True)
        self._transport.write(self._h2.data_to_send())


async def serve(port: int, both: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    context.set_alpn_protocols(["h2"])
    listening = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port, ssl=context)
    await listening.serve_forever()


# ---- The clients: each pushes so many, with so many in flight, and returns how many were accepted

type Client = Callable[[int, int], Awaitable[int]]


def push_token(at: int) -> str:
    return f"{at:064x}"


def ours(port: int, ca: str, platform: str) -> Callable[[int, int], int]:
    """The whole of our path, from the attempt's pushes to their verdicts."""
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
    from pushlease.push.outcome import Accepted
    from pushlease.push.ports import Push

    origin = f"https://localhost:{port}"
    account = {
        "type": "service_account",
        "client_email": "push@bench.example",
        "private_key_id": "1",
        "private_key": pem_of(rsa.generate_private_key(public_exponent=65537, key_size=2048)),
        "token_uri": f"{origin}/token",
    }
    texts = {"apns": pem_of(ec.generate_private_key(ec.SECP256R1())), "fcm": json.dumps(account)}

    class Secrets:
        def get(self, name: str, *, fresh: bool = False) -> str:
            return texts[name]

    class Identity:
        """The account has a key of its own: it is nobody at AWS."""

        def region(self) -> str:
            return ""

        def signed(self, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
            return headers

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    pusher = ProviderPusher(
        apns_production_url=origin,
        apns_sandbox_url=origin,
        fcm_url=origin,
        ca_file=ca,
        request_timeout=timedelta(seconds=60),
        apns_floor=timedelta(0),
        fcm_floor=timedelta(0),
        secrets=Secrets(),
        identity=Identity(),
        clock=now_ms,
    )
    app = App(
        app_id=AppId("shop"),
        apns_production=ApnsCredentials(team_id=TEAM, key_id=KEY, secret="apns"),
        fcm=FcmCredentials(project_id=PROJECT, secret="fcm"),
    )
    content = Content(**BODY)

    def push(many: int, in_flight: int) -> int:
        accepted = 0
        for first in range(0, many, in_flight):
            pushes = [
                Push(
                    push_id=f"0190a5b8-0000-7000-8000-{at:012x}",
                    app=app,
                    device=Device(
                        device_id=DeviceId("phone"),
                        recipient=Recipient(app_id=app.app_id, user_id=UserId(str(at))),
                        platform=Platform(platform),
                        environment=Environment.PRODUCTION,
                        push_token=push_token(at),
                        registered_at_ms=0,
                        topic=TOPIC,
                    ),
                    content=content,
                    collapse_id="n-1",
                    expires_at_ms=now_ms() + 86_400_000,
                )
                for at in range(first, min(first + in_flight, many))
            ]
            verdicts = pusher.push(pushes, deadline_ms=now_ms() + 120_000)
            accepted += sum(isinstance(verdict, Accepted) for verdict in verdicts)
        return accepted

    return push


async def in_flight_at_once(many: int, in_flight: int, one: Callable[[int], Awaitable[bool]]) -> int:
    """So many workers take turns; how many were accepted."""
    numbers = iter(range(many))
    accepted = 0

    async def work() -> None:
        nonlocal accepted
        for at in numbers:
            taken = await one(at)  # before the sum is read, which others add to meanwhile
            accepted += taken

    await asyncio.gather(*(work() for _ in range(in_flight)))
    return accepted


def bare_httpx(port: int, ca: str) -> Callable[[int, int], int]:
    """httpx with its own transport, posting what we post."""
    import httpx

    runner = asyncio.Runner()
    client = httpx.AsyncClient(http2=True, verify=ssl.create_default_context(cafile=ca), timeout=120)
    body = json.dumps({"aps": {"alert": BODY}}, separators=(",", ":")).encode()
    bearer = "bearer " + "a" * 255

    async def one(at: int) -> bool:
        headers = {
            "authorization": bearer,
            "apns-topic": TOPIC,
            "apns-push-type": "alert",
            "apns-priority": "10",
            "apns-id": f"0190a5b8-0000-7000-8000-{at:012x}",
            "apns-collapse-id": "n-1",
        }
        answer = await client.post(f"https://localhost:{port}/3/device/{push_token(at)}", headers=headers, content=body)
        return answer.status_code == 200

    return lambda many, in_flight: runner.run(in_flight_at_once(many, in_flight, one))


def with_aioapns(port: int, ca: str) -> Callable[[int, int], int]:
    """aioapns with its defaults, one connection."""
    from aioapns import APNs, NotificationRequest
    from aioapns.connection import APNsProductionClientProtocol

    APNsProductionClientProtocol.APNS_SERVER = "localhost"
    APNsProductionClientProtocol.APNS_PORT = port
    runner = asyncio.Runner()
    key = pem_of(ec.generate_private_key(ec.SECP256R1()))

    tls = ssl.create_default_context(cafile=ca)
    tls.set_alpn_protocols(["h2"])

    async def make() -> Any:
        return APNs(
            key=key,
            key_id=KEY,
            team_id=TEAM,
            topic=TOPIC,
            use_sandbox=False,
            max_connections=1,
            ssl_context=tls,
        )

    client = runner.run(make())

    async def one(at: int) -> bool:
        request = NotificationRequest(
            device_token=push_token(at),
            message={"aps": {"alert": BODY}},
            notification_id=f"0190a5b8-0000-7000-8000-{at:012x}",
            collapse_key="n-1",
        )
        return bool((await client.send_notification(request)).is_successful)

    return lambda many, in_flight: runner.run(in_flight_at_once(many, in_flight, one))


def with_firebase_admin(port: int, ca: str) -> Callable[[int, int], int]:
    """firebase-admin's asynchronous calls, 500 messages each, which is what one takes."""
    os.environ["SSL_CERT_FILE"] = ca  # noqa: TID251  (the one way to tell the httpx inside it)
    import firebase_admin
    from firebase_admin import credentials, messaging
    from google.oauth2.credentials import Credentials

    messaging._MessagingService.FCM_URL = f"https://localhost:{port}/v1/projects/{{0}}/messages:send"

    class Known(credentials.Base):
        def get_credential(self) -> Any:
            return Credentials("a" * 200)

    app = firebase_admin.initialize_app(Known(), {"projectId": PROJECT})
    runner = asyncio.Runner()

    async def push(many: int, in_flight: int) -> int:
        accepted, size = 0, min(in_flight, 500)
        for first in range(0, many, size):
            messages = [
                messaging.Message(notification=messaging.Notification(**BODY), token=push_token(at))
                for at in range(first, min(first + size, many))
            ]
            accepted += (await messaging.send_each_async(messages, app=app)).success_count
        return accepted

    return lambda many, in_flight: runner.run(push(many, in_flight))


CLIENTS: dict[str, Callable[[int, str], Callable[[int, int], int]]] = {
    "pushlease APNs": lambda port, ca: ours(port, ca, "apns"),
    "pushlease FCM": lambda port, ca: ours(port, ca, "fcm"),
    "httpx": bare_httpx,
    "aioapns": with_aioapns,
    "firebase-admin": with_firebase_admin,
}


# ---- Measuring


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measured(name: str, port: int, ca: str, pushes: int, in_flight: int) -> dict[str, float]:
    """In the client's own process: CPU ms and wall ms per 1,000 pushes, on a warm connection."""
    push = CLIENTS[name](port, ca)
    checked(push(in_flight, in_flight), in_flight, name)
    cpu, wall = cpu_s(), time.perf_counter()
    checked(push(pushes, in_flight), pushes, name)
    return {"cpu_ms": (cpu_s() - cpu) / pushes * 1e6, "wall_ms": (time.perf_counter() - wall) / pushes * 1e6}


def remembered(port: int, ca: str) -> dict[str, float]:
    """Our resident memory after 50,000 and after 200,000 APNs pushes on one connection."""
    push = CLIENTS["pushlease APNs"](port, ca)
    checked(push(50_000, 1000), 50_000, "pushlease APNs")
    after_50 = resident_mb()
    checked(push(150_000, 1000), 150_000, "pushlease APNs")
    return {"after_50": after_50, "after_200": resident_mb()}


def checked(accepted: int, wanted: int, name: str) -> None:
    if accepted != wanted:
        raise RuntimeError(f"{name}: {accepted} of {wanted} pushes were accepted")


def in_its_own_process(*arguments: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", *map(str, arguments)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return answer


def floor(port: int, pushes: int, in_flight: int, directory: Path) -> float | None:
    """h2load's CPU ms per 1,000, None where it is not installed."""
    h2load = shutil.which("h2load")
    if h2load is None:
        return None
    body = directory / "body.json"
    body.write_text(json.dumps({"aps": {"alert": BODY}}))
    command = [h2load, "-n", str(pushes), "-c", "1", "-m", str(in_flight), "-t", "1", "-d", str(body)]
    command += ["-H", "authorization: bearer " + "a" * 255, f"https://localhost:{port}/3/device/{push_token(1)}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / pushes * 1e6


def table(port: int, ca: str, pushes: int, rounds: int, directory: Path) -> None:
    shown: dict[tuple[str, int], float] = {}
    print("| client | in flight | CPU ms per 1,000 | pushes a second and core | of httpx's |")
    print("|---|--:|--:|--:|--:|")
    for in_flight in (100, 1000):
        for name in ("httpx", *(name for name in CLIENTS if name != "httpx")):
            if name == "firebase-admin" and in_flight > 500:
                continue
            runs = [in_its_own_process(name, port, ca, pushes, in_flight) for _ in range(rounds)]
            shown[name, in_flight] = cpu = statistics.median(run["cpu_ms"] for run in runs)
            share = cpu / shown["httpx", in_flight]
            print(f"| {name} | {in_flight} | {cpu:.0f} | {1_000_000 / cpu:,.0f} | {share:.2f} |", flush=True)
        if (least := floor(port, pushes, in_flight, directory)) is not None:
            print(f"| h2load (the floor) | {in_flight} | {least:.1f} | {1_000_000 / least:,.0f} | |", flush=True)
    apns = {in_flight: shown["pushlease APNs", in_flight] for in_flight in (100, 1000)}
    print()
    print(f"our APNs path: {apns[100] / shown['httpx', 100]:.2f} of httpx's, at most 0.20 wanted")
    print(f"our APNs path: {apns[100] / shown['aioapns', 100]:.2f} of aioapns's, at most 0.60 wanted")
    print(f"1,000 streams: {apns[1000] / apns[100]:.2f} of what 100 cost, at most 1.15 wanted")


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--serve"]:
        asyncio.run(serve(int(arguments[1]), arguments[2]))
        return
    if arguments[:1] == ["--measure"]:
        name, port, ca, *counts = arguments[1:]
        answer = measured(name, int(port), ca, *map(int, counts)) if counts else remembered(int(port), ca)
        print(json.dumps(answer))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pushes", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="measure memory instead, over 200,000 pushes")
    wanted = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        ca, both = write_certificate(directory)
        with server(directory, both) as (name, port):
            print(f"server: {name}\n", flush=True)
            if wanted.memory:
                memory = in_its_own_process("memory", port, ca)
                grown = memory["after_200"] - memory["after_50"]
                print(f"{memory['after_50']:.1f} MB after 50,000 pushes, {memory['after_200']:.1f} MB after 200,000")
                print(f"grown by {grown:.1f} MB, at most 5 wanted")
            else:
                table(port, str(ca), wanted.pushes, wanted.rounds, directory)


if __name__ == "__main__":
    main(sys.argv[1:])
