"""Buckets: the commands and queries on one shard, and the sagas that open and drop them on all shards.

A bucket exists once it was opened, or while it contains a stream (the flat surface does not require opening). The first
shard decides on opening and dropping; the others follow. A drop first seals the bucket everywhere, so that no stream is
created in it while its streams are counted:

    Seal on every shard        if any stream is left: Unseal everywhere, 409
    Drop on the first shard    decides, before the seal's deadline
    Drop on the others         already decided

A process that dies in between leaves seals behind. After the deadline, `SettleBucket` asks the first shard whether it
still has the bucket; from then on that seal cannot drop it, and the other shards are rolled forward or back.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from typing import NamedTuple

from headwater.protocol.names import bucket_of
from headwater.protocol.refusals import Code, Refusal, bucket_not_found
from headwater.streams import queries
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import DropBucket, OpenBucket, SealBucket, SettleBucket, UnsealBucket
from headwater.streams.handling import handles
from headwater.streams.replies import (
    BucketDropped,
    BucketEntry,
    BucketExisted,
    BucketFacts,
    BucketOpened,
    BucketSealed,
    BucketsListed,
    Done,
    Entry,
    Listed,
    Reply,
    Settled,
)
from headwater.streams.state import Bucket, State

EXPIRED_PER_SEAL_MAX = 1_000
"""How many expired streams a seal removes; the reaper removes the rest."""


def judge_bucket(state: State, name: str, *, needed: bool) -> Refusal | None:
    """Why the bucket does not allow a stream of this name to be created, or None."""
    bucket = bucket_of(name)
    entry = state.buckets.get(bucket)
    if entry is not None and entry.seal is not None:
        return _being_dropped(bucket)
    return bucket_not_found(bucket) if needed and entry is None and bucket not in state.lives else None


@handles(OpenBucket)
def open_bucket(state: State, command: OpenBucket) -> Reply:
    """Create the bucket."""
    entry = state.buckets.get(command.bucket)
    if entry is None:
        _enter(state, command.bucket, Bucket(state.now))
        return BucketOpened()
    return BucketExisted() if entry.seal is None else _being_dropped(command.bucket)


@handles(SealBucket)
def seal_bucket(state: State, command: SealBucket) -> Reply:
    """Block new streams, remove expired ones, and count the rest."""
    entry = state.buckets.get(command.bucket)
    if entry is None:
        if command.decides:
            return bucket_not_found(command.bucket)
        entry = Bucket(state.now)  # The first shard has it; its opening has not arrived here yet.
    if entry.seal not in (None, command.seal):
        return _being_dropped(command.bucket)
    _enter(state, command.bucket, Bucket(entry.created_at, command.seal, command.deadline))
    first = f"{command.bucket}/"
    for name in list(state.names.after(first, EXPIRED_PER_SEAL_MAX)):
        if not name.startswith(first):
            break
        stream = state.streams[name]
        if not stream.deleted and stream.expired(state.now):
            state.end(stream)
    return BucketSealed(state.lives[command.bucket])


@handles(UnsealBucket)
def unseal_bucket(state: State, command: UnsealBucket) -> Reply:
    """Remove the seal, if it is this one."""
    entry = state.buckets.get(command.bucket)
    if entry is not None and entry.seal == command.seal:
        _enter(state, command.bucket, Bucket(entry.created_at))
    return Done()


@handles(DropBucket)
def drop_bucket(state: State, command: DropBucket) -> Reply:
    """Remove the bucket, if it carries this seal."""
    entry = state.buckets.get(command.bucket)
    if entry is None or entry.seal != command.seal:
        return BucketDropped() if command.decided else bucket_not_found(command.bucket)
    if not command.decided and state.now > entry.seal_deadline:
        return Refusal(Code.OVERLOADED, f"Bucket {command.bucket!r} took too long to drop; try again.")
    _enter(state, command.bucket, None)
    return BucketDropped()


@handles(SettleBucket)
def settle_bucket(state: State, command: SettleBucket) -> Reply:
    """Whether the first shard has the bucket; no answer is final before the deadline."""
    if state.now <= command.deadline:
        return Refusal(Code.OVERLOADED, "The seal's deadline has not passed yet.")
    return Settled(held=command.bucket in state.buckets)


def _enter(state: State, bucket: str, entry: Bucket | None) -> None:
    """Enter a bucket that was created explicitly, or remove its entry."""
    known = bucket in state.lives or bucket in state.buckets
    if entry is not None and entry.seal is not None:
        state.sealed[bucket] = None
    else:
        state.sealed.pop(bucket, None)
    if entry is not None:
        state.buckets[bucket] = entry
        if not known:
            state.bucket_names.add(bucket)
    else:
        del state.buckets[bucket]
        if bucket not in state.lives:
            state.bucket_names.remove(bucket)


def _being_dropped(bucket: str) -> Refusal:
    return Refusal(Code.OVERLOADED, f"Bucket {bucket!r} is being deleted; try again in a moment.")


# -- Queries -----------------------------------------------------------------------------------------------------------


def facts(state: State, query: queries.Bucket) -> BucketFacts:
    """What this shard knows about a bucket."""
    lives = state.lives[query.bucket]
    return BucketFacts(query.bucket in state.buckets, lives - state.ghosts[query.bucket], lives)


def bucket_listing(state: State, query: queries.Buckets) -> BucketsListed:
    """A page of the buckets that this shard knows; the cost grows with the page."""
    names = list(state.bucket_names.after(max(query.after, query.prefix), query.limit + 1))
    if query.prefix > query.after and (query.prefix in state.buckets or query.prefix in state.lives):
        names.insert(0, query.prefix)
    names = [name for name in names if name.startswith(query.prefix)]
    found = [BucketEntry(name, state.lives[name] - state.ghosts[name]) for name in names[: query.limit]]
    return BucketsListed(found, len(names) > query.limit)


def merge_listings(pages: Sequence[BucketsListed], limit: int) -> BucketsListed:
    """The page of all shards: a bucket may have streams on several."""
    streams: Counter[str] = Counter()
    for page in pages:
        streams.update({entry.bucket_id: entry.streams for entry in page.buckets})
    names = sorted(streams)
    has_more = len(names) > limit or any(page.has_more for page in pages)
    return BucketsListed([BucketEntry(name, streams[name]) for name in names[:limit]], has_more)


def listing(state: State, query: queries.Listing, now: int) -> Listed:
    """A page of this shard's streams; the cost grows with the page and the dead streams skipped."""
    lead = "" if query.bucket is None else f"{query.bucket}/"
    wanted, cursor = lead + query.prefix, lead + max(query.after, query.prefix)
    inclusive = query.prefix > query.after
    found: list[Entry] = []
    if inclusive and cursor in state.streams:
        found += _entry(state, cursor, len(lead), now)
    while len(found) <= query.limit:
        names = list(state.names.after(cursor, query.limit + 1))
        for name in names:
            if not name.startswith(wanted):
                return Listed(found[: query.limit], len(found) > query.limit)
            found += _entry(state, name, len(lead), now)
        if not names:
            break
        cursor = names[-1]
    return Listed(found[: query.limit], len(found) > query.limit)


def _entry(state: State, name: str, lead: int, now: int) -> list[Entry]:
    stream = state.streams[name]
    if stream.deleted or stream.expired(now):
        return []
    return [
        Entry(
            name[lead:],
            "Closed" if stream.closed else "Open",
            stream.content_type,
            stream.tail,
            stream.created_at // 1000,
            stream.written_at // 1000,
        )
    ]


# -- The sagas ---------------------------------------------------------------------------------------------------------


class To(NamedTuple):
    """A command or query for one shard."""

    shard: int
    request: Command | queries.Bucket


BucketSaga = Generator[To | Reply, Reply | None, None]
"""Yields commands and queries, each with its shard, and is sent the replies; a reply it yields is the client's."""


def _known(shards: int, bucket: str) -> Generator[To, Reply | None, BucketFacts]:
    opened, streams, lives = False, 0, 0
    for shard in range(shards):
        known = yield To(shard, queries.Bucket(bucket))
        assert isinstance(known, BucketFacts)
        opened, streams, lives = opened or known.opened, streams + known.streams, lives + known.lives
    return BucketFacts(opened, streams, lives)


def inspect(shards: int, bucket: str) -> BucketSaga:
    """What all shards together know about a bucket."""
    known = yield from _known(shards, bucket)
    yield known if known.opened or known.lives else bucket_not_found(bucket)


def open_everywhere(shards: int, bucket: str) -> BucketSaga:
    """Open a bucket; a second opening completes the first, then reports that the bucket exists."""
    known = yield from _known(shards, bucket)
    decided = yield To(0, OpenBucket(bucket))
    if isinstance(decided, Refusal):
        yield decided
        return
    for shard in range(1, shards):
        opened = yield To(shard, OpenBucket(bucket))
        if isinstance(opened, Refusal):
            yield opened
            return
    existed = isinstance(decided, BucketExisted) or (known.lives > 0 and not known.opened)
    yield Refusal(Code.BUCKET_EXISTS, f"Bucket {bucket!r} already exists.") if existed else BucketOpened()


def drop_everywhere(shards: int, bucket: str, seal: str, deadline: int) -> BucketSaga:
    """Drop an empty bucket; `seal` is unique to this attempt."""
    known = yield from _known(shards, bucket)
    if not known.opened and not known.lives:
        yield bucket_not_found(bucket)
        return
    if known.lives and not known.opened:
        yield _not_empty(bucket, known.lives)
        return
    lives = 0
    refusal: Reply | None = None
    for shard in range(shards):
        sealed = yield To(shard, SealBucket(bucket, seal, deadline, decides=shard == 0))
        if not isinstance(sealed, BucketSealed):
            refusal = sealed
            break
        lives += sealed.streams
    if refusal is None and not lives:
        decided = yield To(0, DropBucket(bucket, seal))
        if isinstance(decided, BucketDropped):
            for shard in range(1, shards):
                yield To(shard, DropBucket(bucket, seal, decided=True))
            yield decided
            return
        refusal = decided
    for shard in range(shards):
        yield To(shard, UnsealBucket(bucket, seal))
    yield refusal or _not_empty(bucket, lives)


def settle_everywhere(shards: int, bucket: str, seal: str, deadline: int) -> BucketSaga:
    """Roll an abandoned drop forward or back, as the first shard decided."""
    settled = yield To(0, SettleBucket(bucket, seal, deadline))
    if isinstance(settled, Settled):
        for shard in range(shards - 1, -1, -1):
            undo = UnsealBucket(bucket, seal)
            yield To(shard, undo if settled.held else DropBucket(bucket, seal, decided=True))


def _not_empty(bucket: str, lives: int) -> Refusal:
    return Refusal(Code.BUCKET_NOT_EMPTY, f"Bucket {bucket!r} is not empty: it has {lives} streams; delete them first.")
