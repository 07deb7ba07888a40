"""Run an AWS on this machine and deploy the template to it with the ordinary SAM CLI.

The emulator is `ministack`. It and the SAM CLI pin their own botocore, so uv runs each in an environment of its own,
from the versions in `ministack.txt` and `sam.txt`. Functions run as warm subprocesses of the emulator, on its Python:
hence 3.13, and hence a package built for this machine's processor.

    with EmbeddedAws(state_dir) as aws:
        outputs = aws.deploy({"MaxAttempts": "3"})
        aws.session().client("lambda").invoke(FunctionName=outputs["SendFunctionName"], Payload=b"{}")
"""

import fcntl
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
import botocore.session

INFRA = Path(__file__).parents[2]
TEMPLATE = INFRA / "template.yaml"
STACK = "pushlease"
BUCKET = "pushlease-deployment"

START_TIMEOUT_S = 30  # one second is usual; a first start compiles some hundred modules
STOP_TIMEOUT_S = 10  # everything is killed: this is only the kernel's time
ARCHITECTURES = {"x86_64": "x86_64", "AMD64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}

# AWS checks one permission for several calls. The emulator asks for the call's own name, which is no action of AWS's
# and so has no place in the template; of PartiQL it does not see the table either.
CALLS = {
    "dynamodb:PartiQLInsert": "dynamodb:BatchExecuteStatement",
    "dynamodb:PartiQLUpdate": "dynamodb:BatchExecuteStatement",
    "dynamodb:ConditionCheckItem": "dynamodb:TransactWriteItems",
    "sqs:SendMessage": "sqs:SendMessageBatch",
}

# Of botocore's descriptions of services, those that functions need.
SERVICES_CALLED = frozenset({"dynamodb", "s3", "secretsmanager", "sqs", "sts"})

# Leads the process group of the emulator and its functions. Its standard input is a pipe that only the owner holds: the
# pipe ends when the owner closes it or dies, however it dies, and then the whole group goes.
LEADER = """
import os, signal, subprocess, sys
emulator = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
sys.stdin.read()
emulator.kill()
emulator.wait()  # so that its port is free once the leader has ended
os.killpg(0, signal.SIGKILL)
"""


class EmulatorError(RuntimeError):
    """The emulator, or the SAM CLI against it, did not do what was asked; the message ends with what it printed."""


class EmbeddedAws:
    """An AWS of one's own, for as long as the `with` block lasts.

    Everything it writes is below `state_dir`: logs, temporary files, the SAM CLI's state. `build_dir` (by default below
    it too) holds the built package and may be shared by several, one after another or at once: builds wait for each
    other, and an unchanged package is not built again. With `enforce_iam` a function may do only what its role allows.
    """

    def __init__(
        self, state_dir: Path, *, build_dir: Path | None = None, region: str = "eu-west-1", enforce_iam: bool = False
    ) -> None:
        self._state = state_dir.resolve()
        self._build = (build_dir or state_dir / "build").resolve()
        self._temporary = self._state / "tmp"
        self._region = region
        self._enforce_iam = enforce_iam
        self._port = 0
        self._leader: subprocess.Popen[bytes] | None = None
        self._caller_env = dict(os.environ)  # noqa: TID251 tools start in their caller's environment

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process that leads the group of the emulator and its functions; raises EmulatorError unless it runs."""
        if self._leader is None:
            raise EmulatorError("the emulator does not run")
        return self._leader.pid

    @property
    def env(self) -> Mapping[str, str]:
        """The AWS variables that make any AWS tool or SDK talk to this emulator."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_CONFIG_FILE": str(self._state / "aws-config"),
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def log_file(self) -> Path:
        """What the emulator itself prints; it repeats the output of functions that a queue or the Scheduler called."""
        return self._state / "ministack.log"

    def start(self) -> None:
        """Start the emulator on a free port and wait until it answers; raises EmulatorError when it does not."""
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(parents=True)
        python = run(
            [
                *uv_tool("ministack.txt", "--from", "ministack", "--with", "aws-sam-translator"),
                "python",
                "-c",
                "import sys; print(sys.executable)",
            ],
        ).strip()
        self._port = free_port()
        (self._state / "aws-config").write_text(
            f"[default]\nendpoint_url = {self.endpoint_url}\ncli_binary_format = raw-in-base64-out\n"
        )
        with self.log_file.open("wb") as log:
            self._leader = subprocess.Popen(
                [sys.executable, "-c", LEADER, python, "-m", "ministack"],
                env=self._emulator_env(),
                cwd=self._state,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers()
            region: Any = self._region  # the stubs know each of them by name
            self.session().client("s3").create_bucket(
                Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": region}
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the emulator and every function process; does nothing when it does not run."""
        leader, self._leader = self._leader, None
        if leader is None or leader.stdin is None:
            return
        leader.stdin.close()
        leader.wait(STOP_TIMEOUT_S)

    def session(self) -> boto3.Session:
        """Return a session whose clients talk to this emulator, whatever the caller's environment says."""
        return boto3.Session(
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            region_name=self._region,
            botocore_session=_Endpoint(self.endpoint_url),
        )

    def deploy(self, parameters: Mapping[str, str] | None = None, *, template: Path = TEMPLATE) -> Mapping[str, str]:
        """Build the template for this machine, deploy it, and return the stack's outputs.

        Deploying again updates the stack; only the parameters given then differ from their defaults. Raises
        EmulatorError with the SAM CLI's output when it fails.
        """
        chosen = {"Architecture": ARCHITECTURES[platform.machine()], **(parameters or {})}
        overrides = ["--parameter-overrides", *(f'{name}="{value}"' for name, value in chosen.items())]
        output = self._build / "package"
        cache = self._build / "cache"
        self._build.mkdir(parents=True, exist_ok=True)
        with (self._build / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._sam("build", "--template", template, "--build-dir", output, "--cache-dir", cache, *overrides)
            zip_once(output)
            self._sam("deploy", "--template", output / "template.yaml", "--s3-bucket", BUCKET, *overrides)
        self._number_concurrency()
        if self._enforce_iam:
            self._allow_calls()
        (stack,) = self.session().client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def function_logs(self, function_name: str) -> list[str]:
        """Return everything a function has logged, line by line, oldest first.

        A line appears once its invocation has ended, by an answer, a timeout or a crash.
        """
        logs = self.session().client("logs")
        functions = self.session().client("lambda")
        group = functions.get_function_configuration(FunctionName=function_name)["LoggingConfig"]["LogGroup"]
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        return [event["message"] for page in pages for event in page["events"]]

    def function_pids(self, function_name: str) -> list[int]:
        """Return the process ids of a function's warm workers; more than one only when it ran concurrently."""
        mark = str(self._temporary / f"ministack-lambda-{function_name}-")
        listing = run(["ps", "-A", "-ww", "-o", "pid=,command="])
        return [int(line.split(None, 1)[0]) for line in listing.splitlines() if mark in line]

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            gateway = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
            try:
                gateway.request("GET", "/_ministack/health")
                if gateway.getresponse().status == http.HTTPStatus.OK:
                    return
            except OSError:
                time.sleep(0.05)
            finally:
                gateway.close()
        raise EmulatorError(f"no answer within {START_TIMEOUT_S} s:\n{self.log_file.read_text()[-2000:]}")

    def _number_concurrency(self) -> None:
        """Tell the mappings their own MaximumConcurrency again, as a number.

        A template's parameters are text and CloudFormation makes numbers of them. The emulator keeps this one as text,
        and no queue is polled while one mapping's limit cannot be compared.
        """
        functions = self.session().client("lambda")
        for page in functions.get_paginator("list_event_source_mappings").paginate():
            for mapping in page["EventSourceMappings"]:
                limit = int(mapping["ScalingConfig"]["MaximumConcurrency"])
                functions.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": limit})

    def _allow_calls(self) -> None:
        """Let roles call here what they may call on AWS: see CALLS."""
        iam = self.session().client("iam")
        for role in iam.list_roles()["Roles"]:
            name = role["RoleName"]
            for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
                held: Any = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
                calls = [
                    {
                        "Effect": "Allow",
                        "Action": CALLS[action],
                        "Resource": "*" if "PartiQL" in action else statement["Resource"],
                    }
                    for statement in held["Statement"]
                    for action in statement["Action"]
                    if action in CALLS
                ]
                if calls:
                    document = json.dumps({"Version": held["Version"], "Statement": calls})
                    iam.put_role_policy(RoleName=name, PolicyName=f"{policy}-calls", PolicyDocument=document)

    def _emulator_env(self) -> Mapping[str, str]:
        """Functions inherit the emulator's environment, so it gets no more of ours than it needs."""
        return {
            **self.env,
            "PATH": self._caller_env["PATH"],
            "HOME": str(self._state),
            "TMPDIR": str(self._temporary),
            "GATEWAY_PORT": str(self._port),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "MINISTACK_REGION": self._region,
            "AUTH": str(self._enforce_iam).lower(),
        }

    def _sam(self, command: str, *arguments: str | Path) -> None:
        config = ("--config-file", INFRA / "samconfig.toml", "--config-env", "local")
        env = {
            **self._caller_env,
            **self.env,
            # The build calls `python3.13 -m pip`; this interpreter's environment has both.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{self._caller_env['PATH']}",
            "SAM_CLI_TELEMETRY": "0",
            "SAM_CLI_BETA_BUILD_PERFORMANCE": "1",  # links a cached build instead of copying it for every function
            "__SAM_CLI_APP_DIR": str(self._state / "sam"),
        }
        sam = uv_tool("sam.txt", "--from", "aws-sam-cli", "sam")
        # It keeps the installed packages between builds under its working directory.
        run([*sam, command, *map(str, config), *map(str, arguments)], env, self._build)


class _Endpoint(botocore.session.Session):
    """A session whose clients go to one endpoint, even where the environment names another."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def create_client(self, *arguments: Any, **options: Any) -> Any:
        return super().create_client(*arguments, **(options | {"endpoint_url": self._url}))


def uv_tool(requirements: str, *arguments: str) -> tuple[str, ...]:
    """Return the start of a command that runs in an environment made from a file of versions beside this package."""
    constraints = INFRA / "local" / requirements
    uv = os.environ.get("UV", "uv")  # noqa: TID251  (uv tells its children where it is)
    return (uv, "tool", "run", "--quiet", "--python", "3.13", "--constraints", str(constraints), *arguments)


def zip_once(package: Path) -> None:
    """Make one archive of the code that the functions of a built template share, and let them all name it.

    `sam deploy` would compress the same tree for each function. Nothing is compressed: it only goes to this machine,
    where every worker process unpacks a copy of its own. So the descriptions of services that no function calls stay
    behind: they are two thirds of all files.
    """
    template = package / "template.yaml"
    built = re.compile(r"(?<=CodeUri: )[A-Z][\w-]+$", re.MULTILINE)
    folders = sorted(set(built.findall(template.read_text())))
    with zipfile.ZipFile(package / "code.zip", "w", zipfile.ZIP_STORED) as archive:
        for file in sorted((package / folders[0]).rglob("*")):
            within = file.relative_to(package / folders[0])
            if not _describes_unused_service(within):
                archive.write(file, within)
    template.write_text(built.sub("code.zip", template.read_text()))


def _describes_unused_service(file: Path) -> bool:
    match file.parts:
        case ("botocore", "data", service, *rest):
            return bool(rest) and service not in SERVICES_CALLED
        case _:
            return False


def run(command: Sequence[str], env: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a command to its end and return what it printed; raises EmulatorError with that when it fails.

    An interruption ends the command's whole process group: the tools start others.
    """
    try:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise EmulatorError(f"{command[0]} is not there: install uv (python3 -m pip install uv)") from None
    with process:
        try:
            printed, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise EmulatorError(f"{' '.join(command)} failed:\n{printed}")
    return printed


def free_port() -> int:
    """Return a TCP port of this machine that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
