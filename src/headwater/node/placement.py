"""Which shard holds a stream."""

from hashlib import blake2b


def place(name: str, shards: int) -> int:
    """The number of the shard that holds a stream, by rendezvous hashing: one more shard takes its share and moves no
    other stream.

    >>> [place(f"agents/{number}", 3) for number in range(6)]
    [0, 2, 2, 2, 1, 0]
    """
    encoded = name.encode()
    return max(range(shards), key=lambda number: blake2b(b"%d/%b" % (number, encoded), digest_size=8).digest())
