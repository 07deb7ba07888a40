"""What another service calls pushlease with: it invokes the functions, and needs boto3 alone.

======================  ============================================================================
``sync``                ``Pushlease``: one method for each thing that can be asked for
``aio``                 ``AsyncPushlease``: the same methods, to be awaited
``requests``            what is asked, as the functions take it: pure
``answers``             what they answer, typed
``invoke``              one call of Lambda, tried a few times
``errors``              what is raised, in one tree
======================  ============================================================================

Instants go in as ``datetime`` and spans as ``timedelta``; what comes back is epoch milliseconds. See docs/client.md.
"""

from pushlease.client.aio import AsyncPushlease
from pushlease.client.answers import (
    Accepted,
    AudienceAccepted,
    AudienceMoved,
    AudienceStatus,
    Cancelled,
    CancelledJob,
    Delivery,
    Device,
    Erased,
    InboxEntry,
    InboxPage,
    Job,
    JobStatus,
    ListFault,
    Marked,
    Moment,
    Preferences,
    QuietHours,
    Registered,
    Statuses,
)
from pushlease.client.errors import (
    BadAnswer,
    CallFailed,
    Fault,
    FunctionFailed,
    NoAnswer,
    NotInvoked,
    PartlyAccepted,
    Refused,
    TooLarge,
)
from pushlease.client.sync import Pushlease
from pushlease.push.device import Address, Environment, Platform
from pushlease.push.notification import Content, Priority
from pushlease.push.plan import Target
from pushlease.push.preference import Transport

__all__ = [
    "Accepted",
    "Address",
    "AsyncPushlease",
    "AudienceAccepted",
    "AudienceMoved",
    "AudienceStatus",
    "BadAnswer",
    "CallFailed",
    "Cancelled",
    "CancelledJob",
    "Content",
    "Delivery",
    "Device",
    "Environment",
    "Erased",
    "Fault",
    "FunctionFailed",
    "InboxEntry",
    "InboxPage",
    "Job",
    "JobStatus",
    "ListFault",
    "Marked",
    "Moment",
    "NoAnswer",
    "NotInvoked",
    "PartlyAccepted",
    "Platform",
    "Preferences",
    "Priority",
    "Pushlease",
    "QuietHours",
    "Refused",
    "Registered",
    "Statuses",
    "Target",
    "TooLarge",
    "Transport",
]
