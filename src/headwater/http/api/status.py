"""The status of a process: what it is, how it does, and how much of each limit is used."""

import os
import time
from typing import Any

from headwater import __version__
from headwater.compiled import is_compiled
from headwater.http.api.metrics import resident_bytes
from headwater.http.api.usage import usage
from headwater.http.context import Context


def describe(context: Context) -> dict[str, Any]:
    """Version, health and usage of this process."""
    node = context.node
    shard = node.only
    state, cold = shard.state, shard.state.cold
    lake = None
    if shard.lake is not None:
        lake = {
            "url": shard.lake.store.url,
            "flushed_position": cold.flushed,
            "segments": len(cold.segments),
            "rows": cold.rows,
            "live_rows": cold.live_rows,
            "bytes": cold.bytes,
            "retired_segments": len(cold.retired),
            "consumers": {name: one.position for name, one in cold.consumers.items() if not one.is_lease},
            "leases": sum(one.is_lease for one in cold.consumers.values()),
            "flush_failures": shard.lake.counts.flush_failures,
            "read_failures": shard.lake.reads.failures,
        }
    return {
        "version": __version__,
        "compiled": is_compiled(),
        "pid": os.getpid(),
        "state": "draining" if context.draining else "ready",
        "uptime_seconds": round(time.monotonic() - context.started_at, 3),
        "log_id": node.log_id,
        "memory": context.settings.memory,
        "positions": {str(one.number): one.state.position for one in node.shards},
        "streams": len(state.streams),
        "hot_bytes": state.hot_bytes,
        "journal_bytes": node.journal_bytes,
        "shortage": shard.shortage,
        "connections": len(context.connections),
        "live_readers": node.tails.count,
        "resident_bytes": resident_bytes(),
        "usage": {name: {"used": use.used, "limit": use.limit} for name, use in usage(context).items()},
        "lake": lake,
        "keeper": None if state.cluster.keeper is None else state.cluster.keeper.node,
        "processes": [{"name": "server", "role": "server", "pid": os.getpid()}],
    }
