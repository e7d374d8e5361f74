"""The schema of the access file: its tables, their fields and limits. `policy` interprets it."""

import os
import re
import stat
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from headwater.access import tokens
from headwater.access.claims import Value
from headwater.access.jwks import DOCUMENT_BYTES_MAX
from headwater.access.tickets import parse_key
from headwater.secret_files import may_be_secret

VERSION = 1
FILE_BYTES_MAX = 4 * 1024 * 1024
KEY_FILE_BYTES_MAX = 4_096
ENTRIES_MAX = {"token": 10_000, "key": 100, "issuer": 16, "certificate": 1_000}
SECONDS_MAX_DEFAULT = 86_400
GROUP_AND_WORLD = stat.S_IRWXG | stat.S_IRWXO

T = TypeVar("T")


class PolicyError(ValueError):
    """The access file is invalid; the message is one sentence: the file, the entry, and what to write instead."""


class _Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of the file; a field that is not known is a mistake, perhaps one that grants too much."""


class AnonymousTable(_Table):
    grants: list[str] = []
    limits: str | None = None


class TokenTable(_Table):
    id: str
    sha256: str
    grants: list[str]
    limits: str | None = None
    expires: datetime | None = None
    note: str = ""


class KeyTable(_Table):
    id: str
    file: str
    grants: list[str]
    audience: str | list[str] = []
    seconds_max: int = SECONDS_MAX_DEFAULT
    limits: str | None = None
    note: str = ""


class RuleTable(_Table):
    grants: list[str]
    when: dict[str, Value] = {}


class IssuerTable(_Table):
    url: str
    audience: str | list[str]
    algorithms: list[str]
    rules: list[RuleTable]
    jwks: str | None = None
    keys: str | None = None
    claim: str | None = None
    limits: str | None = None
    note: str = ""


class CertificateTable(_Table):
    name: str
    grants: list[str]
    limits: str | None = None
    note: str = ""


class LimitsTable(_Table):
    requests_per_second: float | None = None
    append_bytes_per_second: int | str | None = None
    read_bytes_per_second: int | str | None = None
    creates_per_second: float | None = None
    live_reads: int | None = None


class BucketTable(_Table):
    streams: int | None = None
    stored_bytes: int | str | None = None


class RevokedSubjectTable(_Table):
    sub: str
    before: datetime
    issuer: str | None = None
    key: str | None = None


class RevokedTable(_Table):
    ids: list[str] = []
    subjects: list[RevokedSubjectTable] = []


class Document(_Table):
    """The whole file."""

    version: int
    anonymous: AnonymousTable = msgspec.field(default_factory=AnonymousTable)
    token: list[TokenTable] = []
    key: list[KeyTable] = []
    issuer: list[IssuerTable] = []
    certificate: list[CertificateTable] = []
    limits: dict[str, LimitsTable] = {}
    bucket: dict[str, BucketTable] = {}
    revoked: RevokedTable = msgspec.field(default_factory=RevokedTable)


_LISTS: dict[str, tuple[type[_Table], str]] = {
    "token": (TokenTable, "id"),
    "key": (KeyTable, "id"),
    "issuer": (IssuerTable, "url"),
    "certificate": (CertificateTable, "name"),
}
"""The tables that may be repeated, each with the field that names an entry."""


def read_document(path: Path) -> Document:
    """Read the access file; `PolicyError` if it is not one."""
    return parse_document(_read(path, "--auth", FILE_BYTES_MAX), path)


def parse_document(text: bytes, path: Path) -> Document:
    """Return the tables of a file's text; the path is for messages."""
    try:
        tables = tomllib.loads(text.decode())
    except UnicodeDecodeError:
        raise PolicyError(f"{path} is not UTF-8; save it as UTF-8.") from None
    except (ValueError, RecursionError) as error:  # A number of thousands of digits is a plain ValueError.
        raise PolicyError(f"{path} is not TOML; correct this: {str(error).rstrip('.')}.") from None
    if tables.get("version") != VERSION or isinstance(tables.get("version"), bool):
        raise PolicyError(f"{path} does not say its version; write version = {VERSION} as its first line.")
    for name, most in ENTRIES_MAX.items():
        found = tables.get(name, [])
        if not isinstance(found, list):
            raise PolicyError(f"{path} has a table [{name}]; write [[{name}]], since there may be several.")
        if len(found) > most:
            raise PolicyError(f"{path} has {len(found):,} entries [[{name}]], and {most:,} are allowed; remove some.")
        kind, label = _LISTS[name]
        for number, entry in enumerate(found, 1):
            _convert(entry, kind, f"{path}: {_place(name, number, entry, label)}")
    for name, kind in (("anonymous", AnonymousTable), ("revoked", RevokedTable)):
        _convert(tables.get(name, {}), kind, f"{path}: [{name}]")
    for name, kind in (("limits", LimitsTable), ("bucket", BucketTable)):
        for key, entry in _table(tables, name, path).items():
            _convert(entry, kind, f"{path}: [{name}.{key!r}]")
    return _convert(tables, Document, str(path))


def _table(tables: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise PolicyError(f"{path}: {name} is not a table; write [{name}.NAME].")
    return found


def _place(name: str, number: int, entry: object, label: str) -> str:
    """Name an entry: by its id if it has one, else by its number."""
    called = entry.get(label) if isinstance(entry, dict) else None
    return f"[[{name}]] {called!r}" if isinstance(called, str) else f"[[{name}]] number {number}"


_CREDENTIALS = (tokens.PREFIX.decode(), "eyJ")
"""How tokens and tickets begin; an operator may give one by mistake in place of the access file."""
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?")
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*)`)?")
_WRONG = re.compile(r"(?:Expected|Invalid) (.*?)(?: - at `\$\.?(.*)`)?")


def _convert(entry: object, kind: type[T], place: str) -> T:
    try:
        return msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{place} {_explain(str(error), kind)}.") from None


def _explain(message: str, kind: type[Any]) -> str:
    """Turn a message of msgspec into the rest of a sentence."""
    if found := _UNKNOWN.fullmatch(message):
        if found[2]:
            return f"has an unknown field {found[1]!r} in {found[2]}; remove it or correct its name"
        return f"has an unknown field {found[1]!r}; write one of {', '.join(kind.__struct_fields__)}"
    if found := _MISSING.fullmatch(message):
        return f"has no {found[1]!r}{f' in {found[2]}' if found[2] else ''}; add it"
    if found := _WRONG.fullmatch(message):
        expected = found[1].replace("`", "").replace(" | null", "").replace("array", "list")
        return f"has a wrong value for {found[2] or 'the entry'}; write {expected}"
    return f"is not valid; correct this: {message}"


def read_key_file(path: Path, place: str) -> bytes:
    """Return the secret in a key file that only its owner can read; `place` names the entry in messages."""
    text = _read(path, place, KEY_FILE_BYTES_MAX, is_secret=True)
    try:
        return parse_key(text)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise PolicyError(f"{place} has the key file {path}, which is not usable: {reason}.") from None


def read_jwks_file(path: Path, place: str) -> bytes:
    """Return the bytes of a key set."""
    return _read(path, place, DOCUMENT_BYTES_MAX)


Stamp: TypeAlias = tuple[int, ...]
"""What changes when a file is written, replaced or made readable."""


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None if it is not there."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # Some characters are in no path.
        return None
    # The time of the last change includes that of the mode, which decides whether a key is taken.
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(path: Path, place: str, bytes_max: int, *, is_secret: bool = False) -> bytes:
    """Read a small file; the checks apply to the open file, even if its name changes."""
    try:
        # Opening a named pipe for reading would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise PolicyError(f"{place} names {path}, which is not a file; name one that is.")
            if is_secret and status.st_mode & GROUP_AND_WORLD:
                mode = stat.S_IMODE(status.st_mode)
                raise PolicyError(
                    f"{place} names {path}, which others can read (mode {mode:04o}); run `chmod 600 {path}`."
                )
            text = file.read(bytes_max + 1)
    except OSError as error:
        raise PolicyError(f"{place} names {_unreadable(path, error, is_secret=is_secret)}.") from None
    except PolicyError:
        raise
    except ValueError:
        raise PolicyError(f"{place} has characters that no path has; write the path of a file.") from None
    if len(text) > bytes_max:
        raise PolicyError(f"{place} names {path}, which is larger than {bytes_max:,} bytes; make it smaller.")
    return text


def _unreadable(path: Path, error: OSError, *, is_secret: bool) -> str:
    """The rest of a sentence about a file that cannot be read, without what may be a secret in place of its name."""
    if (is_secret or str(path).startswith(_CREDENTIALS)) and may_be_secret(path):
        return "a file that does not exist; write the path of the file, not what is in it"
    return f"{path}, which cannot be read ({error.strerror}); check its path"
