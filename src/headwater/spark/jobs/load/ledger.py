"""The ledger of a load: a JSON stream beside the data that says which files are in.

Files are loaded in rounds. A round is begun in the ledger before its first row is written, with its files and how they
are read, and ended after the last. Its number is the epoch of the producer that writes, so a round that is run again
writes nothing twice, and whoever is still busy with an earlier one is fenced. A round that was begun is finished before
another one begins. Two runs at once agree on a round, for the ledger takes each beginning and each end once.
"""

import json
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.protocol import content_types
from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link, Range

BUCKET = "_load"
PRODUCER = "ledger"
BEGUN, DONE = 0, 1
"""The sequence numbers of a round's two entries."""


class File(NamedTuple):
    """A file as it was when it was listed; one that has changed is another one."""

    path: str
    size: int
    modified_ms: int


class Round(NamedTuple):
    """Files that are loaded together, and how."""

    epoch: int
    files: tuple[File, ...]
    recipe: dict[str, Any]


class Ledger:
    """What the ledger of one job says."""

    def __init__(self, link: Link, name: str) -> None:
        self._link, self.stream = link, f"{BUCKET}/{name}"
        self.loaded: set[File] = set()
        self.unfinished: Round | None = None
        self.epoch = -1
        """Of the last round."""

    def read(self) -> None:
        """See what is in."""
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
        """Begin a round, unless somebody else has begun one meanwhile; to be read again then."""
        epoch = self.epoch + 1
        entry = {"epoch": epoch, "state": "begun", "recipe": recipe, "files": files}
        self._append(entry, epoch, BEGUN)

    def end(self, epoch: int) -> None:
        """End a round, unless somebody else has ended it already."""
        self._append({"epoch": epoch, "state": "done"}, epoch, DONE)

    def _entries(self) -> list[dict[str, Any]]:
        found = self._link.describe([self.stream]).to_pylist()
        if not found:
            return []
        (facts,) = found
        whole = Range(self.stream, facts["incarnation"], facts["start"], facts["tail"])
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
        # A duplicate, and an epoch that others have passed, were written by another run of the same job.
        if answer["status"] not in (200, 204, 403):
            raise JobFailed(f"The ledger {self.stream!r} cannot be written: {answer['detail']}")


ENTRY = pa.schema(
    [
        ("stream", pa.string()),
        ("messages", pa.list_(pa.binary())),
        ("content_type", pa.string()),
        ("create", pa.bool_()),
        ("producer_id", pa.string()),
        ("producer_epoch", pa.int64()),
        ("producer_seq", pa.int64()),
    ]
)
