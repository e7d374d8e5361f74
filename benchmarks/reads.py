"""Catch-up reads of a filled stream from its start."""

import secrets

from benchmarks.appends import summary
from benchmarks.client import Client
from benchmarks.servers import Server, Spec
from benchmarks.streams import stream_path
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load import messages

APPEND_BYTES = 1000


class Reads:
    name = "reads"
    title = "Catch-up reads"
    figures: tuple[Figure, ...] = (
        Figure("rate", "reads/s", 0, higher_is_better=True),
        Figure("mb_per_second", "MB/s", 1),
        Figure("p99_ms", "p99 ms", 2),
        Figure("cpu_us", "server CPU us/read", 1),
    )
    peers: tuple[str, ...] = ("headwater", "reference-memory", "reference-file")
    rounds_max = 99

    def cases(self, scale: Scale) -> list[Case]:
        return [
            Case("1 KB, 64 conn.", connections=64, body_bytes=1_000),
            Case("1 MB, 16 conn.", connections=16, body_bytes=1_000_000),
        ]

    def suits(self, spec: Spec) -> bool:
        return True

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        path = stream_path(f"{server.base}/bench-{secrets.token_hex(4)}", 0)
        content = secrets.token_hex(case.body_bytes // 2).encode()
        with server.client() as client:
            fill(client, path, content)
            # A server chooses the size of its pages; every response is compared with this page.
            page = client.must("GET", f"{path}?offset=-1").body
        rig.generator.read(server.address, path, page, case.connections, rig.scale.warm_seconds)
        watch = Watch(server)
        load = rig.generator.read(server.address, path, page, case.connections, rig.scale.seconds)
        sample = summary(load, watch)
        sample.values["mb_per_second"] = load.rate * len(page) / 1e6
        if len(page) < len(content):
            sample.notes.append(f"each read returned a page of {len(page):,} B, not the whole {len(content):,} B")
        with server.client() as client:
            if client.read(path) != content:
                sample.problems.append("the stream read back page by page differs from what was written")
            if not server.spec.is_started:
                client.send("DELETE", path)
        return sample


def fill(client: Client, path: str, content: bytes) -> None:
    client.must("PUT", path, b"", messages.OCTETS)
    for at in range(0, len(content), APPEND_BYTES):
        client.must("POST", path, content[at : at + APPEND_BYTES], messages.OCTETS)
