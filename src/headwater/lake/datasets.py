"""Segments as Arrow sees them, through our own store: one file to read columns from, or all of them as a dataset.

So any engine that reads Arrow data reads a lake, wherever it is, and fetches no more than the columns and row groups
that it needs. Page checksums are verified; the sums of whole row groups are not, since these are not read whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.lake.catalog import ListedSegment
from headwater.lake.layout import SCHEMA
from headwater.lake.reader import SegmentDamaged, read_footer
from headwater.lake.store import Store


class ObjectFile:
    """An object of known size as a file; Arrow fetches ranges of it."""

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
    """Some columns of a segment, a row group at a time; its whole footer is checked, and every page that is read."""
    key, segment = listed.key, listed.segment
    footer = read_footer(lambda start, size: store.read(key, start, size), segment)
    source = pa.PythonFile(ObjectFile(store, key, segment.size), mode="r")
    try:
        parquet = pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=True, page_checksum_verification=True)
        for index in range(len(footer.groups)):
            yield parquet.read_row_group(index, columns=list(columns)).replace_schema_metadata(None)
    except (pa.ArrowException, OSError) as problem:
        raise SegmentDamaged(f"The segment {segment.id!r} cannot be decoded: {problem}.") from problem


def dataset(store: Store, segments: Iterable[ListedSegment]) -> ds.Dataset:
    """All rows of some segments, dead or alive; segments whose positions or times are not asked for stay unopened."""
    sizes = {listed.key: listed.segment.size for listed in segments}
    filesystem = fs.PyFileSystem(_Objects(store, sizes))
    options = ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=options)
    fragments = [
        parquet.make_fragment(listed.key, filesystem=filesystem, partition_expression=_facts(listed))
        for listed in segments
    ]
    return ds.FileSystemDataset(fragments, SCHEMA, parquet, filesystem=filesystem)


def _facts(listed: ListedSegment) -> pc.Expression:
    """What is true of every row of a segment."""
    segment, position, at = listed.segment, pc.field("position"), pc.field("committed_at")
    first_at, last_at = (
        pa.scalar(time, SCHEMA.field("committed_at").type) for time in (segment.first_at, segment.last_at)
    )
    positions = (position >= segment.first_position) & (position <= segment.last_position)
    return positions & (at >= first_at) & (at <= last_at)


class _Objects(fs.FileSystemHandler):  # type: ignore[misc]
    """Objects of a store as files that can be read, and nothing else."""

    def __init__(self, store: Store, sizes: dict[str, int]) -> None:
        self._store, self._sizes = store, sizes

    def get_type_name(self) -> str:
        return "headwater"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, type=fs.FileType.File, size=self._sizes[path]) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        return self.get_file_info(sorted(self._sizes))

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(ObjectFile(self._store, path, self._sizes[path]), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def _refuse(self, *arguments: Any, **options: Any) -> None:
        raise NotImplementedError("The lake is only read here.")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
