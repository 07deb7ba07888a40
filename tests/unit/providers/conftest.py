"""What the providers' tests share."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pushlease_local.lookalike import Lookalike
from staged import Clock, Stage

type Running = tuple[Lookalike, asyncio.AbstractEventLoop, Clock, Path]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    clock, loop = Clock(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = Lookalike.start(clock=clock)
    with ExitStack() as stack:
        stack.callback(loop.close)
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, loop.stop)
        lookalike = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(timeout=10)
        ca_file = tmp_path_factory.mktemp("tls") / "ca.pem"
        ca_file.write_text(lookalike.ca_pem)
        yield lookalike, loop, clock, ca_file
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(timeout=10)


@pytest.fixture
def stage(running: Running) -> Iterator[Stage]:
    lookalike, loop, clock, ca_file = running
    clock.ahead_ms = 0
    stage = Stage(lookalike, loop, clock, ca_file)
    stage.control(lambda control: control.reset())
    yield stage
    stage.pusher.close()
