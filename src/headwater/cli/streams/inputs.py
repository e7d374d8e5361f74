"""The input of `append`, from arguments or a pipe, in batches: as it arrives, in order, never all in memory."""

import codecs
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedIOBase
from itertools import chain
from typing import Literal

import click

from headwater.protocol import json_mode
from headwater.protocol.limits import APPEND_BYTES_MAX, BATCH_FRAMES_MAX, JSON_DEPTH_MAX
from headwater.protocol.refusals import Refusal

READ_BYTES = 256 * 1024
PIECE_BYTES = 4 * 1024 * 1024
"""A longer pipe of bytes is appended in pieces of this size."""

WHITE = re.compile(r"[ \t\r\n]*")
_LEVELS = f" of at most {JSON_DEPTH_MAX} levels"

Cut = Literal["whole", "lines", "json-values"]
Batch = list[bytes]


class BadInput(Exception):
    """A part of the input cannot be appended; what is before it can."""


def batches(data: Sequence[str], cut: Cut, is_json: bool) -> Iterator[Batch]:
    """Return the messages of the command line or of standard input."""
    if data and tuple(data) != ("-",):
        return _grouped(message for one in data for message in _of_argument(one, cut, is_json))
    return _of_pipe(_standard_input(), cut, is_json)


def _of_argument(text: str, cut: Cut, is_json: bool) -> Iterator[bytes]:
    data = os.fsencode(text)
    if not data:
        raise click.UsageError("DATA is empty; there is nothing to append.")
    match cut:
        case "lines":
            lines = data.splitlines(keepends=True) if not is_json else data.split(b"\n")
            yield from _checked(enumerate(lines, 1)) if is_json else lines
        case "json-values":
            yield from chain.from_iterable(_values([data]))
        case "whole":
            yield from _messages(data) if is_json else [data]


def _of_pipe(pipe: BufferedIOBase, cut: Cut, is_json: bool) -> Iterator[Batch]:
    match cut:
        case "lines" if is_json:
            return _in_step(_checked_lines(pipe))
        case "lines":
            return _in_step(_lines(pipe))
        case "json-values":
            return _in_step(_values(_arriving(pipe)))
    return _grouped(_messages(_all(pipe)) if is_json else iter(lambda: pipe.read(PIECE_BYTES), b""))


def _standard_input() -> BufferedIOBase:
    if sys.stdin.isatty():
        click.echo("Type what to append, then Ctrl-D.", err=True)
    pipe: object = sys.stdin.buffer
    if not isinstance(pipe, BufferedIOBase):
        raise BadInput("Standard input cannot be read; give DATA as an argument.")
    return pipe


def _grouped(messages: Iterable[bytes]) -> Iterator[Batch]:
    """Collect messages into batches by count and size; for input that need not be sent at once."""
    batch: Batch = []
    size = 0
    failure: BadInput | None = None
    try:
        for message in messages:
            batch.append(message)
            size += len(message)
            if len(batch) == BATCH_FRAMES_MAX or size >= READ_BYTES:
                yield batch
                batch, size = [], 0
    except BadInput as error:
        failure = error
    if batch:
        yield batch
    if failure is not None:
        raise failure


# -- Lines -------------------------------------------------------------------------------------------------------------


def _arriving(pipe: BufferedIOBase) -> Iterator[bytes]:
    """Yield what has arrived without waiting for more: lines of a slow writer go out singly, of a fast one together."""
    return iter(lambda: pipe.read1(READ_BYTES), b"")


def _lines(pipe: BufferedIOBase) -> Iterator[Batch]:
    """Yield whole lines with their line ends, so that they read back unchanged; the last may have none."""
    rest = b""
    for data in _arriving(pipe):
        *whole, rest = (rest + data).split(b"\n")
        yield [line + b"\n" for line in whole]
        if len(rest) > APPEND_BYTES_MAX:
            raise BadInput(f"A line is longer than {APPEND_BYTES_MAX} bytes; append the file without --lines.")
    if rest:
        yield [rest]


def _checked_lines(pipe: BufferedIOBase) -> Iterator[Batch]:
    number = 0
    for lines in _lines(pipe):
        yield from _grouped(_checked(enumerate(lines, number + 1)))
        number += len(lines)


def _checked(lines: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield each line as one message of a JSON stream, without empty lines."""
    for number, line in lines:
        message = line.strip()
        if message:
            found = json_mode.split(b"[%b]" % message)
            if isinstance(found, Refusal) or len(found) != 1:
                reason = f"Line {number} is not one JSON value{_LEVELS}"
                raise BadInput(f"{reason}; correct it, and append from that line on.")
            yield message


def _in_step(source: Iterable[Batch]) -> Iterator[Batch]:
    """Split batches to the size of a request, and drop empty ones."""
    for batch in source:
        for at in range(0, len(batch), BATCH_FRAMES_MAX):
            yield batch[at : at + BATCH_FRAMES_MAX]


# -- JSON --------------------------------------------------------------------------------------------------------------


def _all(pipe: BufferedIOBase) -> bytes:
    data = pipe.read(APPEND_BYTES_MAX + 1)
    if len(data) > APPEND_BYTES_MAX:
        raise BadInput(f"The input is longer than {APPEND_BYTES_MAX} bytes; use --lines or --json-values.")
    return data


def _messages(body: bytes) -> Iterator[bytes]:
    """Return the messages of a body as the protocol defines them: each element of an array is one."""
    if not body.strip():
        return
    found = json_mode.split(body)
    if isinstance(found, Refusal):
        reason = found.detail.removeprefix("The body is not valid JSON: ").rstrip(".")
        raise BadInput(f"The stream holds JSON, and the input is not valid JSON: {reason}")
    yield from found


def _values(source: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the values of a sequence of JSON values, with any white space between them, as they arrive."""
    decoder, scanner = codecs.getincrementaldecoder("utf-8")(), json.JSONDecoder()
    text, wanted, count = "", 0, 0
    for data in chain(source, [b""]):
        text += _decoded(decoder, data)
        # An unfinished value is parsed again when there is twice as much of it, not at each piece: linear in total.
        if data and len(text) < wanted:
            continue
        at, batch = _after_white(text, 0), []
        while at < len(text):
            end = _end(scanner, text, at)
            # A number at the end of the input so far may continue in the next piece.
            if end is None or (data and end == len(text)):
                break
            value = text[at:end].encode()
            if json_mode.is_too_deep(value):
                break
            batch.append(value)
            at = _after_white(text, end)
        yield batch
        text, count = text[at:], count + len(batch)
        wanted = 2 * len(text)
        if len(text) > APPEND_BYTES_MAX:
            break
    if text:
        raise BadInput(f"Value {count + 1} is not valid JSON{_LEVELS}; correct it, and append from that value on.")


def _after_white(text: str, at: int) -> int:
    found = WHITE.match(text, at)
    return at if found is None else found.end()


def _decoded(decoder: codecs.IncrementalDecoder, data: bytes) -> str:
    try:
        return decoder.decode(data, final=not data)
    except UnicodeDecodeError:
        raise BadInput("The input is not UTF-8, so it is not JSON; convert it first.") from None


def _end(scanner: json.JSONDecoder, text: str, at: int) -> int | None:
    try:
        return scanner.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None
