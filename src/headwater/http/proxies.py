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
        """The client's address: of several hops, the last one that is not a proxy."""
        forwarded_for = request.headers.get(_FORWARDED_FOR)
        if forwarded_for is None or not self.believes(peer):
            return peer
        hops = [hop.strip() for hop in forwarded_for.decode("latin-1").split(",")]
        while len(hops) > 1 and self.believes(hops[-1]):
            hops.pop()
        return hops[-1] or peer

    def says_https(self, request: Request, peer: str) -> bool:
        """Whether a proxy has received this request over TLS."""
        return request.headers.get(_FORWARDED_PROTO, b"").strip().lower() == b"https" and self.believes(peer)
