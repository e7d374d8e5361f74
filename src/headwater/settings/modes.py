"""Access modes: local, guarded by an access file, or open behind a proxy."""

from enum import Enum
from ipaddress import IPv6Address, ip_address


class Mode(Enum):
    """How a server decides what clients may do."""

    LOCAL = "local"
    """Allow everything, but only to clients and pages on this machine."""
    GUARDED = "guarded"
    """Allow what the access file grants."""
    OPEN = "open"
    """Allow everything to every client; a proxy in front authenticates."""


def mode_of(*, auth: str, no_auth: bool) -> Mode:
    """Return the mode that these settings mean."""
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
