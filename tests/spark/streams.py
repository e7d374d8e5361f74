"""The streams of a test, in a bucket of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.client import Client
from headwater.client.blocking.stream import Stream
from headwater.client.operations import Fork
from headwater.protocol.offsets import Form, render
from headwater.testing import RunningServer

TEXT = "text/plain"
JSON = "application/json"


class Streams:
    """Streams in one bucket."""

    def __init__(self, client: Client, bucket: str) -> None:
        self._client, self.bucket = client, bucket
        client.bucket(bucket).create(exist_ok=True)

    def stream(self, name: str) -> Stream:
        return self._client.bucket(self.bucket).stream(name)

    def make(self, name: str, *messages: bytes, content_type: str = TEXT) -> Stream:
        """Create a stream and append some messages, one at a time."""
        stream = self._client.bucket(self.bucket).stream(name, content_type=content_type)
        stream.create()
        self.append(name, *messages, content_type=content_type)
        return stream

    def append(self, name: str, *messages: bytes, content_type: str = TEXT) -> None:
        stream = self._client.bucket(self.bucket).stream(name, content_type=content_type)
        for message in messages:
            stream.append(message)

    def append_json(self, name: str, *values: Any) -> None:
        self._client.bucket(self.bucket).stream(name, content_type=JSON).append_json(*values)

    def trim(self, name: str, offset: int, snapshot: bytes = b"snapshot") -> None:
        """Publish a snapshot, which trims everything before it."""
        self.stream(name).publish_snapshot(snapshot, offset=render(offset, Form.PLAIN))

    def fork(self, name: str, source: str, offset: int) -> None:
        fork = Fork(f"/ds/{self.bucket}/{source}", render(offset, Form.PLAIN))
        self.stream(name).create(fork=fork)


@contextmanager
def streams_in(server: RunningServer, bucket: str) -> Iterator[Streams]:
    with Client(server.url) as client:
        yield Streams(client, bucket)
