"""Lakes with rows that no server would write: every checksum is right, but what it covers may be wrong."""

import json
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.catalog import ForkRow
from headwater.lake.format import (
    GROUPS_KEY,
    SCHEMA,
    SEAL_KEY,
    VERSION,
    VERSION_KEY,
    name_of,
    new_segment_id,
    segment_key,
)
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.pinned_rows import Source
from headwater.lake.iceberg.tables import Changes, LakeTables
from headwater.lake.segments.sealing import UNSEALED, seal
from headwater.lake.segments.writer import Written
from headwater.lake.verify.verifier import Verifier
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from headwater.streams.cold import ALL, Held, Tombstone
from headwater.streams.segments import DeadRows, Extent, Segment

from .lives import Life, rows_of

FIRST, LAST = 1, 1_000_000


class TombstoneRow(NamedTuple):
    """A life whose rows below an offset are dead."""

    name: str
    incarnation: int
    below: int


def table_of(*lives: Life) -> pa.Table:
    """The rows of some lives."""
    return pa.Table.from_pylist(rows_of(lives), SCHEMA)


def forge(groups: Sequence[pa.Table], number: int = 0) -> tuple[bytes, Segment]:
    """A segment with exactly these row groups, and its description."""
    sink, sums, row, at = BytesIO(), [], 0, 0
    with pq.ParquetWriter(sink, groups[0].schema, write_page_checksum=True, store_schema=False) as parquet:
        for group in groups:
            parquet.write_table(group, row_group_size=len(group))
            data = sink.getvalue()[at:]
            sums.append((row, len(group), at, len(data), crc32c(data)))
            row, at = row + len(group), at + len(data)
        parquet.add_key_value_metadata({VERSION_KEY: VERSION, GROUPS_KEY: json.dumps(sums)})
    data, rows = sink.getvalue(), pa.concat_tables(groups)
    names = [name_of(rows["bucket"][at].as_py(), rows["stream"][at].as_py()) for at in (0, -1)]
    times = pc.min_max(rows["committed_at"].cast(pa.int64())).as_py()
    size = pc.sum(pc.binary_length(rows["payload"])).as_py()
    footer = data[at:]
    segment = Segment(
        id=new_segment_id(0, f"s{number}"),
        first_position=FIRST,
        last_position=LAST,
        first_at=times["min"],
        last_at=times["max"],
        first_name=names[0],
        last_name=names[1],
        rows=len(rows),
        payload_bytes=size,
        size=len(data),
        footer_bytes=len(footer),
        footer_crc=crc32c(footer),
    )
    return data, segment


def changed_footer(written: Written, old: bytes, new: bytes) -> bytes:
    """A segment with other bytes in its footer, and a matching seal."""
    assert len(old) == len(new)
    at = len(written.data) - written.segment.footer_bytes
    footer = written.data[at:]
    assert old in footer
    seal_at = footer.rindex(SEAL_KEY.encode()) + len(SEAL_KEY) + 2
    changed = bytearray(footer.replace(old, new))
    changed[seal_at : seal_at + len(UNSEALED)] = UNSEALED.encode()
    seal(memoryview(changed))
    return written.data[:at] + changed


def lake_of(
    *segments: Sequence[pa.Table],
    tombstones: Sequence[TombstoneRow] = (),
    forks: Sequence[ForkRow] = (),
    live_rows: int | None = None,
    flushed: int = LAST,
    **facts: object,
) -> MemoryStore:
    """A lake of forged segments, each given by its row groups; `facts` override the catalog's description of each."""
    store, held = MemoryStore(), list[tuple[int, Held | None]]()
    for number, groups in enumerate(segments):
        data, segment = forge(groups, number)
        store.create(segment_key(0, FIRST, LAST, segment.id), data)
        segment = msgspec.structs.replace(segment, **facts)
        held.append((number, Held(segment, segment.rows if live_rows is None else min(live_rows, segment.rows))))
    dead: list[tuple[int, Tombstone | None]] = [
        (row.incarnation, Tombstone(row.name, row.below, tuple(_dead_rows(segments, row)))) for row in tombstones
    ]
    tables = LakeTables(store, 0, "j", history_seconds=60, now_ms=lambda: 0)
    sources = [(row.incarnation, Source(tuple(_extents(segments, row)), ALL)) for row in tombstones]
    tables.update(Changes(held, dead, [(row.incarnation, row) for row in forks], sources))
    tables.commit(Heading(LAST, flushed, 0, 2**60), ())
    return store


def _dead_rows(segments: Sequence[Sequence[pa.Table]], tombstone: TombstoneRow) -> Iterator[DeadRows]:
    for number, groups in enumerate(segments):
        rows = pa.concat_tables(groups)
        of_life = pc.equal(rows["incarnation"], tombstone.incarnation)
        dead = pc.indices_nonzero(pc.and_(of_life, pc.less(rows["offset"], tombstone.below)).combine_chunks())
        if len(dead):
            yield DeadRows(number, dead[0].as_py(), len(dead))


def _extents(segments: Sequence[Sequence[pa.Table]], tombstone: TombstoneRow) -> Iterator[Extent]:
    """Where the dead rows are, for forks that need them."""
    for dead in _dead_rows(segments, tombstone):
        records = pa.concat_tables(segments[dead.segment])["record"]
        yield Extent(dead.segment, dead.row, dead.rows, 0, 0, records[dead.row].as_py())


def problems(store: Store, *, json_values: bool = False) -> list[str]:
    """What is wrong with a lake, one line for each problem."""
    return [str(problem) for problem in Verifier(store, json_values=json_values).problems()]
