"""Real traffic: every connection is a client with its own streams, and no two request heads are alike."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.appends import summary
from benchmarks.servers import BenchmarkError, Server, Spec
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load.loads import Load

SOURCE = Path(__file__).with_name("real.c")
MIXES = {
    "producers": "append JSON with producer headers",
    "json": "append JSON",
    "mixed": "8 appends, 1 resume, 1 fresh read",
    "get": "GET the last 1 to 8 messages",
    "origin": "the mix of a page, with Origin",
    "lifetime": "the mix on streams with a lifetime",
}


def generator() -> Path:
    """Return the compiled generator."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchmarkError("Real traffic needs a C compiler for its load generator; install cc, or omit `real`.")
    return _compiled(compiler)


@cache
def _compiled(compiler: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="headwater-real-")) / "real"
    subprocess.run([compiler, "-O2", "-o", str(path), str(SOURCE)], check=True)
    return path


class Real:
    """The mixes of real.c; what was appended is read back."""

    name = "real"
    title = "Real traffic"
    figures: tuple[Figure, ...] = (
        Figure("rate", "requests/s", 0, higher_is_better=True),
        Figure("p50_ms", "p50 ms", 2),
        Figure("p99_ms", "p99 ms", 2),
        Figure("cpu_us", "server CPU us/request", 1, higher_is_better=False),
    )
    peers: tuple[str, ...] = ("headwater", "reference-memory")
    rounds_max = 99

    def cases(self, scale: Scale) -> list[Case]:
        return [
            Case(f"{label}, {connections} conn.", connections=connections, mix=mix)
            for mix, label in MIXES.items()
            for connections in scale.real_connections
        ]

    def suits(self, spec: Spec) -> bool:
        return True

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        words = [*map(str, server.address), server.base, case.mix, str(case.connections)]
        words += [str(rig.scale.warm_seconds), str(rig.scale.seconds)]
        with subprocess.Popen(
            [str(generator()), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "READY\n":
                raise OSError("the generator of real traffic failed before the measurement")
            watch = Watch(server)
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            cpu_seconds = watch.server_seconds()
        if not line:
            raise OSError("the generator of real traffic failed during the measurement")
        counts = json.loads(line)
        load = load_of(counts, case.connections)
        sample = summary(load, watch)
        if cpu_seconds and load.done:
            sample.values["cpu_us"] = cpu_seconds / load.done * 1e6
        if case.mix != "get":
            sample.problems += list(lost(server, counts))
        return sample


def load_of(counts: dict[str, Any], connections: int) -> Load:
    """Convert the counts of the generator."""
    load = Load(counts["seconds"], counts["done"], counts["refused"], counts["broken"], counts["wrong"])
    return replace(
        load,
        latencies_us={name: float(counts[name]) for name in ("p50", "p99", "p99.9", "max")},
        busy_share=counts["cpu_seconds"] / counts["seconds"],
        cpu_seconds=counts["cpu_seconds"],
        unanswered_max=connections,
    )


def lost(server: Server, counts: dict[str, Any]) -> Iterator[str]:
    """Read the last stream of every client back: it holds each message once and in order."""
    with server.client() as client:
        for number, (stream, appended) in enumerate(counts["streams"]):
            path, offset = f"{server.base}/client-{number}/run-{stream}", "-1"
            found: list[int] = []
            while True:
                answer = client.must("GET", f"{path}?offset={offset}")
                found += [message["n"] for message in json.loads(answer.body)]
                offset = answer.headers.get("stream-next-offset", offset)
                if answer.headers.get("stream-up-to-date") == "true" or not found:
                    break
            if found != list(range(appended)):
                yield f"{path} has {len(found):,} messages, {appended:,} were acknowledged"
