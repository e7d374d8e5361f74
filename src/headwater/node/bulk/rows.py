"""The rows of a bulk append: turns the columns of a request into appends, one for each row.

Columns are read once, in native code. The messages of a row are adjacent in Arrow's own buffer, so the payload of an
append is one slice of it, and the offsets give the end of each message. An append is made when its row's turn comes:
making all of them at once would block the loop.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headwater.lake.segments.columns import view
from headwater.node.bulk.arrow import read_table
from headwater.protocol import content_types, json_mode, message_ends, names, producers
from headwater.protocol.limits import (
    APPEND_BYTES_MAX,
    BULK_BYTES_MAX,
    BULK_ROWS_MAX,
    MESSAGES_PER_APPEND_MAX,
    PRODUCER_ID_BYTES_MAX,
)
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands.streams import Append

STEP_ROWS = 8_192
"""Values that are converted to Python objects in one step: about a millisecond of holding the GIL."""

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("messages", pa.list_(pa.binary()), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("create", pa.bool_()),
        pa.field("close", pa.bool_()),
        pa.field("producer_id", pa.string()),
        pa.field("producer_epoch", pa.int64()),
        pa.field("producer_seq", pa.int64()),
    ]
)
"""The columns of a request; `stream` and `messages` are required."""


def _is_text(given: pa.DataType) -> bool:
    return bool(types.is_string(given) or types.is_large_string(given))


def _is_list_of_bytes(given: pa.DataType) -> bool:
    if not (types.is_list(given) or types.is_large_list(given)):
        return False
    value = given.value_type
    return bool(types.is_binary(value) or types.is_large_binary(value)) or _is_text(value)


def _or_null(check: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda given: types.is_null(given) or check(given)


TAKEN = {
    "stream": _is_text,
    "messages": _is_list_of_bytes,
    "content_type": _or_null(_is_text),
    "create": _or_null(types.is_boolean),
    "close": _or_null(types.is_boolean),
    "producer_id": _or_null(_is_text),
    "producer_epoch": _or_null(types.is_integer),
    "producer_seq": _or_null(types.is_integer),
}


class BulkRows:
    """The rows of a request; there is at least one."""

    def __init__(self, table: pa.Table) -> None:
        columns = {name: column.chunk(0) for name, column in zip(table.column_names, table.columns, strict=True)}
        self.names: list[str] = _values(columns["stream"])
        self.content_types: list[str | None] = _values(columns["content_type"])
        self.creates: list[bool | None] = _values(columns["create"])
        self.closes: list[bool | None] = _values(columns["close"])
        triples = (_values(columns[name]) for name in ("producer_id", "producer_epoch", "producer_seq"))
        self.producers: list[tuple[str | None, int | None, int | None]] = list(zip(*triples, strict=True))
        self._take_messages(columns["messages"])
        self.lines: dict[str, list[int]] = {}
        """The rows of each stream, in order."""
        for row, name in enumerate(self.names):
            self.lines.setdefault(name, []).append(row)

    def _take_messages(self, lists: pa.ListArray) -> None:
        messages = lists.flatten()
        _, offsets, data = messages.buffers()
        boundaries = pa.array([0], pa.int32())
        if len(messages):
            boundaries = pa.Array.from_buffers(pa.int32(), len(messages) + 1, [None, offsets], offset=messages.offset)
        firsts = pc.subtract(lists.offsets, lists.offsets[0])
        starts = boundaries.take(firsts)
        self._data = memoryview(data or b"")
        self._boundaries = view(boundaries, "i")
        self._firsts: list[int] = _values(firsts)
        """The first message of each row, then the total; and likewise the first byte of each row."""
        self._starts: list[int] = _values(starts)
        self.sizes: list[int] = _values(pc.subtract(starts.slice(1), starts.slice(0, len(lists))))
        """The size of each row's payload."""
        self._has_empty = pc.min(pc.binary_length(messages)).as_py() == 0

    def __len__(self) -> int:
        return len(self.names)

    def messages(self, row: int) -> int:
        """The number of messages in a row."""
        return self._firsts[row + 1] - self._firsts[row]

    def goes_with(self, row: int, before: int) -> bool:
        """Whether anything that refuses the row before, which is of the same stream, refuses this one as well.

        That holds for two rows for one life of a stream of which an earlier row was accepted, if they differ only in
        their messages and in the sequence of their producer, which increases by one: a life that has ended does not
        return, a closed stream does not reopen, and a gap in a producer's sequence is refused.
        """
        if self.closes[row] or self.closes[before] or self.content_types[row] != self.content_types[before]:
            return False
        *ours, seq = self.producers[row]
        *theirs, seq_before = self.producers[before]
        follows = seq is None if seq_before is None else seq == seq_before + 1
        return ours == theirs and follows

    # -- One row ------------------------------------------------------------------------------------------------------

    def append(self, row: int, unnamed: str | Refusal, incarnation: int | None) -> Append | BadBody | Refusal:
        """The append of a row, with the content type `unnamed` if it names none, and for one incarnation if given."""
        name = names.parse_whole(self.names[row])
        if isinstance(name, Refusal):
            return name
        producer = _producer(*self.producers[row])
        if isinstance(producer, Refusal):
            return producer
        given = self.content_types[row]
        if given is not None and not content_types.is_valid(given):
            return Refusal(Code.BAD_REQUEST, f"{given[:100]!r} is not a content type; use type/subtype.")
        messages, size = self.messages(row), self.sizes[row]
        close = bool(self.closes[row])
        if not messages:
            if close:
                return Append(name, b"", None, "", True, None, producer, incarnation)
            return Refusal(Code.EMPTY_BODY, "There is nothing to append; send messages, or close: true to close it.")
        if messages > MESSAGES_PER_APPEND_MAX:
            return Refusal(
                Code.TOO_LARGE, f"The row has more than {MESSAGES_PER_APPEND_MAX} messages; append them in parts."
            )
        if size > APPEND_BYTES_MAX:
            return Refusal(
                Code.TOO_LARGE, f"The row has more than {APPEND_BYTES_MAX} bytes of messages; append them in parts."
            )
        content_type = unnamed if given is None else given
        if isinstance(content_type, Refusal):
            return content_type
        payload, ends = self._messages(row)
        found = self._cut(payload, ends, json=content_types.is_json(content_type))
        if isinstance(found, Refusal):
            return BadBody(Append(name, payload, None, content_type, close, None, producer, incarnation), found)
        payload, ends = found
        return Append(name, payload, ends, content_type, close, None, producer, incarnation)

    def _messages(self, row: int) -> tuple[bytes, bytes | None]:
        """The messages of a row joined, and the ends of several."""
        start = self._starts[row]
        payload = bytes(self._data[start : start + self.sizes[row]])
        if self.messages(row) == 1:
            return payload, None
        boundaries = self._boundaries[self._firsts[row] + 1 : self._firsts[row + 1] + 1]
        return payload, message_ends.pack([boundary - start for boundary in boundaries.tolist()])

    def _cut(self, payload: bytes, ends: bytes | None, *, json: bool) -> tuple[bytes, bytes | None] | Refusal:
        """The messages as the stream stores them."""
        if json:
            return cut_json(payload, ends)
        if self._has_empty:
            for number, (start, end) in enumerate(_spans(payload, ends)):
                if start == end:
                    return Refusal(Code.EMPTY_BODY, f"Message {number} is empty; a message has at least one byte.")
        return payload, ends


def _spans(payload: bytes, ends: bytes | None) -> Iterator[tuple[int, int]]:
    return pairwise((0, len(payload)) if ends is None else (0, *message_ends.unpack(ends)))


def cut_json(payload: bytes, ends: bytes | None) -> tuple[bytes, bytes | None] | Refusal:
    """Messages that must each be exactly one JSON value, stripped of surrounding whitespace.

    >>> payload, ends = cut_json(b'[1, 2] {"a":1}', message_ends.pack((7, 14)))
    >>> payload, ends == message_ends.pack((6, 13))
    (b'[1, 2]{"a":1}', True)
    >>> cut_json(b"1,2", None).detail
    'Message 0 is not exactly one JSON value.'
    """
    messages = [payload[start:end] for start, end in _spans(payload, ends)]
    found = json_mode.split(b"[%b]" % b",".join(messages))
    if isinstance(found, Refusal) or found == messages:
        return found if isinstance(found, Refusal) else (payload, ends)
    # Together they are the values of an array; each is a whole value only if it ends where the request says.
    messages = [message.strip(json_mode.WHITESPACE) for message in messages]
    if found == messages:
        return b"".join(messages), message_ends.of(messages)
    wrong = next(number for number, pair in enumerate(zip_longest(messages, found)) if pair[0] != pair[1])
    return Refusal(Code.INVALID_JSON, f"Message {min(wrong, len(messages) - 1)} is not exactly one JSON value.")


def decode(body: bytes) -> BulkRows | Refusal | None:
    """The rows of a body; None if it has none."""
    table = read_table(body, SCHEMA, TAKEN, bytes_max=BULK_BYTES_MAX, rows_max=BULK_ROWS_MAX)
    if isinstance(table, Refusal):
        return table
    if not len(table):
        return None
    if table["messages"].chunk(0).flatten().null_count:
        return Refusal(Code.BAD_REQUEST, "The column messages has a null among its messages.")
    return BulkRows(table)


def _values(column: pa.Array) -> list[Any]:
    values = []
    for at in range(0, len(column), STEP_ROWS):
        values += column.slice(at, STEP_ROWS).to_pylist()
    return values


def _producer(identity: str | None, epoch: int | None, seq: int | None) -> Producer | Refusal | None:
    if identity is None and epoch is None and seq is None:
        return None
    if identity is not None and len(identity.encode()) > PRODUCER_ID_BYTES_MAX:
        return Refusal(Code.INVALID_HEADER, f"The producer id is longer than {PRODUCER_ID_BYTES_MAX} bytes.")
    return producers.parse(identity, None if epoch is None else str(epoch), None if seq is None else str(seq))
