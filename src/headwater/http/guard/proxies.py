"""Proxies: which peers are believed when they say for whom, and over which scheme, they ask."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from headwater.http.wire.requests import Request
from headwater.protocol import headers

_FORWARDED_FOR, _FORWARDED_PROTO = headers.X_FORWARDED_FOR.key, headers.X_FORWARDED_PROTO.key


class Proxies:
    """The networks of a server's own proxies; what other peers say in forwarded headers does not count."""

    def __init__(self, networks: str) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(network.strip()) for network in networks.split(",") if network.strip()
        ]

    def believes(self, address: str) -> bool:
        """Whether an address is that of a proxy.

        >>> proxies = Proxies("10.0.0.0/8, 127.0.0.1")
        >>> [proxies.believes(peer) for peer in ("10.1.2.3", "::ffff:127.0.0.1", "127.0.0.2", "unknown")]
        [True, True, False, False]
        """
        if not self._networks:
            return False
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        if parsed.version == 6:
            # On a listener for both, a peer with IPv4 has such an address.
            parsed = parsed.ipv4_mapped or parsed
        return any(parsed in network for network in self._networks)

    def client_of(self, request: Request, peer: str) -> str:
        """The client's address: of several hops, the last one that is not a proxy; that of the peer if it is none."""
        forwarded_for = request.headers.get(_FORWARDED_FOR)
        if forwarded_for is None or not self.believes(peer):
            return peer
        hops = forwarded_for.decode("latin-1").split(",")
        address = _address_of(hops.pop())
        while hops and self.believes(address):
            address = _address_of(hops.pop())
        return address or peer

    def says_https(self, request: Request, peer: str) -> bool:
        """Whether a proxy has received this request over TLS."""
        return request.headers.get(_FORWARDED_PROTO, b"").strip().lower() == b"https" and self.believes(peer)


def _address_of(hop: str) -> str:
    """The address of a hop, to which some proxies add the port; empty if it is none.

    >>> [_address_of(hop) for hop in (" 192.0.2.7", "192.0.2.7:4711", "[2001:DB8::7]:4711", "2001:db8::7", "unknown")]
    ['192.0.2.7', '192.0.2.7', '2001:db8::7', '2001:db8::7', '']
    """
    hop = hop.strip()
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ip_address(hop))
    except ValueError:
        return ""
