"""The snapshots of streams: read to go on from, and published, each for one life of its stream."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx2

from headwater.client import Client, Conflict, Gone, NotFound, RetryPolicy, Stream
from headwater.protocol import incarnations
from headwater.protocol.offsets import Form, render
from headwater.protocol.refusals import Code
from headwater.spark.jobs.snapshot.folds import Reducer
from headwater.spark.jobs.snapshot.plan import Want
from headwater.spark.jobs.snapshot.reducers import Unfoldable
from headwater.spark.link import PAUSE_SECONDS_MAX, LinkSettings, tls_context

T = TypeVar("T")


class Stale(Exception):
    """The stream has another snapshot by now."""


class Left(Exception):
    """The stream was deleted, made anew or trimmed; what was planned for it is void."""


class SnapshotStore:
    """Snapshots of streams on one server; for one thread."""

    def __init__(self, settings: LinkSettings, log_id: str) -> None:
        self._log_id = log_id
        self._http = httpx2.Client(verify=tls_context(settings), timeout=settings.timeout_seconds)
        self._client = Client(
            f"{settings.url.rstrip('/')}/ds",
            headers={**dict(settings.headers), **_authorization(settings)},
            retry=RetryPolicy(
                attempts_max=settings.retries + 1,
                first_delay_seconds=settings.retry_interval_seconds,
                delay_seconds_max=max(PAUSE_SECONDS_MAX, settings.retry_interval_seconds),
            ),
            timeout_seconds=settings.timeout_seconds,
            http=self._http,
        )

    def close(self) -> None:
        self._client.close()
        self._http.close()

    def __enter__(self) -> "SnapshotStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, want: Want, reducer: Reducer) -> bytes:
        """The snapshot that a fold goes on from; Unfoldable if it is not the reducer's own."""
        found = self._asked(lambda: self._stream(want).snapshot(render(want.start, Form.PLAIN)))
        if not reducer.has_made(found.content_type):
            raise Unfoldable(
                f"Its snapshot is of the type {found.content_type!r}, and the next one would be "
                f"{reducer.content_type!r}; use the reducer that made it, or publish one of that type first."
            )
        return found.data

    def publish(self, want: Want, data: bytes, reducer: Reducer) -> None:
        """Say what a stream comes to up to the tail that was planned."""
        stream, offset = self._stream(want), render(want.tail, Form.PLAIN)
        self._asked(lambda: stream.publish_snapshot(data, offset=offset, content_type=reducer.content_type))

    def _stream(self, want: Want) -> Stream:
        bucket, _, name = want.stream.partition("/")
        life = incarnations.render(self._log_id, want.incarnation)
        return self._client.bucket(bucket).stream(name, incarnation=life)

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except NotFound as refused:
            raise (Stale if refused.code == Code.SNAPSHOT_NOT_FOUND else Left) from refused
        except Conflict as refused:
            raise Stale from refused
        except Gone as refused:
            raise Left from refused


def _authorization(settings: LinkSettings) -> dict[str, Callable[[], str]]:
    path, token = settings.token_file, settings.token
    if path is not None:
        # Read each time: whoever renews a token writes the file anew.
        return {"Authorization": lambda: f"Bearer {Path(path).read_text().strip()}"}
    return {} if token is None else {"Authorization": lambda: f"Bearer {token}"}
