"""Room: how full the stream is by our own count, and up to which message it can be purged."""

from collections import deque
from typing import NamedTuple

from headwater.log.jetstream.judging import CHECKPOINT_MESSAGES
from headwater.log.jetstream.streams import MESSAGE_OVERHEAD_BYTES

FULL_PART = 0.9
"""From here on commands that need space are refused; the rest is for those that free some, and for barriers."""
ASK_PART = 0.7
"""From here on JetStream is asked for the true size now and then: another node may have purged the stream."""
PLACES_KEPT = 16_384
"""Known pairs of position and sequence: one for every 1,024 messages, so they cover the largest streams."""
FILE_BYTES, SMALL_FILE_BYTES = 8 * 1024 * 1024, 4 * 1024 * 1024
"""The largest files that NATS keeps messages in; those of streams of less than four such files are smaller. A purge
deletes whole files, and leaves the bytes of messages in a file that has later ones."""
SHORTAGE = "The log of the cluster is full until its next image has been stored; try again in a few seconds."


class Mapped(NamedTuple):
    """Behind this message the state has this position."""

    position: int
    sequence: int
    exact: bool
    """Whether an image was begun just here."""


class Room:
    """Counts what is stored."""

    def __init__(self, stored_bytes: int, max_bytes: int) -> None:
        self.stored_bytes, self.max_bytes = stored_bytes, max_bytes
        self._places: deque[Mapped] = deque(maxlen=PLACES_KEPT)

    @property
    def has_room(self) -> bool:
        return self.stored_bytes < FULL_PART * self.max_bytes

    @property
    def is_doubtful(self) -> bool:
        """Whether the count is high enough to ask JetStream for the true size."""
        return self.stored_bytes >= ASK_PART * self.max_bytes

    @property
    def cut_bytes(self) -> int:
        """How much must follow a message before all after that is in other files."""
        return (FILE_BYTES if self.max_bytes >= 4 * FILE_BYTES else SMALL_FILE_BYTES) * 9 // 8

    def stored(self, size: int, position: int, sequence: int) -> None:
        """Count a message, behind which the state has this position."""
        self.stored_bytes += size + MESSAGE_OVERHEAD_BYTES
        if sequence % CHECKPOINT_MESSAGES == 0:
            self._places.append(Mapped(position, sequence, False))

    def marked(self, position: int, sequence: int) -> None:
        """An image is begun here."""
        self._places.append(Mapped(position, sequence, True))

    def sequence_upto(self, position: int) -> int:
        """The last message that an image at this position does not need; 0 if that is not known.

        Messages without commands do not change the position. So a message behind which the position is the image's own
        may be behind the image; only the place where the image was begun is exact.
        """
        exact = [place.sequence for place in self._places if place.exact and place.position == position]
        if exact:
            return min(exact)
        return max((place.sequence for place in self._places if place.position < position), default=0)
