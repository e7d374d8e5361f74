"""Messages that name their writer and prove that they are whole.

    writer:number:part/parts:padding:checksum

An append is one or more parts. In a text stream each message is a line; in a JSON stream each is a string.
"""

import json
from random import Random
from typing import NamedTuple
from zlib import crc32

JSON = "application/json"
TEXT = "text/plain"
SIZES = (10, 10, 100, 100, 500, 2_000, 30_000)


class Key(NamedTuple):
    """Which append a message belongs to."""

    writer: str
    number: int


class Composed(NamedTuple):
    """An append as it is sent and as its stream stores it."""

    key: Key
    body: bytes
    stored: bytes
    frames: tuple[bytes, ...] = ()
    """What each frame of a batch is stored as, if it is a batch."""


class Torn(AssertionError):
    """A stream shows something that no writer wrote."""


def compose(key: Key, content_type: str, random: Random) -> Composed:
    """An append of random size."""
    parts = random.choice((1, 1, 3)) if content_type == JSON else 1
    texts = [_one(key, part, parts, random) for part in range(1, parts + 1)]
    stored = store(texts, content_type)
    return Composed(key, json.dumps(texts).encode() if content_type == JSON else stored, stored)


def compose_batch(key: Key, content_type: str, random: Random) -> Composed:
    """A batch whose frames are the parts of one append."""
    parts = random.randint(2, 6)
    frames = [store([_one(key, part, parts, random)], content_type) for part in range(1, parts + 1)]
    return Composed(key, frame(frames), b"".join(frames), tuple(frames))


def frame(payloads: list[bytes]) -> bytes:
    """The body of an append-batch."""
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def store(texts: list[str], content_type: str) -> bytes:
    """The bytes of messages as a stream counts them."""
    return "".join(f'"{text}"' if content_type == JSON else f"{text}\n" for text in texts).encode()


def _one(key: Key, part: int, parts: int, random: Random) -> str:
    text = f"{key.writer}:{key.number}:{part}/{parts}:{'x' * random.choice(SIZES)}"
    return f"{text}:{crc32(text.encode()):08x}"


def split(body: bytes, content_type: str) -> list[str]:
    """The messages in the body of a read."""
    if content_type == JSON:
        texts: list[str] = json.loads(body)
        return texts
    lines = body.decode().split("\n")
    if lines.pop() != "":
        raise Torn(f"the last line is cut: {body[-80:]!r}")
    return lines


def keys(texts: list[str], *, cut: bool = False) -> list[Key]:
    """The appends that messages make up, in order; each must be whole, except the first where history was trimmed."""
    found: list[Key] = []
    missing: list[tuple[Key, int]] = []
    for text in texts:
        key, part, parts = _parse(text)
        if not missing:
            first = part if cut and not found else 1
            missing = [(key, number) for number in range(first, parts + 1)]
            found.append(key)
        if (key, part) != missing.pop(0):
            raise Torn(f"part {part} of {key} is out of place")
    if missing:
        raise Torn(f"the end of {missing[0][0]} is missing")
    return found


def _parse(text: str) -> tuple[Key, int, int]:
    content, _, checksum = text.rpartition(":")
    if f"{crc32(content.encode()):08x}" != checksum:
        raise Torn(f"a message is not what was written: {text[:80]!r}")
    writer, number, part, _ = content.split(":")
    return Key(writer, int(number)), *map(int, part.split("/"))  # type: ignore[return-value]
