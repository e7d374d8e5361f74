"""What all clients together use, and how much of it there is: shown by the metrics and by the status."""

from typing import NamedTuple

from headwater.http.context import Context
from headwater.node.committer import QUEUE_BYTES_MAX
from headwater.node.reads.tails import WAITERS_MAX
from headwater.protocol.limits import SCANS_MAX

COPIED = frozenset({"hot_bytes"})
"""Amounts of which every process of a server has a copy, and its own limit; all others are added up."""


class Use(NamedTuple):
    """A limited amount; its gauge has its name."""

    meaning: str
    used: int
    limit: int


def usage(context: Context) -> dict[str, Use]:
    """Every amount by name."""
    node = context.node
    receiving, sending, blobs, bulk = context.receiving, context.sending, context.blobs, context.bulk_appends
    shard = node.only
    return {
        "connections": Use("Open connections.", len(context.connections), context.connections_max),
        "live_readers": Use(
            "Long-polls, SSE reads and streams of tails that are waiting.", node.tails.count, WAITERS_MAX
        ),
        "receiving_bytes": Use("Request bodies larger than 64 KiB, in memory.", receiving.used, receiving.limit),
        "sending_bytes": Use("Responses that wait for slow readers.", sending.used, sending.limit),
        "bulk_appends": Use("Bulk appends in progress.", bulk.inside, bulk.inside_max),
        "bulk_appends_waiting": Use("Bulk appends that wait for their turn.", bulk.waiting, bulk.waiting_max),
        "scans": Use("Scans in progress.", len(shard.scans.in_progress), SCANS_MAX),
        "snapshot_transfers": Use("Snapshots that are being sent or received.", blobs.used, blobs.limit),
        "queued_bytes": Use("Bytes waiting for a commit.", node.queued_bytes, QUEUE_BYTES_MAX),
        "hot_bytes": Use("Memory that hot data is charged.", shard.state.hot_bytes, context.settings.hot_bytes_max),
    }
