"""One bucket of a server: its streams, the streams that they are forks of, and their rows in each segment."""

from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from headwater.backup.manifest import BackupFailed
from headwater.lake.writer import SegmentWriter
from headwater.protocol.names import bucket_of
from headwater.streams.cold import Held
from headwater.streams.segments import DeadRows, Extent, Segment
from headwater.streams.state import State


def only_bucket(state: State, bucket: str) -> State:
    """A state with the streams of one bucket and the streams of other buckets that they are forks of.

    Takes over the streams of the given state and changes them.
    """
    names = _names_of(state, bucket)
    kept = State(state.log_id)
    kept.position, kept.now = state.position, state.now
    kept.buckets = {name: entry for name, entry in state.buckets.items() if name == bucket}
    held_by = {origin.pin for name in names if (origin := state.streams[name].origin) is not None}
    for name in sorted(names):
        stream = state.streams[name]
        stream.pins = {pin: hold for pin, hold in (stream.pins or {}).items() if pin in held_by} or None
        if stream.deleted and stream.pins is None:
            continue  # Only forks in other buckets kept it.
        kept.add(stream)
        for extent in stream.extents:
            held = kept.cold.segments.get(extent.segment)
            live_rows = extent.rows + (held.live_rows if held else 0)
            kept.cold.keep(extent.segment, Held(state.cold.segments[extent.segment].segment, live_rows))
    known = {producer for stream in kept.streams.values() for producer in stream.producers or ()}
    kept.finished = {producer: None for producer in state.finished if producer in known}
    for incarnation in {stream.incarnation for stream in kept.streams.values()} & set(state.cold.tombstones):
        tombstone = state.cold.tombstones[incarnation]
        dead = [rows for rows in tombstone.dead if rows.segment in kept.cold.segments]
        kept.cold.hide(tombstone.name, incarnation, tombstone.below, dead)
    kept.cold.next_number, kept.cold.changed_at = state.cold.next_number, state.position
    # The rows of other buckets are missing: a consumer that reads by positions must not miss that.
    kept.cold.dropped = kept.cold.flushed = state.cold.flushed
    kept.hot_bytes = sum(stream.hot_bytes for stream in kept.streams.values())
    return kept


def _names_of(state: State, bucket: str) -> set[str]:
    """The streams of a bucket, their sources, the sources of these, and so on."""
    names = {name for name in state.streams if bucket_of(name) == bucket}
    if not names and bucket not in state.buckets:
        raise BackupFailed(f"There is no bucket {bucket!r}.")
    added = names
    while added:
        origins = {state.streams[name].origin for name in added}
        added = {origin.name for origin in origins if origin is not None} - names
        names = names | added
    return names


def only_rows_of(state: State, number: int, segment: Segment, tables: Iterable[pa.Table]) -> tuple[Segment, bytes]:
    """Rewrite a segment with only the rows of the state's streams; the state then refers to the new segment."""
    holders = {
        stream.incarnation: stream
        for stream in state.streams.values()
        if any(extent.segment == number for extent in stream.extents)
    }
    # Another bucket's rows of this segment, or this bucket's rows later on, are another object.
    rest = crc32c(f"{state.log_id}/{state.position}/{sorted(holders)}".encode())
    writer = SegmentWriter(f"{segment.id}{rest:08x}", segment.first_position, segment.last_position)
    incarnations = pa.array(list(holders), pa.int64())
    for table in tables:
        writer.add_table(table.filter(pc.is_in(table["incarnation"], value_set=incarnations)))
    written = writer.finish()
    for rows in written.rows:
        stream = holders[rows.incarnation]
        extent = Extent(number, rows.row, rows.rows, rows.start, rows.end, rows.record)
        stream.extents = tuple(extent if old.segment == number else old for old in stream.extents)
        tombstone = state.cold.tombstones.get(rows.incarnation)
        if tombstone is not None:
            state.cold.tombstones[rows.incarnation] = msgspec.structs.replace(
                tombstone,
                dead=tuple(
                    DeadRows(number, rows.row, dead.rows) if dead.segment == number else dead for dead in tombstone.dead
                ),
            )
    live_rows = sum(rows.rows for rows in written.rows)
    state.cold.keep(number, Held(written.segment, live_rows))
    return written.segment, written.data
