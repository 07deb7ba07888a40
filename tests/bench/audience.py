"""An audience on the embedded AWS, its workers killed at random, its pages repeated, and single sends beside it.

`uv run python tests/bench/audience.py` sends to 10,000 recipients from an object in S3 and prints what it counted: one
job a recipient, each accepted at least once, duplicates at most the kills times the jobs in a worker's hand; and how
long a single send took from the call to the provider's answer, without the audience and beside it.
"""

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pushlease.aws import rows
from pushlease.jobs.message import Page, page_body
from pushlease_local import stack as local
from pushlease_local.emulator import BUCKET
from pushlease_local.stack import Stack

IN_HAND = 50  # jobs in flight of one worker: DRAIN_BATCH_SIZE
SINGLES = 20  # single sends of each measurement
END_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run counted. Latencies in ms, from the call of send to the provider's answer."""

    recipients: int
    jobs: int
    reached: int
    duplicates: int
    kills: int
    repeated_pages: int
    seconds: float
    progress: Mapping[str, int]
    alone_ms: Sequence[float]
    beside_ms: Sequence[float]


def run(stack: Stack, *, recipients: int, kills: int, seed: int, say: Callable[[str], None]) -> Result:
    """Send to so many recipients, and kill a worker so many times meanwhile."""
    dice = random.Random(seed)
    name = f"audience-{seed}-{recipients}"
    users = [f"{name}-{at:06d}" for at in range(recipients)]
    say(f"storing {recipients} devices")
    _store_devices(stack, users)
    body = "".join(f"{user}\n" for user in users).encode()
    stack.clients["s3"].put_object(Bucket=BUCKET, Key=f"{name}.txt", Body=body)
    seen = len(stack.providers.accepted())
    say("single sends, alone")
    alone = [_single(stack, f"{name}-alone-{at}") for at in range(SINGLES)]
    say("the audience")
    started = time.monotonic()
    request = local.event("send/audience") | {"notification_id": name, "audience": {"key": f"{name}.txt"}}
    request |= {"content": {"title": "Spring sale", "body": "From tomorrow on."}}
    accepted = stack.invoke("send", request)
    if not accepted["ok"]:
        raise RuntimeError(f"send refused the audience: {accepted['errors']}")
    trouble = _Trouble(stack, f"{request['app_id']}#{name}", accepted["pages"], kills=kills, dice=dice)
    beside: list[float] = []
    with trouble:
        while time.monotonic() - started < END_S:
            told = _told(stack, request["app_id"], name)
            if told["state"] != "running":
                break
            if len(beside) < SINGLES:
                beside.append(_single(stack, f"{name}-beside-{len(beside)}"))
            else:
                time.sleep(1)
            say(f"{time.monotonic() - started:4.0f} s: {dict(told['recipients'])}, {trouble.killed} killed")
    told = _told(stack, request["app_id"], name)
    took = time.monotonic() - started
    pushes = Counter(push.push_token for push in stack.providers.accepted(seen))
    reached = [pushes[_push_token(user)] for user in users]
    return Result(
        recipients=recipients,
        jobs=_count_jobs(stack, name),
        reached=sum(count > 0 for count in reached),
        duplicates=sum(max(0, count - 1) for count in reached),
        kills=trouble.killed,
        repeated_pages=trouble.repeated,
        seconds=took,
        progress=told["recipients"],
        alone_ms=alone,
        beside_ms=beside,
    )


class _Trouble:
    """A killer of deliver's workers, and a repeater of pages, at random moments while the audience runs."""

    def __init__(self, stack: Stack, ref: str, pages: int, *, kills: int, dice: random.Random) -> None:
        self.killed = self.repeated = 0
        self._stack, self._ref, self._pages, self._kills, self._dice = stack, ref, pages, kills, dice
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._make)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _make(self) -> None:
        function = self._stack.outputs["DeliverFunctionName"]
        while not self._over.wait(self._dice.uniform(0.5, 4)):
            page = Page(ref=self._ref, page=self._dice.randrange(self._pages))
            self._stack.clients["sqs"].send_message(QueueUrl=self._stack.queue("bulk"), MessageBody=page_body(page))
            self.repeated += 1
            workers = self._stack.aws.function_pids(function)
            if workers and self.killed < self._kills:
                os.kill(self._dice.choice(workers), signal.SIGKILL)
                self.killed += 1


def _store_devices(stack: Stack, users: Sequence[str]) -> None:
    """As a registration stores them, but many at once."""
    os.environ.update(stack.aws.env)  # noqa: TID251  (PynamoDB finds the embedded AWS there)
    model = rows.bound(rows.DeviceRow, stack.outputs["DevicesTableName"])
    app = local.event("registry/configure_app")["app_id"]
    with model.batch_write() as batch:
        for user in users:
            batch.save(
                model(
                    recipient=f"{app}#{user}",
                    device_id="phone",
                    platform="apns",
                    environment="production",
                    push_token=_push_token(user),
                    registered_at=time.time_ns() // 1_000_000,
                    topic=local.event("registry/register_ios")["topic"],
                )
            )


def _push_token(user: str) -> str:
    return hashlib.sha256(user.encode()).hexdigest()


def _single(stack: Stack, user: str) -> float:
    """How long a send to one user takes until a provider accepted it, in ms."""
    _store_devices(stack, [user])
    before, wanted = len(stack.providers.accepted()), _push_token(user)
    started_ms = time.time_ns() / 1e6
    answer = stack.invoke("send", local.event("send/one_recipient") | {"recipients": [user]})
    if not answer["ok"]:
        raise RuntimeError(f"send refused a single: {answer['errors']}")

    def arrived() -> float | None:
        found = (push for push in stack.providers.accepted(before) if push.push_token == wanted)
        return next((push.at_ms - started_ms for push in found), None)

    return local.until("a single send", arrived, within_s=120) or 0.0


def _told(stack: Stack, app_id: str, notification_id: str) -> Any:
    said = {"action": "audience_status", "app_id": app_id, "notification_id": notification_id}
    return stack.invoke("send", said)


def _count_jobs(stack: Stack, notification_id: str) -> int:
    pages = (
        stack.clients["dynamodb"]
        .get_paginator("scan")
        .paginate(
            TableName=stack.outputs["JobsTableName"],
            FilterExpression="notification_id = :n",
            ExpressionAttributeValues={":n": {"S": notification_id}},
            Select="COUNT",
        )
    )
    return sum(page["Count"] for page in pages)


def p95(latencies_ms: Sequence[float]) -> float:
    """The latency that 19 of 20 do not exceed."""
    return quantiles(latencies_ms, n=20)[-1] if len(latencies_ms) > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipients", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    said = parser.parse_args()

    def say(what: str) -> None:
        print(what, flush=True)

    with tempfile.TemporaryDirectory() as state_dir, local.running(Path(state_dir), say=say) as stack:
        result = run(stack, recipients=said.recipients, kills=said.kills, seed=said.seed, say=say)
    print(
        f"jobs {result.jobs} of {result.recipients}, accepted at least once {result.reached}, duplicates "
        f"{result.duplicates} (at most {result.kills} kills x {IN_HAND}), {result.repeated_pages} pages repeated, "
        f"{result.seconds:.0f} s"
    )
    print(f"progress as send tells it: {dict(result.progress)}")
    alone, beside = p95(result.alone_ms), p95(result.beside_ms)
    print(f"p95 of a single send: {alone:.0f} ms alone, {beside:.0f} ms beside the audience")


if __name__ == "__main__":
    main()
