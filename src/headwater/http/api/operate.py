"""For operators: alive, ready, status. Metrics are in `metrics`."""

import os
import time
from typing import Any

import msgspec

from headwater import __version__
from headwater.http.addresses import Address
from headwater.http.api.metrics import resident_bytes
from headwater.http.api.usage import usage
from headwater.http.exchange import Exchange
from headwater.http.wire.rendering import JSON_LINES, TEXT_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.protocol.refusals import Code


def alive(request: Request, address: Address, exchange: Exchange) -> None:
    """The process runs and its event loop turns."""
    exchange.answer(Answer(200, TEXT_LINES, b"ok\n"))


def ready(request: Request, address: Address, exchange: Exchange) -> None:
    """Whether to send requests here: not while the server shuts down, or its log is away."""
    if exchange.context.draining:
        exchange.refuse(Code.DRAINING, "The server is shutting down; try again in a second, or use another server.")
    elif (outage := exchange.node.outage) is not None:
        exchange.refuse(Code.LOG_UNAVAILABLE, outage)
    else:
        exchange.answer(Answer(200, TEXT_LINES, b"ready\n"))


def status(request: Request, address: Address, exchange: Exchange) -> None:
    """Version, health and usage of the server, for people and scripts."""
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(_status(exchange))))


def _status(exchange: Exchange) -> dict[str, Any]:
    node, context = exchange.node, exchange.context
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
            "readers": {name: one.position for name, one in cold.consumers.items() if not one.is_lease},
            "leases": sum(one.is_lease for one in cold.consumers.values()),
            "flush_failures": shard.lake.counts.flush_failures,
            "read_failures": shard.lake.reads.failures,
        }
    return {
        "version": __version__,
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
        "usage": {name: {"used": use.used, "limit": use.limit} for name, use in usage(exchange).items()},
        "lake": lake,
    }
