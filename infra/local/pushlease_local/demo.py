"""Plays the events through the deployed system and checks each guarantee against what providers and rows say.

Scenarios run side by side, each with recipients of its own. Every check compares three witnesses that know nothing of
each other: what the look-alike providers accepted, what the job rows record, and what lies in the queues.
"""

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pushlease.observe import RedactingFormatter
from pushlease_local.lookalike.script import Step
from pushlease_local.scan import findings, texts_of
from pushlease_local.stack import EVENTS, Stack, event, until

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One guarantee, whether it held, and what was seen."""

    guarantee: str
    held: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one delivery, as its row and its provider tell it."""

    scenario: str
    recipient: str
    device: str
    status: str
    code: str
    attempts: int
    accepted: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What one scenario found out."""

    checks: list[Check] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)

    def expect(self, guarantee: str, seen: object, wanted: object, shown: str = "") -> None:
        """Record a guarantee as held if what was seen is what was wanted; ``shown`` says it in words."""
        held = seen == wanted
        told = (shown or str(seen)) if held else f"{seen}, wanted {wanted}"
        self.checks.append(Check(guarantee=guarantee, held=held, seen=told))


type Scenario = Callable[["Player", Outcome], None]


@dataclass(slots=True, kw_only=True)
class Player:
    """The hands with which scenarios play."""

    stack: Stack
    push_tokens: dict[str, str] = field(default_factory=dict)
    killed: threading.Event = field(default_factory=threading.Event)

    def device(self, user: str, device: str, platform: str, *, environment: str = "production") -> str:
        """Register a device through the registry; its push token."""
        said = event(f"registry/register_{'ios' if platform == 'apns' else 'android'}")
        digest = hashlib.sha256(device.encode()).hexdigest()
        push_token = digest if platform == "apns" else f"{device}:APA91b{digest[:40]}"
        said |= {"user_id": user, "device_id": device, "push_token": push_token}
        if platform == "apns":
            said["environment"] = environment
        answer = self.stack.invoke("registry", said)
        if not answer["ok"]:
            raise RuntimeError(f"registry refused {device}: {answer['errors']}")
        self.push_tokens[device] = push_token
        return push_token

    def send(self, outcome: Outcome, name: str, user: str, **changes: object) -> str:
        """Send one of the events to one user; the job's id."""
        answer = self.stack.invoke("send", event(f"send/{name}") | {"recipients": [user]} | changes)
        if not answer["ok"]:
            raise RuntimeError(f"send refused {name}: {answer['errors']}")
        job_id: str = answer["jobs"][0]["job_id"]
        outcome.job_ids.append(job_id)
        return job_id

    def ended(self, job_id: str, status: str, *, within_s: float = MINUTE_S) -> Mapping[str, Any]:
        """Wait until a job ends so."""
        try:
            return (
                until(
                    f"job {job_id[:8]} {status}",
                    lambda: job if (job := self.stack.job(job_id)).get("status") == status else None,
                    within_s=within_s,
                )
                or {}
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {_told(self.stack.job(job_id))}") from None

    def accepted(self, push_token: str) -> list[Any]:
        """What the providers accepted for a push token."""
        return [push for push in self.stack.providers.accepted() if push.push_token == push_token]

    def requests(self, push_token: str) -> int:
        """How often the providers were asked about a push token."""
        return sum(seen.target == push_token for seen in self.stack.providers.requests())

    def deliver_again(self, *, without: Sequence[int]) -> None:
        """Wait until deliver runs in fresh processes, so that only what was in flight is taken over."""
        function = self.stack.outputs["DeliverFunctionName"]
        until("the killed workers to be gone", lambda: not set(without) & set(self.stack.aws.function_pids(function)))
        self.stack.invoke("deliver", {"Records": []})

    def dead_letter(self, wanted: Callable[[str], bool]) -> Mapping[str, Any]:
        """Wait for a message in the dead-letter queue and take it in hand; others stay."""

        def look() -> Mapping[str, Any] | None:
            answer = self.stack.clients["sqs"].receive_message(
                QueueUrl=self.stack.queue("dead-letters"),
                MaxNumberOfMessages=10,
                VisibilityTimeout=1,
                WaitTimeSeconds=1,
                MessageSystemAttributeNames=["All"],
            )
            return next((message for message in answer.get("Messages", []) if wanted(message["Body"])), None)

        return until("the message in the dead-letter queue", look) or {}

    def move_back(self, message: Mapping[str, Any]) -> None:
        """What the console's "Redrive to source queue" does: a new message in the source queue, the old one deleted."""
        sqs = self.stack.clients["sqs"]
        source = message["Attributes"]["DeadLetterQueueSourceArn"].rsplit(":", 1)[-1]
        url = next(
            url for name, url in self.stack.outputs.items() if name.endswith("QueueUrl") and url.endswith(source)
        )
        sqs.send_message(QueueUrl=url, MessageBody=message["Body"])
        sqs.delete_message(QueueUrl=self.stack.queue("dead-letters"), ReceiptHandle=message["ReceiptHandle"])


def fresh_send(player: Player, outcome: Outcome) -> None:
    """Two devices of one recipient, sent at once; the same call again changes nothing."""
    iphone = player.device("ada", "ada-iphone", "apns")
    pixel = player.device("ada", "ada-pixel", "fcm")
    job_id = player.send(outcome, "idempotent", "ada")
    job = player.ended(job_id, "done")
    again = player.stack.invoke("send", event("send/idempotent"))
    statuses = sorted(delivery["status"] for delivery in job["deliveries"].values())
    outcome.expect("a fresh send reaches every device", statuses, ["sent", "sent"], "2 of 2")
    outcome.expect(
        "the same send again is the same job",
        (again["jobs"][0]["job_id"], again["jobs"][0]["duplicate"]),
        (job_id, True),
        "one job id, marked as a duplicate",
    )
    counts = [len(player.accepted(iphone)), len(player.accepted(pixel))]
    outcome.expect("each device gets it once", counts, [1, 1], "1 and 1")


def batch_of_three(player: Player, outcome: Outcome) -> None:
    """One sent, one dead push token, one rate-limited: exactly one is retried."""
    good = player.device("grace", "grace-iphone", "apns")
    dead = player.device("grace", "grace-ipad", "apns")
    busy = player.device("grace", "grace-pixel", "fcm")
    player.stack.providers.script(
        dead, Step(do="answer", status=410, reason="Unregistered", timestamp_ms=2**42, times=None)
    )
    player.stack.providers.script(busy, Step(do="answer", status=429, headers={"retry-after": "2"}))
    job = player.ended(player.send(outcome, "one_recipient", "grace"), "done")
    fates = {name: delivery["status"] for name, delivery in job["deliveries"].items()}
    outcome.expect(
        "of three: one sent, one dead, one retried",
        fates,
        {"grace-iphone": "sent", "grace-ipad": "failed", "grace-pixel": "sent"},
        "sent, failed, sent",
    )
    outcome.expect(
        "only the rate-limited one is asked twice",
        [player.requests(push_token) for push_token in (good, dead, busy)],
        [1, 1, 2],
        "1, 1 and 2 requests",
    )
    outcome.expect("who was served is never sent to again", len(player.accepted(good)), 1)
    listed = player.stack.invoke("registry", event("registry/list_devices") | {"user_id": "grace"})["devices"]
    disabled = [device["device_id"] for device in listed if device["disabled_code"]]
    outcome.expect("only the dead device is disabled", disabled, ["grace-ipad"], "grace-ipad")


def provider_outage(player: Player, outcome: Outcome) -> None:
    """A provider answers only 503 for a while: retried until it is back, nothing disabled."""
    push_token = player.device("edsger", "edsger-iphone", "apns", environment="sandbox")
    player.stack.providers.outage("apns-sandbox", "503")
    job_id = player.send(outcome, "one_recipient", "edsger")
    until("two refused attempts", lambda: player.requests(push_token) >= 2, within_s=MINUTE_S)
    player.stack.providers.outage("apns-sandbox", "off")
    job = player.ended(job_id, "done")
    outcome.expect("an outage costs time, not notifications", job["deliveries"]["edsger-iphone"]["status"], "sent")
    listed = player.stack.invoke("registry", event("registry/list_devices") | {"user_id": "edsger"})["devices"]
    outcome.expect(
        "a run of provider errors disables nothing", [d["disabled_code"] for d in listed], [None], "0 disabled"
    )


def death_and_redrive(player: Player, outcome: Outcome) -> None:
    """Five failures, the dead-letter queue by SQS's own move, back to the source queue, delivered."""
    push_token = player.device("alan", "alan-iphone", "apns")
    player.stack.providers.script(push_token, Step(do="answer", status=500, reason="InternalServerError", times=5))
    job_id = player.send(outcome, "one_recipient", "alan")
    job = player.ended(job_id, "dead")
    outcome.expect("five failures end in dead", job["deliveries"]["alan-iphone"]["attempts"], 5)
    letter = player.dead_letter(lambda body: job_id in body)
    source = letter["Attributes"]["DeadLetterQueueSourceArn"].rsplit(":", 1)[-1]
    burial = player.stack.queue("burial").rsplit("/", 1)[-1]
    outcome.expect("SQS itself moves its letter to the DLQ", source, burial, "source ARN: burial")
    player.move_back(letter)
    job = player.ended(job_id, "done")
    outcome.expect("moved back to its source, it is delivered", len(player.accepted(push_token)), 1)
    outcome.expect("one death revives once", job["redrives"], 1)
    outcome.expect("claim_seq never falls", job["claim_seq"], 6)


def killed_worker(player: Player, outcome: Outcome) -> None:
    """SIGKILL in the middle of an attempt: taken over after the lease, the attempt counted; poison dies of it."""
    slow = player.device("barbara", "barbara-iphone", "apns")
    poison = player.device("kurt", "kurt-iphone", "apns")
    for push_token in (slow, poison):
        player.stack.providers.script(push_token, Step(do="silence"))
    jobs = [
        player.send(outcome, "one_recipient", "barbara"),
        player.send(outcome, "one_recipient", "kurt", max_attempts=1),
    ]
    until("both attempts in flight", lambda: player.requests(slow) and player.requests(poison))
    workers = player.stack.aws.function_pids(player.stack.outputs["DeliverFunctionName"])
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    player.deliver_again(without=workers)
    player.killed.set()
    survived = player.ended(jobs[0], "done")
    outcome.expect("a killed worker's job is taken over", survived["deliveries"]["barbara-iphone"]["status"], "sent")
    attempts = survived["deliveries"]["barbara-iphone"]["attempts"]
    outcome.expect("its attempt counts", attempts >= 2, True, f"{attempts} attempts")
    outcome.expect("it is accepted once", len(player.accepted(slow)), 1)
    lost = player.ended(jobs[1], "dead")
    outcome.expect("a job that kills its worker ends as lost", lost["deliveries"]["kurt-iphone"]["code"], "lost")
    answer = player.stack.invoke("redrive", event("redrive/by_code"))
    outcome.expect("redrive revives what its filter meets", answer["revived"], [jobs[1]], "1 of 1")
    player.ended(jobs[1], "done")
    outcome.expect("redriven, it is delivered", len(player.accepted(poison)), 1)


def ambiguous_answer(player: Player, outcome: Outcome) -> None:
    """The provider takes a push and answers 503: the repeat carries the same ids, so that it replaces the first."""
    push_token = player.device("hedy", "hedy-iphone", "apns")
    player.stack.providers.script(push_token, Step(do="accept_then_503"))
    player.ended(player.send(outcome, "one_recipient", "hedy"), "done")
    pushes = player.accepted(push_token)
    outcome.expect(
        "an ambiguous answer repeats one id",
        (len(pushes), len({(push.provider_id, push.collapse_id) for push in pushes})),
        (2, 1),
        "2 pushes, 1 apns-id, 1 collapse id",
    )


def unreadable_message(player: Player, outcome: Outcome) -> None:
    """Garbage on the work queue: in the dead-letter queue at once, its neighbours unharmed."""
    push_token = player.device("tim", "tim-iphone", "apns")
    garbage = event("deliver/unreadable")["Records"][0]["body"]
    player.stack.clients["sqs"].send_message(QueueUrl=player.stack.queue("work"), MessageBody=garbage)
    player.ended(player.send(outcome, "one_recipient", "tim"), "done")
    letter = player.dead_letter(lambda body: body == garbage)
    source = letter["Attributes"]["DeadLetterQueueSourceArn"].rsplit(":", 1)[-1]
    work = player.stack.queue("work").rsplit("/", 1)[-1]
    outcome.expect("an unreadable message is dead-lettered", source, work, "source ARN: work")
    outcome.expect("its neighbour is delivered", len(player.accepted(push_token)), 1)


def bad_requests(player: Player, outcome: Outcome) -> None:
    """Every function refuses bad input by the field's name, and stores nothing."""
    refused: dict[str, str] = {}  # by event
    paths = sorted(EVENTS.glob("*/bad_*.json"))
    for path in paths:
        said = json.loads(path.read_text())
        if "recipients" in said:
            said["recipients"] = ["mallory"]
        name = f"{path.parent.name}/{path.stem}"
        try:
            answer = player.stack.invoke(path.parent.name, said)
        except RuntimeError as error:  # what a queue's mapping invokes must raise: it takes any answer for success
            if "Records: must be" in str(error):
                refused[name] = "Records"
        else:
            if answer["ok"] is False and all(fault["field"] for fault in answer["errors"]):
                refused[name] = answer["errors"][0]["field"]
    outcome.expect("bad requests are refused by field", len(refused), len(paths), f"{len(paths)} of {len(paths)}")
    rows = player.stack.clients["dynamodb"].scan(
        TableName=player.stack.outputs["JobsTableName"],
        FilterExpression="user_id = :mallory",
        ExpressionAttributeValues={":mallory": {"S": "mallory"}},
    )
    outcome.expect("nothing of them is stored", rows["Count"], 0)


def nothing_secret_logged(stack: Stack, player: Player) -> list[Check]:
    """Scan all that the functions logged for keys, bearers, push tokens and message text.

    First the scanner must find what is planted: a line of the functions' own formatter, its redaction off.
    """
    secrets = stack.secrets()
    texts = [text for path in EVENTS.glob("send/*.json") for text in texts_of(json.loads(path.read_text()))]
    planted = {"detail": secrets[0], "push_token": next(iter(player.push_tokens.values())), "title": texts[0]}

    def found(lines: Sequence[str]) -> int:
        return len(findings(lines, secrets=secrets, push_tokens=player.push_tokens.values(), texts=texts))

    lines = stack.log_lines()
    bare, redacted = (found([RedactingFormatter(redact=redact).serialize(planted)]) for redact in (False, True))
    return [
        Check(guarantee="the scanner finds what is planted", held=bare >= 3, seen=f"{bare} findings"),
        Check(guarantee="redaction keeps what is planted out", held=redacted == 0, seen=f"{redacted} findings"),
        Check(guarantee="nothing secret is in any log", held=found(lines) == 0, seen=f"{len(lines)} lines"),
    ]


SIDE_BY_SIDE: Mapping[str, Scenario] = {
    "fresh send": fresh_send,
    "batch of three": batch_of_three,
    "provider outage": provider_outage,
    "death and redrive": death_and_redrive,
    "ambiguous answer": ambiguous_answer,
    "unreadable message": unreadable_message,
    "bad requests": bad_requests,
}


def play(stack: Stack, tell: Callable[[str, str], None]) -> tuple[Sequence[Check], Sequence[Fate]]:
    """Play all scenarios; ``tell`` is called with a scenario's name and how it stands."""
    player = Player(stack=stack)
    outcomes: dict[str, Outcome] = {}

    def run(name: str, scenario: Scenario) -> None:
        outcome = outcomes.setdefault(name, Outcome())
        tell(name, "running")
        try:
            scenario(player, outcome)
        except Exception as error:  # a scenario that fails is a guarantee not shown, and the others go on
            outcome.checks.append(Check(guarantee=f"{name} runs to its end", held=False, seen=str(error)))
        tell(name, "held" if all(check.held for check in outcome.checks) else "FAILED")

    with ThreadPoolExecutor(max_workers=len(SIDE_BY_SIDE) + 1) as pool:
        # The killer goes first, alone: it must not kill another scenario's attempts.
        running: list[Future[None]] = [pool.submit(run, "killed worker", killed_worker)]
        player.killed.wait(MINUTE_S)
        running += [pool.submit(run, name, scenario) for name, scenario in SIDE_BY_SIDE.items()]
        for future in running:
            future.result()
    checks = [check for outcome in outcomes.values() for check in outcome.checks]
    fates = [fate for name, outcome in outcomes.items() for fate in _fates(player, name, outcome.job_ids)]
    once = [
        fate for fate in fates if fate.status == "sent" and fate.accepted != 1 and fate.scenario != "ambiguous answer"
    ]
    checks.append(
        Check(guarantee="what is recorded as sent is sent once", held=not once, seen=f"{len(fates)} deliveries")
    )
    tell("logs", "running")
    scanned = nothing_secret_logged(stack, player)
    tell("logs", "held" if all(check.held for check in scanned) else "FAILED")
    return [*checks, *scanned], fates


def _fates(player: Player, scenario: str, job_ids: Iterable[str]) -> list[Fate]:
    fates: list[Fate] = []
    for job_id in job_ids:
        job = player.stack.job(job_id)
        fates += [
            Fate(
                scenario=scenario,
                recipient=job["user_id"],
                device=device,
                status=delivery["status"],
                code=delivery.get("code", ""),
                attempts=delivery.get("attempts", 0),
                accepted=len(player.accepted(player.push_tokens.get(device, ""))),
            )
            for device, delivery in sorted(job["deliveries"].items())
        ]
    return fates


def _told(job: Mapping[str, Any]) -> str:
    return f"{job.get('status')} after {job.get('history', 'nothing')!r}, last error {job.get('last_error')!r}"
