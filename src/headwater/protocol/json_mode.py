"""JSON mode: a body is split into the exact bytes of its messages; nothing is ever re-encoded."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated

import msgspec

from headwater.protocol.limits import COMMAS_PER_APPEND_MAX, JSON_DEPTH_MAX, MESSAGES_PER_APPEND_MAX, MIB
from headwater.protocol.refusals import Code, Refusal

_ELEMENTS = msgspec.json.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MESSAGES_PER_APPEND_MAX)])
VALUE = msgspec.json.Decoder(msgspec.Raw)
WHITESPACE = b" \t\r\n"
PIECE_BYTES = MIB
"""How much is searched for escapes at once: a few milliseconds."""
SHALLOW_BYTES_MAX = 2 * JSON_DEPTH_MAX
"""A whole value that is not longer cannot be nested too deeply: each level takes two brackets."""
_BRACKETS_BYTES = MIB // 8
"""How much is searched for brackets at once: a few milliseconds, even if it has nothing else."""
_UP, _DOWN = b"\x01", b"\xff"
_STEPS = bytes.maketrans(b"[{]}", _UP + _UP + _DOWN + _DOWN)
"""What each bracket adds to the depth, as signed bytes."""
_LEAVES = 8
"""So many of the innermost levels are removed before levels are counted: few values have more."""
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[{]}"'))
TOO_DEEP = Refusal(Code.INVALID_JSON, f"JSON may have at most {JSON_DEPTH_MAX} levels of arrays and objects.")


def is_object(body: bytes) -> bool:
    """Whether a body is certainly one object with nothing around it, and so one message; `split` knows all others.

    >>> is_object(b'{"a": 1}'), is_object(b'{"a": 1} '), is_object(b'{"a": 1}, {}'), is_object(b'["a"]')
    (True, False, False, False)
    """
    if not (body.startswith(b"{") and body.endswith(b"}")):
        return False
    try:
        if not body.isascii():
            body.decode()
        VALUE.decode(body)
    except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return False
    return len(body) <= SHALLOW_BYTES_MAX or not is_too_deep(body)


def is_too_deep(message: bytes) -> bool:
    """Whether a JSON value, which may be cut off, has more levels of arrays and objects than a message may have.

    >>> is_too_deep(b"[" * 512 + b"]" * 512), is_too_deep(b"[" * 513), is_too_deep(b'["' + b"[" * 999)
    (False, True, False)
    """
    if message.count(b"[") + message.count(b"{") <= JSON_DEPTH_MAX:
        return False
    depth, in_string = 0, 0
    for piece in _pieces(message, _BRACKETS_BYTES):
        # Strings without brackets leave two quotation marks; then every other part between quotation marks is a string.
        parts = _without_escapes(piece).translate(_STEPS, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')
        steps = b"".join(parts[in_string::2])
        in_string = (in_string + len(parts) - 1) % 2
        rest = steps
        for _ in range(_LEAVES):
            rest = rest.replace(_UP + _DOWN, b"")
        opened = rest.count(_UP)
        # Only what may be too deep is followed step by step.
        may_be = depth + opened + _LEAVES > JSON_DEPTH_MAX
        if may_be and max(accumulate(memoryview(steps).cast("b"), initial=depth)) > JSON_DEPTH_MAX:
            return True
        depth += opened - rest.count(_DOWN)
    return False


def split(body: bytes) -> list[bytes] | Refusal:
    r"""The messages of a JSON body: the elements of an array (one level only), or the one value.

    >>> split(b' [1.0, {"a" : 1}] '), split(b'[[1,2]]'), split(b'[]'), split(b'"\\ud800"')
    ([b'1.0', b'{"a" : 1}'], [b'[1,2]'], [], [b'"\\ud800"'])
    """
    try:
        if not body.isascii():
            body.decode()
        messages = _split(body)
    except UnicodeDecodeError:
        return Refusal(Code.INVALID_JSON, "The body is not UTF-8, so it is not JSON.")
    except RecursionError:
        # The interpreter's own limit is higher, so it ends the decoding of values that are refused anyway.
        return TOO_DEEP
    except msgspec.ValidationError:
        return Refusal(
            Code.TOO_LARGE, f"The array has more than {MESSAGES_PER_APPEND_MAX} messages; append it in parts."
        )
    except msgspec.DecodeError as error:
        # How deep the decoder comes before it finds the mistake depends on the interpreter; the answer must not.
        if is_too_deep(body):
            return TOO_DEEP
        return Refusal(
            Code.INVALID_JSON, f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}."
        )
    return TOO_DEEP if len(body) > SHALLOW_BYTES_MAX and any(map(is_too_deep, messages)) else messages


def _split(body: bytes) -> list[bytes]:
    try:
        return _decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # A lone surrogate escape is legal JSON, but the decoder rejects it. Decode a copy without surrogates instead,
        # whose messages are in the same places.
        copy = b"".join(map(_without_surrogates, _pieces(body, PIECE_BYTES)))
    messages, at = [], 0
    for message in _decode(copy):
        at = copy.index(message, at)
        messages.append(body[at : at + len(message)])
        at += len(message)
    return messages


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    """Parts of the body without half an escape: while a thread works on one, no other thread can run."""
    at = 0
    while at < len(body):
        piece = body[at : at + size]
        if at + len(piece) < len(body):
            last = piece.rfind(b"\\", len(piece) - len(rb"\u123"))
            before = piece[: last + 1]
            # After an even number of backslashes another one begins an escape, which may end in the next piece.
            if (len(before) - len(before.rstrip(b"\\"))) % 2:
                piece = piece[:last]
        yield piece
        at += len(piece)


def _without_surrogates(piece: bytes) -> bytes:
    r"""A text of the same length that is part of a JSON text if this is, and has messages where this has them.

    Backslashes escape each other in pairs, from the first one of a run, and that is how `replace` finds them. When the
    pairs are gone, `\u` always begins an escape, and one that begins with `\u0` is never a surrogate. An x is neither
    a hexadecimal digit nor part of a value outside of strings, so nothing becomes valid by it.

    >>> print(_without_surrogates(rb'["\ud800", "\\ud800"]').decode())
    ["\u0800", "xxud800"]
    """
    return piece.replace(rb"\\", b"xx").replace(rb"\ud", rb"\u0").replace(rb"\uD", rb"\u0")


def _without_escapes(piece: bytes) -> bytes:
    r"""Part of a JSON text, without escaped quotation marks.

    >>> print(_without_escapes(rb'["\"[", "\\"]').decode())
    ["[", ""]
    """
    return piece.replace(rb"\\", b"").replace(rb"\"", b"")


def _decode(body: bytes) -> list[bytes]:
    if body.lstrip(WHITESPACE)[:1] == b"[":
        if body.count(b",") > COMMAS_PER_APPEND_MAX:
            raise msgspec.ValidationError
        return [bytes(element) for element in _ELEMENTS.decode(body)]
    return [bytes(VALUE.decode(body))]
