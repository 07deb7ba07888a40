"""The client: what a service asks pushlease for, a method each. It reads the dice and makes ids, and no clock."""

import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from pushlease.client import answers
from pushlease.client.answers import (
    Accepted,
    AudienceAccepted,
    AudienceMoved,
    AudienceStatus,
    Cancelled,
    Device,
    Erased,
    InboxPage,
    Job,
    Marked,
    Preferences,
    QuietHours,
    Registered,
    Statuses,
)
from pushlease.client.errors import BadAnswer, CallFailed, PartlyAccepted
from pushlease.client.invoke import Invoker, LambdaClient, backoff, lambda_client
from pushlease.client.requests import (
    addressed,
    audience_of,
    content_of,
    deliver_at_of,
    given,
    instant_ms,
    parts_of,
    seconds_of,
    targets_of,
    window_of,
)
from pushlease.errors import SettingsError
from pushlease.push.device import Address, Environment, Platform
from pushlease.push.notification import Content
from pushlease.push.plan import Target
from pushlease.push.preference import Transport

TRIES = 4


def fresh_id() -> str:
    """A random id, 128 bits in hex."""
    return uuid.uuid4().hex


class Pushlease:
    """Calls pushlease's functions by their names or ARNs; threads may share it.

    ``lambda_client``: boto3's, if the caller has one; without it one is made at the first call. ``new_id`` names sends
    that have no name. Every call is made ``tries`` times at most, and raises ``CallFailed``.
    """

    def __init__(
        self,
        *,
        send_function: str,
        registry_function: str | None = None,
        lambda_client: LambdaClient | None = None,
        new_id: Callable[[], str] = fresh_id,
        pause: Callable[[float], None] = time.sleep,
        dice: Callable[[], float] = random.random,
        tries: int = TRIES,
    ) -> None:
        self._send_function = send_function
        self._registry_function = registry_function
        self._client = lambda_client
        self._making = Lock()
        self._new_id = new_id
        self._invoker = Invoker(client=self._made_once, pause=pause, dice=dice, backoff=backoff(), tries=tries)

    def send(
        self,
        app_id: str,
        content: Content,
        *,
        recipients: Iterable[str] = (),
        devices: Iterable[Target] = (),
        transports: Collection[Transport] | None = None,
        channel: str | None = None,
        ttl: timedelta | None = None,
        expires_at: datetime | None = None,
        deliver_at: datetime | None = None,
        idempotency_key: str | None = None,
        notification_id: str | None = None,
        max_attempts: int | None = None,
        dry_run: bool = False,
    ) -> Accepted:
        """Send one notification to up to 5,000 recipients (user ids) and devices; safe to repeat under the same name.

        Without a name it gets an idempotency key of its own, for all its tries. More than 500 targets go in several
        calls, one after another under that name; the first that fails ends it. ``deliver_at`` with a zone is an
        instant, without one what each recipient's own clock shall read. Raises ``PartlyAccepted`` where some are
        accepted and others are not, or not known to be.
        """
        targets = targets_of(recipients, devices)
        said = self._named(
            app_id=app_id,
            content=content_of(content),
            transports=None if transports is None else list(transports),
            channel=channel,
            ttl_s=seconds_of(ttl),
            expires_at_ms=instant_ms("expires_at", expires_at),
            **deliver_at_of(deliver_at),
            idempotency_key=idempotency_key,
            notification_id=notification_id,
            max_attempts=max_attempts,
            dry_run=dry_run or None,
        )
        with _naming(said):
            return self._in_parts(said, targets)

    def send_audience(
        self,
        app_id: str,
        content: Content,
        *,
        key: str | None = None,
        recipients: Iterable[str] | Mapping[str, Mapping[str, str]] = (),
        rate_per_s: int | None = None,
        transports: Collection[Transport] | None = None,
        channel: str | None = None,
        ttl: timedelta | None = None,
        expires_at: datetime | None = None,
        deliver_at: datetime | None = None,
        idempotency_key: str | None = None,
        notification_id: str | None = None,
        max_attempts: int | None = None,
        dry_run: bool = False,
    ) -> AudienceAccepted:
        """Send one notification to a long list: an object's ``key``, or up to 5,000 ``recipients``; safe to repeat.

        ``recipients``: user ids, or a mapping of each to what is filled into the content's ``{{ names }}`` for it. What
        else is said, and how it is named, is as with ``send``.
        """
        said = self._named(
            app_id=app_id,
            content=content_of(content),
            audience=audience_of(key, recipients, rate_per_s),
            transports=None if transports is None else list(transports),
            channel=channel,
            ttl_s=seconds_of(ttl),
            expires_at_ms=instant_ms("expires_at", expires_at),
            **deliver_at_of(deliver_at),
            idempotency_key=idempotency_key,
            notification_id=notification_id,
            max_attempts=max_attempts,
            dry_run=dry_run or None,
        )
        with _naming(said):
            return self._ask_send(answers.audience_accepted, action="send_audience", **said)

    def audience_status(self, app_id: str, notification_id: str) -> AudienceStatus:
        """How far an audience is, as of its pages' last counts."""
        return self._ask_audience(answers.audience_status, "audience_status", app_id, notification_id)

    def pause_audience(self, app_id: str, notification_id: str) -> AudienceMoved:
        """Let an audience wait: nothing of it is sent until it is resumed."""
        return self._ask_audience(answers.audience_moved, "pause_audience", app_id, notification_id)

    def resume_audience(self, app_id: str, notification_id: str) -> AudienceMoved:
        """Let a paused audience go on."""
        return self._ask_audience(answers.audience_moved, "resume_audience", app_id, notification_id)

    def status(
        self,
        app_id: str,
        *,
        notification_id: str | None = None,
        user_id: str | None = None,
        device_id: str | None = None,
        limit: int | None = None,
        before_ms: int | None = None,
    ) -> Statuses:
        """What became of a notification, of a recipient's notifications, or of one delivery (name all three).

        A recipient's come newest first; ``before_ms`` goes on where the last page's ``next_before_ms`` says.
        """
        return self._ask_send(
            answers.statuses,
            action="status",
            app_id=app_id,
            notification_id=notification_id,
            user_id=user_id,
            device_id=device_id,
            limit=limit,
            before_ms=before_ms,
        )

    def cancel(
        self, app_id: str, notification_id: str, *, recipients: Iterable[str] = (), devices: Iterable[Target] = ()
    ) -> Cancelled:
        """Withdraw a notification, for those named or for everybody: what was sent stays sent, and nothing more is.

        More than 500 go in several calls; after one that fails the same cancel again completes it.
        """
        told = [
            self._ask_send(
                answers.cancelled, action="cancel", app_id=app_id, notification_id=notification_id, **addressed(part)
            )
            for _, part in parts_of(targets_of(recipients, devices))
        ]
        jobs = tuple(job for each in told for job in each.jobs)
        return Cancelled(notification_id=notification_id, jobs=jobs, state=told[0].state)

    def register_device(
        self,
        app_id: str,
        user_id: str,
        device_id: str,
        *,
        platform: Platform,
        push_token: str,
        environment: Environment | None = None,
        topic: str | None = None,
        address: Address | None = None,
        locale: str | None = None,
        zone: str | None = None,
        app_version: str | None = None,
    ) -> Registered:
        """Store or refresh a device. For Apple's, ``environment`` and ``topic`` (the bundle ID) must be said.

        ``zone``: an IANA name, of which the recipient's quiet hours are, as long as no preference names another.
        """
        return self._ask_registry(
            answers.registered,
            action="register_device",
            app_id=app_id,
            user_id=user_id,
            device_id=device_id,
            platform=platform,
            push_token=push_token,
            environment=environment,
            topic=topic,
            address=address,
            locale=locale,
            zone=zone,
            app_version=app_version,
        )

    def remove_device(self, app_id: str, user_id: str, device_id: str) -> bool:
        """Forget a device. Whether this call did: not if it was gone, as after an earlier try of the same call."""
        return self._ask_registry(
            answers.removed, action="remove_device", app_id=app_id, user_id=user_id, device_id=device_id
        )

    def list_devices(self, app_id: str, user_id: str) -> tuple[Device, ...]:
        """A recipient's devices, with the ends of their push tokens."""
        return self._ask_registry(answers.devices, action="list_devices", app_id=app_id, user_id=user_id)

    def set_preferences(
        self,
        app_id: str,
        user_id: str,
        *,
        channels: Mapping[str, Mapping[Transport, bool]] | None = None,
        muted_until: Mapping[str, datetime] | None = None,
        quiet_hours: Sequence[QuietHours] = (),
        zone: str | None = None,
        locale: str | None = None,
    ) -> None:
        """Replace what a recipient wants; but ``zone`` (an IANA name) and ``locale`` stay as they are if left out.

        ``muted_until``: channel, or ``*`` for all, → until when no push is wanted.
        """
        muted = {name: instant_ms(f"muted_until.{name}", moment) for name, moment in (muted_until or {}).items()}
        self._ask_registry(
            lambda _: None,
            action="set_preferences",
            app_id=app_id,
            user_id=user_id,
            channels=channels and {name: dict(switches) for name, switches in channels.items()},
            muted_until_ms=muted or None,
            quiet_hours=[window_of(window) for window in quiet_hours] or None,
            zone=zone,
            locale=locale,
        )

    def get_preferences(self, app_id: str, user_id: str) -> Preferences:
        """What a recipient wants, as it was set; of one who never said anything, nothing."""
        return self._ask_registry(answers.preferences, action="get_preferences", app_id=app_id, user_id=user_id)

    def list_inbox(self, app_id: str, user_id: str, *, limit: int | None = None, after: str | None = None) -> InboxPage:
        """A recipient's in-app inbox, newest first; ``after`` goes on where the last page's ``next`` says."""
        return self._ask_registry(
            answers.inbox_page, action="list_inbox", app_id=app_id, user_id=user_id, limit=limit, after=after
        )

    def mark_read(self, app_id: str, user_id: str, entries: Iterable[str]) -> Marked:
        """Mark up to 100 entries, by their keys, as read."""
        return self._ask_registry(
            answers.marked, action="mark_read", app_id=app_id, user_id=user_id, entries=list(entries)
        )

    def mark_all_read(self, app_id: str, user_id: str) -> Marked:
        """Mark all that there is as read; what comes meanwhile may stay unread."""
        return self._ask_registry(answers.marked, action="mark_all_read", app_id=app_id, user_id=user_id)

    def unread_count(self, app_id: str, user_id: str) -> int:
        """How many entries are unread: what an app's badge shows."""
        return self._ask_registry(answers.unread, action="unread_count", app_id=app_id, user_id=user_id)

    def erase_recipient(self, app_id: str, user_id: str) -> Erased:
        """Erase what is kept of a recipient; repeat it until it is ``complete``."""
        return self._ask_registry(answers.erased, action="erase_recipient", app_id=app_id, user_id=user_id)

    def _named(self, **said: Any) -> Mapping[str, Any]:
        """What is said, with a name: the caller's, or a key made here."""
        if said["idempotency_key"] is None and said["notification_id"] is None:
            said["idempotency_key"] = self._new_id()
        return given(**said)

    def _in_parts(self, said: Mapping[str, Any], targets: Sequence[Target]) -> Accepted:
        told: list[Accepted] = []
        for first, part in parts_of(targets):
            try:
                told.append(self._ask_send(answers.accepted, **said, **addressed(part)))
            except CallFailed as error:
                if not isinstance(error, PartlyAccepted) and ("dry_run" in said or not told):
                    raise
                raise _partly(error, range(first, first + len(part)), targets, told) from error
        return Accepted(
            notification_id=told[0].notification_id, jobs=_jobs(told), dry_run=any(each.dry_run for each in told)
        )

    def _ask_send[T](self, read: Callable[[Mapping[str, Any]], T], **said: Any) -> T:
        return self._ask(self._send_function, read, said)

    def _ask_audience[T](
        self, read: Callable[[Mapping[str, Any]], T], action: str, app_id: str, notification_id: str
    ) -> T:
        return self._ask_send(read, action=action, app_id=app_id, notification_id=notification_id)

    def _ask_registry[T](self, read: Callable[[Mapping[str, Any]], T], **said: Any) -> T:
        if self._registry_function is None:
            raise SettingsError("registry_function: must be given to the client, for what the registry is asked")
        return self._ask(self._registry_function, read, said)

    def _ask[T](self, function: str, read: Callable[[Mapping[str, Any]], T], said: Mapping[str, Any]) -> T:
        answer = self._invoker.ask(function, given(**said))
        try:
            return read(answer)
        except (KeyError, TypeError, AttributeError):
            raise BadAnswer(function) from None

    def _made_once(self) -> LambdaClient:
        with self._making:
            if self._client is None:
                self._client = lambda_client()
            return self._client


@contextmanager
def _naming(said: Mapping[str, Any]) -> Iterator[None]:
    """Gives what is raised the key under which the same call again goes on."""
    try:
        yield
    except CallFailed as error:
        error.idempotency_key = said.get("idempotency_key")
        raise


def _partly(error: CallFailed, part: range, targets: Sequence[Target], told: Sequence[Accepted]) -> PartlyAccepted:
    """What a call that failed leaves unaccepted: its own targets, or those that it names, and all that come after."""
    here = [part.start + at for at in error.indices] if isinstance(error, PartlyAccepted) else [*part]
    indices = [*here, *range(part.stop, len(targets))]
    partly = PartlyAccepted(
        notification_id=error.notification_id if isinstance(error, PartlyAccepted) else told[0].notification_id,
        indices=indices,
        of=len(targets),
        not_accepted=[targets[at] for at in indices],
        jobs=_jobs(told),
    )
    partly.passing = error.passing
    return partly


def _jobs(told: Sequence[Accepted]) -> tuple[Job, ...]:
    return tuple(job for each in told for job in each.jobs)
