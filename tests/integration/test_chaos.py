"""Real processes, killed while they work: what was accepted, what was sent and what is recorded agree at the end.

Workers and drains are the functions' own handlers: some in a process each (``chaos_worker``), some as a function of the
embedded AWS, behind a mapping of its own. They work against the look-alike providers. A killer, whose choices follow
from a seed, ends one of them with SIGKILL each time so many pushes have been accepted: between a provider's answer and
the record of it, as often as not. Now and then it is all of the emulator's workers at once. What died is redriven at
the end, and killed again meanwhile.
"""

import hashlib
import io
import json
import os
import random
import re
import signal
import site
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
KILLS = 16  # of processes, and every sixth time of the emulator's own workers
FUNCTION = "chaos-deliver"
FUNCTION_WORKERS = 2
PROCESSES = [("deliver", "work")] * 2 + [("deliver", "bulk"), ("redrive", "burial")] + [("drain", "tick")] * 2

APP = AppId("chaos")
USERS = [UserId(f"user-{at}") for at in range(100)]
NOTIFICATIONS = [f"backlog-{at}" for at in range(20)]
GONE = frozenset({USERS[0], USERS[2]})  # APNs answers 410: their jobs end done, their deliveries failed
TOO_LARGE = frozenset({USERS[4]})  # APNs answers 413: their jobs end dead

# Generous, for a machine that has other work: on an idle one of two cores it is all over in a minute and a half.
PROGRESS_S = 240
END_S = 240

FAR_MS = 2**52  # whatever waits for any instant is due by then

MAX_RECEIVES = 3  # of a letter, before SQS moves it
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
    "BURIAL_CHECK_S": "10",  # a letter that a kill took along comes soon again
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

    aws: EmbeddedAws
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
        self.function_kills = 0

    def kill(self, at: int) -> None:
        """SIGKILL one, wherever it stands, and start another in its place."""
        self._running[at].kill()
        self._running[at].wait()
        self._running[at] = self._start(*PROCESSES[at])
        self.kills += 1

    def kill_functions(self) -> None:
        """SIGKILL all of the emulator's workers; it starts others itself."""
        for pid in self._place.aws.function_pids(FUNCTION):
            os.kill(pid, signal.SIGKILL)
            self.function_kills += 1

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
    dead_letters = sqs.create_queue(QueueName="chaos-dead-letters")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead_letters), "maxReceiveCount": MAX_RECEIVES})
    queues = {"dead-letters": dead_letters}
    for name in ("work", "bulk", "tick", "burial"):
        attributes = {"VisibilityTimeout": VISIBILITY_S} | ({"RedrivePolicy": policy} if name == "burial" else {})
        queues[name] = sqs.create_queue(QueueName=f"chaos-{name}", Attributes=attributes)["QueueUrl"]
    kinds = ("jobs", "devices", "recipients", "inbox", "notifications", "apps", "flow", "audiences")
    with ExitStack() as stack:
        state = stack.enter_context(lookalike(tmp_path))
        for name, secret in (("apns", state["apns"]["key_pem"]), ("fcm", json.dumps(state["fcm"]["service_account"]))):
            secrets.create_secret(Name=f"pushlease/chaos/{name}", SecretString=secret)
        settings = SETTINGS | {
            "APNS_PRODUCTION_URL": state["apns"]["production_url"],
            "FCM_URL": state["fcm"]["url"],
            "PROVIDER_CA_FILE": state["ca_file"],
            **{f"{kind.upper()}_TABLE": make_table(kind) for kind in kinds},
            **{f"{name.upper()}_QUEUE_URL": url for name, url in queues.items() if name != "dead-letters"},
        }
        env = {"POWERTOOLS_METRICS_NAMESPACE": "pushlease"}
        env |= {f"PUSHLEASE_{name}": value for name, value in settings.items()}
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        parts = Parts("chaos")
        configure(parts, state)
        providers = stack.enter_context(LookalikeControl(state["control_url"], state["ca_file"]))
        stack.enter_context(function_on(aws, env, queues["work"]))
        yield Place(aws=aws, env={**aws.env, **env}, queues=queues, providers=providers, parts=parts)


@contextmanager
def function_on(aws: EmbeddedAws, env: Mapping[str, str], queue_url: str) -> Iterator[None]:
    """The handler as a function of the emulator, with a mapping of the queue; its code is the checkout's."""
    paths = [*map(str, (Path(send.__file__).parents[1], *site.getsitepackages()))]
    code = f"import sys\nsys.path[:0] = {paths!r}\nfrom deliver.handler import handle\n"
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("worker.py", code)
    functions, sqs = aws.session().client("lambda"), aws.session().client("sqs")
    functions.create_function(
        FunctionName=FUNCTION,
        Runtime="python3.13",
        Handler="worker.handle",
        Role="arn:aws:iam::000000000000:role/chaos",
        Timeout=int(SETTINGS["FUNCTION_TIMEOUT_S"]),
        Code={"ZipFile": package.getvalue()},
        Environment={"Variables": dict(env)},
    )
    mapping = functions.create_event_source_mapping(
        EventSourceArn=arn_of(sqs, queue_url),
        FunctionName=FUNCTION,
        BatchSize=BATCH_IN_HAND,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        ScalingConfig={"MaximumConcurrency": FUNCTION_WORKERS},
    )
    yield
    functions.delete_event_source_mapping(UUID=mapping["UUID"])
    functions.delete_function(FunctionName=FUNCTION)


def arn_of(sqs: Any, url: str) -> str:
    arn: str = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return arn


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
    context = LambdaContext()
    context._aws_request_id = "accepts-the-backlog"
    try:
        for notification_id in NOTIFICATIONS:
            content = {"title": "Hello", "data": {"notification": notification_id}}
            request = {"app_id": APP, "notification_id": notification_id, "recipients": USERS, "content": content}
            answer = send.handle(request, context)
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
    for number, accepted in enumerate(sorted(dice.sample(range(jobs // 10, jobs * 9 // 10), KILLS)), 1):
        assert place.providers.wait(accepted=accepted, within_s=PROGRESS_S), f"{accepted} pushes were not accepted"
        if number % 6 == 0:
            processes.kill_functions()
        processes.kill(dice.randrange(len(PROCESSES)))
    until("every job done or dead", lambda: not pending(place), within_s=END_S)


def redrive(place: Place, processes: Processes, dead: int) -> None:
    """Move every letter back, as a person does, once the provider takes what it refused; and kill again meanwhile."""
    sqs = place.aws.session().client("sqs")
    source, target = place.queues["dead-letters"], place.queues["burial"]

    def waiting() -> int:
        attributes = sqs.get_queue_attributes(QueueUrl=source, AttributeNames=["ApproximateNumberOfMessages"])
        return int(attributes["Attributes"]["ApproximateNumberOfMessages"])

    def all_revived() -> bool:
        """Whether nobody is dead any more; what is in the dead-letter queue is moved back first."""
        letters = sqs.receive_message(QueueUrl=source, MaxNumberOfMessages=10).get("Messages", [])
        for letter in letters:
            sqs.send_message(QueueUrl=target, MessageBody=letter["Body"])
            sqs.delete_message(QueueUrl=source, ReceiptHandle=letter["ReceiptHandle"])
        if letters:
            processes.kill(PROCESSES.index(("redrive", "burial")))
            processes.kill(PROCESSES.index(("drain", "tick")))
        return not any(place.parts.jobs.due(lane, now_ms=FAR_MS, limit=1) for lane in place.parts.dead_lanes)

    until(f"{dead} letters", lambda: waiting() >= dead, within_s=END_S)
    for user in TOO_LARGE:
        place.providers.script(push_token_of(user), Step(do="accept", times=None))
    until("every dead job revived", all_revived, within_s=END_S)
    until("every job done", lambda: not pending(place), within_s=END_S)


def pending(place: Place) -> bool:
    """Whether any job is pending; leases count as due, too."""
    return any(place.parts.jobs.due(lane, now_ms=FAR_MS, limit=1) for lane in place.parts.due_lanes)


def test_nothing_is_lost_or_unexpected_though_workers_are_killed(place: Place, tmp_path: Path) -> None:
    misbehave(place.providers)
    accepted = accept()
    assert len(accepted) == len(USERS) * len(NOTIFICATIONS)
    dead = len(TOO_LARGE) * len(NOTIFICATIONS)
    started_at_s = time.monotonic()
    processes = Processes(place, tmp_path / "processes.log")
    try:
        let_run(place, processes, len(accepted))
        ends = Counter(job.status for job in place.parts.jobs.get(list(accepted)).values())
        redrive(place, processes, dead)
    finally:
        processes.end()
    took_s = time.monotonic() - started_at_s

    rows = list(place.parts.jobs.get(list(accepted)).values())
    sent = Counter(pushed(push) for push in place.providers.accepted())
    recorded = {accepted[job.job_id] for job in rows if only_delivery(job).status is DeliveryStatus.SENT}
    wanted = {key for key in accepted.values() if key[0] not in GONE}

    lost = wanted - recorded
    unexpected = sent.keys() ^ recorded | sent.keys() - wanted
    duplicates = sent.total() - len(sent)
    unanswered = sum("network_error" in entry for job in rows for entry in job.history)
    crashed = sum(only_delivery(job).attempts > len(job.history) for job in rows)
    function_log = "\n".join(place.aws.function_logs(FUNCTION))
    lease_lost = ((tmp_path / "processes.log").read_text() + function_log).count("lease_lost")
    by_functions = len(re.findall(r'"message": ?"settled"', function_log))
    kills = processes.kills + processes.function_kills
    bound = kills * BATCH_IN_HAND + unanswered
    figures = (
        f"{len(accepted)} accepted, {len(sent)} sent, {len(recorded)} recorded in {took_s:.0f} s: "
        f"{len(lost)} lost, {len(unexpected)} unexpected, {duplicates} duplicates of at most {bound} "
        f"({kills} kills, {processes.function_kills} of them of the emulator's workers, "
        f"{unanswered} requests unanswered); {by_functions} settled by those workers, {crashed} jobs taken over, "
        f"{lease_lost} leases lost; {ends[Status.DONE]} done, {ends[Status.DEAD]} dead and redriven"
    )
    print(figures)  # noqa: T201 - for whoever reads the run
    assert not lost, figures
    assert not unexpected, figures
    assert duplicates <= bound, figures
    assert not lease_lost, figures  # one live claim: only the dead are taken over from
    assert crashed, figures  # or the kills would have shown nothing
    assert by_functions, figures  # or the emulator's workers had no part in it
    assert processes.function_kills >= FUNCTION_WORKERS, figures
    assert ends == {Status.DONE: len(accepted) - dead, Status.DEAD: dead}, figures
    assert Counter(job.redrives for job in rows) == {0: len(accepted) - dead, 1: dead}, figures
    assert {job.status for job in rows} == {Status.DONE}, figures
