"""Chunks: the messages of a stream, cut into appends.

A chunk has as many messages as fit into an append, counted from the stream's first message in the batch. So the cuts
depend on the messages alone, not on the blocks that they arrive in, and a chunk's number can serve as its Producer-Seq:
a retry of the batch sends the same chunks with the same numbers.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

ROWS = pa.schema(
    [("stream", pa.string()), ("value", pa.binary()), ("close", pa.bool_()), ("content_type", pa.string())]
)
"""The input: one row per message, sorted by stream. A row without a value only closes the stream, and a row without a
content type accepts any."""

CHUNKS = pa.schema(
    [
        ("stream", pa.string()),
        ("messages", pa.list_(pa.binary())),
        ("content_type", pa.string()),
        ("close", pa.bool_()),
        ("seq", pa.int64()),
        ("last", pa.bool_()),
    ]
)
"""The output: one row per chunk. `last` marks the stream's last chunk in the batch, which closes the stream if any
of its rows does."""


class MixedTypes(Exception):
    """The rows of one stream have different content types."""


class _Groups(NamedTuple):
    """Messages by stream: those of stream g are `messages[starts[g] : starts[g + 1]]`."""

    names: pa.StringArray
    content_types: pa.StringArray
    closing: Flags
    starts: Numbers
    messages: pa.BinaryArray


class _Open(NamedTuple):
    """The last chunk so far, to which the next rows may add."""

    name: pa.StringArray
    content_type: pa.StringArray
    closing: bool
    seq: int
    messages: pa.BinaryArray


class Chunker:
    """Cuts rows that arrive sorted by stream, one block at a time."""

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        self._bytes_max, self._messages_max = bytes_max, messages_max
        self._open: _Open | None = None

    def feed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The chunks that are complete after these rows, of which there must be at least one."""
        groups, base = _grouped(rows), 0
        if self._open is not None:
            groups, base = _joined(self._open, groups), self._open.seq
        numbers, cuts = self._cut(groups)
        firsts = np.searchsorted(numbers, np.arange(len(groups.names)))
        seqs = np.arange(len(cuts)) - firsts[numbers]
        seqs[numbers == 0] += base
        self._open = _Open(
            groups.names[-1:],
            groups.content_types[-1:],
            bool(groups.closing[-1]),
            int(seqs[-1]),
            groups.messages[int(cuts[-1]) :],
        )
        whole, last = numbers[:-1], numbers[1:] != numbers[:-1]
        columns = [
            groups.names.take(pa.array(whole)),
            pa.ListArray.from_arrays(pa.array(cuts, pa.int32()), groups.messages[: int(cuts[-1])]),
            groups.content_types.take(pa.array(whole)),
            pa.array(last & groups.closing[whole]),
            pa.array(seqs[:-1]),
            pa.array(last),
        ]
        return pa.record_batch(columns, schema=CHUNKS)

    def finish(self) -> pa.RecordBatch | None:
        """The last chunk; None if there were no rows."""
        left, self._open = self._open, None
        if left is None:
            return None
        messages = pa.ListArray.from_arrays(pa.array([0, len(left.messages)], pa.int32()), left.messages)
        flags = [pa.array([left.closing]), pa.array([left.seq]), pa.array([True])]
        return pa.record_batch([left.name, messages, left.content_type, *flags], schema=CHUNKS)

    def _cut(self, groups: _Groups) -> tuple[Numbers, Numbers]:
        """For each chunk the number of its stream, and its first message."""
        numbers, cuts = np.arange(len(groups.names)), groups.starts[:-1]
        ends = _ends(groups.messages)
        sizes, counts = np.diff(ends[groups.starts]), np.diff(groups.starts)
        large = np.flatnonzero((sizes > self._bytes_max) | (counts > self._messages_max))
        if not len(large):
            return numbers, cuts
        more = [self._inner_cuts(ends, int(groups.starts[at]), int(groups.starts[at + 1])) for at in large]
        # Both are non-decreasing over the chunks, so sorting each puts the entries of a chunk at the same index.
        numbers = np.sort(np.concatenate([numbers, np.repeat(large, [len(some) for some in more])]))
        return numbers, np.sort(np.concatenate([cuts, *(np.array(some, np.int64) for some in more)]))

    def _inner_cuts(self, ends: Numbers, start: int, stop: int) -> list[int]:
        """Where to cut the messages from `start` to `stop`, greedily."""
        found: list[int] = []
        at = start
        while True:
            reach = int(np.searchsorted(ends, ends[at] + self._bytes_max, "right")) - 1
            at = min(max(reach, at + 1), at + self._messages_max)
            if at >= stop:
                return found
            found.append(at)


def _grouped(rows: pa.RecordBatch) -> _Groups:
    encoded = rows["stream"].dictionary_encode()
    boundaries = np.flatnonzero(np.diff(encoded.indices.to_numpy())) + 1
    firsts = np.concatenate([[0], boundaries])
    types = rows["content_type"]
    _check_types(rows["stream"], types, boundaries)
    values = rows["value"]
    messages_before = np.concatenate([[0], np.cumsum(_flags(values.is_valid()))])
    return _Groups(
        encoded.dictionary,
        types.take(pa.array(firsts)),
        np.logical_or.reduceat(_flags(rows["close"].fill_null(False)), firsts),
        messages_before[np.append(firsts, len(rows))],
        values.drop_null() if values.null_count else values,
    )


def _joined(left: _Open, groups: _Groups) -> _Groups:
    """The streams, preceded by the open chunk, either as part of the first stream or as a stream before it."""
    count = len(left.messages)
    messages = pa.concat_arrays([left.messages, groups.messages]) if count else groups.messages
    starts, closing = groups.starts + count, groups.closing.copy()
    if left.name[0] != groups.names[0]:
        names = pa.concat_arrays([left.name, groups.names])
        types = pa.concat_arrays([left.content_type, groups.content_types])
        return _Groups(names, types, np.concatenate([[left.closing], closing]), np.concatenate([[0], starts]), messages)
    if left.content_type[0].as_py() != groups.content_types[0].as_py():
        raise _mixed(left.name[0].as_py(), left.content_type[0].as_py(), groups.content_types[0].as_py())
    starts[0] = 0
    closing[0] |= left.closing
    return groups._replace(starts=starts, closing=closing, messages=messages)


def _check_types(names: pa.StringArray, types: pa.StringArray, boundaries: Numbers) -> None:
    if types.null_count == len(types):
        return
    differ = np.diff(types.dictionary_encode("encode").indices.to_numpy()) != 0
    differ[boundaries - 1] = False
    if differ.any():
        at = int(np.argmax(differ))
        raise _mixed(names[at].as_py(), types[at].as_py(), types[at + 1].as_py())


def _mixed(name: str, one: str | None, other: str | None) -> MixedTypes:
    return MixedTypes(
        f"Rows for the stream {name!r} have different content types, {one or 'none'} and {other or 'none'}; "
        "give all rows of a stream the same content_type."
    )


def _ends(messages: pa.BinaryArray) -> Numbers:
    """The byte offset at which each message begins, and at which the last one ends."""
    if not len(messages):
        return np.zeros(1, np.int64)
    ends = np.frombuffer(messages.buffers()[1], np.int32)[messages.offset : messages.offset + len(messages) + 1]
    return ends.astype(np.int64)


def _flags(values: pa.BooleanArray) -> Flags:
    flags: Flags = values.to_numpy(zero_copy_only=False)
    return flags
