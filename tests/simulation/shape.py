"""What a run plays: a deployment and its manners, and the notifications that are sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from pushlease.jobs.job import JobId, job_id_of
from simulation.dynamodb import ROW_BYTES
from simulation.sqs import Manners

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
IN_APP = "in_app"  # the delivery to the inbox
CHANNEL = "news"  # what a recipient may switch off


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The deployment that a run plays: as tight as the settings allow where it matters."""

    timeout: timedelta = timedelta(seconds=50)
    lease: timedelta = timedelta(seconds=66)  # the least that settings accept beside this timeout
    max_skew_ms: int = 7_500  # two clocks are then 15 s apart, which is what the lease allows for
    lanes: int = 2
    page: int = 50
    batch: int = 10
    concurrency: int = 4
    max_receives: int = 3
    burial_receives: int = 3  # the burial queue's own maximum
    burial_read_from_ms: int = 0  # when its consumer is there at last
    visibility_ms: int = 300_000
    index_lag_ms: tuple[int, int] = (5, 5)
    latency_ms: tuple[int, int] = (2, 2)
    freeze_ms: tuple[int, int] = (190_000, 190_000)  # beyond lease and grace, and the tick that follows them
    ticks: int = 1  # how many drains one tick of the schedule starts
    second_ticks: bool = False
    throttled_pulls: float = 0.0
    lost_deletes: float = 0.0
    breaker_after: int = 10
    hidden_rows: float = 0.0  # how often a failed condition does not show its row
    row_bytes: int = ROW_BYTES
    manners: Manners = field(default_factory=Manners)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A notification to be sent: scripts by device, each answer once and the last for ever.

    ``app``: whose it is. ``expires_in_s``: its ttl. ``large``: its content is too large for a job's row, so that all
    large ones share it. ``in_app``: to the inbox too. ``channel``: of the kind that a recipient may switch off.
    """

    user: str
    scripts: Mapping[str, Sequence[str]]
    max_attempts: int = 5
    expires_in_s: int = 24 * 3600
    deliver_in_ms: int = 0
    app: str = "shop"
    large: bool = False
    in_app: bool = False
    channel: bool = False

    @property
    def notification_id(self) -> str:
        return "large" if self.large else "small"

    @property
    def job_id(self) -> JobId:
        return job_id_of(self.app, self.notification_id, self.user)
