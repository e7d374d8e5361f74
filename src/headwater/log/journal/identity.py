"""The identity of a journal: an id that every client sees, and a key that never leaves the directory.

CRCs that started from the id alone could be forged by a payload, since the id is in every response: a crash that tore
such a payload would look like damage.
"""

import secrets
from pathlib import Path

import msgspec

from headwater.log import frames
from headwater.log.journal.files import VERSION, JournalDamaged
from headwater.storage.disk import Disk

NAME = "identity.json"


class _Format(msgspec.Struct, frozen=True):
    """The field that every version of the file has."""

    format: int


class Identity(msgspec.Struct, frozen=True):
    """The format of a journal, its id and its key."""

    format: int
    log_id: str
    key: str

    @property
    def seed(self) -> int:
        """What every CRC in this journal starts from."""
        return frames.seed("journal", self.log_id, self.key)


def load(directory: Path, disk: Disk) -> Identity | None:
    """The identity of a journal; None if it has none yet."""
    path = directory / NAME
    if NAME not in disk.names(directory):
        return None
    file = disk.open(path)
    text = file.read(0, 4096)
    file.close()
    try:
        found = msgspec.json.decode(text, type=_Format).format
        if found != VERSION:
            raise JournalDamaged(f"{path} has format {found}; this server reads format {VERSION}.")
        return msgspec.json.decode(text, type=Identity)
    except ValueError as error:
        raise JournalDamaged(f"{path} cannot be read ({error}); restore it from a copy.") from error


def new(log_id: str | None = None) -> Identity:
    """The identity of a new journal: with a random id unless one is given, and with a random key."""
    return Identity(VERSION, log_id or secrets.token_hex(8), secrets.token_hex(16))


def save(identity: Identity, directory: Path, disk: Disk) -> None:
    """Give a journal its identity."""
    path = directory / NAME
    temporary = path.with_suffix(".tmp")
    if temporary.name in disk.names(directory):
        disk.remove(temporary)
    file = disk.create(temporary)
    file.write([msgspec.json.encode(identity)], 0)
    file.sync()
    file.close()
    disk.rename(temporary, path)
