"""Swaps: rewrites that somebody else has made, put in the place of what they were made from.

    judge     what is asked for, against what the state knows
    inspect   every byte of the new objects, in a thread: what they are is not told but found out
    compare   their rows with those of the segments they replace, in all but the bytes of payloads: none is foreign, and
              what was dropped is known
    swap      by one command, as a rewrite of our own

One at a time. Whatever is refused changes nothing, and its objects are swept when their deadline is long past.
"""

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event

import msgspec

from headwater.lake.catalog import ListedSegment
from headwater.lake.compaction.planning import LIVES_MAX
from headwater.lake.format import SegmentKey, deadline_us_of, parse_segment_key, segment_key
from headwater.lake.object_files import read_columns
from headwater.lake.reader import SegmentDamaged
from headwater.lake.verify.comparing import Comparison
from headwater.lake.verify.fingerprints import COLUMNS
from headwater.lake.verify.inspecting import Inspected, inspect
from headwater.node.committer import Now, Submit, ask
from headwater.protocol.limits import DAY_US, STREAMS_PER_SEGMENT_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import KeyMissing, Store, StoreFailed
from headwater.streams.commands import Publication, SwapSegments
from headwater.streams.replies import Misplaced, Placed
from headwater.streams.segments import Segment
from headwater.streams.state import State

SEGMENTS_MAX = 1_000
"""Segments that one swap may replace, or put in their place: it is applied in one go, and so are the lives in them."""
DEADLINE_US_MAX = DAY_US
"""How far ahead a deadline may lie: until it is past, the objects of a swap that never came cannot be swept."""

log = logging.getLogger(__name__)


class Handed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rewrite as it was handed in."""

    shard: int
    replaced: list[int]
    keys: list[str]
    dropped: int
    """The highest position of a row that is in the old segments and in none of the new; 0 if every row was kept."""
    deadline: int


class _Refused(Exception):
    """The swap cannot be; says why in one sentence."""


class Swaps:
    """Carries out swaps on one shard."""

    def __init__(
        self,
        shard: int,
        state: State,
        store: Store,
        submit: Submit,
        *,
        now: Now,
        in_use: Counter[str],
    ) -> None:
        self._state, self._store, self._submit, self._now = state, store, submit, now
        self._in_use, self._shard = in_use, shard
        self._thread = ThreadPoolExecutor(1, "lake-swap")
        self._lock = asyncio.Lock()
        self._stopping = Event()

    async def stop(self) -> None:
        """Leave off at the next row group."""
        self._stopping.set()
        self._thread.shutdown(cancel_futures=True)

    async def swap(self, handed: Handed) -> int | Refusal:
        """Carry out a swap: a position at which it has happened, or why it cannot."""
        async with self._lock:
            try:
                return await self._swap(handed)
            except _Refused as refused:
                return Refusal(Code.SWAP_REFUSED, str(refused))
            except StoreFailed as error:
                log.error("a swap could not be judged: %s", error)
                return Refusal(
                    Code.OVERLOADED, "The lake cannot be read at the moment; nothing has changed, try again."
                )

    async def _swap(self, handed: Handed) -> int:
        old, keys = self._judge(handed)
        ids = [listed.segment.id for listed in old]
        self._in_use.update(ids)
        try:
            publications = await asyncio.get_running_loop().run_in_executor(self._thread, self._look, handed, old, keys)
        finally:
            self._in_use.subtract(ids)
            for segment_id in ids:
                if not self._in_use[segment_id]:
                    del self._in_use[segment_id]
        # Much may have happened meanwhile.
        self._judge(handed)
        command = SwapSegments(tuple(handed.replaced), tuple(publications), handed.deadline, handed.dropped)
        reply = await ask(self._submit, command)
        if not isinstance(reply, Placed):
            assert isinstance(reply, Misplaced)
            raise _Refused(reply.detail)
        log.info("%d segments were replaced by %d that were handed in", len(handed.replaced), len(publications))
        return self._state.position

    # -- On the loop --------------------------------------------------------------------------------------------------

    def _judge(self, handed: Handed) -> tuple[list[ListedSegment], list[SegmentKey]]:
        """The segments to be replaced and what the keys of the new ones say, if they go together."""
        if handed.shard != self._shard:
            raise _Refused(f"There is no shard {handed.shard}, only shard {self._shard}.")
        if not handed.replaced or max(len(handed.replaced), len(handed.keys)) > SEGMENTS_MAX:
            raise _Refused(f"A swap replaces 1 to {SEGMENTS_MAX} segments by at most {SEGMENTS_MAX}.")
        if len(set(handed.replaced)) < len(handed.replaced):
            raise _Refused("A segment is to be replaced twice.")
        if not self._now() <= handed.deadline <= self._now() + DEADLINE_US_MAX:
            raise _Refused(f"The deadline {handed.deadline} is past, or more than a day ahead.")
        missing = [number for number in handed.replaced if number not in self._state.cold.segments]
        if missing:
            raise _Refused(f"There are no segments {missing[:10]}; others may have taken their place.")
        old = [self._listed(number) for number in handed.replaced]
        return old, self._judge_keys(handed, [listed.segment for listed in old])

    def _judge_keys(self, handed: Handed, old: list[Segment]) -> list[SegmentKey]:
        cold = self._state.cold
        first, last = min(one.first_position for one in old), max(one.last_position for one in old)
        taken = {held.segment.id for held in cold.segments.values()} | cold.retired.keys()
        keys = []
        for text in handed.keys:
            key = parse_segment_key(text)
            if key is None or key.shard != self._shard:
                raise _Refused(f"{text[:200]!r} is no key of a segment of shard {self._shard}.")
            if key.id in taken:
                raise _Refused(f"The segment {key.id!r} is in use already, or named twice.")
            if deadline_us_of(key.id) < handed.deadline:
                raise _Refused(f"The deadline in the id {key.id!r} is before that of the swap.")
            if not first <= key.first_position <= key.last_position <= last:
                raise _Refused(f"The positions of {key.id!r} are not within {first} to {last}, which are replaced.")
            taken.add(key.id)
            keys.append(key)
        return keys

    def _listed(self, number: int) -> ListedSegment:
        held = self._state.cold.segments[number]
        segment = held.segment
        key = segment_key(self._shard, segment.first_position, segment.last_position, segment.id)
        return ListedSegment(key, number, held.live_rows, segment)

    # -- In the thread ------------------------------------------------------------------------------------------------

    def _look(self, handed: Handed, old: list[ListedSegment], keys: list[SegmentKey]) -> list[Publication]:
        """What is to be published, if the new objects hold what they must."""
        try:
            new = [self._inspect(key) for key in keys]
            comparison = Comparison(
                stretch for found in new for stretch in zip(found.rows, found.fingerprints, strict=True)
            )
            for listed in old:
                for table in read_columns(self._store, listed, COLUMNS):
                    self._go_on()
                    comparison.compare(table)
        except SegmentDamaged as damage:
            raise _Refused(str(damage)) from damage
        except KeyMissing as missing:
            raise _Refused(f"An object is missing: {missing}") from missing
        _check_lives(new)
        _check_numbers(handed, comparison, max(listed.segment.last_position for listed in old))
        return [Publication(inspected.segment, inspected.rows) for inspected in new]

    def _inspect(self, key: SegmentKey) -> Inspected:
        text = segment_key(*key)
        size = next((item.size for item in self._store.items(text) if item.key == text), None)
        if size is None:
            raise _Refused(f"There is no object {text}.")
        return inspect(partial(self._read, text), size, key)

    def _read(self, key: str, start: int, size: int) -> bytes:
        self._go_on()
        return self._store.read(key, start, size)

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise StoreFailed("the server stops")


def _check_lives(new: list[Inspected]) -> None:
    lives = [len(inspected.rows) for inspected in new]
    if max(lives, default=0) > STREAMS_PER_SEGMENT_MAX or sum(lives) > LIVES_MAX:
        most = f"{STREAMS_PER_SEGMENT_MAX} streams in a segment and {LIVES_MAX} in all"
        raise _Refused(f"A swap may have {most}, since it is applied in one go.")


def _check_numbers(handed: Handed, comparison: Comparison, last_position: int) -> None:
    foreign = comparison.foreign()
    if foreign is not None:
        raise _Refused(f"The rewrite has rows of {foreign.name!r} that are not those of the segments it replaces.")
    if not comparison.rows_dropped and handed.dropped:
        raise _Refused(f"No row was dropped, so dropped must be 0, not {handed.dropped}.")
    if comparison.rows_dropped and not comparison.dropped <= handed.dropped <= last_position:
        rows = f"{comparison.rows_dropped} rows up to position {comparison.dropped} were dropped"
        raise _Refused(f"{rows}, so dropped must be {comparison.dropped} to {last_position}, not {handed.dropped}.")
