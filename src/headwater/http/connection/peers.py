"""The other end of a connection: its address, and what its certificate says."""

import asyncio

from headwater.http.tls.certificates import SecurableProtocol


class PeerProtocol(SecurableProtocol):
    """A connection to a client, as far as it tells who the client is."""

    _transport: asyncio.Transport

    @property
    def address(self) -> str:
        """The client's IP address, or the proxy's; empty once the socket is closed, for work that outlives it."""
        try:
            peer = self._transport.get_extra_info("peername")
        except ValueError:  # From uvloop: there is no descriptor any more.
            return ""
        return str(peer[0]) if peer else ""

    @property
    def certificate_names(self) -> tuple[tuple[str, str], ...]:
        """The alternative names of the client's verified certificate."""
        uris, dns = self.client_names
        return (*(("URI", name) for name in uris), *(("DNS", name) for name in dns))

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
