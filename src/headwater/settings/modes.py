"""Modes: who decides what clients may do, by the address that a server listens on and what its operator has said."""

from enum import Enum
from ipaddress import IPv6Address, ip_address


class Mode(Enum):
    """Who decides what clients may do."""

    LOCAL = "local"
    """Everything is allowed, but only to this machine and its own pages."""
    GUARDED = "guarded"
    """The access file says who may do what."""
    OPEN = "open"
    """Everything is allowed to everybody: a proxy in front decides."""


def mode_of(*, auth: str, no_auth: bool) -> Mode:
    """The mode of a server."""
    return Mode.GUARDED if auth else Mode.OPEN if no_auth else Mode.LOCAL


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this host.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "")]
    [True, True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
