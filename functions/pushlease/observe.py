"""What people see of the system: one structured line a decision, metrics by app and code, and nothing secret.

Nobody passes secrets, bearers, whole push tokens or message text to a log. Should somebody, the formatter is the last
barrier: keys that name such things lose their value, and text that looks like a credential is cut.
"""

import json
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter
from aws_lambda_powertools.metrics import MetricUnit

from pushlease.jobs.engine import Report
from pushlease.jobs.job import JobId
from pushlease.jobs.ports import Letter
from pushlease.push.audience import Audience, State
from pushlease.push.flow import Way

REDACTED = "[redacted]"

_SECRET_KEYS = frozenset(
    {
        "authorization",
        "bearer",
        "access_token",
        "assertion",
        "private_key",
        "secret_value",
        "content",
        "title",
        "subtitle",
        "body",
        "payload",
        "data",
    }
)
_PUSH_TOKEN_KEYS = frozenset({"push_token", "device_token", "registration_token"})
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"  # a PEM, or its beginning
    r"|\beyJ[\w-]{8,}\.[\w-]+\.?[\w-]*"  # a JWT: base64url of {"
    r"|\bya29\.[\w.-]+"  # a Google access token
    r"|(?i:\bbearer\s+[\w.~+/-]{16,}=*)",
    re.DOTALL,
)
# 64 hex digits are an APNs push token (and a SHA-256, which nobody needs in a log); our job ids have 40.
_PUSH_TOKEN_TEXT = re.compile(r"\b[0-9a-fA-F]{58,}([0-9a-fA-F]{6})\b|\b[\w-]+:APA91[\w-]{20,}([\w-]{6})")


def redacted(value: Any) -> Any:
    """The value without what must not be logged; keys and text alike, at any depth."""
    if isinstance(value, Mapping):
        return {key: _redacted_field(str(key).lower(), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(inner) for inner in value]
    if isinstance(value, str):
        cut = _SECRET_TEXT.sub(REDACTED, value)
        return _PUSH_TOKEN_TEXT.sub(lambda match: f"…{match[1] or match[2]}", cut)
    return value


def _redacted_field(key: str, value: Any) -> Any:
    if key in _SECRET_KEYS:
        return REDACTED
    if key in _PUSH_TOKEN_KEYS and isinstance(value, str):
        return f"…{value[-6:]}"
    return redacted(value)


class RedactingFormatter(LambdaPowertoolsFormatter):
    """Powertools' JSON lines, redacted; ``redact=False`` only to show that the tests' scanner finds things."""

    def __init__(self, *, redact: bool = True, **options: Any) -> None:
        self._redact = redact
        super().__init__(**options)

    def serialize(self, log: dict[str, Any]) -> str:  # type: ignore[override]
        """One line of JSON."""
        return json.dumps(redacted(log) if self._redact else log, default=str, ensure_ascii=False)


class Observer:
    """Writes the log lines and metrics of one function."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self.logger = logger
        self.metrics = metrics

    def fault(self, job_id: JobId, error: Exception) -> None:
        """An exception while attempting a job: where it came from, without its message, which may quote the row."""
        frames = traceback.extract_tb(error.__traceback__)[-5:]
        self.logger.error(
            "fault",
            job_id=job_id,
            error=type(error).__name__,
            at=[f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames],
        )

    def alarm(self, app_id: str, platform: str, reason: str) -> None:
        """A fault in keys, topics or hosts, which strikes every device: a person must look."""
        self.logger.error("provider_alarm", app_id=app_id, platform=platform, reason=reason)
        self.metrics.add_metric(name="provider_alarm", unit=MetricUnit.Count, value=1)

    def breaker(self, way: Way, event: str) -> None:
        """A breaker that this process opened, or closed again; while it is open jobs wait and spend no attempts."""
        log = self.logger.error if event == "opened" else self.logger.info
        log(f"breaker_{event}", app_id=way.app_id, platform=way.platform, environment=way.environment)
        self.metrics.add_metric(name=f"breaker_{event}", unit=MetricUnit.Count, value=1)

    def flow_fault(self, error: Exception) -> None:
        """The store of breakers and quotas did not answer: nobody was held back."""
        self.logger.warning("flow_fault", error=type(error).__name__)
        self.metrics.add_metric(name="flow_fault", unit=MetricUnit.Count, value=1)

    def answered(self, event: str, answer: Mapping[str, Any]) -> None:
        """One line for one request: what was refused and why, or which notification it was."""
        log = self.logger.info if answer["ok"] else self.logger.warning
        log(
            event,
            ok=answer["ok"],
            errors=answer.get("errors", []),
            notification_id=answer.get("notification_id", ""),
            jobs=len(answer.get("jobs", [])),
        )
        self.metrics.add_metric(name=event if answer["ok"] else "bad_request", unit=MetricUnit.Count, value=1)

    def request_fault(self, error: Exception) -> None:
        """A request that could not be answered; its queue keeps it."""
        self.logger.error("request_fault", error=type(error).__name__)
        self.metrics.add_metric(name="request_fault", unit=MetricUnit.Count, value=1)

    def audience_ended(self, audience: Audience, state: State) -> None:
        """An audience that is over."""
        self.logger.info("audience_ended", ref=audience.ref, state=state, pages=audience.listed.pages)
        self.metrics.add_metric(name=f"audience_{state}", unit=MetricUnit.Count, value=1)

    def unreadable(self, message_id: str, fault: str) -> None:
        """A message that no retry can help; it goes to the dead-letter queue at once."""
        self.logger.error("unreadable_message", message_id=message_id, detail=fault)
        self.metrics.add_metric(name="unreadable_message", unit=MetricUnit.Count, value=1)

    def redriven(self, letters: Sequence[Letter]) -> None:
        """Jobs that a person brought back by moving their letters."""
        for letter in letters:
            self.logger.info("redriven", job_id=letter.job_id, app_id=letter.app_id, redrives=letter.redrives + 1)
            self.metrics.add_metric(name="redriven", unit=MetricUnit.Count, value=1)

    def drained(self, told: Mapping[str, int]) -> None:
        """One line a tick: jobs decided, letters sent again, lanes that have more."""
        self.logger.info("drained", extra=dict(told))
        self.metrics.add_metric(name="drained", unit=MetricUnit.Count, value=1)

    def throttled(self, statements: int) -> None:
        """Statements that the jobs table throttled, and that were repeated."""
        if statements:
            self.logger.warning("throttled_statements", statements=statements)
            self.metrics.add_metric(name="throttled_statements", unit=MetricUnit.Count, value=statements)

    def unhinted(self, hints: int) -> None:
        """Hints that the queue did not take; their jobs wait for the drain."""
        if hints:
            self.logger.warning("hints_unpublished", hints=hints)
            self.metrics.add_metric(name="hints_unpublished", unit=MetricUnit.Count, value=hints)

    def report(self, report: Report) -> None:
        """One line a decision, one metric a kind of decision and a delivery's end."""
        for decision in report.decisions:
            log = self.logger.warning if decision.event in _WORTH_A_LOOK else self.logger.info
            log(
                decision.event,
                job_id=decision.job_id,
                app_id=decision.app_id,
                notification_id=decision.notification_id,
                status=decision.status,
                attempts=decision.attempts,
                claim_seq=decision.claim_seq,
                deliveries=dict(decision.deliveries),
                detail=decision.detail,
            )
            self.metrics.add_metric(name=decision.event, unit=MetricUnit.Count, value=1)
            if decision.event == "settled" and decision.status == "dead":
                self.metrics.add_metric(name="dead", unit=MetricUnit.Count, value=1)
        self.unhinted(report.unpublished)
        if report.unburied:
            self.logger.warning("letters_unsent", letters=report.unburied)
            self.metrics.add_metric(name="letters_unsent", unit=MetricUnit.Count, value=report.unburied)

    def flushed[T](self, work: Callable[[], T]) -> T:
        """Run a handler's work and write its metrics, whatever becomes of it."""
        try:
            return work()
        finally:
            # An invocation without a metric has nothing to flush; Powertools would warn.
            if self.metrics.metric_set:
                self.metrics.flush_metrics()


_WORTH_A_LOOK = frozenset(
    {"lease_lost", "unsettled", "unclaimed", "unended", "lane_failed", "page_failed", "exhausted", "condemned"}
)


def observer(function: str) -> Observer:
    """The observer of one function; service, level and namespace come from Powertools' own variables."""
    logger = Logger(
        service=f"pushlease-{function}", logger_formatter=RedactingFormatter(), log_uncaught_exceptions=False
    )
    return Observer(logger, Metrics(service=f"pushlease-{function}"))
