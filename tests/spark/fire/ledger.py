"""The ledger of a fire: how many messages of each stream were acknowledged, and so what its copy must hold.

The nth message of a stream follows from its name and n alone, so a count says every byte. Each stream has one writer,
who sends a message again, as an idempotent producer, until the server has said what became of it.
"""

from dataclasses import dataclass
from hashlib import shake_128
from typing import Literal

JSON, BYTES = "application/json", "application/octet-stream"
PAD_BYTES_MAX = 120

Fate = Literal["lives", "trimmed", "reborn", "closed"]
"""What happens to a stream beside appends: nothing, its history is let go of again and again, it is deleted and made
anew again and again, or it is closed."""


def compose(name: str, number: int, content_type: str) -> bytes:
    """The message of a stream with that number, in bytes that nobody would make again from the value.

    >>> compose("s", 7, JSON)[:26]
    b'{"n":7, "of":"s","x":7.50,'
    >>> compose("s", 7, BYTES)[:2], compose("s", 7, BYTES) == compose("t", 7, BYTES)
    (b'7:', False)
    """
    noise = shake_128(f"{name}:{number}".encode())
    size = noise.digest(1)[0] % PAD_BYTES_MAX
    if content_type == JSON:
        return b'{"n":%d, "of":"%s","x":%d.50,"pad":"\\u00e9 %s"}' % (
            number,
            name.encode(),
            number,
            noise.hexdigest(size // 2).encode(),
        )
    return b"%d:" % number + noise.digest(size)


def number_of(message: bytes) -> int | None:
    """Which of its stream's messages one says it is.

    >>> number_of(compose("s", 12, JSON)), number_of(compose("s", 3, BYTES)), number_of(b"nothing")
    (12, 3, None)
    """
    digits = message.removeprefix(b'{"n":').replace(b",", b":").partition(b":")[0]
    return int(digits) if digits.isdigit() else None


@dataclass
class Timeline:
    """A stream as its writer knows it; read by others only when nobody writes."""

    name: str
    content_type: str
    fate: Fate = "lives"
    acknowledged: int = 0
    """Messages, over all its lives."""
    first: int = 0
    """The number of the first message of the life that it is in."""
    lives: int = 1
    trims: int = 0
    closed: bool = False

    def messages(self, first: int, count: int) -> list[bytes]:
        return [compose(self.name, first + number, self.content_type) for number in range(count)]

    def everything(self) -> list[bytes]:
        """What a copy that was made in time holds."""
        return self.messages(0, self.acknowledged)

    def present(self) -> list[bytes]:
        """What its present life was given."""
        return self.messages(self.first, self.acknowledged - self.first)


class Ledger:
    """All streams of a bucket."""

    def __init__(self, streams: int, hazards: bool) -> None:
        fates: tuple[Fate, ...] = ("lives", "lives", "trimmed", "lives", "reborn", "lives", "closed", "lives")
        self.timelines = [
            Timeline(
                f"{'json' if number % 2 else 'bytes'}-{number}",
                JSON if number % 2 else BYTES,
                fates[number // 2 % len(fates)] if hazards else "lives",
            )
            for number in range(streams)
        ]

    @property
    def acknowledged(self) -> int:
        return sum(timeline.acknowledged for timeline in self.timelines)

    def everything(self) -> dict[str, list[bytes]]:
        """What copies of all streams must hold."""
        return {timeline.name: timeline.everything() for timeline in self.timelines if timeline.acknowledged}

    def summary(self) -> str:
        lives = sum(timeline.lives for timeline in self.timelines) - len(self.timelines)
        trims, closed = (sum(getattr(one, what) for one in self.timelines) for what in ("trims", "closed"))
        return (
            f"{self.acknowledged:,} messages of {len(self.timelines)} streams; {trims} trims, {lives} deletions and "
            f"new lives, {closed} streams closed"
        )
