"""Ports of loopback for servers that a test starts, kills and starts again on the same port.

They lie below the ports that the kernel gives to outgoing connections and to listeners on port 0, so nobody is given
such a port while its server is down. A test process keeps what it has taken until it ends, against other test processes
too: it locks one byte per port in a file that they share.
"""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

PORTS = range(22_000, 32_000)

_taken: set[int] = set()


class NoFreePorts(Exception):
    """Every candidate is taken."""


def free_port() -> int:
    """A port that nothing listens on and that no other test gets."""
    return free_range(1)


def free_ports(count: int) -> list[int]:
    """As many such ports."""
    return [free_port() for _ in range(count)]


def free_range(count: int) -> int:
    """The first of so many such ports in a row."""
    candidates = PORTS[: len(PORTS) - count + 1]
    for first in random.sample(candidates, len(candidates)):
        if take(*range(first, first + count)):
            return first
    raise NoFreePorts(f"No {count} ports in a row are free in {PORTS}.")


def take(*ports: int) -> bool:
    """Take all these ports, or none of them if one is taken or in use."""
    if not _taken.isdisjoint(ports):
        return False
    for done, port in enumerate(ports, 1):
        # Locked first: to look whether a port is free is to use it for a moment, which its owner would notice.
        if not _lock(port) or not _is_free(port):
            for locked in ports[:done]:
                fcntl.lockf(_lock_file(), fcntl.LOCK_UN, 1, locked)
            return False
    _taken.update(ports)
    return True


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    """Stays open: a process that closes a file gives up all its locks on it."""
    path = Path(tempfile.gettempdir(), f"headwater-test-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            # A bound port may have a listener that allows others to bind; a second listener is always refused.
            probe.listen()
        except OSError:
            return False
    return True
