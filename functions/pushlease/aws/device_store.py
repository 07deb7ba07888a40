"""Devices in DynamoDB: a row for each device, and in the same table one for each push token, which says whose it is.

    recipient      device_id    the rest
    ─────────────────────────────────────────────────────────
    shop#ada       pixel        push_token, registered_at, …
    #9f86d0818…    owner        owner: pixel#shop#ada

Whatever changes who has a push token changes both rows in one transaction, under the condition that they are still as
they were read; an index would lag behind, and two devices could hold one push token meanwhile. A lost race is read
again and tried again. What changes nothing of that is one conditional write.

Of two registrations the later one stands, by ``registered_at`` and not by which of them came through first: a worker
that froze between its clock and its write must not give a push token back to whoever had it before. Of two at the same
millisecond the second written stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pynamodb.connection import Connection
from pynamodb.exceptions import TransactWriteError, UpdateError
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action
from pynamodb.transactions import TransactWrite

from pushlease.aws.rows import OWNER, DeviceRow, OwnerRow, device_keys, owner_key, owner_text
from pushlease.aws.statements import FIRST_PAUSE_S, TRIES
from pushlease.aws.tables import answered, key_of, recipient_of
from pushlease.errors import StoreUnavailable
from pushlease.push.device import Address, Device, DeviceId, Environment, Platform, Recipient

# Rows are kept for so long after they are stale: until then it is told that they are. The row that says whose a push
# token is goes later still, for it must not be missed while its device is there, and pruning keeps no order.
KEPT_STALE = timedelta(days=30)

# A transaction that was not made, and that may be made if it is tried again.
_PASSING = frozenset(
    {
        "TransactionCanceledException",  # a condition, or another write of one of the rows
        "TransactionInProgressException",
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoDeviceStore:
    """``DeviceStore`` on the devices table.

    ``pause``: waits so many seconds. ``dice``: uniform in [0, 1).
    """

    rows: type[DeviceRow]
    owners: type[OwnerRow]
    connection: Connection
    fcm_stale_after: timedelta
    pause: Callable[[float], None]
    dice: Callable[[], float]

    @answered
    def register(self, device: Device) -> bool:
        """See ``DeviceStore``."""
        return self._until_won(lambda: self._register(device))

    @answered
    def remove(self, recipient: Recipient, device_id: DeviceId) -> bool:
        """See ``DeviceStore``."""
        return self._until_won(lambda: self._forget(self._row(key_of(recipient), device_id)))

    @answered
    def retire(self, device: Device) -> bool:
        """See ``DeviceStore``."""

        def retired() -> bool:
            row = self._row(key_of(device.recipient), device.device_id)
            return self._forget(row if row and _registration(_device(row)) == _registration(device) else None)

        return self._until_won(retired)

    @answered
    def of(self, recipient: Recipient) -> Sequence[Device]:
        """See ``DeviceStore``."""
        devices = [_device(row) for row in self.rows.query(key_of(recipient), consistent_read=True)]
        return sorted(devices, key=lambda device: (device.registered_at_ms, device.device_id))

    @answered
    def get(self, keys: Sequence[tuple[Recipient, DeviceId]]) -> Mapping[tuple[Recipient, DeviceId], Device]:
        """See ``DeviceStore``."""
        wanted = list(dict.fromkeys((key_of(recipient), device_id) for recipient, device_id in keys))
        devices = [_device(row) for row in self.rows.batch_get(wanted, consistent_read=True)]
        return {(device.recipient, device.device_id): device for device in devices}

    @answered
    def disable(self, device: Device, *, code: str, before_ms: int) -> bool:
        """See ``DeviceStore``. One conditional write: a registration that came meanwhile wins."""
        return self._change(device, self.rows.disabled_code.set(str(code)), self.rows.registered_at < before_ms)

    @answered
    def move(self, device: Device, *, environment: Environment) -> bool:
        """See ``DeviceStore``. One conditional write: a registration that came meanwhile wins."""
        known = self.rows.registered_at == device.registered_at_ms
        return self._change(device, self.rows.environment.set(str(environment)), known)

    def _register(self, device: Device) -> bool:
        key = key_of(device.recipient)
        me = owner_text(key, device.device_id)
        before = self._row(key, device.device_id)
        owner = self._owner(device.push_token)
        other = self._row(*device_keys(owner)) if owner not in (None, me) else None
        holder = other if other and other.push_token == device.push_token else None
        if any(row and row.registered_at > device.registered_at_ms for row in (before, holder)):
            return False
        left = before.push_token if before and before.push_token != device.push_token else None
        leaves = left is not None and self._owner(left) == me

        row, owned = self._rows_of(device, key, me)
        with TransactWrite(connection=self.connection) as write:
            write.save(row, condition=self._unchanged(before))
            write.save(owned, condition=self.owners.owner == owner if owner else self.owners.owner.does_not_exist())
            if holder:
                write.delete(holder, condition=self._unchanged(holder))
            elif owner and owner != me:  # it was pruned, or has another push token since
                without = self.rows.push_token.does_not_exist() | (self.rows.push_token != device.push_token)
                write.condition_check(self.rows, *device_keys(owner), condition=without)
            if left and leaves:
                write.delete(self.owners(owner_key(left), OWNER), condition=self.owners.owner == me)
        return True

    def _forget(self, row: DeviceRow | None) -> bool:
        if row is None:
            return False
        me = owner_text(row.recipient, row.device_id)
        owns = self._owner(row.push_token) == me
        with TransactWrite(connection=self.connection) as write:
            write.delete(row, condition=self._unchanged(row))
            if owns:
                write.delete(self.owners(owner_key(row.push_token), OWNER), condition=self.owners.owner == me)
        return True

    def _until_won[T](self, step: Callable[[], T]) -> T:
        """What ``step`` gives, which reads and then writes in one transaction; again where it lost a race."""
        for try_ in range(TRIES):
            if try_:
                self.pause(FIRST_PAUSE_S * 2**try_ * (0.5 + 0.5 * self.dice()))
            try:
                return step()
            except TransactWriteError as error:
                if error.cause_response_code not in _PASSING:
                    raise
        raise StoreUnavailable(f"devices: not written in {TRIES} tries")

    def _row(self, recipient: str, device_id: str) -> DeviceRow | None:
        try:
            return self.rows.get(recipient, device_id, consistent_read=True)
        except self.rows.DoesNotExist:
            return None

    def _owner(self, push_token: str) -> str | None:
        try:
            return str(self.owners.get(owner_key(push_token), OWNER, consistent_read=True).owner)
        except self.owners.DoesNotExist:
            return None

    def _unchanged(self, row: DeviceRow | None) -> Condition:
        """That the device is still registered as it was when it was read, or still is not."""
        if row is None:
            return self.rows.recipient.does_not_exist()
        same: Condition = (self.rows.push_token == row.push_token) & (self.rows.registered_at == row.registered_at)
        return same

    def _rows_of(self, device: Device, key: str, me: str) -> tuple[DeviceRow, OwnerRow]:
        kept_s = (self.fcm_stale_after + KEPT_STALE) // timedelta(seconds=1)
        ttl = device.registered_at_ms // 1000 + kept_s if device.platform is Platform.FCM else None
        row = self.rows(
            recipient=key,
            device_id=device.device_id,
            platform=device.platform,
            environment=device.environment,
            push_token=device.push_token,
            registered_at=device.registered_at_ms,
            topic=device.topic,
            address=None if device.address is Address.PUSH_TOKEN else device.address,
            locale=device.locale,
            zone=device.zone,
            app_version=device.app_version,
            ttl=ttl,
        )
        later = ttl + KEPT_STALE // timedelta(seconds=1) if ttl else None
        return row, self.owners(recipient=owner_key(device.push_token), device_id=OWNER, owner=me, ttl=later)

    def _change(self, device: Device, action: Action, condition: Condition) -> bool:
        rows = self.rows
        try:
            rows(key_of(device.recipient), device.device_id).update(
                actions=[action], condition=(rows.push_token == device.push_token) & condition
            )
        except UpdateError as error:
            if error.cause_response_code == "ConditionalCheckFailedException":
                return False
            raise
        return True


def _registration(device: Device) -> tuple[str, int]:
    return device.push_token, device.registered_at_ms


def _device(row: DeviceRow) -> Device:
    return Device(
        device_id=DeviceId(row.device_id),
        recipient=recipient_of(row.recipient),
        platform=Platform(row.platform),
        environment=Environment(row.environment),
        push_token=row.push_token,
        registered_at_ms=int(row.registered_at),
        topic=row.topic,
        address=Address(row.address or Address.PUSH_TOKEN),
        locale=row.locale,
        zone=row.zone,
        app_version=row.app_version,
        disabled_code=row.disabled_code,
    )
