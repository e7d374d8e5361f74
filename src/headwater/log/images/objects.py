"""Images in an object store, for nodes that have no data directory.

    images/shard=0/<position>/<attempt>-<part>   pieces, each after its length in 4 bytes
    images/shard=0/<position>.json               the manifest, created last: an image without it does not exist
    images/shard=0/<position>.damaged            says that the image was found to be damaged and no longer counts

Several nodes may write an image at once, even at the same position: every attempt has its own parts, and the first
manifest wins. Whatever belongs to a position below the two images that are kept is deleted with the old ones, complete
or not. No clock is involved: an attempt that has been overtaken like that cannot become one of the two any more.
"""

import hashlib
import logging
import re
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from headwater.log.images.files import KEPT, ImageDamaged, ImageWriter
from headwater.storage.store import Item, KeyExists, KeyMissing, Store

VERSION = 1
PART_BYTES = 8 * 1024 * 1024
"""A part is stored once it has this size, so it is at most one piece larger."""

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
_KEY = re.compile(r"(\d{20})(?:(\.json)|(\.damaged)|/[0-9a-f]{16}-\d{6})")

log = logging.getLogger(__name__)


class Part(msgspec.Struct, frozen=True):
    """An object that holds pieces; its key is relative to those of all images."""

    key: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What an image consists of."""

    version: int
    log_id: str
    position: int
    mark: bytes
    parts: list[Part]


class _Sealed(msgspec.Struct, frozen=True):
    """A manifest as it is stored, with the SHA-256 of its JSON text."""

    image: msgspec.Raw
    sha256: str


class _Listed(NamedTuple):
    """What the keys of one position say."""

    items: list[Item]
    has_manifest: bool
    is_set_aside: bool

    @property
    def counts(self) -> bool:
        return self.has_manifest and not self.is_set_aside


class ObjectImages:
    """The images of a shard in an object store."""

    def __init__(self, store: Store, log_id: str, shard: int = 0) -> None:
        self._store, self._log_id, self._prefix = store, log_id, f"images/shard={shard}/"

    def positions(self) -> list[int]:
        return [position for position, listed in self._list().items() if listed.counts]

    def begin(self, position: int, mark: bytes) -> ImageWriter:
        return _ObjectWriter(self._store, self._prefix, Manifest(VERSION, self._log_id, position, mark, []))

    def read(self, position: int) -> Iterator[bytes]:
        for part in self.manifest(position).parts:
            yield from self._checked(part.key, partial(_pieces, part))

    def mark(self, position: int) -> bytes:
        return self.manifest(position).mark

    def manifest(self, position: int) -> Manifest:
        """The manifest of an image, checked."""
        return self._checked(f"{position:020d}.json", partial(_manifest, self._log_id, position))

    def _checked(self, key: str, check: Callable[[bytes], T]) -> T:
        """What an object holds, checked; it is read again if need be, because only the transfer may have been bad."""
        try:
            return self._read(key, check)
        except ImageDamaged as damage:
            log.warning("reading is tried again: %s", damage)
            return self._read(key, check)

    def _read(self, key: str, check: Callable[[bytes], T]) -> T:
        try:
            return check(self._store.read(self._prefix + key))
        except KeyMissing as error:
            raise ImageDamaged(str(error)) from error
        except ImageDamaged as error:
            raise ImageDamaged(f"The object {self._prefix}{key} in {self._store.url} is damaged: {error}.") from error

    def drop_old(self, *, damaged: bool = False) -> int:
        """Delete all but the newest two complete images, and return the position of the older one.

        Those that were set aside go with the old ones in any case.
        """
        listed = self._list()
        complete = (position for position, one in listed.items() if one.counts and self._is_complete(position, one))
        newest = [position for position, _ in zip(complete, range(KEPT), strict=False)]
        if len(newest) < KEPT:
            return 0
        for position, one in listed.items():
            if position < newest[-1]:
                # The manifest first: as long as it is there, its parts must be.
                for item in sorted(one.items, key=lambda item: "/" in item.key.removeprefix(self._prefix)):
                    self._store.delete(item.key)
        return newest[-1]

    def set_aside(self, position: int) -> None:
        """Store a note that the image is damaged."""
        self._store.create(f"{self._prefix}{position:020d}.damaged", b"")

    def _is_complete(self, position: int, listed: _Listed) -> bool:
        """Whether the store lists every part of an image: the log is not dropped for one that it has lost."""
        try:
            manifest = self.manifest(position)
        except ImageDamaged as error:
            log.error("the image at position %d does not count: %s", position, error)
            return False
        sizes = {item.key.removeprefix(self._prefix): item.size for item in listed.items}
        lost = [part.key for part in manifest.parts if sizes.get(part.key) != part.size]
        if lost:
            log.error("the image at position %d does not count: %s has lost %s", position, self._store.url, lost)
        return not lost

    def _list(self) -> dict[int, _Listed]:
        """All objects by position, newest first."""
        found: dict[int, _Listed] = {}
        for item in self._store.items(self._prefix):
            parsed = _KEY.fullmatch(item.key, len(self._prefix))
            if parsed is not None:
                position = int(parsed[1])
                items, has_manifest, is_set_aside = found.get(position, _Listed([], False, False))
                items.append(item)
                found[position] = _Listed(items, has_manifest or bool(parsed[2]), is_set_aside or bool(parsed[3]))
        return dict(sorted(found.items(), reverse=True))


class _ObjectWriter:
    """Writes one image, part by part."""

    def __init__(self, store: Store, prefix: str, manifest: Manifest) -> None:
        self.position = manifest.position
        self.size_bytes = 0
        self._store, self._prefix, self._manifest = store, prefix, manifest
        self._attempt = secrets.token_hex(8)
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._may_exist = False
        """Whether the manifest may have been stored, be it later: then the parts must stay."""

    def write(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self._pieces += _LENGTH.pack(len(piece)), piece
            self._pieces_bytes += _LENGTH.size + len(piece)
            if self._pieces_bytes >= PART_BYTES:
                self._store_part()

    def _store_part(self) -> None:
        data = b"".join(self._pieces)
        parts = self._manifest.parts
        key = f"{self.position:020d}/{self._attempt}-{len(parts):06d}"
        # Even if this fails the object may exist, so that it has to be abandoned with the others.
        parts.append(Part(key, len(data), hashlib.sha256(data).hexdigest()))
        self._store.create(self._prefix + key, data)
        self.size_bytes += len(data)
        self._pieces, self._pieces_bytes = [], 0

    def finish(self) -> None:
        """Store the rest and the manifest; an image that another node has finished at this position is as good."""
        if self._pieces:
            self._store_part()
        image = msgspec.json.encode(self._manifest)
        sealed = _Sealed(msgspec.Raw(image), hashlib.sha256(image).hexdigest())
        self._may_exist = True
        try:
            self._store.create(f"{self._prefix}{self.position:020d}.json", msgspec.json.encode(sealed))
        except KeyExists:
            log.info("another node has finished the image at position %d first", self.position)
            self._delete_parts()

    def abandon(self) -> None:
        """Delete the parts, unless they may belong to an image by now; then they are swept when they are old."""
        if not self._may_exist:
            self._delete_parts()

    def _delete_parts(self) -> None:
        for part in self._manifest.parts:
            self._store.delete(self._prefix + part.key)


def _manifest(log_id: str, position: int, data: bytes) -> Manifest:
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if hashlib.sha256(sealed.image).hexdigest() != sealed.sha256:
            raise ImageDamaged("its checksum is wrong")
        manifest = msgspec.json.decode(sealed.image, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ImageDamaged(f"it is not a manifest ({error})") from error
    found, expected = (manifest.version, manifest.log_id, manifest.position), (VERSION, log_id, position)
    if found != expected:
        raise ImageDamaged(f"its version, log and position are {found} instead of {expected}")
    return manifest


def _pieces(part: Part, data: bytes) -> list[bytes]:
    if len(data) != part.size or hashlib.sha256(data).hexdigest() != part.sha256:
        raise ImageDamaged("its bytes are not those that were written")
    pieces = []
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        pieces.append(data[at : at + length])
        at += length
    return pieces
