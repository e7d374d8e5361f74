"""What the URL table does for those who operate the server: alive, ready, metrics, status."""

import os
import resource
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import msgspec

from headwater.http.addresses import Address
from headwater.http.exchange import Exchange
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.metrics import Metric, Sample, counter, gauge, histogram, render
from headwater.protocol.refusals import Code

TEXT_LINES = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
METRICS_LINES = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nCache-Control: no-store\r\n"
PAGE_BYTES = resource.getpagesize()


def alive(request: Request, address: Address, exchange: Exchange) -> None:
    """The process runs and its loop turns."""
    exchange.answer(Answer(200, TEXT_LINES, b"ok\n"))


def ready(request: Request, address: Address, exchange: Exchange) -> None:
    """Whether to send requests here: not while the server ends."""
    if exchange.connection.server.draining:
        exchange.refuse(Code.DRAINING, "The server is about to end; try again in a second, or use another one.")
    else:
        exchange.answer(Answer(200, TEXT_LINES, b"ready\n"))


def metrics(request: Request, address: Address, exchange: Exchange) -> None:
    """All counters, for Prometheus."""
    exchange.answer(Answer(200, METRICS_LINES, render(_metrics(exchange)).encode()))


def status(request: Request, address: Address, exchange: Exchange) -> None:
    """What the server is and how it does, for people and scripts."""
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(_status(exchange))))


def _status(exchange: Exchange) -> dict[str, Any]:
    node, server = exchange.node, exchange.connection.server
    shard = node.only
    state, cold = shard.state, shard.state.cold
    lake = None
    if shard.lake is not None:
        lake = {
            "url": shard.lake.store.url,
            "flushed_position": cold.flushed,
            "segments": len(cold.segments),
            "rows": sum(held.segment.rows for held in cold.segments.values()),
            "live_rows": sum(held.live_rows for held in cold.segments.values()),
            "bytes": sum(held.segment.size for held in cold.segments.values()),
            "retired_segments": len(cold.retired),
            "readers": {name: reader.position for name, reader in cold.consumers.items()},
            "flush_failures": shard.lake.flusher.failures,
            "read_failures": shard.lake.reads.failures,
        }
    return {
        "version": version("headwater"),
        "pid": os.getpid(),
        "state": "draining" if server.draining else "ready",
        "uptime_seconds": round(time.monotonic() - server.started_at, 3),
        "log_id": node.log_id,
        "memory": server.settings.memory,
        "positions": {str(one.number): one.state.position for one in node.shards},
        "streams": len(state.streams),
        "hot_bytes": state.hot_bytes,
        "journal_bytes": node.journal_bytes,
        "connections": len(server.connections),
        "live_readers": node.tails.count,
        "resident_bytes": _resident_bytes(),
        "lake": lake,
    }


def _metrics(exchange: Exchange) -> Iterator[Metric]:
    node, server, state = exchange.node, exchange.connection.server, exchange.node.only.state
    counted = node.metrics
    by_route = [
        Sample("", (("route", route), ("status", str(code))), count)
        for (route, code), count in sorted(counted.requests.items())
    ]
    yield Metric("headwater_requests_total", "counter", "Answered requests by route and status.", by_route)
    times = [((("route", route),), one) for route, one in sorted(counted.request_seconds.items())]
    yield histogram("headwater_request_seconds", "From a request's last byte to its answer; no live reads.", times)
    yield histogram("headwater_commit_commands", "Commands in one commit.", [((), counted.batch_commands)])
    yield histogram("headwater_commit_seconds", "Write and sync of one commit.", [((), counted.commit_seconds)])
    yield gauge("headwater_streams", "Streams, with those that only forks keep.", len(state.streams))
    yield gauge("headwater_hot_bytes", "Bytes of streams in memory.", state.hot_bytes)
    yield counter("headwater_journal_bytes_total", "Bytes written to the journal.", node.journal_bytes)
    yield gauge("headwater_queued_bytes", "Bytes that wait for a commit.", node.queued_bytes)
    yield gauge("headwater_position", "Position of the last applied command.", state.position)
    yield counter("headwater_refused_writes_total", "Writes refused for want of room.", counted.refused_writes)
    yield gauge("headwater_connections", "Open connections.", len(server.connections))
    yield gauge("headwater_live_readers", "Long-polls and SSE reads that wait now.", node.tails.count)
    live = [Sample("", (("mode", "long-poll"),), counted.long_polls), Sample("", (("mode", "sse"),), counted.sse_reads)]
    yield Metric("headwater_live_reads_total", "counter", "Live reads begun, by mode.", live)
    if node.only.lake is not None:
        yield from _lake_metrics(exchange)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "CPU time.", round(usage.ru_utime + usage.ru_stime, 3))
    yield gauge("process_resident_memory_bytes", "Resident memory.", _resident_bytes())
    yield gauge("process_open_fds", "Open file descriptors.", len(os.listdir("/proc/self/fd")))
    yield gauge("process_uptime_seconds", "Seconds since the start.", round(time.monotonic() - server.started_at, 3))


def _lake_metrics(exchange: Exchange) -> Iterator[Metric]:
    lake, cold = exchange.node.only.lake, exchange.node.only.state.cold
    assert lake is not None
    flusher, reads, compactor, sweeper = lake.flusher, lake.reads, lake.compactor, lake.sweeper
    yield gauge("headwater_lake_segments", "Segments in the catalog.", len(cold.segments))
    yield gauge("headwater_lake_tombstones", "Lives with dead rows in the lake.", len(cold.tombstones))
    yield gauge("headwater_lake_flushed_position", "Every live row up to here is in the lake.", cold.flushed)
    yield counter("headwater_lake_flushed_segments_total", "Segments that flushes stored.", flusher.segments)
    yield counter("headwater_lake_flushed_bytes_total", "Bytes that flushes stored.", flusher.bytes)
    yield counter("headwater_lake_flush_failures_total", "Flushes that failed.", flusher.failures)
    yield counter("headwater_lake_reads_total", "Reads of the store for clients.", reads.reads)
    yield counter("headwater_lake_read_retries_total", "Reads of the store that were tried again.", reads.retries)
    yield counter("headwater_lake_read_failures_total", "Requests that failed because the store did.", reads.failures)
    yield counter("headwater_lake_rewrites_total", "Compactions.", compactor.rewrites)
    yield counter("headwater_lake_rewritten_bytes_total", "Bytes that compactions stored.", compactor.bytes_written)
    yield counter("headwater_lake_rewrite_failures_total", "Compactions that failed.", compactor.failures)
    yield counter("headwater_lake_deleted_objects_total", "Objects deleted from the store.", sweeper.deleted)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
