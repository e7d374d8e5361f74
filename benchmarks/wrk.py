"""The load generator `wrk`, where it is installed: it needs less CPU for the same load than the built-in generator."""

import json
import resource
import shutil
import subprocess
import time
from pathlib import Path

from headwater.load.loads import SENDING_CORES, Load

SCRIPT = Path(__file__).with_name("wrk.lua")
EXIT_SECONDS_MAX = 30.0


def is_installed() -> bool:
    return shutil.which("wrk") is not None


class WrkGenerator:
    """Each thread has its own Lua state; see wrk.lua."""

    name = "wrk"

    def append(self, address: tuple[str, int], prefix: str, streams: int, connections: int, seconds: float) -> Load:
        return self._run(address, ["append", prefix, str(streams)], connections, seconds, 0)

    def read(self, address: tuple[str, int], path: str, body: bytes, connections: int, seconds: float) -> Load:
        return self._run(address, ["read", path], connections, seconds, len(body))

    def _run(self, address: tuple[str, int], words: list[str], connections: int, seconds: float, size: int) -> Load:
        threads = min(SENDING_CORES, connections)
        command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout=10s"]
        command += [f"--script={SCRIPT}", f"http://{address[0]}:{address[1]}/", "--", *words]
        before, began = cpu_seconds(), time.monotonic()
        output = subprocess.run(command, capture_output=True, text=True, timeout=seconds + EXIT_SECONDS_MAX, check=True)
        used = cpu_seconds() - before
        _, found, counts = output.stdout.partition("JSON ")
        if not found:
            raise OSError(f"wrk printed no counts: {output.stdout[-200:]} {output.stderr[-200:]}")
        outcome = load(json.loads(counts), connections, size)
        outcome.cpu_seconds, outcome.busy_share = used, used / (time.monotonic() - began) / threads
        return outcome


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def load(counts: dict[str, int], connections: int, body_bytes: int) -> Load:
    """Convert the counts of wrk, which does not compare bodies: the bytes received must be enough for all of them."""
    done = counts["requests"] - counts["refused"]
    return Load(
        seconds=counts["us"] / 1e6,
        done=done,
        refused=counts["refused"],
        broken=counts["broken"],
        wrong=max(0, done - counts["bytes"] // body_bytes) if body_bytes else 0,
        latencies_us={name: float(counts[name]) for name in ("p50", "p99", "p99.9", "max")},
        unanswered_max=connections,
    )
