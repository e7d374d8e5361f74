"""A search for a marker in every byte that a server stores, compressed or not."""

import zlib
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq

from headwater.lake.iceberg.avro import header_of
from headwater.lake.iceberg.manifests import ENTRIES_KEY

SYNC_BYTES = 16


def holders(folder: Path, *markers: bytes) -> list[str]:
    """The files below a folder in whose names or bytes one of the markers is."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and any(marker in part for part in _parts(path) for marker in markers)
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _parts(path: Path) -> Iterator[bytes]:
    """The name, the bytes, and what these hold in compressed form."""
    data = path.read_bytes()
    yield path.name.encode()
    yield data
    if path.suffix == ".parquet":
        yield from _of_parquet(data)
    elif path.suffix == ".avro":
        yield from _of_avro(data)


def _of_parquet(data: bytes) -> Iterator[bytes]:
    file = pq.ParquetFile(BytesIO(data))
    yield repr(file.metadata.metadata).encode()
    for group in range(file.metadata.num_row_groups):
        for column in range(file.metadata.num_columns):
            yield repr(file.metadata.row_group(group).column(column).statistics).encode()
    for column in file.read().columns:
        for value in column.to_pylist():
            yield value if isinstance(value, bytes) else str(value).encode()


def _of_avro(data: bytes) -> Iterator[bytes]:
    header = header_of(data)
    if ENTRIES_KEY in header:
        yield zlib.decompress(b64decode(header[ENTRIES_KEY]))
    for block in data.split(data[-SYNC_BYTES:])[1:-1]:
        at = 0
        for _ in range(2):  # How many records follow, and how many bytes.
            while block[at] & 0x80:
                at += 1
            at += 1
        yield zlib.decompress(block[at:], -zlib.MAX_WBITS)
