"""The ledger of a load: a JSON stream on the server that records which files are loaded.

Files are loaded in rounds. The ledger records the beginning of a round, with its files and recipe, before the first row
is written, and its end after the last. The number of the round is the epoch of the producer, so a repeated round writes
nothing twice, and a run that is still busy with an earlier round is fenced. A round that was begun is finished before
the next begins. Concurrent runs agree on the round, because the ledger accepts each beginning and each end once.
"""

import json
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.client import ScanRange
from headwater.protocol import content_types
from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link
from headwater.spark.sink.delivery import PAYLOAD_MISMATCH
from headwater.spark.sink.ledger import ENTRY

BUCKET = "_load"
PRODUCER = "ledger"
BEGUN, DONE = 0, 1
"""The sequence numbers of a round's two entries."""


class File(NamedTuple):
    """A file as listed; after a change it counts as another file."""

    path: str
    size: int
    modified_ms: int


class Round(NamedTuple):
    """Files that are loaded together, and the recipe for their rows."""

    epoch: int
    files: tuple[File, ...]
    recipe: dict[str, Any]


class Ledger:
    """The ledger of one job."""

    def __init__(self, link: Link, name: str) -> None:
        self._link, self.name, self.stream = link, name, f"{BUCKET}/{name}"
        self.loaded: set[File] = set()
        self.unfinished: Round | None = None
        self.epoch = -1
        """Of the last round."""

    def read(self) -> None:
        """Read the current state."""
        self.loaded, self.unfinished, self.epoch = set(), None, -1
        for entry in self._entries():
            if entry["state"] == "begun":
                files = tuple(File(*file) for file in entry["files"])
                self.unfinished = Round(entry["epoch"], files, entry["recipe"])
                self.epoch = entry["epoch"]
            elif self.unfinished is not None:
                self.loaded.update(self.unfinished.files)
                self.unfinished = None

    def begin(self, files: tuple[File, ...], recipe: dict[str, Any]) -> None:
        """Begin a round, unless another run has begun one; read the ledger again to find out which."""
        epoch = self.epoch + 1
        entry = {"epoch": epoch, "state": "begun", "recipe": recipe, "files": files}
        self._append(entry, epoch, BEGUN)

    def end(self, epoch: int) -> None:
        """End a round, unless another run has ended it."""
        self._append({"epoch": epoch, "state": "done"}, epoch, DONE)

    def _entries(self) -> list[dict[str, Any]]:
        found = self._link.describe([self.stream]).to_pylist()
        if not found:
            return []
        (facts,) = found
        whole = ScanRange(self.stream, facts["incarnation"], facts["start"], facts["tail"])
        with self._link.scan([whole], ["payload"]) as batches:
            return [json.loads(entry) for batch in batches for entry in batch["payload"].to_pylist()]

    def _append(self, entry: dict[str, Any], epoch: int, seq: int) -> None:
        row = {
            "stream": self.stream,
            "messages": [json.dumps(entry, ensure_ascii=False).encode()],
            "content_type": content_types.JSON,
            "create": True,
            "producer_id": PRODUCER,
            "producer_epoch": epoch,
            "producer_seq": seq,
        }
        (answer,) = self._link.append(pa.Table.from_pylist([row], ENTRY)).to_pylist()
        # For a duplicate, an entry in its place or a fenced epoch, another run of the same job has written the entry.
        if answer["status"] not in (200, 204, 403) and answer["code"] != PAYLOAD_MISMATCH:
            raise JobFailed(f"The ledger {self.stream!r} cannot be written: {answer['detail']}")
