"""What a streaming query without new rows costs: `python -m benchmarks.spark_idle [SECONDS]`.

Counts the CPU time of the server, of Spark's JVM, and of the Python processes of the source. Spark polls it up to a
hundred times a second.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.servers import Server, Spec
from benchmarks.spark_data import Shape, fill, url_of
from benchmarks.spark_scenes import HOT, OURS
from headwater.spark.session import session

SETTLE_SECONDS = 20.0


def cpu_by_process(server_pid: int) -> dict[tuple[str, int], float]:
    """CPU seconds so far: of the server, of Spark's JVM, and of each Python process below it."""
    total = {("server", server_pid): processes.cpu_seconds(server_pid)}
    for pid in processes.family(os.getpid()):
        if pid in (os.getpid(), *processes.family(server_pid)):
            continue
        try:
            is_java = b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used = (int(fields[11]) + int(fields[12])) / processes.TICKS_PER_SECOND
        total["JVM" if is_java else "Python", pid] = used
    return total


def main(seconds: str = "60") -> None:
    with tempfile.TemporaryDirectory() as scratch, Server(Spec("lake", (*OURS.command, *HOT)), Path(scratch)) as server:
        fill(server, "bench", Shape(100, 100, 100))
        spark = session("idle", conf={"spark.driver.memory": "1g"})
        options = {"url": url_of(server), "bucket": "bench", "startingOffsets": "earliest", "via": "lake"}
        rows = spark.readStream.format("headwater").options(**options).load()
        query = rows.writeStream.format("noop").option("checkpointLocation", f"{scratch}/checkpoint").start()
        time.sleep(SETTLE_SECONDS)
        assert server.process is not None
        before, began = cpu_by_process(server.process.pid), time.monotonic()
        time.sleep(float(seconds))
        after, took = cpu_by_process(server.process.pid), time.monotonic() - began
        for kind in ("server", "Python", "JVM"):
            # Workers without work end after a while.
            used = sum(after[one] - before[one] for one in after if one[0] == kind and one in before)
            print(f"{kind}: {used / took:.2%} of a core")
        print(f"load {os.getloadavg()[0]:.1f}")
        query.stop()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
