"""A response of the server that Arrow reads while it arrives."""

from collections.abc import Iterator


class Incoming:
    """A response as a file that Arrow reads from."""

    closed = False

    def __init__(self, first: bytes, pieces: Iterator[bytes]) -> None:
        self._rest = memoryview(first)
        self._pieces = pieces

    def read(self, size: int = -1) -> bytes:
        found: list[memoryview] = []
        while size:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
            part = self._rest if size < 0 else self._rest[:size]
            self._rest = self._rest[len(part) :]
            found.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(found)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
