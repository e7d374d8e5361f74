"""Reading and publishing the snapshots of streams, each for one incarnation of its stream."""

from collections.abc import Callable
from typing import TypeVar

import httpx2

from headwater.client import Conflict, Forbidden, Gone, NotFound, Stream, Unauthorized
from headwater.protocol import incarnations
from headwater.protocol.offsets import Form, render
from headwater.protocol.refusals import Code
from headwater.spark.failures import translated
from headwater.spark.jobs.snapshot.folds import Reducer
from headwater.spark.jobs.snapshot.plan import Pending
from headwater.spark.jobs.snapshot.reducers import Unfoldable
from headwater.spark.link import LinkSettings, new_client, verification

T = TypeVar("T")


class Stale(Exception):
    """The stream has a newer snapshot."""


class StreamChanged(Exception):
    """The stream was deleted, recreated or trimmed, so its plan is void."""


class SnapshotStore:
    """Snapshots of streams on one server; not thread-safe."""

    def __init__(self, settings: LinkSettings, log_id: str) -> None:
        self._log_id = log_id
        self._http = httpx2.Client(verify=verification(settings), timeout=settings.timeout_seconds)
        self._client = new_client(settings, self._http)

    def close(self) -> None:
        self._client.close()
        self._http.close()

    def __enter__(self) -> "SnapshotStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, pending: Pending, reducer: Reducer) -> bytes:
        """The snapshot that a fold starts from; Unfoldable if another reducer has made it."""
        found = self._request(lambda: self._stream(pending).snapshot(render(pending.start, Form.PLAIN)))
        if not reducer.has_made(found.content_type):
            raise Unfoldable(
                f"Its snapshot has the content type {found.content_type!r}, not {reducer.content_type!r}; use the "
                "reducer that made it, or publish a snapshot of this reducer first."
            )
        return found.data

    def publish(self, pending: Pending, data: bytes, reducer: Reducer) -> None:
        """Publish a snapshot at the planned tail of a stream."""
        stream, offset = self._stream(pending), render(pending.tail, Form.PLAIN)
        self._request(lambda: stream.publish_snapshot(data, offset=offset, content_type=reducer.content_type))

    def _stream(self, pending: Pending) -> Stream:
        bucket, _, name = pending.stream.partition("/")
        incarnation = incarnations.render(self._log_id, pending.incarnation)
        return self._client.bucket(bucket).stream(name, incarnation=incarnation)

    def _request(self, send: Callable[[], T]) -> T:
        try:
            return send()
        except NotFound as refused:
            raise (Stale if refused.code == Code.SNAPSHOT_NOT_FOUND else StreamChanged) from refused
        except Conflict as refused:
            raise Stale from refused
        except Gone as refused:
            raise StreamChanged from refused
        except (Unauthorized, Forbidden):
            with translated():
                raise
