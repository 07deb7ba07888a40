"""Audiences in DynamoDB, and their lists in S3.

One partition an audience: ``head``; ``list#…``, the spans of a list that came in the request; ``page#…``, what became
of a page; ``jobs#…``, which jobs it has. The partition ``#running`` names those that are not over, for the tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.exceptions import UpdateError

from pushlease.aws.rows import AudienceRow
from pushlease.aws.tables import answered
from pushlease.errors import BadRequest, StoreUnavailable, Unreadable
from pushlease.jobs.job import JobId
from pushlease.push.audience import (
    MAX_LIST_BYTES,
    Audience,
    Fault,
    Listed,
    State,
    Tally,
    span_of,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RUNNING = "#running"  # no audience's name begins so
HEAD = "head"
JOB_ID_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoAudienceStore:
    """``AudienceStore`` on the audiences table. ``kept``: how long one is kept after its expiry."""

    rows: type[AudienceRow]
    kept: timedelta = timedelta(days=30)

    @answered
    def create(self, audience: Audience, text: bytes | None) -> bool:
        """See ``AudienceStore``. The head comes last: whoever finds it finds the whole."""
        if self.get(audience.ref):
            return False
        ttl_s = self._ttl_s(audience.expires_at_ms)
        for page in range(audience.listed.pages if text is not None else 0):
            start, end = span_of(page, audience.listed)
            span = (text or b"")[start:end]
            self.rows(audience.ref, _part("list", page), text=span, ttl=ttl_s).save()
        self.rows(RUNNING, audience.ref, ttl=ttl_s).save()
        try:
            self.rows(
                audience.ref,
                HEAD,
                state=audience.state,
                listed=asdict(audience.listed),
                said=dict(audience.said),
                fingerprint=audience.fingerprint,
                started_at=audience.started_at_ms,
                expires_at=audience.expires_at_ms,
                rate=audience.rate_per_s,
                cursor=0,
                swept_at=0,
                ttl=ttl_s,
            ).save(condition=self.rows.ref.does_not_exist())
        except Exception as error:
            if _condition_failed(error):
                return False
            raise
        return True

    @answered
    def get(self, ref: str) -> Audience | None:
        """See ``AudienceStore``."""
        try:
            row = self.rows.get(ref, HEAD, consistent_read=True)
        except self.rows.DoesNotExist:
            return None
        return _audience(row)

    @answered
    def running(self) -> Sequence[Audience]:
        """See ``AudienceStore``."""
        refs = [row.part for row in self.rows.query(RUNNING, consistent_read=True)]
        found = [_audience(row) for row in self.rows.batch_get([(ref, HEAD) for ref in refs], consistent_read=True)]
        return [audience for audience in found if not audience.state.over]

    @answered
    def move(self, ref: str, state: State, *, fault: str | None = None) -> bool:
        """See ``AudienceStore``."""
        rows = self.rows
        actions = [rows.state.set(state), *([rows.fault.set(fault)] if fault else [])]
        open_ = rows.state.is_in(*(state for state in State if not state.over))
        if not self._updated(ref, actions, open_):
            return False
        if state.over:
            rows(RUNNING, ref).delete()
        return True

    @answered
    def advance(self, audience: Audience, *, cursor: int, swept_at_ms: int) -> None:
        """See ``AudienceStore``."""
        rows = self.rows
        unchanged = (rows.cursor == audience.cursor) & (rows.swept_at == audience.swept_at_ms)
        self._updated(audience.ref, [rows.cursor.set(cursor), rows.swept_at.set(swept_at_ms)], unchanged)

    @answered
    def take_numbers(self, ref: str, count: int) -> int:
        """See ``AudienceStore``."""
        row = self.rows(ref, HEAD)
        row.update(actions=[self.rows.taken.add(count)])
        return int(row.taken) - count

    @answered
    def listed(self, ref: str, page: int) -> bytes:
        """See ``AudienceStore``."""
        try:
            text: bytes = self.rows.get(ref, _part("list", page), consistent_read=True).text
        except self.rows.DoesNotExist:
            raise Unreadable(f"audience: page {page} of its list is gone") from None
        return text

    @answered
    def put_page(self, ref: str, page: int, tally: Tally, job_ids: Sequence[JobId] | None = None) -> None:
        """See ``AudienceStore``. A span of the list that was read is personal data that nobody needs any more."""
        if job_ids is not None:
            self.rows(ref, _part("jobs", page), text=b"".join(map(bytes.fromhex, job_ids))).save()
        self.rows(
            ref,
            _part("page", page),
            counts=dict(tally.counts),
            counted_at=tally.counted_at_ms,
            faults=[[fault.at, fault.rule] for fault in tally.faults],
        ).save()
        if job_ids is not None:
            self.rows(ref, _part("list", page)).delete()

    @answered
    def job_ids(self, ref: str, page: int) -> Sequence[JobId] | None:
        """See ``AudienceStore``."""
        try:
            text = self.rows.get(ref, _part("jobs", page), consistent_read=True).text
        except self.rows.DoesNotExist:
            return None
        return [JobId(text[at : at + JOB_ID_BYTES].hex()) for at in range(0, len(text), JOB_ID_BYTES)]

    @answered
    def pages(self, ref: str) -> Mapping[int, Tally]:
        """See ``AudienceStore``."""
        found = self.rows.query(ref, self.rows.part.startswith("page#"), consistent_read=True)
        return {int(row.part.partition("#")[2]): _tally(row) for row in found}

    def _updated(self, ref: str, actions: list[Any], condition: Any) -> bool:
        try:
            self.rows(ref, HEAD).update(actions=actions, condition=condition)
        except UpdateError as error:
            if _condition_failed(error):
                return False
            raise
        return True

    def _ttl_s(self, expires_at_ms: int) -> int:
        return (expires_at_ms + self.kept // timedelta(milliseconds=1)) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Lists:
    """``Lists`` in a deployment's bucket; an empty name is none."""

    client: S3Client
    bucket: str

    def describe(self, key: str) -> Listed:
        """See ``Lists``."""
        if not self.bucket:
            raise BadRequest("audience.key", "this deployment has no bucket for lists (AudienceBucket)")
        try:
            head = self.client.head_object(Bucket=self.bucket, Key=key)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if 400 <= status < 500:
                raise BadRequest("audience.key", "no object of the deployment's bucket that can be read") from None
            raise StoreUnavailable(f"lists: {status}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"lists: {type(error).__name__}") from error
        size_bytes = head["ContentLength"]
        if not 0 < size_bytes <= MAX_LIST_BYTES:
            raise BadRequest("audience.key", f"an object of {size_bytes} bytes; it must have 1 to {MAX_LIST_BYTES}")
        return Listed(size_bytes=size_bytes, key=key, etag=head["ETag"])

    def read(self, listed: Listed, start: int, end: int) -> bytes:
        """See ``Lists``."""
        try:
            answer = self.client.get_object(
                Bucket=self.bucket, Key=listed.key or "", Range=f"bytes={start}-{end - 1}", IfMatch=listed.etag or ""
            )
            return answer["Body"].read()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in ("PreconditionFailed", "NoSuchKey", "404", "412", "InvalidRange"):
                raise Unreadable("audience: its list was changed or deleted since it was accepted") from None
            raise StoreUnavailable(f"lists: {code}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"lists: {type(error).__name__}") from error


def _part(kind: str, page: int) -> str:
    return f"{kind}#{page:09d}"


def _audience(row: AudienceRow) -> Audience:
    return Audience(
        ref=row.ref,
        state=State(row.state),
        listed=Listed(**row.listed),
        said=row.said,
        fingerprint=row.fingerprint,
        started_at_ms=int(row.started_at),
        expires_at_ms=int(row.expires_at),
        rate_per_s=int(row.rate) if row.rate else None,
        cursor=int(row.cursor),
        swept_at_ms=int(row.swept_at),
        fault=row.fault,
    )


def _tally(row: AudienceRow) -> Tally:
    return Tally(
        counts={str(name): int(count) for name, count in row.counts.items()},
        counted_at_ms=int(row.counted_at),
        faults=tuple(Fault(at=at, rule=rule) for at, rule in row.faults),
    )


def _condition_failed(error: Exception) -> bool:
    return getattr(error, "cause_response_code", None) == "ConditionalCheckFailedException"
