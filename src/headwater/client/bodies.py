"""Bodies: how values become bytes, and how several appends become one.

A JSON body is kept as the bytes of its messages with commas in between, without the brackets: so two of them are joined
by one more comma, and never written anew. Bytes are joined end to end, for a byte stream has no borders but those that
its writer puts in (see `framing`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.protocol import content_types, json_mode
from headwater.protocol.refusals import Refusal

_UTF8 = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_ESCAPED = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class EncodedMessages:
    """What one append wants to add."""

    data: bytes
    messages: int = 1


def encode(value: Any) -> bytes:
    """A value as JSON; NaN and infinities are none.

    >>> encode({"a": [1.5, "ü"]})
    b'{"a":[1.5,"\\xc3\\xbc"]}'
    """
    try:
        return _UTF8.encode(value).encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8, but it has an escape.
        return _ESCAPED.encode(value).encode()


def values_piece(values: Iterable[Any]) -> EncodedMessages:
    """Several messages, whatever they are: an array is one message."""
    encoded = [encode(value) for value in values]
    if not encoded:
        raise ValueError("There is nothing to append; give at least one value.")
    return EncodedMessages(b",".join(encoded), len(encoded))


def raw_piece(data: bytes | str, content_type: str) -> EncodedMessages:
    """Bytes or text as they are; on a JSON stream they are JSON, and the elements of an array are its messages."""
    body = data.encode() if isinstance(data, str) else bytes(data)
    if not body:
        raise ValueError("There is nothing to append; an append has at least one byte.")
    if not content_types.is_json(content_type):
        return EncodedMessages(body)
    messages = json_mode.split(body)
    if isinstance(messages, Refusal):
        raise ValueError(messages.detail)
    if not messages:
        raise ValueError("There is nothing to append; the array is empty.")
    return EncodedMessages(b",".join(messages), len(messages))


def join(pieces: Sequence[EncodedMessages], content_type: str) -> bytes:
    """The body of a request that carries all of the pieces.

    >>> pieces = [EncodedMessages(b"1"), EncodedMessages(b"2,3", 2)]
    >>> join(pieces, "application/json"), join(pieces, "text/plain")
    (b'[1,2,3]', b'12,3')
    """
    if content_types.is_json(content_type):
        return b"[%b]" % b",".join(piece.data for piece in pieces)
    return b"".join(piece.data for piece in pieces)


def merge(bodies: Sequence[bytes], content_type: str) -> bytes:
    """What several responses held, as if one had held it.

    >>> merge([b"[1]", b"[ ]", b"[2,3]"], "application/json")
    b'[1,2,3]'
    """
    if len(bodies) == 1:
        return bodies[0]
    if not content_types.is_json(content_type):
        return b"".join(bodies)
    stripped = [body.strip() for body in bodies]
    inner = [body[1:-1].strip() if body[:1] == b"[" and body[-1:] == b"]" else body for body in stripped]
    return b"[%b]" % b",".join(part for part in inner if part)
