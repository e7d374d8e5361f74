"""Appends of 100 bytes over persistent connections; afterwards every stream is read back and its records counted."""

import secrets

from benchmarks.servers import Server, Spec
from benchmarks.streams import stream_path
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load import messages
from headwater.load.loads import Load
from headwater.load.records import Ledger


class Appends:
    name = "appends"
    title = "Appends of 100 B"
    figures: tuple[Figure, ...] = (
        Figure("rate", "appends/s", 0, higher_is_better=True),
        Figure("p99_ms", "p99 ms", 2),
        Figure("cpu_us", "server CPU us/append", 1),
    )
    peers: tuple[str, ...] = ("headwater", "headwater-memory", "reference-memory", "reference-file")
    rounds_max = 99

    def cases(self, scale: Scale) -> list[Case]:
        return [
            Case(f"{streams:,} stream{'s' * (streams > 1)}, {connections} conn.", streams, connections)
            for streams in scale.streams
            for connections in scale.connections
        ]

    def suits(self, spec: Spec) -> bool:
        return True

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        warm, prefix = (f"{server.base}/bench-{secrets.token_hex(4)}" for _ in range(2))
        create(server, warm, case.streams)
        rig.generator.append(server.address, warm, case.streams, case.connections, rig.scale.warm_seconds)
        create(server, prefix, case.streams)
        watch = Watch(server)
        load = rig.generator.append(server.address, prefix, case.streams, case.connections, rig.scale.seconds)
        sample = summary(load, watch)
        sample.problems += verify(server, prefix, case.streams, load)
        if not server.spec.is_started:
            for used in (warm, prefix):
                delete(server, used, case.streams)
        return sample


def summary(load: Load, watch: Watch) -> Sample:
    cpu_seconds = watch.server_seconds()
    values = {
        "rate": load.rate,
        "p50_ms": load.latencies_us["p50"] / 1e3,
        "p99_ms": load.latencies_us["p99"] / 1e3,
        "generator_busy": load.busy_share,
        "foreign_share": watch.foreign_share(load.cpu_seconds),
    }
    if cpu_seconds and load.done:
        values["cpu_us"] = cpu_seconds / load.done * 1e6
    return Sample(values, load.problems(), load.notes())


def create(server: Server, prefix: str, streams: int) -> None:
    with server.client() as client:
        for index in range(streams):
            client.must("PUT", stream_path(prefix, index), b"", messages.OCTETS)


def delete(server: Server, prefix: str, streams: int) -> None:
    with server.client() as client:
        for index in range(streams):
            client.send("DELETE", stream_path(prefix, index))


def verify(server: Server, prefix: str, streams: int, load: Load) -> list[str]:
    """Read everything back: each acknowledged record must be there exactly once and complete."""
    ledger = Ledger()
    with server.client() as client:
        for index in range(streams):
            ledger.add(client.read(stream_path(prefix, index)))
    return ledger.problems(load.done, load.unanswered_max)
