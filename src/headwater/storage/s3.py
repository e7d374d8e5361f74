"""Objects in a bucket of S3, or of any server that speaks its protocol. The one place that knows how S3 is reached.

The endpoint, region and credentials come from the standard environment variables: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without keys, from a web identity or the role of a
container or an instance. Time-outs and retries are those of `RequestLimits`. Other libraries that open the same buckets
take these settings from here:

    S3Store(url)         our own client
    delta_options()      `storage_options` of deltalake
    iceberg_options()    properties of a pyiceberg catalog
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store as Client

from headwater.storage.store import Item, KeyMissing, KeyRule, StoreFailed, check_key, check_same, walk, whole

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")

_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")
_CODE = re.compile(r"<Code>(\w+)</Code>")


class RequestLimits(NamedTuple):
    """How long requests may take, and how often they are repeated."""

    connect_seconds_max: float = 5.0
    request_seconds_max: float = 30.0
    """For one attempt, including its body: 64 MiB in that time is 18 Mbit/s."""
    retries_max: int = 3
    retry_seconds_max: float = 30.0
    """No attempt begins later than this, so a request or a page of a listing ends after this and one more attempt."""
    backoff_seconds: float = 0.1
    backoff_seconds_max: float = 2.0


REQUEST_LIMITS = RequestLimits()


class S3Store:
    """A `Store` and a `TableStore` under a prefix of a bucket."""

    def __init__(self, url: str, check: KeyRule = check_key, limits: RequestLimits = REQUEST_LIMITS) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            raise ValueError(f"{url!r} is not a valid S3 URL; use s3://bucket/prefix.")
        bucket, prefix = found["bucket"], (found["prefix"] or "").strip("/")
        if prefix:
            check(prefix)
        self.url = self.location = f"s3://{bucket}/{prefix}".rstrip("/")
        self._check = check
        self._client = _connect(bucket, prefix, limits)

    def create(self, key: str, data: bytes) -> None:
        self._check(key)
        try:
            with self._failing("create", key):
                obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            check_same(self, key, data)

    def replace(self, key: str, data: bytes) -> None:
        self._check(key)
        with self._failing("replace", key):
            obstore.put(self._client, key, data, mode="overwrite", use_multipart=False)

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        self._check(key)
        with self._failing("read", key):
            if start == 0 and size is None:
                result = obstore.get(self._client, key)
                return whole(key, bytes(result.bytes()), result.meta["size"])
            if not size:
                # S3 has no empty ranges.
                found = obstore.head(self._client, key)["size"]
                size = 0 if size == 0 else max(found - start, 0)
                if size == 0:
                    return b""
            return whole(key, bytes(obstore.get_range(self._client, key, start=start, length=size)), size)

    def delete(self, key: str) -> None:
        self._check(key)
        try:
            with self._failing("delete", key):
                obstore.delete(self._client, key)
        except KeyMissing:
            pass

    def move(self, key: str, to: str) -> None:
        self._check(key)
        self._check(to)
        try:
            with self._failing("move", key):
                obstore.copy(self._client, key, to)
        except KeyMissing:
            try:
                with self._failing("find", to):
                    obstore.head(self._client, to)
            except KeyMissing:
                raise KeyMissing(f"Neither {key} nor {to} exists in {self.url}.") from None
        self.delete(key)

    def items(self, prefix: str) -> Iterator[Item]:
        # A flat listing would not be sorted: SeaweedFS puts `a/x` before `a-b`, and a directory bucket has no order.
        return walk(self._list, prefix)

    def remove_leftovers(self) -> None:
        """There are none: each object is stored by one request."""

    def keys(self, folder: str) -> Iterator[str]:
        with self._failing("list", folder):
            for page in obstore.list(self._client, folder or None):
                yield from (item["path"] for item in page)

    def _list(self, folder: str) -> tuple[list[Item], list[str]]:
        with self._failing("list", folder):
            found = obstore.list_with_delimiter(self._client, folder or None)
        # A folder may have its own object, whose key ends with `/`; the library lists it without the slash.
        items = [Item(item["path"], item["size"]) for item in found["objects"] if item["path"].startswith(folder)]
        return items, [f"{name}/" for name in found["common_prefixes"]]

    @contextmanager
    def _failing(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except AlreadyExistsError:
            raise
        except (BaseError, OSError) as error:
            reason, code = _explain(error)
            # A missing bucket does not prove that an object is missing.
            if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
                raise KeyMissing(f"There is no object {key} in {self.url}.") from error
            raise StoreFailed(f"The store {self.url} did not {verb} {key or 'its objects'}: {reason}.") from error


def delta_options(limits: RequestLimits = REQUEST_LIMITS) -> dict[str, str]:
    """The `storage_options` with which deltalake reaches the same S3 under the same limits.

    Credentials are not among them: the library reads the same environment variables itself.
    """
    options = {
        "AWS_CONDITIONAL_PUT": "etag",
        "connect_timeout": _milliseconds(limits.connect_seconds_max),
        "timeout": _milliseconds(limits.request_seconds_max),
        "max_retries": str(limits.retries_max),
        "retry_timeout": _milliseconds(limits.retry_seconds_max),
    }
    if endpoint := _endpoint():
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(_is_plain(endpoint)).lower()}
    return options


def iceberg_options(limits: RequestLimits = REQUEST_LIMITS) -> dict[str, str]:
    """The catalog properties with which pyiceberg reaches the same S3 under the same limits.

    Credentials are not among them: the library reads the same environment variables itself.
    """
    options = {
        "s3.connect-timeout": f"{limits.connect_seconds_max:g}",
        "s3.request-timeout": f"{limits.request_seconds_max:g}",
    }
    if endpoint := _endpoint():
        options["s3.endpoint"] = endpoint
    if region := _first_set(REGIONS):
        options["s3.region"] = region
    return options


def _connect(bucket: str, prefix: str, limits: RequestLimits) -> Client:
    return Client(
        bucket,
        prefix=prefix or None,
        # One by one: not every server that speaks S3 supports deleting many objects at once.
        config={"checksum_algorithm": "SHA256", "conditional_put": "etag", "disable_bulk_delete": True},
        client_options={
            "allow_http": _is_plain(_endpoint()),
            "connect_timeout": timedelta(seconds=limits.connect_seconds_max),
            "timeout": timedelta(seconds=limits.request_seconds_max),
        },
        retry_config={
            "max_retries": limits.retries_max,
            "retry_timeout": timedelta(seconds=limits.retry_seconds_max),
            "backoff": {
                "init_backoff": timedelta(seconds=limits.backoff_seconds),
                "max_backoff": timedelta(seconds=limits.backoff_seconds_max),
                "base": 2,
            },
        },
    )


def _endpoint() -> str:
    """The server's URL from the environment; empty for Amazon's own."""
    return _first_set(ENDPOINTS)


def _first_set(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _is_plain(endpoint: str) -> bool:
    return endpoint.startswith("http://")


def _explain(error: Exception) -> tuple[str, str]:
    """The library's error in one line, and S3's error code."""
    text = str(error)
    reason = text.partition("\n")[0].partition(": <?xml")[0].strip()
    found = _CODE.search(text)
    code = found[1] if found else ""
    return (f"{reason} ({code})" if code else reason), code
