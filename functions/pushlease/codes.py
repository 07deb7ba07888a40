"""The closed vocabulary of why a delivery did not succeed. Knows nothing of rows, providers or AWS.

======================= ======= =====================================================================
code                    retried why
======================= ======= =====================================================================
rate_limited            yes     slow down, not stop; Retry-After is a floor
network_error           yes     says nothing about the device
provider_error          yes     5xx, or a credential fault that can be fixed
internal_error          yes     our own code raised while attempting this job
invalid_token           no      the provider disowned the push token
expired_token           no      likewise, by age
device_deleted          no      the device row is gone, or belongs to another recipient by now
expired                 no      ``expires_at`` passed before an attempt could succeed
payload_too_large       no      stays too large
rejected                no      malformed request; not the device's fault
unreadable              no      the row or message cannot be parsed; no retry can fix it
lost                    no      claimed ``max_attempts`` times, never settled: it kills its worker
provider_not_configured no      never enqueued: only ever the reason of a skipped delivery
======================= ======= =====================================================================
"""

from enum import StrEnum


class Code(StrEnum):
    """A result code: why one delivery failed, or is not through yet."""

    RATE_LIMITED = "rate_limited"
    NETWORK_ERROR = "network_error"
    PROVIDER_ERROR = "provider_error"
    INTERNAL_ERROR = "internal_error"
    INVALID_TOKEN = "invalid_token"  # noqa: S105  (the code's name, no secret)
    EXPIRED_TOKEN = "expired_token"  # noqa: S105  (the code's name, no secret)
    DEVICE_DELETED = "device_deleted"
    EXPIRED = "expired"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    LOST = "lost"
    PROVIDER_NOT_CONFIGURED = "provider_not_configured"

    @property
    def retried(self) -> bool:
        """Whether another attempt may succeed without anybody's help."""
        return self in _RETRIED


_RETRIED = frozenset({Code.RATE_LIMITED, Code.NETWORK_ERROR, Code.PROVIDER_ERROR, Code.INTERNAL_ERROR})
# Devices die and notifications grow stale every day: a job that failed only so is done, not dead.
CHURN = frozenset({Code.INVALID_TOKEN, Code.EXPIRED_TOKEN, Code.DEVICE_DELETED, Code.EXPIRED})
