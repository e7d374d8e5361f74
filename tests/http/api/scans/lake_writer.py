"""A client that writes to streams, and flushes to the lake if a test is about that."""

from ...sockets import Wire

TEXT = {"Content-Type": "text/plain"}
NEVER = ("--flush-seconds", "100000", "--slow-reader-seconds", "1000")
"""Flags of a server that flushes only on request and tolerates slow clients."""
PATIENT_SECONDS = 240.0
"""More than any request takes on the slowest machine."""


class LakeWriter:
    """Writes over a connection; `tier` says whether data goes to the lake: `cold` all, `both` the older half."""

    def __init__(self, wire: Wire, tier: str) -> None:
        self.wire, self._tier = wire, tier

    def half(self) -> None:
        """The older half is written: flush it, if only that goes to the lake."""
        self._flush("cold", "both")

    def done(self) -> None:
        """Everything is written: flush it, if all goes to the lake."""
        self._flush("cold")

    def _flush(self, *tiers: str) -> None:
        if self._tier in tiers:
            assert self.wire.ask("POST", "/__headwater/flush").status == 200

    def make(self, name: str, body: bytes | None = None, **headers: str) -> None:
        lines = TEXT | {key.replace("_", "-"): value for key, value in headers.items()}
        response = self.wire.ask("PUT", f"/v1/stream/{name}", lines, body)
        assert response.status == 201, response.body

    def append(self, name: str, body: bytes, **headers: str) -> None:
        lines = TEXT | {key.replace("_", "-"): value for key, value in headers.items()}
        response = self.wire.ask("POST", f"/v1/stream/{name}", lines, body)
        assert response.status in (200, 204), response.body

    def fork(self, name: str, source: str, offset: int, sub_offset: int = 0) -> None:
        point = {"Stream-Fork-Offset": f"{offset:020}", "Stream-Fork-Sub-Offset": str(sub_offset)}
        headers = {"Stream-Forked-From": f"/v1/stream/{source}", **point}
        response = self.wire.ask("PUT", f"/v1/stream/{name}", headers)
        assert response.status == 201, response.body

    def delete(self, name: str) -> None:
        assert self.wire.ask("DELETE", f"/v1/stream/{name}").status == 204
