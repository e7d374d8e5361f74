"""Fingerprints: one number for many rows, independent of their order and of how they are split into tables.

A fingerprint is the sum, modulo 2^64, of a hash of each row over every column except the payload. Different rows have
the same fingerprint with a probability of about one in 2^64. The hashes depend on a secret of the process, so that a
collision cannot be constructed.
"""

import secrets
from collections.abc import Iterator
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import SCHEMA
from headwater.lake.segments.columns import view

COLUMNS = tuple(name for name in SCHEMA.names if name != "payload")
"""The columns that a fingerprint covers."""
MODULUS = 2**64

_U64 = pa.uint64()
_SECRET = secrets.token_bytes(16)
_SEED = pa.scalar(secrets.randbits(64), _U64)
# The finalizer of MurmurHash3: a change of one bit changes half of all bits.
_SHIFT = pa.scalar(33, _U64)
_FACTORS = pa.scalar(0xFF51AFD7ED558CCD, _U64), pa.scalar(0xC4CEB9FE1A85EC53, _U64)


class Fingerprints:
    """The fingerprints of any neighbouring rows of a table, which is hashed once."""

    def __init__(self, table: pa.Table) -> None:
        mixed = _SEED
        for name in COLUMNS:
            for numbers in _numbers(table[name].combine_chunks(), nullable=SCHEMA.field(name).nullable):
                mixed = _mix(pc.bit_wise_xor(mixed, numbers))
        sums = pc.cumulative_sum(mixed).view(pa.int64())
        self._sums = view(pa.concat_arrays([pa.array([0], pa.int64()), sums]))

    def of(self, row: int, row_end: int) -> int:
        """The fingerprint of some rows. Fingerprints of several ranges add up."""
        return (self._sums[row_end] - self._sums[row]) % MODULUS


def _numbers(column: pa.Array, *, nullable: bool) -> Iterator[pa.Array]:
    """A column as numbers; a nullable one as two, so that null differs from 0."""
    if column.type == pa.string():
        words = column.cast(pa.binary()).dictionary_encode()
        numbers = pa.array(map(_number, words.dictionary.to_pylist()), _U64).take(words.indices)
    else:
        numbers = column.view(_U64)
    if nullable:
        yield column.is_null().cast(_U64)
        numbers = numbers.fill_null(0)
    yield numbers


def _number(word: bytes) -> int:
    return int.from_bytes(blake2b(word, digest_size=8, key=_SECRET).digest())


def _mix(numbers: pa.Array) -> pa.Array:
    for factor in _FACTORS:
        numbers = pc.multiply(pc.bit_wise_xor(numbers, pc.shift_right(numbers, _SHIFT)), factor)
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _SHIFT))
