import asyncio

from headwater.http.connection.connection import Connection


class ClosedTransport(asyncio.Transport):
    """A transport of uvloop whose socket was closed before anybody asked for its address: found by hostile bytes."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        raise ValueError("negative file descriptor")


class LeftConnection(Connection):
    transport = ClosedTransport()

    def __init__(self) -> None:
        """Needs no server: only the transport is asked."""


def test_the_address_of_a_client_that_has_left_can_be_asked_for() -> None:
    assert LeftConnection().address == ""
