"""Idempotent producers: an id, an epoch that fences off older writers, and a sequence number per request.

The rules, for a producer's (epoch, seq) against the last one accepted on the stream:

    unknown producer       seq 0 is accepted, anything else is a gap with expected 0
    lower epoch            stale: a newer instance of the producer has taken over
    higher epoch           seq 0 is accepted, anything else is invalid
    same epoch             seq <= last: duplicate; seq == last + 1: accepted; above: a gap

A duplicate of the last request has the same content, or it is not a retry but another writer under the same id. Only
the request that closed the stream may be repeated with any content, by one that closes it too.
"""

from enum import Enum

import msgspec

from headwater.protocol.limits import NUMBER_MAX, PRODUCER_ID_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.remembering import remembered


class Producer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The producer headers of one append."""

    id: str
    epoch: int
    seq: int


class LastAccepted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a stream remembers of a producer: its last accepted request and the response to it."""

    epoch: int
    seq: int
    next_offset: int
    record: int
    record_next: int
    at: int
    size: int
    """How many bytes it appended."""
    crc: int
    """The CRC-32C of its messages and of where they end."""
    closes: bool
    """Whether it closed the stream."""


class Standing(Enum):
    """How a producer's request compares with the last one that the stream accepted."""

    NEW = "new"
    DUPLICATE = "duplicate"
    STALE = "stale"
    EPOCH_INVALID = "epoch_invalid"
    GAP = "gap"


# Looking up an enum's member costs a function call each time; these names cost none.
NEW, DUPLICATE, STALE, EPOCH_INVALID, GAP = Standing


def compare(last: LastAccepted | None, producer: Producer) -> Standing:
    """Compare a request with the last accepted one; see the table above."""
    if last is None:
        return NEW if producer.seq == 0 else GAP
    if producer.epoch != last.epoch:
        if producer.epoch < last.epoch:
            return STALE
        return NEW if producer.seq == 0 else EPOCH_INVALID
    if producer.seq <= last.seq:
        return DUPLICATE
    return NEW if producer.seq == last.seq + 1 else GAP


PLAIN_DIGITS_MAX = len(str(NUMBER_MAX)) - 1
"""A number with so few digits is in range."""


def _text(identity: bytes) -> str:
    return identity.decode("latin-1").strip()


text_of = remembered(entries_max=4096, length_max=64)(_text)
"""All appends of a producer share one text of its id."""


def parse_plain(identity: bytes, epoch: bytes, seq: bytes) -> Producer | None:
    """The producer in headers of the usual form, quickly; for all others None, and `parse` says what they are.

    >>> parse_plain(b"p", b"0", b"12"), parse_plain(b"p", b"0", b"+1")
    (Producer(id='p', epoch=0, seq=12), None)
    """
    plain = seq.isdigit() and epoch.isdigit() and len(seq) <= PLAIN_DIGITS_MAX and len(epoch) <= PLAIN_DIGITS_MAX
    name = text_of(identity) if plain and len(identity) <= PRODUCER_ID_BYTES_MAX else ""
    return Producer(name, int(epoch), int(seq)) if name else None


def parse(identity: str | None, epoch: str | None, seq: str | None) -> Producer | Refusal | None:
    """The producer headers of a request; None if it has none of them."""
    if identity is None and epoch is None and seq is None:
        return None
    if identity is None or epoch is None or seq is None:
        return Refusal(
            Code.PRODUCER_INCOMPLETE,
            "Producer-Id, Producer-Epoch and Producer-Seq belong together; send all three or none.",
        )
    if not identity:
        return Refusal(Code.INVALID_HEADER, "Producer-Id is empty; give the producer an id.")
    if len(identity) > PRODUCER_ID_BYTES_MAX:
        return Refusal(Code.INVALID_HEADER, f"Producer-Id is longer than {PRODUCER_ID_BYTES_MAX} bytes.")
    epoch_number, seq_number = _number(epoch), _number(seq)
    if epoch_number is None or seq_number is None:
        header, value = ("Producer-Epoch", epoch) if epoch_number is None else ("Producer-Seq", seq)
        return Refusal(Code.INVALID_HEADER, f"{header} is {value!r}; it must be a whole number from 0 to {NUMBER_MAX}.")
    return Producer(identity, epoch_number, seq_number)


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(NUMBER_MAX)):
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None
