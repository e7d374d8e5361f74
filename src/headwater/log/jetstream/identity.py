"""Identity: which stream and which object store belong together, and that a lost log is never begun anew.

The stream is created first, with a random log id in its metadata; a node that comes second adopts that id. Then the id
is recorded in the object store. A node appends only after both, so a start that was killed between any two steps is
completed by the next one, and:

    recorded, no stream       the log is lost: refuse
    stream in use, no record  the object store is another one: refuse
    two different ids         they belong to two clusters: refuse
"""

import logging
import secrets
import time
from functools import partial
from typing import NamedTuple

import msgspec

from headwater.log.jetstream import streams
from headwater.log.jetstream.streams import ApiRefused, ClusterConfig, LogRefused, StreamInfo, judge_stream
from headwater.log.jetstream.visiting import Visit
from headwater.storage.store import KeyExists, KeyMissing, Store

RECORD_VERSION = 1
LOG_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""The size of a new stream. JetStream reserves it on every server."""
MISSING_SECONDS = 3.0
"""For how long a recorded stream must be missing before it counts as lost."""

log = logging.getLogger(__name__)


class LogRecord(msgspec.Struct, frozen=True):
    """What the object store says of the log."""

    version: int
    log_id: str


class Established(NamedTuple):
    """A log that exists, in NATS and in the object store."""

    log_id: str
    info: StreamInfo


def record_key(shard: int) -> str:
    return f"cluster/shard={shard}/log.json"


def recorded_log_id(store: Store, shard: int) -> str | None:
    """The id of the log that the objects in a store came from; None if there is no record."""
    try:
        data = store.read(record_key(shard))
    except KeyMissing:
        return None
    try:
        record = msgspec.json.decode(data, type=LogRecord)
    except ValueError as error:
        raise LogRefused(f"{record_key(shard)} in {store.url} is damaged; restore it from a copy.") from error
    if record.version != RECORD_VERSION:
        raise LogRefused(
            f"{record_key(shard)} in {store.url} has format {record.version}, but this server reads {RECORD_VERSION};"
            " install another version of Headwater."
        )
    return record.log_id


def establish(config: ClusterConfig, store: Store, *, log_bytes_max: int = LOG_BYTES_MAX) -> Established:
    """Find the log of a cluster, or begin it if there never was one. Blocks; LogRefused says why there is none."""
    with Visit(config) as visit:
        info = _find_or_create(visit, config, store, log_bytes_max)
        reason = judge_stream(info, config)
        if reason is not None:
            raise LogRefused(reason)
        # Read only now: every node records the id before it appends, so a stream in use has a record.
        recorded = recorded_log_id(store, config.shard)
        if recorded is None:
            if info.state.last_seq:
                raise LogRefused(
                    f"The stream {config.stream} is in use by a cluster with another lake: {store.url} has no"
                    f" {record_key(config.shard)}; check --lake and --cluster-name."
                )
            recorded = _record(store, config.shard, info.log_id)
        if recorded != info.log_id:
            raise LogRefused(
                f"The lake at {store.url} belongs to log {recorded}, but the stream {config.stream} holds log"
                f" {info.log_id}; check --lake and --cluster-name."
            )
        return Established(info.log_id, info)


def replace_record(store: Store, shard: int, log_id: str) -> None:
    """Have a store record another log than before."""
    if recorded_log_id(store, shard) != log_id:
        store.delete(record_key(shard))
        _record(store, shard, log_id)


def _record(store: Store, shard: int, log_id: str) -> str:
    """Record the id of a log, and return the one that is recorded: another node may have been faster."""
    try:
        store.create(record_key(shard), msgspec.json.encode(LogRecord(RECORD_VERSION, log_id)))
    except KeyExists:
        return recorded_log_id(store, shard) or ""
    return log_id


def _find_or_create(visit: Visit, config: ClusterConfig, store: Store, log_bytes_max: int) -> StreamInfo:
    deadline = time.monotonic() + MISSING_SECONDS
    while True:
        info = visit.persist(lambda: streams.stream_info(visit.client, config), "answer questions about streams")
        if info is not None:
            return info
        if recorded_log_id(store, config.shard) is None:
            create_stream(visit, config, secrets.token_hex(8), log_bytes_max)
        elif time.monotonic() > deadline:
            raise LogRefused(
                f"The log of this cluster is lost: {store.url} records it, but NATS has no stream {config.stream};"
                " restore the stream, check --cluster, or begin anew with headwater cluster rescue."
            )
        else:
            time.sleep(0.2)


def create_stream(
    visit: Visit, config: ClusterConfig, log_id: str, log_bytes_max: int, first_sequence: int = 1
) -> None:
    """Create the stream, with three replicas unless the NATS server stands alone. Another node may be faster."""
    for replicas in (streams.REPLICAS, 1):
        request = streams.configuration(config, log_id, log_bytes_max, replicas) | {"first_seq": first_sequence}
        try:
            visit.persist(
                partial(streams.create, visit.client, config, request), f"create a stream with {replicas} replicas"
            )
        except ApiRefused as error:
            if error.code == streams.NOT_CLUSTERED and replicas > 1:
                log.warning("there is one NATS server only, so nothing survives its loss")
                continue
            if error.code == streams.NAME_IN_USE:
                return
            if error.lacks_storage:
                raise LogRefused(
                    f"The NATS servers have no room for a log of {log_bytes_max} bytes ({error.description});"
                    " give JetStream more, or lower --cluster-log-bytes."
                ) from error
            raise LogRefused(f"NATS did not create the stream {config.stream}: {error.description}.") from error
        log.info("created the stream %s with %d replicas", config.stream, replicas)
        return
