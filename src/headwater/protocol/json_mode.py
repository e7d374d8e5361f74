"""JSON mode: a body is split into the exact bytes of its messages; nothing is ever re-encoded."""

import re
from itertools import accumulate
from typing import Annotated

import msgspec

from headwater.protocol.limits import COMMAS_PER_APPEND_MAX, MESSAGES_PER_APPEND_MAX
from headwater.protocol.refusals import Code, Refusal

_ELEMENTS = msgspec.json.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MESSAGES_PER_APPEND_MAX)])
_VALUE = msgspec.json.Decoder(msgspec.Raw)
_ESCAPE = re.compile(rb"\\(?:u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)
WHITESPACE = b" \t\r\n"


def split(body: bytes) -> list[bytes] | Refusal:
    r"""The messages of a JSON body: the elements of an array (one level only), or the one value.

    >>> split(b' [1.0, {"a" : 1}] '), split(b'[[1,2]]'), split(b'[]'), split(b'"\\ud800"')
    ([b'1.0', b'{"a" : 1}'], [b'[1,2]'], [], [b'"\\ud800"'])
    """
    try:
        if not body.isascii():
            body.decode()
        return _split(body)
    except UnicodeDecodeError:
        return Refusal(Code.INVALID_JSON, "The body is not UTF-8, so it is not JSON.")
    except RecursionError:
        return Refusal(Code.INVALID_JSON, "The body's JSON is nested too deeply.")
    except msgspec.ValidationError:
        return Refusal(
            Code.TOO_LARGE, f"The array has more than {MESSAGES_PER_APPEND_MAX} messages; append it in parts."
        )
    except msgspec.DecodeError as error:
        return Refusal(
            Code.INVALID_JSON, f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}."
        )


def _split(body: bytes) -> list[bytes]:
    try:
        return _decode(body)
    except msgspec.DecodeError:
        # A lone surrogate escape is legal JSON, but the decoder rejects it: decode a copy of the same length instead.
        copy = _ESCAPE.sub(lambda match: match[0] if len(match[0]) == 2 else b"\\u0041", body)
        if copy == body:
            raise
        messages, at = [], 0
        for message in _decode(copy):
            at = copy.index(message, at)
            messages.append(body[at : at + len(message)])
            at += len(message)
        return messages


def _decode(body: bytes) -> list[bytes]:
    if body.lstrip(WHITESPACE)[:1] == b"[":
        if body.count(b",") > COMMAS_PER_APPEND_MAX:
            raise msgspec.ValidationError
        return [bytes(element) for element in _ELEMENTS.decode(body)]
    return [bytes(_VALUE.decode(body))]


def message_ends(messages: list[bytes]) -> tuple[int, ...] | None:
    """Where each message ends within their concatenation; None for a single message.

    >>> message_ends([b"ab", b"c"]), message_ends([b"ab"])
    ((2, 3), None)
    """
    return tuple(accumulate(map(len, messages))) if len(messages) > 1 else None
