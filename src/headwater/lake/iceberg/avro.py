"""Avro container files, as far as manifests need them: encoded values, and a header that carries our own data.

A file's records are written once, for other engines. Our own readers take the same facts from the file's header, where
they are one compressed MessagePack value: 330,000 segments are decoded in a fraction of a second, without a decoder of
Avro. The synchronization marker is derived from the content, so a file is a function of what it says.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAGIC = b"Obj\x01"

NULL = b"\x00"
"""The branch `null` of a union `["null", ...]`; all unions here have this form."""
PRESENT = b"\x02"
"""The other branch; the value follows."""


class AvroDamaged(ValueError):
    """The header of a container file cannot be decoded."""


def integer(value: int) -> bytes:
    """An `int` or `long`: zigzag, then groups of seven bits, the lowest first.

    >>> integer(0), integer(-1), integer(64)
    (b'\\x00', b'\\x01', b'\\x80\\x01')
    """
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def blob(value: bytes) -> bytes:
    """A value of type `bytes`, or a `string` in UTF-8."""
    return integer(len(value)) + value


def text(value: str) -> bytes:
    """A `string`.

    >>> text("ab")
    b'\\x04ab'
    """
    return blob(value.encode())


def optional(value: int | None) -> bytes:
    """A union of null and a `long`."""
    return NULL if value is None else PRESENT + integer(value)


def array(items: Sequence[bytes]) -> bytes:
    """An array of encoded items."""
    return integer(len(items)) + b"".join(items) + NULL if items else NULL


def container(schema: object, metadata: Mapping[str, bytes], records: Sequence[bytes]) -> bytes:
    """A container file with one block of encoded records."""
    header = {**metadata, "avro.codec": b"deflate", "avro.schema": json.dumps(schema).encode()}
    block = _deflated(records)
    sync = hashlib.md5(block + repr(sorted(header.items())).encode(), usedforsecurity=False).digest()
    pairs = b"".join(text(key) + blob(value) for key, value in header.items())
    head = MAGIC + integer(len(header)) + pairs + NULL + sync
    return head + integer(len(records)) + blob(block) + sync if records else head


def _deflated(records: Iterable[bytes]) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(b"".join(records)) + compressor.flush()


def header_of(data: bytes) -> dict[str, bytes]:
    """The metadata in the header of a container file. AvroDamaged if there is none."""
    if data[: len(MAGIC)] != MAGIC:
        raise AvroDamaged("it is not an Avro file")
    reader, found = _Reader(data, len(MAGIC)), dict[str, bytes]()
    while count := reader.integer():
        if count < 0:
            raise AvroDamaged("its header has a form that is not written here")
        for _ in range(count):
            key = reader.blob()
            found[key.decode(errors="replace")] = reader.blob()
    return found


class _Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def integer(self) -> int:
        value = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise AvroDamaged("its header ends too early")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def blob(self) -> bytes:
        size = self.integer()
        value = self._data[self._at : self._at + size] if size >= 0 else b""
        if len(value) != size:
            raise AvroDamaged("its header ends too early")
        self._at += size
        return value


def field(name: str, id: int, type: Any) -> dict[str, Any]:
    """A required field of a record."""
    return {"name": name, "type": type, "field-id": id}


def optional_field(name: str, id: int, type: Any) -> dict[str, Any]:
    """A field that may be null."""
    return {"name": name, "type": ["null", type], "default": None, "field-id": id}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def id_map(key: int, value: int, type: str) -> dict[str, Any]:
    """A map from column ids to values, which Iceberg writes as an array of pairs."""
    pair = record(f"k{key}_v{value}", field("key", key, "int"), field("value", value, type))
    return {"type": "array", "items": pair, "logicalType": "map"}
