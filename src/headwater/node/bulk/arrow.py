"""Request bodies in Arrow's stream format, read as untrusted input.

A body is read message by message: first its columns, then each batch, whose decompressed size is known from its header
before anything is decompressed. What is read is validated in full, so that no later code meets an offset out of bounds
or a string that is not UTF-8.
"""

import struct
from collections.abc import Callable, Mapping

import pyarrow as pa

from headwater.protocol.refusals import Code, Refusal

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

Taken = Mapping[str, Callable[[pa.DataType], bool]]
"""For each column, whether a given type can be cast to the wanted one."""

# The header of a message is a flatbuffer, in which the fields of a table are numbered.
_HEADER = 2
"""Field of a message: the table that describes its contents."""
_BUFFERS, _COMPRESSION = 2, 3
"""Fields of a batch."""
_UNCOMPRESSED = -1
"""In place of a decompressed length: this buffer is not compressed."""


class _Refused(Exception):
    def __init__(self, detail: str, code: Code = Code.BAD_REQUEST) -> None:
        super().__init__(detail)
        self.refusal = Refusal(code, detail)


def read_table(body: bytes, schema: pa.Schema, taken: Taken, *, bytes_max: int, rows_max: int) -> pa.Table | Refusal:
    """The rows of a body in the columns of `schema`, one chunk each; missing optional columns are null."""
    try:
        table = _read(body, schema, taken, bytes_max, rows_max)
        return _as_wanted(table, schema)
    except _Refused as refused:
        return refused.refusal
    except (pa.ArrowException, struct.error, EOFError, OSError, OverflowError, ValueError) as problem:
        reason = str(problem).partition("\n")[0].partition(". ")[0].rstrip(".")[:200]
        return Refusal(Code.BAD_REQUEST, f"The body is not a stream of Arrow batches: {reason or 'it is incomplete'}.")


def _read(body: bytes, schema: pa.Schema, taken: Taken, bytes_max: int, rows_max: int) -> pa.Table:
    source = pa.BufferReader(body)
    given = pa.ipc.read_schema(_next_message(source, "schema"))
    _check_columns(given, schema, taken)
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    while (message := _next_message(source, "record batch")) is not None:
        size += _decompressed_bytes(message)
        if size > bytes_max:
            raise _Refused(f"The body decompresses to more than the maximum of {bytes_max} bytes.", Code.TOO_LARGE)
        batch = pa.ipc.read_record_batch(message, given)
        rows += batch.num_rows
        if rows > rows_max:
            raise _Refused(f"The body has more than {rows_max} rows; send it in parts.", Code.TOO_LARGE)
        batch.validate(full=True)
        batches.append(batch)
    if source.tell() != len(body):
        raise _Refused("The body has bytes after the end of its Arrow stream.")
    return pa.Table.from_batches(batches, given)


def _next_message(source: pa.BufferReader, kind: str) -> pa.ipc.Message | None:
    try:
        message = pa.ipc.read_message(source)
    except EOFError:
        if kind == "schema":
            raise
        return None
    if message.type != kind:
        raise _Refused(f"The body is not a stream of Arrow batches: it has a {message.type!r} instead of a {kind!r}.")
    if message.metadata_version != pa.ipc.MetadataVersion.V5:
        # Earlier versions announce compression elsewhere, not in the header of the batch.
        raise _Refused("The body uses an old version of Arrow's format; write it with V5, the default since Arrow 1.0.")
    return message


def _check_columns(given: pa.Schema, schema: pa.Schema, taken: Taken) -> None:
    if len(set(given.names)) != len(given.names):
        raise _Refused("Two columns of the body have the same name.")
    for field in given:
        if field.name not in taken:
            raise _Refused(
                f"The body has an unknown column {field.name[:100]!r}; the known ones are {', '.join(schema.names)}."
            )
        if not taken[field.name](field.type):
            wanted = schema.field(field.name).type
            raise _Refused(f"The column {field.name} is {str(field.type)[:100]}; it must be {wanted}.")
    for field in schema:
        if not field.nullable and field.name not in given.names:
            raise _Refused(f"The body has no column {field.name}.")


def _as_wanted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        missing = field.name not in table.column_names
        column = pa.nulls(len(table), field.type) if missing else table[field.name].cast(field.type)
        if not field.nullable and column.null_count:
            raise _Refused(f"The column {field.name} has a null.")
        columns.append(column)
    return pa.table(columns, schema=schema).combine_chunks()


# -- The decompressed size ---------------------------------------------------------------------------------------------


def _decompressed_bytes(message: pa.ipc.Message) -> int:
    """The size of a batch's buffers once decompressed; 0 if none is compressed, since they are not copied then.

    Arrow has checked that the header is consistent, and relies on the length that each buffer declares.
    """
    head = memoryview(message.metadata)
    batch = _follow(head, _field(head, _follow(head, 0), _HEADER))
    if not _field(head, batch, _COMPRESSION):
        return 0
    buffers = _follow(head, _field(head, batch, _BUFFERS))
    [count] = struct.unpack_from("<I", head, buffers)
    body, total = memoryview(message.body), 0
    for offset, length in struct.iter_unpack("<qq", head[buffers + 4 : buffers + 4 + 16 * count]):
        if length:
            [size] = struct.unpack_from("<q", body, offset)
            total += length if size == _UNCOMPRESSED else abs(size)
    return total


def _follow(head: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", head, at)[0])


def _field(head: memoryview, table: int, number: int) -> int:
    """The place of a field of a table; 0 if the table does not have it."""
    [back] = struct.unpack_from("<i", head, table)
    [size] = struct.unpack_from("<H", head, table - back)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", head, table - back + place)[0] if place < size else 0
    return table + int(offset) if offset else 0
