"""The deployment's settings, parsed once, all faults listed together. The only module that reads the environment."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path

from pushlease.codes import Code
from pushlease.errors import SettingsError
from pushlease.jobs.retry import RetryPolicy, Schedule, exponential, listed
from pushlease.jobs.settle import DEAD_CODES
from pushlease.push.device import FCM_STALE_AFTER, MAX_DEVICES

# Instances' clocks differ, and a frozen worker thaws late: a lease must outlive the function's own end by this much.
CLOCK_SKEW = timedelta(seconds=15)

_ORIGIN = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator sets; ``infra/template.yaml`` describes each."""

    jobs_table: str
    devices_table: str
    recipients_table: str
    inbox_table: str
    notifications_table: str
    apps_table: str
    flow_table: str
    audiences_table: str
    audience_bucket: str
    work_queue_url: str
    bulk_queue_url: str
    tick_queue_url: str
    burial_queue_url: str
    requests_queue_url: str
    lease: timedelta
    function_timeout: timedelta
    grace: timedelta
    max_attempts: int
    lanes: int
    drained_lanes: int
    drain_batch_size: int
    retry: RetryPolicy
    apns_retry_floor: timedelta
    fcm_retry_floor: timedelta
    breaker_after: int
    fcm_quota_per_minute: int
    tick_offsets: tuple[timedelta, ...]
    burial_check: timedelta
    dead_codes: frozenset[Code]
    redrive_spread: timedelta
    quiet_spread: timedelta
    recipient_index: bool
    max_devices: int
    fcm_stale_after: timedelta
    request_timeout: timedelta
    done_kept: timedelta
    dead_kept: timedelta
    inbox_kept: timedelta
    apns_production_url: str
    apns_sandbox_url: str
    fcm_url: str
    provider_ca_file: str | None
    secret_prefix: str


def from_environment() -> Settings:
    """The settings of this execution environment; raises ``SettingsError``."""
    return parse(os.environ)  # noqa: TID251  (this is the one place)


def parse(environment: Mapping[str, str]) -> Settings:
    """Settings from ``PUSHLEASE_*`` variables; raises ``SettingsError`` with one line a fault."""
    read = _Reader(environment)
    cap = read.seconds("RETRY_CAP_S", 3600, at_least=1)
    lease = read.seconds("LEASE_S", 120, at_least=1)
    timeout = read.seconds("FUNCTION_TIMEOUT_S", 50, at_least=1)
    if lease <= timeout + CLOCK_SKEW:
        read.fault("LEASE_S", f"must be more than FUNCTION_TIMEOUT_S + {CLOCK_SKEW.seconds} s, for clocks differ")
    request_timeout = read.seconds("REQUEST_TIMEOUT_S", 10, at_least=1)
    if request_timeout > timeout / 2:
        read.fault("REQUEST_TIMEOUT_S", "must be at most half of FUNCTION_TIMEOUT_S, or no attempt is ever started")
    lanes = read.whole("LANES", 16, at_least=1, at_most=256)
    settings = Settings(
        jobs_table=read.text("JOBS_TABLE"),
        devices_table=read.text("DEVICES_TABLE"),
        recipients_table=read.text("RECIPIENTS_TABLE"),
        inbox_table=read.text("INBOX_TABLE"),
        notifications_table=read.text("NOTIFICATIONS_TABLE"),
        apps_table=read.text("APPS_TABLE"),
        flow_table=read.text("FLOW_TABLE"),
        audiences_table=read.text("AUDIENCES_TABLE"),
        audience_bucket=read.text("AUDIENCE_BUCKET", ""),
        work_queue_url=read.text("WORK_QUEUE_URL"),
        bulk_queue_url=read.text("BULK_QUEUE_URL"),
        tick_queue_url=read.text("TICK_QUEUE_URL"),
        burial_queue_url=read.text("BURIAL_QUEUE_URL"),
        requests_queue_url=read.text("REQUESTS_QUEUE_URL", ""),
        lease=lease,
        function_timeout=timeout,
        grace=lease + read.seconds("DISPATCH_MARGIN_S", 60, at_least=1),
        max_attempts=read.whole("MAX_ATTEMPTS", 5, at_least=1, at_most=100),
        lanes=lanes,
        drained_lanes=max(lanes, read.whole("LANES_EVER", 16, at_least=1, at_most=256)),
        drain_batch_size=read.whole("DRAIN_BATCH_SIZE", 50, at_least=1, at_most=500),
        retry=read.retry("RETRY_SCHEDULE", "30 120 480 1920 3600", cap),
        apns_retry_floor=read.seconds("RETRY_FLOOR_APNS_S", 60),
        fcm_retry_floor=read.seconds("RETRY_FLOOR_FCM_S", 60),
        breaker_after=read.whole("BREAKER_AFTER", 10, at_least=1, at_most=1000),
        fcm_quota_per_minute=read.whole("FCM_QUOTA_PER_MINUTE", 600_000, at_least=600, at_most=100_000_000),
        tick_offsets=read.spans("TICK_OFFSETS_S", "30", at_most=59),
        burial_check=read.seconds("BURIAL_CHECK_S", 300, at_least=1),
        dead_codes=read.codes("DEAD_CODES", DEAD_CODES),
        redrive_spread=read.seconds("REDRIVE_SPREAD_S", 5),
        quiet_spread=read.seconds("QUIET_SPREAD_S", 600),
        recipient_index=read.flag("RECIPIENT_INDEX", "true"),
        max_devices=read.whole("MAX_DEVICES", MAX_DEVICES, at_least=1, at_most=100),
        fcm_stale_after=timedelta(days=read.whole("FCM_STALE_DAYS", FCM_STALE_AFTER.days, at_least=1, at_most=3650)),
        request_timeout=request_timeout,
        done_kept=timedelta(days=read.whole("DONE_TTL_DAYS", 7, at_least=1, at_most=3650)),
        dead_kept=timedelta(days=read.whole("DEAD_TTL_DAYS", 30, at_least=1, at_most=3650)),
        inbox_kept=timedelta(days=read.whole("INBOX_DAYS", 90, at_least=1, at_most=3650)),
        apns_production_url=read.url("APNS_PRODUCTION_URL", "https://api.push.apple.com"),
        apns_sandbox_url=read.url("APNS_SANDBOX_URL", "https://api.sandbox.push.apple.com"),
        fcm_url=read.url("FCM_URL", "https://fcm.googleapis.com"),
        provider_ca_file=read.file("PROVIDER_CA_FILE"),
        secret_prefix=read.text("SECRET_PREFIX", "pushlease/"),
    )
    if read.faults:
        raise SettingsError("\n".join(read.faults))
    return settings


class _Reader:
    """Reads variables one by one and collects what is wrong with them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.faults: list[str] = []

    def fault(self, name: str, rule: str) -> None:
        self.faults.append(f"PUSHLEASE_{name}: {rule}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._environment.get(f"PUSHLEASE_{name}", default)
        if value is None or (default is None and not value):
            self.fault(name, "must be set")
        return value or ""

    def url(self, name: str, default: str) -> str:
        value = self.text(name, default).rstrip("/")
        if not _ORIGIN.fullmatch(value):
            self.fault(name, "must be https:// and a host, with a port if need be, and no path")
        return value

    def file(self, name: str) -> str | None:
        path = self.text(name, "")
        if path and not Path(path).is_file():
            self.fault(name, "must be a file of the deployment or of a layer, or empty")
        return path or None

    def whole(self, name: str, default: int, *, at_least: int, at_most: int) -> int:
        text = self.text(name, str(default))
        if not text.isdecimal() or len(text) > 9 or not at_least <= int(text) <= at_most:
            self.fault(name, f"must be a whole number from {at_least} to {at_most}")
            return default
        return int(text)

    def flag(self, name: str, default: str) -> bool:
        text = self.text(name, default)
        if text not in ("true", "false"):
            self.fault(name, "must be true or false")
        return text == "true"

    def seconds(self, name: str, default: int, *, at_least: int = 0) -> timedelta:
        # A day: longer spans belong to an expiry, not to a lease, a timeout or a floor.
        return timedelta(seconds=self.whole(name, default, at_least=at_least, at_most=86_400))

    def spans(self, name: str, default: str, *, at_most: float) -> tuple[timedelta, ...]:
        parts = self.text(name, default).replace(",", " ").split()
        try:
            spans = [float(part) for part in parts]
        except ValueError:
            spans = [-1.0]
        if not all(0 < span <= at_most for span in spans):
            self.fault(name, f"must be a list of seconds, each more than 0 and at most {at_most:g}")
            return ()
        return tuple(timedelta(seconds=span) for span in spans)

    def codes(self, name: str, default: frozenset[Code]) -> frozenset[Code]:
        """Result codes; empty means the default."""
        words = self.text(name, "").replace(",", " ").split()
        unknown = [word for word in words if word not in set(Code)]
        if unknown:
            self.fault(name, f"must be a list of result codes, not {' '.join(unknown)}")
            return default
        return frozenset(map(Code, words)) or default

    def retry(self, name: str, default: str, cap: timedelta) -> RetryPolicy:
        """``exponential``, a list of seconds, or the dotted path of a function from the attempt's number to a span."""
        text = self.text(name, default)
        if text == "exponential":
            return exponential(cap=cap)
        if "." in text and text[0].isalpha():
            return RetryPolicy(schedule=self._function(name, text), cap=cap)
        spans = self.spans(name, text, at_most=86_400)
        if not spans:
            self.fault(name, "must be exponential, the dotted path of a function, or at least one span in seconds")
            return exponential(cap=cap)
        return RetryPolicy(schedule=listed(spans), cap=cap)

    def _function(self, name: str, path: str) -> Schedule:
        module, _, function = path.rpartition(".")
        try:
            found: Callable[[int], timedelta] = getattr(import_module(module), function)
            if isinstance(found(1), timedelta):
                return _guarded(found)
            self.fault(name, f"{path} must return a timedelta")
        except Exception as error:  # the operator's own code
            self.fault(name, f"{path} cannot be used ({type(error).__name__})")
        return lambda _: timedelta(0)


def _guarded(schedule: Schedule) -> Schedule:
    """A schedule that never raises: it is asked after pushes went out, when their results must be settled."""

    def span(attempt: int) -> timedelta:
        try:
            wanted = schedule(attempt)
        except Exception:  # the operator's own code
            return timedelta.max
        return wanted if isinstance(wanted, timedelta) and wanted >= timedelta(0) else timedelta.max

    return span
