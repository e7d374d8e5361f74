"""Objects of a store as files, so that some columns can be read without the others.

Page checksums are verified; those of whole row groups are not, since row groups are not read whole.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.lake.catalog import ListedSegment
from headwater.lake.segments.reader import SegmentDamaged, read_footer
from headwater.storage.store import Store


class ObjectFile:
    """An object of known size as a file of which Arrow reads ranges."""

    closed = False

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store, self._key, self._size, self._at = store, key, size, 0

    def seek(self, to: int, whence: int = 0) -> int:
        self._at = to + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        data = self._store.read(self._key, self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data

    def close(self) -> None:
        self.closed = True


def read_columns(store: Store, listed: ListedSegment, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of a segment, a row group at a time. The footer is verified, and so is every page that is read."""
    key, segment = listed.key, listed.segment
    footer = read_footer(lambda start, size: store.read(key, start, size), segment)
    source = pa.PythonFile(ObjectFile(store, key, segment.size), mode="r")
    try:
        parquet = pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=True, page_checksum_verification=True)
        for index in range(len(footer.groups)):
            yield parquet.read_row_group(index, columns=list(columns)).replace_schema_metadata(None)
    except (pa.ArrowException, OSError) as problem:
        raise SegmentDamaged(f"The segment {segment.id!r} cannot be decoded: {problem}.") from problem
