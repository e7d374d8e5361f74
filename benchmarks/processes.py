"""What the kernel knows about a process and its descendants: memory and processor time."""

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return the process and its descendants, because a start command may be a wrapper."""
    pids = [pid]
    for parent in pids:
        for thread in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids.extend(int(child) for child in thread.read_text().split())
            except OSError:
                continue
    return pids


def rss_bytes(pid: int) -> int:
    """Return the resident memory of the process and its descendants."""
    total = 0
    for member in family(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except OSError:
            continue
        lines = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        total += sum(int(line.split()[1]) * 1024 for line in lines)
    return total


def cpu_seconds(pid: int) -> float:
    """Return the processor time, user and system, that the process and its descendants have used so far."""
    total = 0.0
    for member in family(pid):
        try:
            stat = Path(f"/proc/{member}/stat").read_text()
        except OSError:
            continue
        # The name in parentheses may hold spaces; utime and stime are the 12th and 13th fields after it.
        fields = stat.rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
    return total


def machine_cpu_seconds() -> float:
    """Return the time that all cores together were busy so far, including what a hypervisor took from them."""
    with Path("/proc/stat").open() as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND
