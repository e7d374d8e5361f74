"""Segments as an Arrow dataset, read through our own store.

So any engine that reads Arrow data can read a lake in any store, and fetches only the columns and row groups that it
needs. Page checksums are verified; those of whole row groups are not, since row groups are not read whole.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from headwater.lake.catalog import ListedSegment
from headwater.lake.format import SCHEMA
from headwater.lake.segments.object_files import ObjectFile
from headwater.storage.store import Store


def dataset(store: Store, segments: Iterable[ListedSegment]) -> ds.Dataset:
    """All rows of some segments, dead or alive. Segments whose positions or times a query excludes are not opened."""
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
    """A condition that every row of a segment meets."""
    segment, position, at = listed.segment, pc.field("position"), pc.field("committed_at")
    first_at, last_at = (
        pa.scalar(time, SCHEMA.field("committed_at").type) for time in (segment.first_at, segment.last_at)
    )
    positions = (position >= segment.first_position) & (position <= segment.last_position)
    return positions & (at >= first_at) & (at <= last_at)


class _Objects(fs.FileSystemHandler):  # type: ignore[misc]
    """Objects of a store as a read-only file system."""

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
        raise NotImplementedError("The lake is read-only here.")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
