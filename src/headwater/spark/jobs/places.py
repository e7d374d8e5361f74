"""Places for tables: a folder that all executors share, or a prefix in S3.

A key is a path below the place. An object is written once, as a whole, and may be moved afterwards, which on S3 means
copy and delete. A move is idempotent.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from headwater.spark.jobs.report import JobFailed
from headwater.storage.s3 import ENDPOINTS
from headwater.storage.store import KeyMissing

UNFINISHED = ".unfinished-"
"""The prefix of a file that is being written; engines ignore names that begin with a dot."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class TablePlace(Protocol):
    """Where the objects of a table are; every process that needs it opens it by its URL."""

    url: str

    def create(self, key: str, data: bytes) -> bool:
        """Write a new object, durable on return; False, and no change, if the key exists."""

    def move(self, key: str, to: str) -> None:
        """Give an object another key, replacing any object there. Idempotent; KeyMissing if neither key exists."""

    def read(self, key: str) -> bytes:
        """The bytes of an object, or KeyMissing."""

    def items(self, prefix: str) -> Iterator[str]:
        """The keys below a prefix, which is empty or ends with a slash, in no particular order."""

    def delete(self, key: str) -> None:
        """Delete an object. Idempotent."""


class FolderPlace:
    """A folder, created with the first object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.url = str(self.folder)

    def create(self, key: str, data: bytes) -> bool:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        upload = path.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
        try:
            with upload.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # A link and not a rename, which would replace the object of another process.
            os.link(upload, path)
        except FileExistsError:
            return False
        finally:
            upload.unlink(missing_ok=True)
        _sync(path.parent)
        return True

    def move(self, key: str, to: str) -> None:
        path = self.folder / to
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            (self.folder / key).rename(path)
        except FileNotFoundError:
            if not path.exists():
                raise KeyMissing(f"There is neither {key} nor {to} in {self.url}.") from None
        _sync(path.parent)

    def read(self, key: str) -> bytes:
        try:
            return (self.folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise KeyMissing(f"There is no {key} in {self.url}.") from None

    def items(self, prefix: str) -> Iterator[str]:
        for path, _, names in os.walk(self.folder / prefix):
            below = Path(path).relative_to(self.folder)
            yield from (str(below / name) for name in names if not name.startswith(UNFINISHED))

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            (self.folder / key).unlink()


class S3Place:
    """A prefix in a bucket; endpoint and credentials come from the environment, as for a lake."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip("/")
        endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
        self._client = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            config={"conditional_put": "etag", "disable_bulk_delete": True},
            client_options={"allow_http": endpoint.startswith("http://")},
        )

    def create(self, key: str, data: bytes) -> bool:
        try:
            obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def move(self, key: str, to: str) -> None:
        try:
            obstore.copy(self._client, key, to)
        except FileNotFoundError:
            try:
                obstore.head(self._client, to)
            except FileNotFoundError:
                raise KeyMissing(f"There is neither {key} nor {to} in {self.url}.") from None
        self.delete(key)

    def read(self, key: str) -> bytes:
        try:
            return bytes(obstore.get(self._client, key).bytes())
        except FileNotFoundError:
            raise KeyMissing(f"There is no {key} in {self.url}.") from None

    def items(self, prefix: str) -> Iterator[str]:
        for page in obstore.list(self._client, prefix or None):
            yield from (item["path"] for item in page)

    def delete(self, key: str) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._client, key)


def open_place(url: str) -> TablePlace:
    """The place at `folder`, `file:///folder` or `s3://bucket/prefix`; JobFailed for anything else.

    >>> open_place("/data/events").url, open_place("file:///data/events").url
    ('/data/events', '/data/events')
    """
    scheme = _SCHEME.match(url)
    match scheme and scheme[1].lower():
        case None if url:
            return FolderPlace(Path(url))
        case "file":
            return FolderPlace(Path(unquote(urlsplit(url).path)))
        case "s3" if urlsplit(url).netloc:
            return S3Place(url)
    raise JobFailed(f"{url!r} is not a valid place for a table; use a folder or s3://bucket/prefix.")


def spark_path(path: str) -> str:
    """A path or URL for Spark, which would resolve a relative path from the folder in which its JVM was started.

    >>> spark_path("s3://bucket/x"), spark_path("/data/x")
    ('s3://bucket/x', 'file:///data/x')
    """
    return path if "://" in path else Path(path).absolute().as_uri()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
