"""Ports for servers that are restarted: nobody else gets one, in this process or in another."""

import socket
import subprocess
import sys

from headwater.testing.ports import PORTS, free_port, free_ports, free_range, take

TAKE = "import sys; from headwater.testing.ports import take; print(take(*map(int, sys.argv[1:])))"


def another_process_takes(*ports: int) -> bool:
    command = [sys.executable, "-c", TAKE, *map(str, ports)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def free_row() -> int:
    """The first of two ports that another process could have taken."""
    return next(port for port in PORTS[::2] if another_process_takes(port, port + 1))


def test_no_port_is_given_twice() -> None:
    ports = [*free_ports(50), free_port()]
    assert len(set(ports)) == 51 and all(port in PORTS for port in ports)
    assert not any(take(port) for port in ports)


def test_another_process_does_not_get_what_is_taken_here() -> None:
    assert not another_process_takes(free_port())


def test_a_port_that_is_in_use_is_not_taken() -> None:
    port = free_row()
    with socket.create_server(("127.0.0.1", port)):
        assert not take(port)
    assert take(port)


def test_ports_are_taken_together_or_not_at_all() -> None:
    first = free_range(12)
    assert not any(take(port) for port in range(first, first + 12))
    one = free_row()
    assert take(one + 1)
    assert not take(one, one + 1) and not another_process_takes(one, one + 1)
    assert another_process_takes(one) and take(one)
