"""Apps, preferences and shared content in DynamoDB: plain rows, one table each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from pynamodb.exceptions import UpdateError
from pynamodb.expressions.update import Action

from pushlease.aws.rows import AppRow, NotificationRow, RecipientRow
from pushlease.aws.tables import answered, key_of, recipient_of
from pushlease.push.device import (
    ApnsCredentials,
    ApnsTopicKey,
    App,
    AppId,
    Environment,
    FcmCredentials,
    Recipient,
)
from pushlease.push.ports import Shared
from pushlease.push.preference import Channels, Preferences, Transport, Unknown
from pushlease.push.quiet import Window

CACHED_MS = 5_000  # a page of one audience's jobs is attempted within seconds
CACHED_ENTRIES = 100  # of at most some 20 KB each


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoAppStore:
    """``AppStore`` on the apps table."""

    rows: type[AppRow]

    def put(self, app: App) -> None:
        """See ``AppStore``."""
        self.rows(
            app_id=app.app_id,
            apns_production=asdict(app.apns_production) if app.apns_production else None,
            apns_sandbox=asdict(app.apns_sandbox) if app.apns_sandbox else None,
            apns_topic_keys=[_written(key) for key in app.apns_topic_keys] or None,
            fcm=asdict(app.fcm) if app.fcm else None,
            channels=app.channels.defaults or None,
            unknown_channels=app.channels.unknown,
            zone=app.zone,
        ).save()

    @answered
    def get(self, app_id: AppId) -> App | None:
        """See ``AppStore``."""
        try:
            row = self.rows.get(app_id)
        except self.rows.DoesNotExist:
            return None
        return App(
            app_id=app_id,
            apns_production=ApnsCredentials(**row.apns_production.as_dict()) if row.apns_production else None,
            apns_sandbox=ApnsCredentials(**row.apns_sandbox.as_dict()) if row.apns_sandbox else None,
            apns_topic_keys=tuple(_topic_key(**key) for key in row.apns_topic_keys or ()),
            fcm=FcmCredentials(**row.fcm.as_dict()) if row.fcm else None,
            channels=Channels(defaults=_switches(row.channels), unknown=Unknown(row.unknown_channels or Unknown.ALLOW)),
            zone=row.zone,
        )


def _written(key: ApnsTopicKey) -> dict[str, Any]:
    return {"environment": key.environment, "topics": sorted(key.topics), **asdict(key.credentials)}


def _topic_key(environment: str, topics: Sequence[str], **credentials: str) -> ApnsTopicKey:
    return ApnsTopicKey(
        environment=Environment(environment), topics=frozenset(topics), credentials=ApnsCredentials(**credentials)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoRecipientStore:
    """``RecipientStore`` on the recipients table."""

    rows: type[RecipientRow]

    def put(self, recipient: Recipient, preferences: Preferences) -> None:
        """See ``RecipientStore``. One write, which leaves zone and locale as they are where none is said."""
        rows = self.rows
        quiet = [[sorted(window.days), window.start, window.end] for window in preferences.quiet]
        self._set(
            recipient,
            rows.channels.set(_plain(preferences.channels)),
            rows.muted_until.set(dict(preferences.muted_until_ms)),
            rows.quiet.set(quiet) if quiet else rows.quiet.remove(),
            *self._place(preferences.zone, preferences.locale),
        )

    @answered
    def locate(self, recipient: Recipient, *, zone: str | None, locale: str | None) -> None:
        """See ``RecipientStore``."""
        if place := self._place(zone, locale):
            self._set(recipient, *place)

    @answered
    def get(self, recipients: Sequence[Recipient]) -> Mapping[Recipient, Preferences]:
        """See ``RecipientStore``."""
        wanted = list(dict.fromkeys(key_of(recipient) for recipient in recipients))
        return {
            recipient_of(row.recipient): Preferences(
                channels=_switches(row.channels.as_dict() if row.channels else None),
                muted_until_ms={
                    channel: int(until)
                    for channel, until in (row.muted_until.as_dict() if row.muted_until else {}).items()
                },
                quiet=tuple(Window(days=frozenset(days), start=start, end=end) for days, start, end in row.quiet or ()),
                zone=row.zone,
                locale=row.locale,
            )
            for row in self.rows.batch_get(wanted)
        }

    @answered
    def erase(self, recipient: Recipient) -> None:
        """See ``RecipientStore``."""
        self.rows(key_of(recipient)).delete()

    def _place(self, zone: str | None, locale: str | None) -> list[Action]:
        said = ((self.rows.zone, zone), (self.rows.locale, locale))
        return [attribute.set(value) for attribute, value in said if value is not None]

    def _set(self, recipient: Recipient, *actions: Action) -> None:
        self.rows(key_of(recipient)).update(actions=list(actions))


def _plain(channels: Mapping[str, Mapping[Transport, bool]]) -> dict[str, dict[str, bool]]:
    return {channel: {str(way): wanted for way, wanted in ways.items()} for channel, ways in channels.items()}


def _switches(channels: Mapping[str, Mapping[str, bool]] | None) -> dict[str, dict[Transport, bool]]:
    return {
        channel: {Transport(way): wanted for way, wanted in ways.items()} for channel, ways in (channels or {}).items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoNotificationStore:
    """``NotificationStore`` on the notifications table."""

    rows: type[NotificationRow]
    dead_kept: timedelta

    @answered
    def put(self, ref: str, shared: Shared, *, now_ms: int, expires_at_ms: int) -> bool:
        """See ``NotificationStore``. One conditional write: two sends at once cannot mix their contents."""
        rows = self.rows
        try:
            rows(ref).update(
                actions=[
                    rows.fingerprint.set(shared.fingerprint),
                    rows.content.set(shared.content) if shared.content is not None else rows.content.remove(),
                    *([rows.job_ids.add(set(shared.job_ids))] if shared.job_ids else []),
                    rows.created_at.set(rows.created_at | now_ms),
                    rows.ttl.set(self._ttl_s(expires_at_ms)),
                ],
                condition=rows.notification.does_not_exist() | (rows.fingerprint == shared.fingerprint),
            )
        except UpdateError as error:
            if error.cause_response_code == "ConditionalCheckFailedException":
                return False
            raise
        return True

    @answered
    def get(self, refs: Sequence[str]) -> Mapping[str, Shared]:
        """See ``NotificationStore``."""
        return {
            row.notification: Shared(
                fingerprint=row.fingerprint,
                content=row.content,
                job_ids=sorted(row.job_ids or ()),
                paused=bool(row.paused),
            )
            for row in self.rows.batch_get(list(dict.fromkeys(refs)), consistent_read=True)
        }

    def _ttl_s(self, expires_at_ms: int) -> int:
        """Twice as long as a dead row is kept: a redrive on its last day gives its job another life and death."""
        return (expires_at_ms + 2 * self.dead_kept // timedelta(milliseconds=1)) // 1000

    @answered
    def pause(self, ref: str, *, paused: bool) -> bool:
        """See ``NotificationStore``."""
        rows = self.rows
        try:
            rows(ref).update(
                actions=[rows.paused.set(True) if paused else rows.paused.remove()], condition=rows.content.exists()
            )
        except UpdateError as error:
            if error.cause_response_code == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def withdraw(self, ref: str) -> None:
        """See ``NotificationStore``."""
        rows = self.rows
        try:
            rows(ref).update(actions=[rows.content.remove()], condition=rows.notification.exists())
        except UpdateError as error:
            if error.cause_response_code != "ConditionalCheckFailedException":
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedNotifications:
    """Reads a ``NotificationStore`` through a small cache, for the attempt: many jobs share one content.

    For ``CACHED_MS`` a withdrawal may go unseen here; it has cancelled the jobs' own rows by then. ``clock``: epoch ms.
    """

    store: DynamoNotificationStore
    clock: Callable[[], int]
    _known: dict[str, tuple[int, Shared]] = field(default_factory=dict)

    def put(self, ref: str, shared: Shared, *, now_ms: int, expires_at_ms: int) -> bool:
        """See ``NotificationStore``."""
        return self.store.put(ref, shared, now_ms=now_ms, expires_at_ms=expires_at_ms)

    def get(self, refs: Sequence[str]) -> Mapping[str, Shared]:
        """See ``NotificationStore``."""
        fresh_ms = self.clock() - CACHED_MS
        known = {ref: self._known[ref] for ref in refs if ref in self._known}
        found = {ref: shared for ref, (read_ms, shared) in known.items() if read_ms > fresh_ms}
        missing = [ref for ref in dict.fromkeys(refs) if ref not in found]
        if missing:
            read = self.store.get(missing)
            if len(self._known) + len(read) > CACHED_ENTRIES:
                self._known.clear()
            self._known.update({ref: (self.clock(), shared) for ref, shared in read.items()})
            found |= read
        return found

    def pause(self, ref: str, *, paused: bool) -> bool:
        """See ``NotificationStore``."""
        self._known.pop(ref, None)
        return self.store.pause(ref, paused=paused)

    def withdraw(self, ref: str) -> None:
        """See ``NotificationStore``."""
        self._known.pop(ref, None)
        self.store.withdraw(ref)
