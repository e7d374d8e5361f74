"""The ledger of a run: how many messages of each stream were acknowledged, and so what its copy must contain.

The nth message of a stream depends on its name and n alone, so the count determines every byte. Each stream has one
writer, which retries an append as an idempotent producer until the server has acknowledged it.
"""

from dataclasses import dataclass
from hashlib import shake_128
from typing import Literal

JSON, BYTES = "application/json", "application/octet-stream"
PAD_BYTES_MAX = 120

Fate = Literal["lives", "trimmed", "reborn", "closed"]
"""What happens to a stream besides appends: nothing, repeated trims, repeated deletion and re-creation, or a close."""


def compose(name: str, number: int, content_type: str) -> bytes:
    """The message of a stream with this number, in bytes that decoding and encoding the JSON would change.

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
    """The number that a message contains.

    >>> number_of(compose("s", 12, JSON)), number_of(compose("s", 3, BYTES)), number_of(b"nothing")
    (12, 3, None)
    """
    digits = message.removeprefix(b'{"n":').replace(b",", b":").partition(b":")[0]
    return int(digits) if digits.isdigit() else None


@dataclass
class Timeline:
    """A stream as its writer knows it; others may read this only after the writer has stopped."""

    name: str
    content_type: str
    fate: Fate = "lives"
    acknowledged: int = 0
    """The number of messages in all its incarnations."""
    first: int = 0
    """The number of the first message of its present incarnation."""
    lives: int = 1
    trims: int = 0
    closed: bool = False

    def messages(self, first: int, count: int) -> list[bytes]:
        return [compose(self.name, first + number, self.content_type) for number in range(count)]

    def everything(self) -> list[bytes]:
        """What a copy that missed nothing contains."""
        return self.messages(0, self.acknowledged)

    def present(self) -> list[bytes]:
        """What was written to its present incarnation."""
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
        """What the copies of all streams must contain."""
        return {timeline.name: timeline.everything() for timeline in self.timelines if timeline.acknowledged}

    def summary(self) -> str:
        lives = sum(timeline.lives for timeline in self.timelines) - len(self.timelines)
        trims, closed = (sum(getattr(one, what) for one in self.timelines) for what in ("trims", "closed"))
        return (
            f"{self.acknowledged:,} messages of {len(self.timelines)} streams; {trims} trims, {lives} streams "
            f"recreated, {closed} streams closed"
        )
