"""The decided position, in memory that several processes share: a barrier without a round trip."""

import mmap


class DecidedPosition:
    """The last durable position: the sequencer writes it before it tells any process of the batch.

    A process that was told, and acknowledged something, did so after the position was written; so whoever reads the
    position later knows how far it must have come to have seen that. Made before the processes are forked.
    """

    def __init__(self) -> None:
        # Native words: each is read and written by one instruction, so no process sees half of a position.
        self._words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")

    @property
    def value(self) -> int:
        return self._words[0]

    @value.setter
    def value(self, position: int) -> None:
        self._words[0] = position
