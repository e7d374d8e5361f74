"""Bodies: how values become bytes, and how several appends become one request.

A JSON body is kept as the bytes of its messages, separated by commas, without the brackets. So two of them are joined
by one more comma and never encoded again. Other bytes are concatenated: a byte stream has no boundaries but those that
its writer adds (see `framing`).
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
    """The messages of one append, encoded for a request."""

    data: bytes
    messages: int = 1


def encode(value: Any) -> bytes:
    """A value as JSON; NaN and infinities raise an error.

    >>> encode({"a": [1.5, "ü"]})
    b'{"a":[1.5,"\\xc3\\xbc"]}'
    """
    try:
        return _UTF8.encode(value).encode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but it has an escape.
        return _ESCAPED.encode(value).encode()


def encode_values(values: Iterable[Any]) -> EncodedMessages:
    """Each value as one message, arrays too."""
    encoded = [encode(value) for value in values]
    if not encoded:
        raise ValueError("There is nothing to append; give at least one value.")
    return EncodedMessages(b",".join(encoded), len(encoded))


def encode_raw(data: bytes | str, content_type: str) -> EncodedMessages:
    """Bytes or text unchanged; for a JSON stream they are JSON, and each element of an array is one message."""
    body = data.encode() if isinstance(data, str) else bytes(data)
    if not body:
        raise ValueError("There is nothing to append; give at least one byte.")
    if not content_types.is_json(content_type):
        return EncodedMessages(body)
    messages = json_mode.split(body)
    if isinstance(messages, Refusal):
        raise ValueError(messages.detail)
    if not messages:
        raise ValueError("There is nothing to append; the array is empty.")
    return EncodedMessages(b",".join(messages), len(messages))


def join(pieces: Sequence[EncodedMessages], content_type: str) -> bytes:
    """The body of a request that carries several appends.

    >>> pieces = [EncodedMessages(b"1"), EncodedMessages(b"2,3", 2)]
    >>> join(pieces, "application/json"), join(pieces, "text/plain")
    (b'[1,2,3]', b'12,3')
    """
    if content_types.is_json(content_type):
        return b"[%b]" % b",".join(piece.data for piece in pieces)
    return b"".join(piece.data for piece in pieces)


def merge(bodies: Sequence[bytes], content_type: str) -> bytes:
    """The bodies of several responses as one.

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
