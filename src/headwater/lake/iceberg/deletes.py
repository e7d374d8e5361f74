"""Files of deleted rows: which rows of one segment are dead, for any engine; and which lives, for our own readers.

Other engines read the columns: the path of the segment and the number of each dead row. Our own readers take the lives
from the file's footer: that is smaller, and holds for the rows of each row group by itself.
"""

from array import array
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

DEAD_KEY = "headwater.dead"
"""Footer metadata: the dead lives as a MessagePack list of `DeadLife`."""

ROWS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


class DeadLife(NamedTuple):
    """The dead rows of one life in a segment, and the offset below which its rows are dead."""

    incarnation: int
    below: int
    row: int
    rows: int


_LIVES = msgspec.msgpack.Decoder(list[DeadLife])


def deletes_file(path: str, lives: Iterable[DeadLife]) -> bytes:
    """The file for a segment, given by its path."""
    dead = sorted((life for life in lives if life.rows), key=lambda life: life.row)
    spans = ((life.row, life.row + life.rows) for life in dead)
    return positions_file(path, spans, {DEAD_KEY: msgspec.msgpack.encode(dead).hex()})


def positions_file(path: str, spans: Iterable[tuple[int, int]], metadata: dict[str, str]) -> bytes:
    """A file that deletes some rows of a segment: from a first one up to, but without, another one."""
    rows = array("q", chain.from_iterable(range(*span) for span in spans))
    positions = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
    # The path once, and one byte for each row: a segment may have a million.
    paths = pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(pa.int8(), len(rows), [None, pa.py_buffer(bytes(len(rows)))]), [path]
    )
    table = pa.table([paths, positions], schema=ROWS.set(0, ROWS.field(0).with_type(paths.type)))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return bytes(sink.getvalue())


def dead_lives(data: bytes) -> list[DeadLife]:
    """The dead lives in a file of deleted rows. ValueError if it has none."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(data)).metadata or {}
        return _LIVES.decode(bytes.fromhex(metadata[DEAD_KEY.encode()].decode()))
    except (pa.ArrowException, OSError, KeyError, msgspec.DecodeError) as problem:
        raise ValueError(f"it cannot be decoded ({problem})") from problem
