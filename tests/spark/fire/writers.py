"""Writers that append while processes are killed, and trim, delete or close some streams; each outcome is certain."""

import json
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from random import Random
from threading import Event, Thread
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from headwater.spark.link import Link, LinkSettings

from .ledger import JSON, Timeline

TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 120.0
"""How long a server may be offline, even killed twice in a row on a busy machine, before a writer gives up."""
RETRY_SECONDS = 0.1
MESSAGES_MAX = 20
CLOSE_AFTER_MESSAGES = 200
HARM_SHARE = 0.04
"""The probability per append that a stream with this fate is trimmed or deleted."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class PatientClient:
    """Retries until it gets a definite answer, so requests must be idempotent."""

    def __init__(self, url: str) -> None:
        self._netloc = urlsplit(url).netloc
        self._connection: HTTPConnection | None = None

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        deadline = time.monotonic() + PATIENCE_SECONDS
        problem = "was never answered"
        while time.monotonic() < deadline:
            try:
                answer = self._try(method, path, headers or {}, body)
                if answer.status < 500:
                    return answer
                problem = f"was answered {answer.status} {answer.body!r}"
            except (OSError, HTTPException) as error:
                problem = f"got {error!r}"
                self.close()
            time.sleep(RETRY_SECONDS)
        raise AssertionError(f"{method} {path} {problem} for {PATIENCE_SECONDS:.0f} s")

    def _try(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if self._connection is None:
            self._connection = HTTPConnection(self._netloc, timeout=TIMEOUT_SECONDS)
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Writer(Thread):
    """Appends to its own streams until it is stopped, and trims, deletes or closes them according to their fates."""

    def __init__(
        self,
        url: str,
        bucket: str,
        timelines: Sequence[Timeline],
        random: Random,
        *,
        pause_seconds: float,
        may_harm: Event,
    ) -> None:
        super().__init__(name=f"writer-of-{bucket}", daemon=True)
        self._url, self._bucket, self._timelines, self._random = url, bucket, timelines, random
        self._pause_seconds, self._may_harm, self._stopping = pause_seconds, may_harm, Event()
        self._client, self._link = PatientClient(url), Link(LinkSettings(url, retries=20))
        self._seqs: dict[str, int] = {}
        self._tails: dict[str, int] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for timeline in self._timelines:
                self._create(timeline)
            while not self._stopping.wait(self._pause_seconds):
                open_ones = [timeline for timeline in self._timelines if not timeline.closed]
                if open_ones:
                    self._step(self._random.choice(open_ones))
        except BaseException as error:
            self.error = error
        finally:
            self._client.close()
            self._link.close()

    def stop(self) -> None:
        """Stop after the current operation."""
        self._stopping.set()
        self.join(2 * PATIENCE_SECONDS)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise self.error

    # -- Streams --------------------------------------------------------------------------------------------------

    def _path(self, timeline: Timeline) -> str:
        return f"/v1/stream/{self._bucket}/{timeline.name}"

    def _create(self, timeline: Timeline) -> None:
        answer = self._client.ask("PUT", self._path(timeline), {"Content-Type": timeline.content_type})
        assert answer.status in (200, 201), f"creating {timeline.name}: {answer}"
        self._seqs[timeline.name] = self._tails[timeline.name] = 0

    def _step(self, timeline: Timeline) -> None:
        if timeline.fate == "closed" and timeline.acknowledged >= CLOSE_AFTER_MESSAGES:
            self._close(timeline)
            return
        if timeline.fate in ("trimmed", "reborn") and self._may_harm.is_set() and self._random.random() < HARM_SHARE:
            self._harm(timeline)
        self._append(timeline)

    def _append(self, timeline: Timeline) -> None:
        count = self._random.randint(1, MESSAGES_MAX)
        if timeline.content_type != JSON and self._random.random() < 0.5:
            count = 1
        messages = timeline.messages(timeline.acknowledged, count)
        if timeline.content_type == JSON or count == 1:
            self._post(timeline, messages)
        else:
            self._bulk(timeline, messages)
        self._seqs[timeline.name] += 1
        timeline.acknowledged += count

    def _post(self, timeline: Timeline, messages: Sequence[bytes]) -> None:
        body = b"[" + b",".join(messages) + b"]" if timeline.content_type == JSON else messages[0]
        headers = {
            "Content-Type": timeline.content_type,
            "Producer-Id": "writer",
            "Producer-Epoch": "0",
            "Producer-Seq": str(self._seqs[timeline.name]),
        }
        answer = self._client.ask("POST", self._path(timeline), headers, body)
        assert answer.status in (200, 204), f"appending to {timeline.name}: {answer}"
        self._tails[timeline.name] = int(answer.headers["stream-next-offset"].rpartition("_")[2]) // 10

    def _bulk(self, timeline: Timeline, messages: Sequence[bytes]) -> None:
        """Append several binary messages at once, which only bulk requests can do."""
        row = {
            "stream": f"{self._bucket}/{timeline.name}",
            "messages": list(messages),
            "producer_id": "writer",
            "producer_epoch": 0,
            "producer_seq": self._seqs[timeline.name],
        }
        schema = pa.schema(
            [
                ("stream", pa.string()),
                ("messages", pa.list_(pa.binary())),
                ("producer_id", pa.string()),
                ("producer_epoch", pa.int64()),
                ("producer_seq", pa.int64()),
            ]
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self._link.append(pa.Table.from_pylist([row], schema=schema)).to_pylist()[0]
            if answer["status"] in (200, 204):
                self._tails[timeline.name] = answer["next_offset"]
                return
            assert answer["status"] >= 500 and time.monotonic() < deadline, f"appending to {timeline.name}: {answer}"
            time.sleep(RETRY_SECONDS)

    # -- Fates ----------------------------------------------------------------------------------------------------

    def _close(self, timeline: Timeline) -> None:
        answer = self._client.ask("POST", self._path(timeline), {"Stream-Closed": "true"})
        assert answer.status in (200, 204), f"closing {timeline.name}: {answer}"
        timeline.closed = True

    def _harm(self, timeline: Timeline) -> None:
        """Trim or delete a stream, after a flush, so that a consumer that lags behind finds its rows in the lake."""
        self._link.flush()
        if timeline.fate == "trimmed":
            name, summary = f"{self._bucket}/{timeline.name}", json.dumps({"n": timeline.acknowledged}).encode()
            self._link.publish_snapshot(name, self._tails[timeline.name], summary, JSON)
            timeline.trims += 1
            return
        answer = self._client.ask("DELETE", self._path(timeline))
        assert answer.status in (204, 404), f"deleting {timeline.name}: {answer}"
        timeline.first, timeline.lives = timeline.acknowledged, timeline.lives + 1
        self._create(timeline)
