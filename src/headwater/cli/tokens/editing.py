"""Edits of the access file as text, so that comments and layout stay.

An edit is checked by its result: the new text must mean the old document plus or minus exactly one entry. So a layout
that the scan for lines misreads, such as a `[[token]]` in a multi-line string, is refused and never changes another
entry.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkstemp

import msgspec

from headwater.access.document import Document, PolicyError, TokenTable, parse_document

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TOKEN_HEADER = re.compile(r"\s*\[\[\s*token\s*\]\]")
_ANY_HEADER = re.compile(r"\s*\[")
_EMPTY = re.compile(r"\s*(#.*)?")

FIRST_LINES = """\
# Who may do what on this server: `headwater serve --auth {name}`. Tokens are added with `headwater token create`.
version = 1
"""


def render_token(token: TokenTable) -> str:
    """Write an entry of the file."""
    lines = ["[[token]]", f"id = {_quote(token.id)}", f"sha256 = {_quote(token.sha256)}"]
    lines.append(f"grants = [{', '.join(map(_quote, token.grants))}]")
    if token.limits is not None:
        lines.append(f"limits = {_quote(token.limits)}")
    if token.expires is not None:
        lines.append(f"expires = {token.expires.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}")
    if token.note:
        lines.append(f"note = {_quote(token.note)}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """Write a string of TOML, which is one of JSON but for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def add_token(text: str, token: TokenTable, path: Path) -> str:
    """Return the file's text with another token at its end."""
    before = parse_document(text.encode(), path)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    added = text + gap + render_token(token)
    expected = msgspec.structs.replace(before, token=[*before.token, token])
    return _checked(added, expected, path, f"add token {token.id!r}")


def remove_token(text: str, token_id: str, path: Path) -> str | None:
    """Return the file's text without a token; None if it has no such token."""
    before = parse_document(text.encode(), path)
    numbers = [number for number, token in enumerate(before.token) if token.id == token_id]
    if not numbers:
        return None
    number = numbers[0]
    lines = _LINE.findall(text)
    headers = [place for place, line in enumerate(lines) if _TOKEN_HEADER.match(line)]
    if len(headers) == len(before.token):
        begin = headers[number]
        lines[begin : _end_of_entry(lines, begin)] = []
    expected = msgspec.structs.replace(before, token=before.token[:number] + before.token[number + 1 :])
    return _checked("".join(lines), expected, path, f"remove token {token_id!r}")


def _end_of_entry(lines: list[str], begin: int) -> int:
    """Return the line after an entry. Comments before the next table belong to the next table."""
    end = begin + 1
    for place in range(begin + 1, len(lines)):
        if _ANY_HEADER.match(lines[place]):
            break
        if not _EMPTY.fullmatch(lines[place].rstrip("\r\n")):
            end = place + 1
    return end + 1 if end < len(lines) and not lines[end].strip() else end


def _checked(text: str, expected: Document, path: Path, task: str) -> str:
    try:
        found = parse_document(text.encode(), path)
    except PolicyError:
        found = None
    if found != expected:
        raise PolicyError(f"{path} is laid out in a way that this command cannot edit; {task} by hand.")
    return text


def expiry(seconds: float | None) -> datetime | None:
    """Return the time in some seconds, without a fraction, as the file has it."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(datetime.now(UTC).timestamp() + seconds, UTC).replace(microsecond=0)
    except (OverflowError, ValueError):
        raise ValueError(
            "The expiry is too far in the future; leave --expires out for a token that never expires."
        ) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the folder of a file against concurrent edits by other commands."""
    folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def replace_file(path: Path, text: str, *, is_new: bool = False) -> None:
    """Write a temporary file and rename it, so that a server never reads half of it.

    A new file is readable by its owner alone. An old one keeps its owner and mode: a server that runs as another user
    must still be able to read it, or a revoked token would go on being accepted.
    """
    path = path.resolve()
    descriptor, beside = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if not is_new:
                old, new = path.stat(), os.fstat(file.fileno())
                if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), old.st_mode & 0o777)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            os.link(beside, path)  # Fails if the file exists by now; a rename would replace it.
        else:
            os.rename(beside, path)
        _sync_folder(path.parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
