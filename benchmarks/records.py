"""The records that are appended: 100 bytes, each one unique, so that reading back shows what was lost or doubled."""

RECORD_BYTES = 100
ID_BYTES = 15
PADDING = b"." * (RECORD_BYTES - ID_BYTES - 1) + b"\n"


def record(worker: int, sequence: int) -> bytes:
    """Builds one record; wrk.lua builds the same.

    >>> record(7, 42)[:16], len(record(7, 42))
    (b'007-0000000042-.', 100)
    """
    return b"%03d-%010d-" % (worker, sequence) + PADDING


class Ledger:
    """Collects what was read back and judges it against what was acknowledged."""

    def __init__(self) -> None:
        self.ids: set[bytes] = set()
        self.doubled = 0
        self.torn = 0

    def add(self, body: bytes) -> None:
        """Takes the whole content of one stream."""
        for at in range(0, len(body), RECORD_BYTES):
            if body[at + ID_BYTES : at + RECORD_BYTES] != PADDING:
                self.torn += 1
                continue
            key = body[at : at + ID_BYTES]
            if key in self.ids:
                self.doubled += 1
            self.ids.add(key)

    def problems(self, acknowledged: int, unanswered_max: int) -> list[str]:
        """Says what is wrong; requests that nobody waited for at the end may or may not have been applied."""
        found = len(self.ids)
        said = []
        if found < acknowledged:
            said.append(f"{acknowledged - found:,} of {acknowledged:,} acknowledged records cannot be read back")
        if found > acknowledged + unanswered_max:
            said.append(f"{found - acknowledged:,} records more than were acknowledged")
        if self.doubled:
            said.append(f"{self.doubled:,} records are there twice")
        if self.torn:
            said.append(f"{self.torn:,} records are torn")
        return said
