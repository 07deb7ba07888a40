"""What every store of audiences and every holder of lists does: the fakes, DynamoDB and S3."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from builders import HOUR_MS, NOW_MS, a_job_id
from fakes import FakeAudienceStore, FakeLists
from pushlease.aws import rows
from pushlease.aws.audience_store import DynamoAudienceStore, S3Lists
from pushlease.aws.rows import bound
from pushlease.errors import BadRequest, StoreUnavailable, Unreadable
from pushlease.push.audience import PAGE_BYTES, Audience, Fault, Listed, State, Tally
from pushlease.push.ports import AudienceStore, Lists

_serials = count(1)
KINDS = ["fake", "aws"]


@pytest.fixture(scope="module", params=KINDS)
def audiences(request: pytest.FixtureRequest) -> AudienceStore:
    if request.param == "fake":
        return FakeAudienceStore()
    return DynamoAudienceStore(rows=bound(rows.AudienceRow, request.getfixturevalue("make_table")("audiences")))


def an_audience(**said: Any) -> Audience:
    values: dict[str, Any] = {
        "ref": f"shop#n{next(_serials)}",
        "state": State.RUNNING,
        "listed": Listed(size_bytes=3 * PAGE_BYTES, key="all.txt", etag='"e"'),
        "said": {"transports": ["push"], "max_attempts": 5, "channel": None, "ttl_s": 60},
        "fingerprint": "f",
        "started_at_ms": NOW_MS,
        "expires_at_ms": NOW_MS + HOUR_MS,
        "rate_per_s": 7,
    }
    return Audience(**values | said)


def a_tally(**said: Any) -> Tally:
    return Tally(**{"counts": {"sent": 2, "pending": 1}, "counted_at_ms": NOW_MS} | said)


def test_an_audience_is_read_as_it_was_made_and_made_once(audiences: AudienceStore) -> None:
    audience = an_audience()
    assert audiences.get(audience.ref) is None
    assert audiences.create(audience, None)
    assert not audiences.create(an_audience(ref=audience.ref, fingerprint="other"), None)
    assert audiences.get(audience.ref) == audience
    bare = an_audience(rate_per_s=None, listed=Listed(size_bytes=5))
    assert audiences.create(bare, b"ada\n\xff")
    assert audiences.get(bare.ref) == bare


def test_only_what_is_not_over_is_running(audiences: AudienceStore) -> None:
    running, paused, over = an_audience(), an_audience(), an_audience()
    for audience in (running, paused, over):
        audiences.create(audience, None)
    assert audiences.move(paused.ref, State.PAUSED)
    assert audiences.move(over.ref, State.FAILED, fault="because")
    assert not audiences.move(over.ref, State.RUNNING)
    assert not audiences.move("shop#never", State.PAUSED)
    found = {audience.ref: audience.state for audience in audiences.running()}
    assert (found[running.ref], found[paused.ref]) == (State.RUNNING, State.PAUSED)
    assert over.ref not in found
    ended = audiences.get(over.ref)
    assert ended
    assert (ended.state, ended.fault) == (State.FAILED, "because")


def test_of_two_ticks_one_moves_the_cursor(audiences: AudienceStore) -> None:
    audience = an_audience()
    audiences.create(audience, None)
    audiences.advance(audience, cursor=2, swept_at_ms=5)
    audiences.advance(audience, cursor=1, swept_at_ms=9)
    moved = audiences.get(audience.ref)
    assert moved
    assert (moved.cursor, moved.swept_at_ms) == (2, 5)


def test_no_two_recipients_have_one_number(audiences: AudienceStore) -> None:
    audience = an_audience()
    audiences.create(audience, None)
    assert [audiences.take_numbers(audience.ref, size) for size in (3, 0, 5, 1)] == [0, 3, 3, 8]


def test_a_list_that_came_in_the_request_is_kept_until_its_page_is_stored(audiences: AudienceStore) -> None:
    text = b"".join(b"user-%06d\n" % at for at in range(700))
    audience = an_audience(listed=Listed(size_bytes=len(text)))
    audiences.create(audience, text)
    assert audiences.listed(audience.ref, 0) == text[:8192]
    assert audiences.listed(audience.ref, 1) == text[4095:]
    ids = [a_job_id(), a_job_id(), a_job_id()]
    assert audiences.job_ids(audience.ref, 0) is None
    audiences.put_page(audience.ref, 0, a_tally(faults=(Fault(at=7, rule="ü"),)), ids)
    assert audiences.job_ids(audience.ref, 0) == ids
    with pytest.raises(Unreadable):
        audiences.listed(audience.ref, 0)
    audiences.put_page(audience.ref, 1, a_tally(), [])
    assert audiences.job_ids(audience.ref, 1) == []
    audiences.put_page(audience.ref, 1, a_tally(counts={"sent": 3}))
    assert audiences.pages(audience.ref) == {
        0: a_tally(faults=(Fault(at=7, rule="ü"),)),
        1: a_tally(counts={"sent": 3}),
    }
    assert audiences.pages("shop#never") == {}


# ---- Lists


class Bucket:
    """A holder of lists, and the hand that changes them."""

    def __init__(self, lists: Lists, put: Any) -> None:
        self.lists = lists
        self.put = put


@pytest.fixture(scope="module", params=KINDS)
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    if request.param == "fake":
        fake = FakeLists()
        yield Bucket(fake, fake.objects.__setitem__)
        return
    s3 = request.getfixturevalue("aws").session().client("s3")
    s3.create_bucket(Bucket="lists", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield Bucket(
        S3Lists(client=s3, bucket="lists"), lambda key, body: s3.put_object(Bucket="lists", Key=key, Body=body)
    )


def test_a_span_of_a_list_is_read(bucket: Bucket) -> None:
    bucket.put("a b/ü.txt", b"0123456789")
    listed = bucket.lists.describe("a b/ü.txt")
    assert (listed.size_bytes, listed.key, listed.pages) == (10, "a b/ü.txt", 1)
    assert bucket.lists.read(listed, 0, 10) == b"0123456789"
    assert bucket.lists.read(listed, 3, 5) == b"34"


def test_a_list_that_is_not_what_it_was_is_not_read(bucket: Bucket) -> None:
    bucket.put("changing.txt", b"ada")
    listed = bucket.lists.describe("changing.txt")
    bucket.put("changing.txt", b"mallory")
    with pytest.raises(Unreadable, match="changed or deleted"):
        bucket.lists.read(listed, 0, 3)


def test_an_object_that_is_not_there_is_refused(bucket: Bucket) -> None:
    with pytest.raises(BadRequest) as refusal:
        bucket.lists.describe("none.txt")
    assert refusal.value.field == "audience.key"


def test_an_empty_object_or_no_bucket_is_refused(aws: Any) -> None:
    s3 = aws.session().client("s3")
    s3.create_bucket(Bucket="empties", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket="empties", Key="empty.txt", Body=b"")
    for lists in (S3Lists(client=s3, bucket="empties"), S3Lists(client=s3, bucket="")):
        with pytest.raises(BadRequest) as refusal:
            lists.describe("empty.txt")
        assert refusal.value.field == "audience.key"


class OutOfReach:
    """An S3 that nobody reaches."""

    def _fail(self, **_: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://s3.example.com")

    head_object = get_object = _fail


def test_a_store_out_of_reach_is_said_to_be() -> None:
    client: Any = OutOfReach()
    lists = S3Lists(client=client, bucket="lists")
    with pytest.raises(StoreUnavailable):
        lists.describe("a")
    with pytest.raises(StoreUnavailable):
        lists.read(Listed(size_bytes=1, key="a", etag="e"), 0, 1)
