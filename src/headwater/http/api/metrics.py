"""The metrics of a process. Each is cheap to compute at scrape time."""

import os
import resource
import time
from collections.abc import Iterator

from headwater import __version__
from headwater.http.api.usage import COPIED, usage
from headwater.http.context import Context, descriptors_max
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.metrics import histogram
from headwater.prometheus import Metric, Sample, counter, gauge
from headwater.protocol.limits import SECOND_US

PAGE_BYTES = resource.getpagesize()


def collect(context: Context) -> list[Metric]:
    """All metrics of this process."""
    kinds = (_requests, _access, _audit, _storage, _limits, _lake, _cluster, _process)
    return [metric for kind in kinds for metric in kind(context)]


def _requests(context: Context) -> Iterator[Metric]:
    counted = context.node.metrics
    by_route = [
        Sample("", (("route", route), ("status", str(code))), count)
        for (route, code), count in sorted(counted.requests.items())
    ]
    yield Metric("headwater_requests_total", "counter", "Answered requests by route and status.", by_route)
    times = [((("route", route),), one) for route, one in sorted(counted.request_seconds.items())]
    yield histogram("headwater_request_seconds", "From a request's last byte to its answer; no live reads.", times)
    yield counter("headwater_received_bytes_total", "Bytes received from clients.", context.received_bytes)
    yield counter("headwater_sent_bytes_total", "Bytes sent to clients.", context.sent_bytes)
    live = [Sample("", (("mode", "long-poll"),), counted.long_polls), Sample("", (("mode", "sse"),), counted.sse_reads)]
    yield Metric("headwater_live_reads_total", "counter", "Live reads started, by mode.", live)
    tls = context.certificates
    yield counter("headwater_tls_reloads_total", "Renewed certificates that were loaded.", tls.reloads if tls else 0)
    yield counter(
        "headwater_tls_reload_failures_total",
        "Renewed certificates that cannot be used; the old one stays.",
        tls.reload_failures if tls else 0,
    )
    yield counter(
        "headwater_tls_handshake_failures_total",
        "Connections that ended before their TLS handshake was complete.",
        tls.handshake_failures if tls else 0,
    )


def _access(context: Context) -> Iterator[Metric]:
    guard = context.guard
    if guard is not None:
        samples = [Sample("", (("reason", reason),), count) for reason, count in guard.denied.items()]
        yield Metric("headwater_denied_total", "counter", "Requests denied by the access file, by reason.", samples)
        yield counter("headwater_limited_total", "Requests refused because of a client's limits.", guard.limited)
        yield counter(
            "headwater_access_reload_failures_total",
            "Times that a changed access file was bad, so that the old rules stayed.",
            guard.reload_failures,
        )


def _audit(context: Context) -> Iterator[Metric]:
    audit = context.audit
    if audit is not None:
        yield counter("headwater_audit_lost_total", "Lines of the audit log that could not be written.", audit.lost)


def _storage(context: Context) -> Iterator[Metric]:
    node, state, counted = context.node, context.node.only.state, context.node.metrics
    yield histogram("headwater_commit_commands", "Commands in one commit.", [((), counted.batch_commands)])
    yield histogram("headwater_commit_seconds", "Write and sync of one commit.", [((), counted.commit_seconds)])
    yield gauge("headwater_streams", "Streams, including deleted ones that forks keep.", len(state.streams), join="max")
    pending = sum(not purge.has_ended for purge in state.cold.purges.values())
    yield gauge("headwater_purges", "Purges that have not ended yet.", pending, join="max")
    yield counter("headwater_journal_bytes_total", "Bytes written to the journal.", node.journal_bytes, join="max")
    yield gauge("headwater_position", "Position of the last applied command.", state.position, join="max")
    yield counter("headwater_refused_writes_total", "Writes refused for lack of room.", counted.refused_writes)
    yield counter(
        "headwater_producer_duplicates_total",
        "Appends that were duplicates, answered and not written again.",
        counted.producer_duplicates,
    )
    yield gauge(
        "headwater_log_has_room",
        "1 if the log takes appends, 0 if no file can be made.",
        int(node.only.shortage is None),
        join="min",
    )
    if not (context.settings.memory or context.settings.cluster):
        disk = os.statvfs(context.settings.data_directory)
        free_bytes = disk.f_bavail * disk.f_frsize
        yield gauge(
            "headwater_free_disk_bytes", "Free bytes on the disk of the data directory.", free_bytes, join="max"
        )


def _limits(context: Context) -> Iterator[Metric]:
    uses = usage(context)
    for name, use in uses.items():
        yield gauge(f"headwater_{name}", use.meaning, use.used, join="max" if name in COPIED else "sum")
    samples = [Sample("", (("of", name),), use.limit) for name, use in uses.items()]
    yield Metric("headwater_limit", "gauge", "Limits in force, by the gauge that they bound.", samples)


def _lake(context: Context) -> Iterator[Metric]:
    lake, cold = context.node.only.lake, context.node.only.state.cold
    if lake is None:
        return
    reads, counts = lake.reads, lake.counts
    yield gauge("headwater_lake_segments", "Segments in the catalog.", len(cold.segments), join="max")
    yield gauge(
        "headwater_lake_tombstones", "Incarnations with dead rows in the lake.", len(cold.tombstones), join="max"
    )
    yield gauge(
        "headwater_lake_flushed_position", "Every live row up to here is in the lake.", cold.flushed, join="max"
    )
    yield gauge(
        "headwater_lake_unflushed_seconds",
        "Age of the oldest data that is not in the lake, in whole seconds.",
        lake.unflushed_seconds,
        join="max",
    )
    watch = cold.watch(context.node.only.now())
    yield gauge("headwater_lake_consumers", "Registered consumers that have not lapsed.", watch.active, join="max")
    yield gauge(
        "headwater_lake_consumer_lag_positions",
        "Positions from the slowest of these consumers to the last row in the lake.",
        watch.lag,
        join="max",
    )
    yield gauge(
        "headwater_lake_consumer_silent_seconds",
        "Time since the last report of the consumer that has been silent for longest.",
        watch.silent_us // SECOND_US,
        join="max",
    )
    yield counter("headwater_lake_flushed_segments_total", "Segments written by flushes.", counts.flushed_segments)
    yield counter("headwater_lake_flushed_bytes_total", "Bytes written by flushes.", counts.flushed_bytes)
    yield counter("headwater_lake_flush_failures_total", "Flushes that failed.", counts.flush_failures)
    yield counter("headwater_lake_reads_total", "Reads of the store for clients.", reads.reads)
    yield counter("headwater_lake_read_retries_total", "Reads of the store that were retried.", reads.retries)
    yield counter("headwater_lake_read_failures_total", "Requests that failed because the store did.", reads.failures)
    yield counter("headwater_lake_rewrites_total", "Compactions.", counts.rewrites)
    yield counter("headwater_lake_rewritten_bytes_total", "Bytes written by compactions.", counts.rewritten_bytes)
    yield counter("headwater_lake_rewrite_failures_total", "Compactions that failed.", counts.rewrite_failures)
    yield counter("headwater_lake_deleted_objects_total", "Objects deleted from the store.", counts.deleted_objects)


def _cluster(context: Context) -> Iterator[Metric]:
    shard = context.node.only
    if not isinstance(shard, SharedShard) or shard.membership is None:
        return
    cluster, keeps = shard.state.cluster, shard.keeping is not None and shard.keeping.keeper is not None
    members = len(cluster.members)
    yield gauge("headwater_cluster_members", "Members of the cluster, as this node knows them.", members, join="max")
    serves = int(shard.outage is None)
    yield gauge("headwater_cluster_serving", "1 if this node answers clients, 0 if not.", serves, join="min")
    help = "1 if this node does the chores, 0 if another one does."
    yield gauge("headwater_cluster_keeper", help, int(keeps), join="max")
    yield gauge("headwater_cluster_level", "Level of commands that the log allows.", cluster.level, join="max")
    yield from shard.membership.log.metrics()


def _process(context: Context) -> Iterator[Metric]:
    build = [Sample("", (("version", __version__),), 1)]
    yield Metric("headwater_build_info", "gauge", "Always 1; the label is the version.", build, "max")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "CPU time.", round(usage.ru_utime + usage.ru_stime, 3))
    yield gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes())
    yield gauge("process_open_fds", "Open file descriptors.", _open_files())
    yield gauge("process_max_fds", "File descriptors that the process may open.", descriptors_max())
    uptime_seconds = round(time.monotonic() - context.started_at, 3)
    yield gauge("process_uptime_seconds", "Seconds since the start.", uptime_seconds, join="max")


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return descriptors_max()  # To count them takes one more.


def resident_bytes() -> int:
    """How much memory the process holds."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
