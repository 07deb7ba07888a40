"""Real processes, killed while they work: what was accepted, what was sent and what is recorded agree at the end.

Workers and drains are the functions' own handlers, each in a process of its own (``chaos_worker``), on the embedded AWS
and against the look-alike providers. A killer, whose choices follow from a seed, ends one of them with SIGKILL each
time so many pushes have been accepted: between a provider's answer and the record of it, as often as not.
"""

import hashlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext

# The emulator can be trusted with what is shown on it: the contract suite's own check comes first here, too.
from contract.test_job_store_on_dynamodb import (  # noqa: F401
    client,
    table,
    test_of_many_conditional_writes_at_once_just_one_wins,
)
from pushlease.jobs.job import Delivery, DeliveryStatus, Job, JobId, Status
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
from pushlease.wiring import Parts
from pushlease_local.emulator import EmbeddedAws
from pushlease_local.lookalike import Accepted, LookalikeControl, Step
from pushlease_local.stack import until
from send import handler as send

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEED = 4711
KILLS = 16
PROCESSES = [("deliver", "work")] * 3 + [("deliver", "bulk")] + [("drain", "tick")] * 2

APP = AppId("chaos")
USERS = [UserId(f"user-{at}") for at in range(100)]
NOTIFICATIONS = [f"backlog-{at}" for at in range(20)]
GONE = frozenset({USERS[0], USERS[2]})  # APNs answers 410: their jobs end done, their deliveries failed
TOO_LARGE = frozenset({USERS[4]})  # APNs answers 413: their jobs end dead

# Generous, for a machine that has other work: on an idle one of two cores it is all over in a minute and a half.
PROGRESS_S = 240
END_S = 240

BATCH_IN_HAND = 10  # of a worker by SQS's own limit, of a drain by its setting
SETTINGS = {
    # The shortest lease that the rules allow for this timeout, so that a killed worker's jobs come back soon.
    "FUNCTION_TIMEOUT_S": "6",
    "LEASE_S": "22",
    "DISPATCH_MARGIN_S": "1",
    "REQUEST_TIMEOUT_S": "3",
    "RETRY_SCHEDULE": "1",
    "RETRY_FLOOR_APNS_S": "1",
    "RETRY_FLOOR_FCM_S": "1",
    "TICK_OFFSETS_S": "1",
    "DRAIN_BATCH_SIZE": str(BATCH_IN_HAND),
    "LANES": "4",
    "LANES_EVER": "4",
    "MAX_ATTEMPTS": "10",  # so that no job can be killed to death, and each one's end is known beforehand
}
VISIBILITY_S = "30"  # longer than a batch may take; a killed worker's unclaimed hints come back after it

type Key = tuple[str, str]  # user and notification: one job, with one delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the processes run: their environment, their queues by name, and the providers they send to."""

    env: Mapping[str, str]
    queues: Mapping[str, str]
    providers: LookalikeControl
    parts: Parts


class Processes:
    """The workers and drains; one that is killed is started again."""

    def __init__(self, place: Place, log_file: Path) -> None:
        self._place = place
        self._log_file = log_file
        self._running = [self._start(*process) for process in PROCESSES]
        self.kills = 0

    def kill(self, at: int) -> None:
        """SIGKILL one, wherever it stands, and start another in its place."""
        self._running[at].kill()
        self._running[at].wait()
        self._running[at] = self._start(*PROCESSES[at])
        self.kills += 1

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def _start(self, function: str, queue: str) -> subprocess.Popen[bytes]:
        worker = Path(__file__).with_name("chaos_worker.py")
        command = [sys.executable, str(worker), function, self._place.queues[queue]]
        with self._log_file.open("ab") as log:
            return subprocess.Popen(command, env=self._place.env, stdout=log, stderr=log)  # noqa: S603 - our own file


@pytest.fixture
def place(
    aws: EmbeddedAws, make_table: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Fresh tables, queues and providers, with the app configured; what runs in this process uses them too."""
    session = aws.session()
    sqs, secrets = session.client("sqs"), session.client("secretsmanager")
    queues = {
        name: sqs.create_queue(QueueName=f"chaos-{name}", Attributes={"VisibilityTimeout": VISIBILITY_S})["QueueUrl"]
        for name in ("work", "bulk", "tick", "burial")
    }
    kinds = ("jobs", "devices", "recipients", "inbox", "notifications", "apps")
    with ExitStack() as stack:
        state = stack.enter_context(lookalike(tmp_path))
        for name, secret in (("apns", state["apns"]["key_pem"]), ("fcm", json.dumps(state["fcm"]["service_account"]))):
            secrets.create_secret(Name=f"pushlease/chaos/{name}", SecretString=secret)
        settings = SETTINGS | {
            "APNS_PRODUCTION_URL": state["apns"]["production_url"],
            "FCM_URL": state["fcm"]["url"],
            "PROVIDER_CA_FILE": state["ca_file"],
            **{f"{kind.upper()}_TABLE": make_table(kind) for kind in kinds},
            **{f"{name.upper()}_QUEUE_URL": url for name, url in queues.items()},
        }
        env = {"POWERTOOLS_METRICS_NAMESPACE": "pushlease"}
        env |= {f"PUSHLEASE_{name}": value for name, value in settings.items()}
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        parts = Parts("chaos")
        configure(parts, state)
        providers = stack.enter_context(LookalikeControl(state["control_url"], state["ca_file"]))
        yield Place(env={**aws.env, **env}, queues=queues, providers=providers, parts=parts)


@contextmanager
def lookalike(state_dir: Path) -> Iterator[Mapping[str, Any]]:
    command = [sys.executable, "-m", "pushlease_local.lookalike", "--state-dir", str(state_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own module
        try:
            assert process.stdout is not None
            yield json.loads(Path(process.stdout.readline().decode().strip()).read_text())
        finally:
            process.kill()


def configure(parts: Parts, state: Mapping[str, Any]) -> None:
    """The app, and a device for every user: every other one APNs, the rest FCM."""
    apns = ApnsCredentials(
        team_id=state["apns"]["team_id"], key_id=state["apns"]["key_id"], secret="pushlease/chaos/apns"
    )
    fcm = FcmCredentials(project_id=state["fcm"]["project_id"], secret="pushlease/chaos/fcm")
    parts.apps.put(App(app_id=APP, apns_production=apns, fcm=fcm))
    for user in USERS:
        platform = platform_of(user)
        parts.devices.register(
            Device(
                device_id=DeviceId("phone"),
                recipient=Recipient(app_id=APP, user_id=user),
                platform=platform,
                environment=Environment.PRODUCTION,
                push_token=push_token_of(user),
                topic=state["apns"]["topics"][0] if platform is Platform.APNS else None,
                registered_at_ms=parts.clock(),
            )
        )


def platform_of(user: UserId) -> Platform:
    return Platform.FCM if USERS.index(user) % 2 else Platform.APNS


def push_token_of(user: UserId) -> str:
    return hashlib.sha256(user.encode()).hexdigest()


USER_OF = {push_token_of(user): user for user in USERS}


def misbehave(providers: LookalikeControl) -> None:
    """Some devices are gone, one gets what is too large; of the others each is refused twice, and then no more."""
    for user in USERS:
        apns = platform_of(user) is Platform.APNS
        busy = Step(do="answer", status=429, reason="TooManyRequests" if apns else "QUOTA_EXCEEDED")
        ill = Step(do="answer", status=503, reason="ServiceUnavailable" if apns else "UNAVAILABLE")
        steps = [busy, Step(do="accept", times=5), ill]
        if user in GONE:
            steps = [Step(do="answer", status=410, reason="Unregistered", timestamp_ms=2**42, times=None)]
        elif user in TOO_LARGE:
            steps = [Step(do="answer", status=413, reason="PayloadTooLarge", times=None)]
        providers.script(push_token_of(user), *steps)


def accept() -> Mapping[JobId, Key]:
    """Send every notification to every user through the real function; the jobs that it accepted."""
    accepted: dict[JobId, Key] = {}
    no_context = cast(LambdaContext, None)  # send has no use for it
    try:
        for notification_id in NOTIFICATIONS:
            content = {"title": "Hello", "data": {"notification": notification_id}}
            request = {"app_id": APP, "notification_id": notification_id, "recipients": USERS, "content": content}
            answer = send.handle(request, no_context)
            accepted |= {job["job_id"]: (job["user_id"], notification_id) for job in answer["jobs"]}
    finally:
        send._wired.cache_clear()  # its parts belong to this test's environment
    return accepted


def pushed(push: Accepted) -> Key:
    """Which job a push was for."""
    data = push.body["data"] if push.provider == "fcm" else push.body
    return USER_OF[push.push_token], data["notification"]


def only_delivery(job: Job) -> Delivery:
    (delivery,) = job.deliveries.values()
    return delivery


def let_run(place: Place, processes: Processes, jobs: int) -> None:
    """Kill at random moments of the work, then wait until no job is pending."""
    dice = random.Random(SEED)  # noqa: S311 - to be repeatable
    for accepted in sorted(dice.sample(range(jobs * 9 // 10), KILLS)):
        assert place.providers.wait(accepted=accepted, within_s=PROGRESS_S), f"{accepted} pushes were not accepted"
        processes.kill(dice.randrange(len(PROCESSES)))
    far_ms = place.parts.clock() + 86_400_000  # leases count as due, too
    until(
        "every job done or dead",
        lambda: not any(place.parts.jobs.due(lane, now_ms=far_ms, limit=1) for lane in place.parts.due_lanes),
        within_s=END_S,
    )


def test_nothing_is_lost_or_unexpected_though_workers_are_killed(place: Place, tmp_path: Path) -> None:
    misbehave(place.providers)
    accepted = accept()
    assert len(accepted) == len(USERS) * len(NOTIFICATIONS)
    started_at_s = time.monotonic()
    processes = Processes(place, tmp_path / "processes.log")
    try:
        let_run(place, processes, len(accepted))
    finally:
        processes.end()
    took_s = time.monotonic() - started_at_s

    rows = list(place.parts.jobs.get(list(accepted)).values())
    sent = Counter(pushed(push) for push in place.providers.accepted())
    recorded = {accepted[job.job_id] for job in rows if only_delivery(job).status is DeliveryStatus.SENT}
    wanted = {key for key in accepted.values() if key[0] not in GONE | TOO_LARGE}
    ends = Counter(job.status for job in rows)

    lost = wanted - recorded
    unexpected = sent.keys() ^ recorded | sent.keys() - wanted
    duplicates = sent.total() - len(sent)
    unanswered = sum("network_error" in entry for job in rows for entry in job.history)
    crashed = sum(only_delivery(job).attempts > len(job.history) for job in rows)
    lease_lost = (tmp_path / "processes.log").read_text().count("lease_lost")
    bound = processes.kills * BATCH_IN_HAND + unanswered
    figures = (
        f"{len(accepted)} accepted, {len(sent)} sent, {len(recorded)} recorded in {took_s:.0f} s: "
        f"{len(lost)} lost, {len(unexpected)} unexpected, {duplicates} duplicates of at most {bound} "
        f"({processes.kills} kills, {unanswered} requests unanswered); "
        f"{crashed} jobs taken over, {lease_lost} leases lost; {ends[Status.DONE]} done, {ends[Status.DEAD]} dead"
    )
    print(figures)  # noqa: T201 - for whoever reads the run
    assert not lost, figures
    assert not unexpected, figures
    assert duplicates <= bound, figures
    assert not lease_lost, figures  # one live claim: only the dead are taken over from
    assert crashed, figures  # or the kills would have shown nothing
    dead = len(TOO_LARGE) * len(NOTIFICATIONS)
    assert ends == {Status.DONE: len(accepted) - dead, Status.DEAD: dead}, figures
