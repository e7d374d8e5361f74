"""Objects in a bucket of S3, or of whatever speaks its language.

Endpoint, region and credentials come from the environment, as everywhere: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else a web identity, a container's or an instance's role.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store as Client

from headwater.storage.store import Item, KeyMissing, StoreFailed, check_key, check_same, walk, whole

CONNECT_SECONDS_MAX = 5.0
REQUEST_SECONDS_MAX = 30.0
"""One attempt, its body included: 64 MiB in that time is 18 Mbit/s."""
RETRIES_MAX = 3
RETRY_SECONDS_MAX = 30.0
"""No attempt begins later than this; so a request, or a page of a listing, ends after this and one more attempt."""
BACKOFF_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 2.0

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
_CODE = re.compile(r"<Code>(\w+)</Code>")


class S3Store:
    """A store under a prefix of a bucket."""

    def __init__(self, url: str) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise ValueError(f"{url!r} names no bucket, it should read s3://bucket/prefix.")
        bucket, prefix = found["bucket"], (found["prefix"] or "").strip("/")
        if prefix:
            check_key(prefix)
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._client = _connect(bucket, prefix)

    def create(self, key: str, data: bytes) -> None:
        check_key(key)
        try:
            with self._failing("create", key):
                obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            check_same(self, key, data)

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        check_key(key)
        with self._failing("read", key):
            if start == 0 and size is None:
                result = obstore.get(self._client, key)
                return whole(key, bytes(result.bytes()), result.meta["size"])
            if not size:
                # S3 has no ranges without a byte.
                found = obstore.head(self._client, key)["size"]
                size = 0 if size == 0 else max(found - start, 0)
                if size == 0:
                    return b""
            return whole(key, bytes(obstore.get_range(self._client, key, start=start, length=size)), size)

    def delete(self, key: str) -> None:
        check_key(key)
        try:
            with self._failing("delete", key):
                obstore.delete(self._client, key)
        except KeyMissing:
            pass

    def items(self, prefix: str) -> Iterator[Item]:
        # Not by a listing of everything: SeaweedFS puts `a/x` before `a-b`, and a directory bucket has no order.
        return walk(self._list, prefix)

    def _list(self, folder: str) -> tuple[list[Item], list[str]]:
        with self._failing("list", folder):
            found = obstore.list_with_delimiter(self._client, folder or None)
        # A folder may have an object of its own, whose key ends with `/`; the library lists it without.
        items = [Item(item["path"], item["size"]) for item in found["objects"] if item["path"].startswith(folder)]
        return items, [f"{name}/" for name in found["common_prefixes"]]

    @contextmanager
    def _failing(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError:
            raise
        except (BaseError, OSError) as error:
            what, code = _explain(error)
            # A bucket that is missing is no proof that an object is.
            if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                raise KeyMissing(f"There is no object {key} in {self.url}.") from error
            raise StoreFailed(f"The store {self.url} did not {verb} {key or 'its objects'}: {what}.") from error


def _connect(bucket: str, prefix: str) -> Client:
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    return Client(
        bucket,
        prefix=prefix or None,
        # One by one: not everything that speaks S3 understands how to delete many at once.
        config={"checksum_algorithm": "SHA256", "conditional_put": "etag", "disable_bulk_delete": True},
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
            "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
        },
        retry_config={
            "max_retries": RETRIES_MAX,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX),
            "backoff": {
                "init_backoff": timedelta(seconds=BACKOFF_SECONDS),
                "max_backoff": timedelta(seconds=BACKOFF_SECONDS_MAX),
                "base": 2,
            },
        },
    )


def _explain(error: Exception) -> tuple[str, str]:
    """What an error of the library says in one line, and the code that S3 gave it."""
    text = str(error)
    what = text.partition("\n")[0].partition(": <?xml")[0].strip()
    found = _CODE.search(text)
    code = found[1] if found else ""
    return (f"{what} ({code})" if code else what), code
