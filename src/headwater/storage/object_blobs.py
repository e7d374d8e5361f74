"""Snapshot blobs in an object store, for nodes that have no data directory.

    blobs/shard=0/<upload>.<part>

`<upload>` begins with the deadline, `<part>` counts from 0, and every part but the last has `PART_BYTES`. The id of a
blob is `<upload>-<size>`, so its parts are known without a listing. Parts are objects of their own instead of one
multipart upload: a listing shows them, so those of a process that was killed can be found and deleted.
"""

import errno
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.storage.blobs import Blob, BlobReader, BlobWriter, new_upload
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed

PART_BYTES = 2 * 1024 * 1024
"""How much of an upload is in memory. It must not change: the parts of stored blobs have this size."""
READ_BYTES = 1024 * 1024
"""How much a reader requests at a time, and holds: a request costs a round trip."""

_ID = re.compile(r"([0-9a-f]{14}-[0-9a-f]{32})-(\d+)")


class ObjectBlobs:
    """The blobs of a shard in an object store."""

    def __init__(self, store: Store, shard: int = 0) -> None:
        self._store, self._prefix = store, f"blobs/shard={shard}/"

    def create(self, deadline: int) -> BlobWriter:
        return _ObjectWriter(self._store, self._prefix, deadline)

    def open(self, blob: str) -> BlobReader:
        return _ObjectReader(self._store, *self._parse(blob))

    def delete(self, blob: str) -> None:
        prefix, size = self._parse(blob)
        with _failing():
            for part in range(_parts(size)):
                self._store.delete(_key(prefix, part))

    def names(self) -> list[str]:
        with _failing():
            return [item.key.removeprefix(self._prefix) for item in self._store.items(self._prefix)]

    def remove(self, name: str) -> None:
        with _failing():
            self._store.delete(self._prefix + name)

    def _parse(self, blob: str) -> tuple[str, int]:
        """The beginning of the keys of a blob's parts, and its size."""
        found = _ID.fullmatch(blob)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, f"{blob!r} is not the id of a blob in {self._store.url}")
        return self._prefix + found[1], int(found[2])


class _ObjectReader:
    """Reads ranges, some ahead."""

    def __init__(self, store: Store, prefix: str, size: int) -> None:
        self._store, self._prefix, self._size = store, prefix, size
        self._at, self._ahead = 0, b""
        self._fetch(0)

    def read(self, at: int, size: int) -> bytes:
        end = min(at + size, self._size)
        found = []
        while at < end:
            if not self._at <= at < self._at + len(self._ahead):
                self._fetch(at)
            found.append(self._ahead[at - self._at : end - self._at])
            at += len(found[-1])
        return b"".join(found)

    def _fetch(self, at: int) -> None:
        part, start = divmod(at, PART_BYTES)
        size = min(READ_BYTES, PART_BYTES - start, self._size - at)
        with _failing():
            self._at, self._ahead = at, self._store.read(_key(self._prefix, part), start, size)

    def close(self) -> None:
        self._ahead = b""


class _ObjectWriter:
    """Stores a part as soon as it is full."""

    def __init__(self, store: Store, prefix: str, deadline: int) -> None:
        self._store, self._upload, self._deadline = store, new_upload(deadline), deadline
        self._prefix = prefix + self._upload
        self._rest = bytearray()
        self._stored = 0
        """How many parts may exist."""
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._rest += data
        self._size += len(data)
        self._digest.update(data)
        while len(self._rest) >= PART_BYTES:
            self._store_part(bytes(self._rest[:PART_BYTES]))
            del self._rest[:PART_BYTES]

    def _store_part(self, data: bytes) -> None:
        key = _key(self._prefix, self._stored)
        self._stored += 1
        with _failing():
            self._store.create(key, data)

    def finish(self) -> Blob:
        if self._rest or not self._stored:
            self._store_part(bytes(self._rest))
        return Blob(f"{self._upload}-{self._size}", self._size, self._digest.hexdigest(), self._deadline)

    def abandon(self) -> None:
        self._rest.clear()
        with _failing():
            for part in range(self._stored):
                self._store.delete(_key(self._prefix, part))


def _key(prefix: str, part: int) -> str:
    return f"{prefix}.{part:05d}"


def _parts(size: int) -> int:
    return max(-(-size // PART_BYTES), 1)


@contextmanager
def _failing() -> Iterator[None]:
    """Raise what the users of blobs expect."""
    try:
        yield
    except KeyMissing as error:
        raise FileNotFoundError(errno.ENOENT, str(error)) from error
    except (StoreFailed, KeyExists) as error:
        raise OSError(errno.EREMOTEIO, str(error)) from error
