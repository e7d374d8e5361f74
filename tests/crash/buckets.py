"""Buckets that are opened and dropped while streams are made in them: their ledger, their writers, their checks.

One writer opens and drops a bucket, and each stream has one writer too; so all that is known of either is a set of what
it may be by now. A request that may be carried out adds to the set before it is sent, its answer narrows it.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from .clients import BUCKET, Client, Response
from .ledger import Ledger
from .messages import TEXT
from .writers import Writer

BUCKETS = 6
STREAMS_PER_TENANT = 2
PAGE_STREAMS = 3


@dataclass
class Bucket:
    name: str
    may_be_open: set[bool] = field(default_factory=lambda: {False})
    drops_sent: int = 0
    opened: int = 0
    dropped: int = 0

    @property
    def certainly_open_since(self) -> int | None:
        """Unchanged while no client tries to drop it; None if it may be gone."""
        return self.drops_sent if self.may_be_open == {True} else None


@dataclass
class Stream:
    bucket: Bucket
    id: str
    may_hold: set[bytes | None] = field(default_factory=lambda: {None})
    """The bytes it was created with; None if it does not exist."""

    @property
    def path(self) -> str:
        return f"/{self.bucket.name}/{self.id}"


class Estate:
    """All buckets and the streams in them."""

    def __init__(self) -> None:
        self.buckets = [Bucket(f"bucket-{number}") for number in range(BUCKETS)]
        self.streams: list[Stream] = []

    def let(self, tenant: str) -> list[Stream]:
        """Streams in every bucket, for one tenant."""
        ids = [f"{tenant}-{number}" for number in range(STREAMS_PER_TENANT)]
        streams = [Stream(bucket, stream_id) for bucket in self.buckets for stream_id in ids]
        self.streams += streams
        return streams


class Landlord(Writer):
    """Opens buckets and drops them."""

    def __init__(self, identity: str, ledger: Ledger, random: Random, estate: Estate) -> None:
        super().__init__(identity, ledger, random)
        self._estate = estate

    def step(self, client: Client) -> None:
        bucket = self.random.choice(self._estate.buckets)
        if self.random.random() < 0.5:
            self._open(client, bucket)
        else:
            self._drop(client, bucket)

    def _open(self, client: Client, bucket: Bucket) -> None:
        before = set(bucket.may_be_open)
        bucket.may_be_open.add(True)
        answer = client.ask("PUT", self.surface() + f"/{bucket.name}")
        if answer.status == 201:
            assert False in before, f"{bucket.name} was opened and is lost"
            bucket.opened += 1
        elif answer.status == 409 or (answer.status == 503 and answer.code == "overloaded"):  # there, or being dropped
            assert True in before, f"{bucket.name} was dropped and is back"
        else:
            raise self.unexpected(answer, f"opening {bucket.name}")
        bucket.may_be_open = {True}

    def _drop(self, client: Client, bucket: Bucket) -> None:
        before = set(bucket.may_be_open)
        bucket.drops_sent += 1
        bucket.may_be_open.add(False)
        answer = client.ask("DELETE", self.surface() + f"/{bucket.name}")
        if answer.status == 404:
            assert False in before, f"{bucket.name} was opened and is lost"
        elif answer.status in (204, 409, 503):
            assert True in before, f"{bucket.name} was dropped and is back"
            bucket.dropped += answer.status == 204
        else:
            raise self.unexpected(answer, f"dropping {bucket.name}")
        bucket.may_be_open = {answer.status not in (204, 404)}

    def surface(self) -> str:
        return self.random.choice(("", "/ds"))


class Tenant(Writer):
    """Creates and deletes streams in all buckets."""

    def __init__(self, identity: str, ledger: Ledger, random: Random, estate: Estate) -> None:
        super().__init__(identity, ledger, random)
        self._streams = estate.let(identity)

    def step(self, client: Client) -> None:
        time.sleep(0.001)
        stream = self.random.choice(self._streams)
        if self.random.random() < 0.4:
            self._create(client, stream)
        else:
            self._delete(client, stream)

    def _create(self, client: Client, stream: Stream) -> None:
        self.numbers += 1
        body = f"{self.identity}:{self.numbers}:{'x' * self.random.randrange(100)}".encode()
        before, open_since = set(stream.may_hold), stream.bucket.certainly_open_since
        stream.may_hold.add(body)
        answer = client.ask("PUT", stream.path, {"Content-Type": TEXT}, body)
        if answer.status == 200:
            stream.may_hold = before - {None}
            assert stream.may_hold, f"{stream.path} was there before it was made"
            return
        assert None in before, f"{stream.path} was made and is lost: {answer.status} to making it again"
        if answer.status == 201:
            stream.may_hold = {body}
        elif answer.status in (404, 503):  # no bucket, or it is being dropped
            stream.may_hold = {None}
            may_be_gone = open_since is None or open_since != stream.bucket.certainly_open_since
            assert answer.status == 503 or may_be_gone, f"{stream.path} was refused, but its bucket is there"
        else:
            raise self.unexpected(answer, f"making {stream.path}")

    def _delete(self, client: Client, stream: Stream) -> None:
        before = set(stream.may_hold)
        stream.may_hold.add(None)
        answer = client.ask("DELETE", stream.path)
        if answer.status == 204:
            assert before != {None}, f"{stream.path} was deleted and is back"
        elif answer.status == 404:
            assert None in before, f"{stream.path} was made and is lost"
        else:
            raise self.unexpected(answer, f"deleting {stream.path}")
        stream.may_hold = {None}


# -- Checks ------------------------------------------------------------------------------------------------------------


def check_estate(estate: Estate, client: Client) -> Counter[str]:
    """Each bucket exists or not as the ledger says, and lists exactly its streams."""
    checked: Counter[str] = Counter()
    for bucket in estate.buckets:
        listed = list_streams(client, f"/{bucket.name}")
        is_open = listed is not None
        assert is_open in bucket.may_be_open, f"{bucket.name} is {'back' if is_open else 'lost'}"
        bucket.may_be_open = {is_open}
        streams = {stream.id: stream for stream in estate.streams if stream.bucket is bucket}
        assert set(listed or {}) <= set(streams), f"{bucket.name} lists {sorted(listed or {})}"
        for stream_id, stream in streams.items():
            _check_stream(client, stream, (listed or {}).get(stream_id))
        checked += Counter(buckets=1, listed=len(listed or {}))
    return checked


def _check_stream(client: Client, stream: Stream, entry: dict[str, object] | None) -> None:
    answer = client.ask("GET", stream.path)
    assert answer.status in (200, 404), f"{answer.status} to GET of {stream.path}"
    found = answer.body if answer.status == 200 else None
    assert found in stream.may_hold, f"{stream.path} holds {found!r}, not one of {stream.may_hold}"
    stream.may_hold = {found}
    assert (entry is None) == (found is None), f"{stream.path} is listed but is not there, or the other way round"
    if entry is not None and found is not None:
        assert (entry["status"], entry["content_type"], entry["tail_offset"]) == ("Open", TEXT, len(found))


def check_default_bucket(ledger: Ledger, client: Client, heads: dict[str, Response]) -> None:
    """The bucket of all other streams lists exactly those that exist; some may just have expired."""
    listed = list_streams(client, BUCKET, may_expire=True) or {}
    for name, head in heads.items():
        if ledger.kinds[name].ttl_seconds is None:
            assert (name in listed) == (head.status == 200), (
                f"{name} is listed but is not there, or the other way round"
            )
        if name in listed and head.status == 200:
            facts = (listed[name]["tail_offset"], listed[name]["status"] == "Closed")
            assert facts == (head.next_offset, head.closed), f"{name} is listed as {listed[name]}"
    assert set(listed) <= set(heads), f"streams are listed that no client created: {set(listed) - set(heads)}"


def list_streams(client: Client, bucket: str, *, may_expire: bool = False) -> dict[str, dict[str, object]] | None:
    """What a bucket lists, page by page; None if there is no such bucket."""
    entries: dict[str, dict[str, object]] = {}
    cursor = ""
    while True:
        answer = client.ask("GET", f"{bucket}/streams?limit={PAGE_STREAMS}&after={cursor}")
        facts = client.ask("GET", bucket)
        if answer.status == 404:
            assert facts.status == 404 or may_expire, f"{bucket} has no list"
            return None
        page = json.loads(answer.body)
        ids = [entry["stream_id"] for entry in page["streams"]]
        assert ids == sorted(ids), f"{bucket} lists {ids}"
        assert page["stream_count"] == len(ids) <= PAGE_STREAMS
        assert not ids or (ids[0] > cursor and not entries.keys() & set(ids)), f"{bucket} lists {ids} after {cursor!r}"
        entries |= {entry["stream_id"]: entry for entry in page["streams"]}
        if not page["has_more"]:
            counted = json.loads(facts.body)["streams"]
            extra = counted - len(entries)
            assert extra == 0 or (may_expire and extra > 0), f"{bucket} counts {counted}, and lists {len(entries)}"
            return entries
        cursor = page["next_cursor"]
