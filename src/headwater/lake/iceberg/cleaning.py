"""Cleaning: which manifests say what was removed from a table, and have to be written anew without it."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from headwater.lake.iceberg.index import E, Index
from headwater.lake.iceberg.manifests import Manifest, Status


def beside_removed(index: Index[E], entries_in: Callable[[Manifest], Iterable[E]]) -> list[E]:
    """One entry of each manifest that has entries of removed files: a change that writes it leaves the others out."""
    found = []
    for manifest in index.manifests:
        if manifest.files[Status.REMOVED]:
            number = next(entry.number for entry in entries_in(manifest) if entry.status != Status.REMOVED)
            found.append(replace(index.entries[number], status=int(Status.EXISTING)))
    return found
