"""Judging: turns the messages of a shared log into batches, the same on every node. Pure: no clock, no I/O.

    magic 2 | version 1 | zero 1 | crc 4 | session 8 | number 8 | at 8 | commands 4 | part 2 | parts 2 | record

The CRC-32C covers everything behind it and starts from the log's id and shard, so no other log's message passes.

A proposer sends a message as often as it likes; what counts is decided here, by these rules:

1. A proposer has random sessions and numbers the messages of each from 1.
2. A message of a known session counts only if its number is the next one. So a repetition counts once, and a message
   that overtook another counts only when it is sent again.
3. A session becomes known with its message 1, if that is stamped no more than ten minutes before shard time.
4. A session that is silent for ten minutes of shard time is forgotten. Nothing that it ever sent can count after that:
   its message 1 is as old as rule 3 forbids, and no other message begins a session.
5. Shard time is the greatest stamp of all messages that counted. Clocks of nodes play no part.
6. A record is cut into parts if it is large. Its parts are consecutive messages of one session.

What a node must remember to judge the next message is the `Mark`. It is saved with every image of the state.
"""

import struct
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from headwater.log import frames
from headwater.log.seam import MarkDamaged

MAGIC = b"HW"
VERSION = 1
HEADER = struct.Struct("<2sBBIQQQIHH")
_CHECKED = struct.Struct("<QQQIHH")
_CHECKED_AT = HEADER.size - _CHECKED.size
_PREFIX = struct.Struct("<2sBBI")

PART_BYTES = 128 * 1024
"""The size of a message's record: small enough that a small message beside a large record's parts does not wait."""
SESSION_US = 10 * 60 * 1_000_000
"""How long a silent session is remembered, by shard time, and how old the stamp of a new one may be."""
SESSIONS_MAX = 8_192
"""Sessions that are remembered. Each start of a node takes two, so this is far more than ten minutes bring."""
SESSION_PARTS_BYTES_MAX = 64 * 1024 * 1024
"""The parts of one unfinished record, and so the size of a record: four times the largest command."""
PARTS_BYTES_MAX = 512 * 1024 * 1024
"""The parts of all unfinished records. A part beyond it does not count; its sender sends it again."""
CHECKPOINT_MESSAGES = 1_024
"""How often the chain is noted, for comparison with other nodes."""


class UnknownMessage(Exception):
    """A message has a format that this server does not know; the message is one sentence for a person."""


class Session(msgspec.Struct, array_like=True):
    """What is remembered of a proposer's session."""

    last: int
    """The number of the last message that counted."""
    at: int
    """Its greatest stamp."""
    parts: list[bytes] = []
    """The parts of a record that is not complete yet."""


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """Where in the log a state stands, and everything that the judgement of the next message depends on."""

    version: int
    sequence: int
    position: int
    now: int
    chain: int
    sessions: dict[int, Session]


class Checkpoint(NamedTuple):
    """The chain behind a message; equal on all nodes that saw the same messages and judged them alike."""

    sequence: int
    chain: int


class Record(NamedTuple):
    """A record that a message completes; one without commands is a barrier."""

    first_position: int
    at: int
    commands: int
    data: bytes


class Taken(NamedTuple):
    """What a message is worth: whose it is, whether it counts, and the record that it completes, if any."""

    session: int
    number: int
    counts: bool
    record: Record | None


_mark_encoder = msgspec.msgpack.Encoder()
_mark_decoder = msgspec.msgpack.Decoder(Mark)


def seed_of(log_id: str, shard: int) -> int:
    """The CRC that a log's messages start from."""
    return frames.seed("message", log_id, shard)


def pieces_of(record: bytes) -> list[bytes]:
    """The pieces of a record, one for each message; an empty record is one empty piece."""
    if len(record) <= PART_BYTES:
        return [record]
    return [record[start : start + PART_BYTES] for start in range(0, len(record), PART_BYTES)]


def message(
    seed: int, session: int, number: int, *, at: int, commands: int, part: int = 0, parts: int = 1, piece: bytes = b""
) -> bytes:
    """The bytes of one message."""
    checked = _CHECKED.pack(session, number, at, commands, part, parts)
    return b"".join((_PREFIX.pack(MAGIC, VERSION, 0, crc32c(piece, crc32c(checked, seed))), checked, piece))


def decode_mark(data: bytes) -> Mark:
    """The mark in these bytes, or MarkDamaged."""
    try:
        mark = _mark_decoder.decode(data)
    except ValueError as error:
        raise MarkDamaged(f"The place in the log that an image names cannot be read: {error}.") from error
    if mark.version != VERSION:
        raise MarkDamaged(f"The place in the log has format {mark.version}; this server reads format {VERSION}.")
    return mark


class Judge:
    """Judges messages in the order of the log."""

    def __init__(self, log_id: str, shard: int, mark: Mark | None = None) -> None:
        self._seed = seed_of(log_id, shard)
        mark = mark or Mark(VERSION, 0, 0, 0, 0, {})
        self.sequence, self.position, self.now = mark.sequence, mark.position, mark.now
        self.chain = mark.chain
        self._sessions = {session: Session(one.last, one.at, list(one.parts)) for session, one in mark.sessions.items()}
        self._parts_bytes = sum(len(part) for one in self._sessions.values() for part in one.parts)
        self.checkpoint = Checkpoint(0, 0)
        """The newest one since the start."""
        self.skipped = 0
        """Messages that did not count: repetitions, those that overtook others, and late ones."""
        self.invalid = 0
        """Messages that no proposer of this log sent, or that were damaged."""

    def mark(self) -> Mark:
        """Where this judge stands; it shares the sessions, so encode it in the same step."""
        return Mark(VERSION, self.sequence, self.position, self.now, self.chain, self._sessions)

    def encoded_mark(self) -> bytes:
        """The mark as bytes, for an image."""
        return _mark_encoder.encode(self.mark())

    def session_at(self, session: int) -> int | None:
        """The greatest stamp of a session; None if it is not known, or no longer."""
        known = self._sessions.get(session)
        return None if known is None or known.at < self.now - SESSION_US else known.at

    def last_number(self, session: int) -> int:
        """The number of a session's last message that counted; 0 if the session is not known."""
        known = self._sessions.get(session)
        return 0 if known is None else known.last

    def take(self, sequence: int, data: bytes) -> Taken | None:
        """Judge the next message of the log; None if it is not a message of this log at all."""
        assert sequence == self.sequence + 1, f"the log jumps from {self.sequence} to {sequence}"
        taken = self._judge(data)
        counts = taken is not None and taken.counts
        self.sequence = sequence
        self.chain = crc32c(data, self.chain ^ counts)
        if sequence % CHECKPOINT_MESSAGES == 0:
            self.checkpoint = Checkpoint(sequence, self.chain)
        return taken

    def _judge(self, data: bytes) -> Taken | None:
        if len(data) < HEADER.size:
            self.invalid += 1
            return None
        magic, version, _, crc, session, number, at, commands, part, parts = HEADER.unpack_from(data)
        if magic != MAGIC or (version == VERSION and crc32c(memoryview(data)[_CHECKED_AT:], self._seed) != crc):
            self.invalid += 1
            return None
        if version != VERSION:
            raise UnknownMessage(
                f"Message {self.sequence + 1} of the log has format {version}, but this server reads format {VERSION};"
                " install a newer version of Headwater."
            )
        known = self._known(session, number, at)
        if known is None or not self._fits(known, number, part, parts, len(data) - HEADER.size):
            self.skipped += 1
            return Taken(session, number, False, None)
        self._sessions[session] = known
        known.last, known.at = number, max(known.at, at)
        self.now = max(self.now, at)
        piece = data[HEADER.size :]
        if part + 1 < parts:
            known.parts.append(piece)
            self._parts_bytes += len(piece)
            return Taken(session, number, True, None)
        if parts > 1:
            self._parts_bytes -= sum(map(len, known.parts))
            piece = b"".join([*known.parts, piece])
            known.parts = []
        record = Record(self.position + 1, at, commands, piece)
        self.position += commands
        return Taken(session, number, True, record)

    def _known(self, session: int, number: int, at: int) -> Session | None:
        """What is remembered of a session, a new one if this message begins it, or None if the message is late."""
        known = self._sessions.get(session)
        horizon = self.now - SESSION_US
        if known is not None and known.at >= horizon:
            return known
        if number != 1 or at < horizon:
            return None
        self._forget(horizon)
        return Session(0, at, []) if len(self._sessions) < SESSIONS_MAX else None

    def _fits(self, known: Session, number: int, part: int, parts: int, size: int) -> bool:
        """Whether a message is the next of its session, continues its record, and exceeds no limit."""
        if number != known.last + 1 or part != len(known.parts) or part >= parts:
            return False
        if part + 1 == parts:
            return True
        if self._parts_bytes + size > PARTS_BYTES_MAX:
            self._forget(self.now - SESSION_US)
            if self._parts_bytes + size > PARTS_BYTES_MAX:
                return False
        return sum(map(len, known.parts)) + size <= SESSION_PARTS_BYTES_MAX

    def _forget(self, horizon: int) -> None:
        """Forget the sessions whose greatest stamp is before the horizon."""
        for session in [session for session, known in self._sessions.items() if known.at < horizon]:
            self._parts_bytes -= sum(map(len, self._sessions.pop(session).parts))
