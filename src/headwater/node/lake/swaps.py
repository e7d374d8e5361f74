"""Swaps: rewrites made outside the server take the place of the segments they were made from.

    judge     the request, against the state
    inspect   every byte of the new objects, in a thread: nothing the request claims about them is trusted
    compare   their rows with those of the segments they replace, in everything but the bytes of payloads: no row is
              foreign, and it is known which were dropped
    swap      by one command, as for a rewrite of our own

One at a time. A refused swap changes nothing; its objects are swept when their deadline is long past.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import msgspec

from headwater.lake.catalog import ListedSegment
from headwater.lake.compaction.planning import LIVES_MAX
from headwater.lake.format import SegmentKey, deadline_us_of, parse_segment_key, segment_key
from headwater.lake.segments.object_files import read_columns
from headwater.lake.segments.reader import SegmentDamaged
from headwater.lake.verify.comparing import Comparison
from headwater.lake.verify.fingerprints import COLUMNS
from headwater.lake.verify.inspecting import Inspected, inspect
from headwater.node.committer import ask
from headwater.node.lake.parts import LakeParts
from headwater.node.threads import in_thread
from headwater.protocol.limits import DAY_US, STREAMS_PER_SEGMENT_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import KeyMissing, StoreFailed
from headwater.streams.commands.lake import Publication, SwapSegments
from headwater.streams.replies import Misplaced, Placed
from headwater.streams.segments import Segment

SEGMENTS_MAX = 1_000
"""Segments that one swap may replace or add: it is applied in one step, with all lives in them."""
DEADLINE_US_MAX = DAY_US
"""How far ahead a deadline may be: until it has passed, the objects of an abandoned swap cannot be swept."""

log = logging.getLogger(__name__)


class SwapRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to put new segments in the place of old ones."""

    shard: int
    replaced: list[int]
    keys: list[str]
    dropped: int
    """The highest position of a row that is in the old segments but in none of the new; 0 if every row was kept."""
    deadline: int


class _SwapRefused(Exception):
    """The swap cannot be carried out; the message says why in one sentence."""


class Swaps:
    """Carries out swaps on one shard."""

    def __init__(self, parts: LakeParts) -> None:
        self._parts = parts
        self._shard, self._state, self._store, self._submit, self._now = parts[:5]
        self._thread = ThreadPoolExecutor(1, "lake-swap")
        self._lock = asyncio.Lock()
        self._stopping = Event()

    async def stop(self) -> None:
        """Stop at the next row group."""
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    async def swap(self, request: SwapRequest) -> int | Refusal:
        """Carry out a swap: a position at which it is in effect, or why it was refused."""
        async with self._lock:
            try:
                return await self._swap(request)
            except _SwapRefused as refused:
                return Refusal(Code.SWAP_REFUSED, str(refused))
            except StoreFailed as error:
                log.error("a swap could not be checked: %s", error)
                return Refusal(
                    Code.OVERLOADED, "The lake cannot be read at the moment; nothing has changed, so try again."
                )

    async def _swap(self, request: SwapRequest) -> int | Refusal:
        old, keys = self._judge(request)
        with self._parts.reading([listed.segment for listed in old]):
            publications = await in_thread(self._thread, self._check, request, old, keys)
        # The state may have changed meanwhile.
        self._judge(request)
        command = SwapSegments(tuple(request.replaced), tuple(publications), request.deadline, request.dropped)
        reply = await ask(self._submit, command)
        if isinstance(reply, Refusal):
            return reply  # There is no room in the log, or it cannot be reached.
        if not isinstance(reply, Placed):
            assert isinstance(reply, Misplaced)
            raise _SwapRefused(reply.detail)
        log.info("a swap replaced %d segments by %d", len(request.replaced), len(publications))
        return self._state.position

    # -- On the loop --------------------------------------------------------------------------------------------------

    def _judge(self, request: SwapRequest) -> tuple[list[ListedSegment], list[SegmentKey]]:
        """The segments to be replaced and the parsed keys of the new ones, if the request is consistent."""
        if request.shard != self._shard:
            raise _SwapRefused(f"Shard {request.shard} does not exist; this server has shard {self._shard} only.")
        if not request.replaced or max(len(request.replaced), len(request.keys)) > SEGMENTS_MAX:
            raise _SwapRefused(f"A swap replaces 1 to {SEGMENTS_MAX} segments by at most {SEGMENTS_MAX}.")
        if len(set(request.replaced)) < len(request.replaced):
            raise _SwapRefused("The request names a segment to be replaced twice.")
        if not self._now() <= request.deadline <= self._now() + DEADLINE_US_MAX:
            raise _SwapRefused(f"The deadline {request.deadline} has passed or is more than a day ahead.")
        missing = [number for number in request.replaced if number not in self._state.cold.segments]
        if missing:
            raise _SwapRefused(f"Segments {missing[:10]} do not exist; they may have been replaced.")
        old = [self._listed(number) for number in request.replaced]
        return old, self._judge_keys(request, [listed.segment for listed in old])

    def _judge_keys(self, request: SwapRequest, old: list[Segment]) -> list[SegmentKey]:
        cold = self._state.cold
        first, last = min(one.first_position for one in old), max(one.last_position for one in old)
        named: set[str] = set()
        keys = []
        for text in request.keys:
            key = parse_segment_key(text)
            if key is None or key.shard != self._shard:
                raise _SwapRefused(f"{text[:200]!r} is not the key of a segment of shard {self._shard}.")
            if key.id in named or cold.names(key.id):
                raise _SwapRefused(f"Segment {key.id!r} is already in use or named twice.")
            if deadline_us_of(key.id) < request.deadline:
                raise _SwapRefused(f"The deadline in the id {key.id!r} is earlier than that of the swap.")
            if not first <= key.first_position <= key.last_position <= last:
                raise _SwapRefused(f"The positions of {key.id!r} are outside of {first} to {last}, those replaced.")
            named.add(key.id)
            keys.append(key)
        return keys

    def _listed(self, number: int) -> ListedSegment:
        held = self._state.cold.segments[number]
        segment = held.segment
        key = segment_key(self._shard, segment.first_position, segment.last_position, segment.id)
        return ListedSegment(key, number, held.live_rows, segment)

    # -- In the thread ------------------------------------------------------------------------------------------------

    def _check(self, request: SwapRequest, old: list[ListedSegment], keys: list[SegmentKey]) -> list[Publication]:
        """The publications of the new objects, if they hold what they must."""
        try:
            new = [self._inspect(key) for key in keys]
            comparison = Comparison(
                stretch for found in new for stretch in zip(found.rows, found.fingerprints, strict=True)
            )
            for listed in old:
                for table in read_columns(self._store, listed, COLUMNS):
                    self._check_running()
                    comparison.compare(table)
        except SegmentDamaged as damage:
            raise _SwapRefused(str(damage)) from damage
        except KeyMissing as missing:
            raise _SwapRefused(f"An object is missing: {missing}") from missing
        _check_lives(new)
        _check_numbers(request, comparison, max(listed.segment.last_position for listed in old))
        return [Publication(inspected.segment, inspected.rows) for inspected in new]

    def _inspect(self, key: SegmentKey) -> Inspected:
        text = segment_key(*key)
        size = next((item.size for item in self._store.items(text) if item.key == text), None)
        if size is None:
            raise _SwapRefused(f"There is no object {text}.")
        return inspect(partial(self._read, text), size, key)

    def _read(self, key: str, start: int, size: int) -> bytes:
        self._check_running()
        return self._store.read(key, start, size)

    def _check_running(self) -> None:
        if self._stopping.is_set():
            raise StoreFailed("the server is stopping")


def _check_lives(new: list[Inspected]) -> None:
    lives = [len(inspected.rows) for inspected in new]
    if max(lives, default=0) > STREAMS_PER_SEGMENT_MAX or sum(lives) > LIVES_MAX:
        limits = f"{STREAMS_PER_SEGMENT_MAX} streams in a segment and {LIVES_MAX} in total"
        raise _SwapRefused(f"A swap is applied in one step and may have at most {limits}.")


def _check_numbers(request: SwapRequest, comparison: Comparison, last_position: int) -> None:
    foreign = comparison.foreign()
    if foreign is not None:
        raise _SwapRefused(f"The rewrite has rows of {foreign.name!r} that are not in the segments it replaces.")
    if not comparison.rows_dropped and request.dropped:
        raise _SwapRefused(f"No row was dropped, so dropped must be 0, not {request.dropped}.")
    if comparison.rows_dropped and not comparison.dropped <= request.dropped <= last_position:
        rows = f"{comparison.rows_dropped} rows up to position {comparison.dropped} were dropped"
        raise _SwapRefused(
            f"{rows}, so dropped must be {comparison.dropped} to {last_position}, not {request.dropped}."
        )
