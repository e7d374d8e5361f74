"""The ledger of a producer id: a JSON stream on the server that records who writes under the id.

    {"owner": "the query 5f0c..."}    the first entry: the only one that may write under the id
    {"epoch": 7, "repeated": 120}     how many rows of a batch the server had already when it was written

The server recognizes a retried batch by its producer's id and epoch, and adds nothing. A query that has lost its
checkpoint counts its batches from 0 again, and two queries of one name both begin with batch 0: the rows of one would
pass for those of the other, and be lost. Therefore an id belongs to one query. The ledger is kept where the streams
are, so that it cannot be lost with a checkpoint.
"""

import json
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from headwater.client import ScanRange
from headwater.client.retrying import RETRIED_STATUSES
from headwater.protocol import content_types
from headwater.protocol.limits import NAME_BYTES_MAX
from headwater.protocol.names import LEDGER_BUCKET
from headwater.spark.link import Link
from headwater.spark.sink.delivery import DONE, PAYLOAD_MISMATCH, Producer, WriteFailed

EPOCH_STALE = "producer_epoch_stale"
CLAIM, NOTE = "claim", "note"
"""The producers of the two kinds of entries."""
BATCH_WRITES = "batch writes"
"""The owner of an id under which batches are written outside of a streaming query."""


def owner_of(query: str | None) -> str:
    """The owner of an id that a query uses, or that batch writes use if there is no query.

    >>> owner_of("5f0c"), owner_of(None)
    ('the query 5f0c', 'batch writes')
    """
    return BATCH_WRITES if query is None else f"the query {query}"


class Ledger:
    """The ledger of one producer id."""

    def __init__(self, link: Link, producer_id: str) -> None:
        self._link, self._producer_id, self.stream = link, producer_id, stream_name(producer_id)

    def claim(self, owner: str) -> None:
        """Make someone the owner of the id, or check that it is; WriteFailed if the id belongs to another."""
        found = self.owner()
        if found is None:
            # If two do this at once, the server takes the entry of one of them, and both read it.
            self._append(CLAIM, 0, {"owner": owner}, expected=(PAYLOAD_MISMATCH,))
            found = self.owner()
        if found != owner:
            raise WriteFailed(
                f"The producer {self._producer_id!r} belongs to {found} and not to {owner}: a checkpoint was lost, or "
                "two writers have the same name; go on with the checkpoint of the owner, or write everything under "
                "another producerId, because under this one the server would take new rows for old ones."
            )

    def owner(self) -> str | None:
        """The owner of the id; None if it is unclaimed."""
        entries = read_entries(self._link, self.stream, 0, 1)
        return entries[0].get("owner") if entries else None

    def note_repeated(self, epoch: int, rows: int) -> None:
        """Record that the server had some rows of a batch already, unless the ledger was deleted meanwhile."""
        entry = {"epoch": epoch, "repeated": rows}
        # The time makes the entry unique, and a lost response harmless.
        number: int | None = time.time_ns() // 1000
        while number is not None:
            answer = self._append(NOTE, number, entry, expected=("stream_not_found", "stream_gone", EPOCH_STALE))
            # The clock of the driver that wrote the last note was ahead of ours.
            number = answer["producer_epoch"] + 1 if answer["code"] == EPOCH_STALE else None

    def end(self) -> int:
        """Where the next entry begins."""
        found = self._link.describe([self.stream])
        return found["tail"][0].as_py() if len(found) else 0

    def repeated_since(self, start: int) -> int:
        """The number of repeated rows in the entries from an offset on."""
        return sum(entry.get("repeated", 0) for entry in read_entries(self._link, self.stream, start))

    def _append(self, producer: str, epoch: int, entry: dict[str, Any], expected: Sequence[str]) -> dict[str, Any]:
        """Append an entry, or meet one of the expected refusals; return the answer."""
        settings, data = self._link.settings, json.dumps(entry).encode()
        tries = 0
        while True:
            tries += 1
            answer = append_entry(self._link, self.stream, data, Producer(producer, epoch), create=producer == CLAIM)
            if answer["status"] in DONE or answer["code"] in expected:
                return answer
            if answer["status"] not in RETRIED_STATUSES or tries > settings.retries:
                raise WriteFailed(f"The ledger {self.stream!r} cannot be written: {answer['detail']}")
            time.sleep(settings.retry.delay_seconds(tries))


def stream_name(producer_id: str) -> str:
    """The stream with the ledger of a producer id.

    >>> stream_name("orders"), stream_name("team/orders"), stream_name("..")[:20]
    ('_sink/orders', '_sink/team%2Forders', '_sink/sha256-5ec1f7e')
    """
    name = f"{LEDGER_BUCKET}/{quote(producer_id, safe='')}"
    if len(name) <= NAME_BYTES_MAX and producer_id not in (".", ".."):
        return name
    return f"{LEDGER_BUCKET}/sha256-{sha256(producer_id.encode()).hexdigest()}"


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
"""The columns of an append of one entry."""


def read_entries(link: Link, stream: str, start: int | None = None, end: int | None = None) -> list[dict[str, Any]]:
    """The entries of a ledger that begin in a range of offsets, by default all of them."""
    found = link.describe([stream]).to_pylist()
    if not found or (start is not None and found[0]["tail"] <= start):
        return []
    (facts,) = found
    first, last = facts["start"] if start is None else start, facts["tail"] if end is None else end
    with link.scan([ScanRange(stream, facts["incarnation"], first, last)], ["payload"]) as batches:
        return [json.loads(entry) for batch in batches for entry in batch["payload"].to_pylist()]


def append_entry(
    link: Link, stream: str, data: bytes, producer: Producer, seq: int = 0, *, create: bool
) -> dict[str, Any]:
    """Append an entry to a ledger, and return the server's answer."""
    row = {
        "stream": stream,
        "messages": [data],
        "content_type": content_types.JSON,
        "create": create,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "producer_seq": seq,
    }
    answer: dict[str, Any] = link.append(pa.Table.from_pylist([row], ENTRY)).to_pylist()[0]
    return answer
