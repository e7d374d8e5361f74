"""Answers every query, from applied state and from what was fetched from the lake for it."""

from collections.abc import Callable

from headwater.node.committer import Now
from headwater.node.reads.pages import PageCache, fetch, fetch_records
from headwater.protocol.content_types import ENVELOPES, NDJSON, is_json
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import PAGE_MESSAGES_MAX
from headwater.protocol.offsets import NOW
from headwater.protocol.refusals import Code, Refusal, bucket_not_found, incarnation_changed
from headwater.streams import buckets, forking, queries, reading, snapshots
from headwater.streams.commands.forks import Origin
from headwater.streams.fetched import NOTHING_FETCHED, Fetched
from headwater.streams.queries import Anchor, Boundary, ForkTarget, Head, Listing, Query, Read
from headwater.streams.replies import Anchored, Described, Page, Reply
from headwater.streams.state import State, Stream

CROWDED_OUT = Refusal(
    Code.OVERLOADED, "Responses that clients do not read take all the memory they may; try again in a second."
)


class Queries:
    """Answers queries about one shard's state; reading a stream with a sliding lifetime renews it."""

    def __init__(
        self,
        state: State,
        now: Now,
        time_for: Callable[[str], int],
        touch: Callable[[Stream], None],
        page_bytes: int,
    ) -> None:
        self._state, self._now, self._time_for = state, now, time_for
        self._touch, self._page_bytes = touch, page_bytes
        self._pages = PageCache()

    def read(self, query: Query, fetched: Fetched = NOTHING_FETCHED) -> Reply:
        """The answer to a query; raises NotFetched if it needs bytes of the lake that are not in `fetched`."""
        if isinstance(query, Read):
            found = self._find(query)
            return self._page(found, query, fetched) if isinstance(found, Stream) else found
        now = self._now()
        if isinstance(query, ForkTarget):
            return forking.query_target(self._state, query, now)
        if isinstance(query, Anchor):
            source = forking.source_of_fork(self._state, query.name, now)
            return source if isinstance(source, Refusal) else reading.anchor(source, query, self.source_of, fetched)
        if isinstance(query, queries.Bucket):
            return buckets.facts(self._state, query)
        if isinstance(query, Listing):
            bucket = query.bucket
            known = bucket is None or bucket in self._state.buckets or bucket in self._state.lives
            return buckets.listing(self._state, query, now) if known else bucket_not_found(str(bucket))
        found = self._find(query)
        if isinstance(found, Refusal):
            return found
        return self._boundary(found, query, fetched) if isinstance(query, Boundary) else _describe(found)

    def reaches_tail(self, query: Read) -> bool:
        """Whether a page surely reaches the tail, by what is applied here: so little follows its offset."""
        stream = self._state.streams.get(query.name)
        if stream is None or query.records is not None or query.bytes_max is not None:
            return False
        return stream.tail - query.offset <= min(self._page_bytes, PAGE_MESSAGES_MAX)

    def may_be_longer(self, query: Read, size: int) -> bool:
        """Whether a page may have more bytes than this, by what is applied here: so much follows its offset."""
        stream = self._state.streams.get(query.name)
        if stream is None or query.from_now:
            return False
        return stream.tail - (query.offset if query.records is None else stream.start) > size

    def _find(self, query: Read | Head | Boundary) -> Stream | Refusal:
        """The life of the stream that a query names."""
        stream: Stream | Refusal | None = self._state.streams.get(query.name)
        if not isinstance(stream, Stream) or stream.deleted or stream.lifetime is not FOREVER:
            stream = self._state.present(query.name, self._now())
            if isinstance(stream, Refusal):
                stream = self._state.present(query.name, self._time_for(query.name))
        if isinstance(stream, Stream) and query.incarnation is not None and query.incarnation != stream.incarnation:
            return incarnation_changed(stream.name, stream.incarnation)
        return stream

    def source_of(self, origin: Origin) -> Stream:
        """The life that a fork's origin names."""
        source = self._state.streams[origin.name]
        assert source.incarnation == origin.incarnation, "a pinned source cannot be replaced"
        return source

    # -- Pages ----------------------------------------------------------------------------------------------------

    def _page(self, stream: Stream, query: Read, fetched: Fetched) -> Page | Refusal:
        if stream.lifetime.ttl_seconds is not None:
            self._touch(stream)
        if query.records is not None:
            return self._record_page(stream, query, query.records, fetched)
        start = stream.tail if query.offset == NOW else query.offset
        bytes_max = self._bytes_max(query)
        page = self._pages.get(stream.incarnation, start, stream.tail, stream.closed, stream.start)
        if page is not None and len(page.body) <= bytes_max and page.record_first in (None, stream.record_start):
            return page
        refusal = reading.judge(stream, start, self.source_of, fetched)
        if refusal is not None:
            return refusal
        plan = reading.plan(stream, start, bytes_max, self.source_of, fetched)
        if query.bytes_limit is not None and plan.next_offset - start > query.bytes_limit:
            return CROWDED_OUT
        json = is_json(stream.content_type)
        page = Page(
            stream.incarnation,
            stream.content_type,
            start,
            plan.next_offset,
            plan.next_offset == stream.tail,
            stream.closed,
            fetch(plan.slices, json=json),
            stream.record_start if json else None,
            reading.record_at(stream, plan.next_offset, self.source_of, fetched) if json else None,
        )
        if bytes_max == self._page_bytes:
            self._pages.put(page)
        return page

    def _bytes_max(self, query: Read) -> int:
        return self._page_bytes if query.bytes_max is None else min(self._page_bytes, query.bytes_max)

    def _record_page(self, stream: Stream, query: Read, records: queries.Records, fetched: Fetched) -> Page | Refusal:
        """A page of a JSON stream by ordinals: at most the requested number of whole messages, one per line."""
        if not is_json(stream.content_type):
            detail = f"Stream {stream.name!r} is not JSON, so it has no records."
            return Refusal(Code.BAD_REQUEST, detail, incarnation=stream.incarnation)
        first = _first_record(stream, query, records)
        if isinstance(first, Refusal):
            return first
        start = query.offset if first is None else reading.offset_of(stream, first, self.source_of, fetched)
        refusal = reading.judge(stream, start, self.source_of, fetched)
        if refusal is not None:
            return refusal
        first = reading.record_at(stream, start, self.source_of, fetched)
        assert first is not None, "a judged offset of a JSON stream is a boundary"
        most = PAGE_MESSAGES_MAX if records.most is None else min(records.most, PAGE_MESSAGES_MAX)
        bytes_max = self._bytes_max(query)
        plan = reading.plan(stream, start, bytes_max, self.source_of, fetched, messages_max=most)
        if query.bytes_limit is not None and plan.next_offset - start > query.bytes_limit:
            return CROWDED_OUT
        return Page(
            stream.incarnation,
            ENVELOPES if records.envelope else NDJSON,
            start,
            plan.next_offset,
            plan.next_offset == stream.tail,
            stream.closed,
            fetch_records(plan.slices, first, envelope=records.envelope),
            stream.record_start,
            reading.record_at(stream, plan.next_offset, self.source_of, fetched),
            first,
        )

    # -- Boundaries --------------------------------------------------------------------------------------------------

    def _boundary(self, stream: Stream, query: Boundary, fetched: Fetched) -> Anchored | Refusal:
        """Resolve the place of a snapshot or a retention: its offset and the number of messages before it."""
        offset = query.offset
        if query.record is not None:
            if not stream.record_start <= query.record <= stream.record_next:
                return _no_such_record(stream, query.record)
            offset = reading.offset_of(stream, query.record, self.source_of, fetched)
        assert offset is not None
        if offset > stream.tail:
            # Not for the command to say: an append may come first and put the offset inside a message.
            return snapshots.beyond_tail(stream)
        if offset < stream.start or offset == stream.tail:
            # The command says what is wrong below the start.
            return Anchored(stream.incarnation, offset, stream.record_next, stream.tail)
        record = reading.record_at(stream, offset, self.source_of, fetched)
        if record is None:
            return Refusal(
                Code.OFFSET_UNALIGNED,
                f"The offset is inside a message of {stream.name!r}; use one that an append or a read returned.",
                incarnation=stream.incarnation,
                next_offset=stream.tail,
            )
        return Anchored(stream.incarnation, offset, record, stream.tail)


def _describe(stream: Stream) -> Described:
    json = is_json(stream.content_type)
    return Described(
        stream.incarnation,
        stream.content_type,
        stream.tail,
        stream.closed,
        stream.lifetime,
        stream.snapshot,
        stream.record_start if json else None,
        stream.record_next if json else None,
        stream.attrs,
    )


def _first_record(stream: Stream, query: Read, records: queries.Records) -> int | Refusal | None:
    """The ordinal that a read begins with; None if it begins at its offset."""
    if records.tail is not None:
        return max(stream.record_start, stream.record_next - records.tail)
    if records.start is None:
        return None
    first = stream.record_next if records.start == NOW else records.start
    return first if stream.record_start <= first <= stream.record_next else _no_such_record(stream, first)


def _no_such_record(stream: Stream, record: int) -> Refusal:
    trimmed = record < stream.record_start
    return Refusal(
        Code.OFFSET_TRIMMED if trimmed else Code.OFFSET_BEYOND_TAIL,
        f"Record {record} is not one of {stream.name!r}, which has {stream.record_start} to {stream.record_next - 1}.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
        earliest_offset=stream.start if trimmed else None,
        record_first=stream.record_start,
        record_next=stream.record_next,
    )
