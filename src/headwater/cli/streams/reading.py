"""`headwater read` and `headwater tail`: bytes unchanged, messages one per line, or chunks as JSON."""

import json
import sys
import time
from base64 import b64encode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import BinaryIO, NamedTuple

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import NAME, Server, connected
from headwater.cli.failures import fail
from headwater.cli.printing import note
from headwater.client import NOW, START, Chunk, ServerUnavailable, Stream, StreamInfo, TransportFailed
from headwater.client.wire import Response
from headwater.protocol import content_types, headers, json_mode, offsets
from headwater.protocol.refusals import Refusal

WINDOW_BYTES = 64 * 1024
"""How much is read first from the end of a stream of bytes to find its last lines; doubled until they are found."""
RETRY_SECONDS_MAX = 5.0


@contextmanager
def opened(output: str) -> Iterator[BinaryIO]:
    """Open a file for writing; `-` is standard output."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with open(output, "wb") as file:
            yield file
    except OSError as error:
        fail(f"Cannot write to {output}: {error.strerror or error}; give another file with --output.")


def check_printable(data: bytes, file: BinaryIO, name: str) -> None:
    """Keep binary data away from a terminal."""
    if b"\0" in data and file.isatty():
        file.flush()
        fail(f"{name} holds binary data, which would garble the terminal; use --output FILE, or a pipe.")


def messages(chunk: Chunk) -> list[bytes]:
    """Return the messages of a chunk of a JSON stream as they were written."""
    found = json_mode.split(chunk.data) if chunk.data else []
    if isinstance(found, Refusal):
        fail(f"The data before offset {chunk.next_offset} is not JSON; check --url.", "protocol_violation")
    return found


def message_lines(chunk: Chunk) -> bytes:
    """Write one message of a JSON stream per line; line breaks between its tokens become spaces."""
    return b"".join(message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n" for message in messages(chunk))


def chunk_line(chunk: Chunk) -> bytes:
    """Write a chunk and the offset after it as one line of JSON; messages stay as they were written."""
    facts = json.dumps({"next_offset": chunk.next_offset, "up_to_date": chunk.up_to_date, "closed": chunk.closed})
    if content_types.is_json(chunk.content_type):
        name, value = "messages", b"[%b]" % message_lines(chunk).rstrip(b"\n").replace(b"\n", b",")
    else:
        try:
            name, value = "text", json.dumps(chunk.data.decode(), ensure_ascii=False).encode()
        except UnicodeDecodeError:
            name, value = "base64", json.dumps(b64encode(chunk.data).decode()).encode()
    return b'%b, "%b": %b}\n' % (facts[:-1].encode(), name.encode(), value)


# -- read --------------------------------------------------------------------------------------------------------------


@verb(
    "headwater read demo/log > copy.txt",
    "headwater read demo/events --lines | head -n 3",
    "headwater read demo/events --records --record 100",
)
@NAME
@click.option("--offset", default=START, help="Where to start: -1 is the beginning, or a next offset printed earlier.")
@click.option("--lines", is_flag=True, help="Print each message of a JSON stream on a line instead of one array.")
@click.option("--records", is_flag=True, help="Print each message of a JSON stream on a line, with its number.")
@click.option("--record", type=click.IntRange(min=0), default=None, help="Start with this number; needs --records.")
@click.option("--output", default="-", metavar="FILE", help="Write to a file.")
@JSON
@connected
def read(
    server: Server,
    *,
    name: str,
    offset: str,
    lines: bool,
    records: bool,
    record: int | None,
    output: str,
    as_json: bool,
) -> None:
    """Print a stream, byte for byte."""
    if records and (offset != START or lines or as_json):
        raise click.UsageError("--records takes --record N in place of an offset, and prints lines of JSON already.")
    if record is not None and not records:
        raise click.UsageError("--record N goes with --records.")
    if records:
        with opened(output) as file:
            place = {"record": str(record or 0), "record_view": "envelope"}
            for page in record_pages(server, name, place):
                file.write(page.body)
        return
    with server.stream(name).chunks(offset) as chunks:
        # The file is opened once there is an answer, so that a failed read does not overwrite it.
        first = next(chunks, None)
        with opened(output) as file:
            if first is not None:
                _write_all(file, first, chunks, name, lines=lines, as_json=as_json)


def _write_all(file: BinaryIO, first: Chunk, rest: Iterator[Chunk], name: str, *, lines: bool, as_json: bool) -> None:
    is_json = content_types.is_json(first.content_type)
    if lines and not is_json:
        fail(f"{name} is a {first.content_type} stream, which has no message boundaries; leave --lines out.")
    if as_json:
        for chunk in chain([first], rest):
            file.write(chunk_line(chunk))
    elif lines:
        for chunk in chain([first], rest):
            file.write(message_lines(chunk))
    elif is_json:
        _write_array(file, chain([first], rest))
    else:
        _write_bytes(file, chain([first], rest), name)


def _write_array(file: BinaryIO, chunks: Iterator[Chunk]) -> None:
    """Join the arrays of all chunks into one."""
    separator = b"["
    for chunk in chunks:
        if inner := chunk.data.strip()[1:-1]:
            file.write(separator + inner)
            separator = b","
    file.write(b"]\n" if separator == b"," else b"[]\n")


def _write_bytes(file: BinaryIO, chunks: Iterator[Chunk], name: str) -> None:
    last = b""
    for chunk in chunks:
        check_printable(chunk.data, file, name)
        file.write(chunk.data)
        last = chunk.data or last
    if file.isatty() and last and not last.endswith(b"\n"):
        file.write(b"\n")


def record_pages(server: Server, name: str, place: dict[str, str]) -> Iterator[Response]:
    """Yield pages with one message per line, exactly as the server wrote them: no parser rounds a number.

    `place` is the first page's query: `record` or `tail_records`, and how the messages are shown.
    """
    url = server.stream(name).url
    while True:
        page = server.read(url, place)
        following = page.header(headers.STREAM_RECORD_NEXT)
        if following is None:
            fail(f"The server at {server.url} does not number its messages; leave --records out.")
        yield page
        ended = page.flag(headers.STREAM_UP_TO_DATE) or page.flag(headers.STREAM_CLOSED)
        if ended or following == place.get("record"):
            return
        place = {key: value for key, value in place.items() if key != "tail_records"} | {"record": following}


# -- tail --------------------------------------------------------------------------------------------------------------


@verb(
    "headwater tail demo/log",
    "headwater tail -n 10 demo/events",
    "headwater tail demo/events --offset -1 --count 5 --json",
)
@NAME
@click.option("--offset", help="Where to start: now, -1 (the beginning), or an offset.  [default: now]")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    metavar="N",
    help="Start with the last N messages of a JSON stream, or the last N lines of any other.",
)
@click.option(
    "--count", type=click.IntRange(min=1), help="End after this many lines; each message of a JSON stream is one line."
)
@JSON
@connected
def tail(server: Server, *, name: str, offset: str | None, last: int | None, count: int | None, as_json: bool) -> None:
    """Follow a stream until it is closed, or until Ctrl-C.

    If the connection is lost, tail says so, retries until the server is back, and resumes at the exact byte.
    """
    if last is not None and offset is not None:
        raise click.UsageError("-n and --offset both say where to start; choose one.")
    stream = server.stream(name)
    try:
        # One request first, so that a wrong name or URL fails at once; after that, failures are retried.
        info = stream.head()
        with opened("-") as file:
            printer = Printer(file, name, info.is_json, as_json, count)
            place = ResumePoint(info.next_offset if offset in (None, NOW) else str(offset), info.incarnation)
            if last:
                chunk = _last(server, name, stream, info, last)
                place = ResumePoint(chunk.next_offset, chunk.incarnation or info.incarnation)
                if printer.print(chunk) or chunk.closed:
                    return
            _follow(server, name, place, printer)
    except KeyboardInterrupt:
        # The usual way to end it, so not a failure.
        return


class ResumePoint(NamedTuple):
    """Where to continue reading: an offset in one incarnation of a stream."""

    offset: str
    incarnation: str | None


class Printer:
    """Writes chunks to a file, up to a number of lines."""

    def __init__(self, file: BinaryIO, name: str, is_json: bool, as_json: bool, count: int | None) -> None:
        self._file, self._name = file, name
        self._is_json, self._as_json = is_json, as_json
        self._left = count

    def print(self, chunk: Chunk) -> bool:
        """Write a chunk; return whether enough lines are written."""
        if self._as_json:
            text = b"" if chunk.empty and not chunk.closed else chunk_line(chunk)
        else:
            text = message_lines(chunk) if self._is_json else chunk.data
            check_printable(text, self._file, self._name)
        if self._left is not None:
            text, self._left = first_lines(text, self._left)
        self._file.write(text)
        self._file.flush()
        return self._left == 0


def first_lines(data: bytes, count: int) -> tuple[bytes, int]:
    """Return at most `count` lines, and how many lines are still missing.

    >>> first_lines(b"a\\nb\\nc", 1), first_lines(b"a\\nb", 3)
    ((b'a\\n', 0), (b'a\\nb', 2))
    """
    lines = data.split(b"\n")
    if len(lines) > count:
        return b"\n".join(lines[:count]) + b"\n", 0
    return data, count - len(lines) + 1


def _follow(server: Server, name: str, place: ResumePoint, printer: Printer) -> None:
    """Print what arrives, and resume after failures for as long as the command runs."""
    failures = 0
    while True:
        try:
            with server.stream(name, place.incarnation).follow(place.offset) as chunks:
                for chunk in chunks:
                    if failures:
                        note("Connected again.")
                        failures = 0
                    place = ResumePoint(chunk.next_offset, chunk.incarnation or place.incarnation)
                    if printer.print(chunk):
                        return
            return
        except (TransportFailed, ServerUnavailable):
            if not failures:
                note("Connection lost; retrying (Ctrl-C stops).")
            failures += 1
            time.sleep(min(0.25 * 2 ** min(failures, 8), RETRY_SECONDS_MAX))


# -- The last messages -------------------------------------------------------------------------------------------------


def _last(server: Server, name: str, stream: Stream, info: StreamInfo, count: int) -> Chunk:
    if not info.is_json:
        return _last_lines(stream, info, count)
    return _last_messages(stream, count) if info.record_next is None else _last_records(server, name, info, count)


def _last_records(server: Server, name: str, info: StreamInfo, count: int) -> Chunk:
    """Ask the server for the last messages by their numbers."""
    lines: list[bytes] = []
    for page in record_pages(server, name, {"tail_records": str(count)}):
        lines += [line for line in page.body.split(b"\n") if line]
    return Chunk(
        data=b"[%b]" % b",".join(lines),
        next_offset=page.headers[headers.STREAM_NEXT_OFFSET.lower],
        content_type=info.content_type,
        up_to_date=True,
        closed=page.flag(headers.STREAM_CLOSED),
        incarnation=page.header(headers.STREAM_INCARNATION),
    )


def _last_messages(stream: Stream, count: int) -> Chunk:
    """Read the whole stream for its last messages, where a server does not number them."""
    kept: deque[bytes] = deque(maxlen=count)
    chunk: Chunk | None = None
    with stream.chunks(START, on_trimmed="earliest") as chunks:
        for chunk in chunks:
            kept.extend(messages(chunk))
    assert chunk is not None, "a read that succeeds has at least one page"
    return _with_data(chunk, b"[%b]" % b",".join(kept))


def _last_lines(stream: Stream, info: StreamInfo, count: int) -> Chunk:
    """Read backwards from the end, in windows that double, until they hold enough lines."""
    end, window = offsets.parse(info.next_offset), WINDOW_BYTES
    while True:
        # Offsets of another server may not be byte positions: then the whole stream is read.
        begin = 0 if end is None else max(end - window, 0)
        start = START if begin == 0 else offsets.render(begin, offsets.Form.FLAT)
        with stream.chunks(start, on_trimmed="earliest") as chunks:
            first = next(chunks)
            last, lines, length = first, deque[bytes](maxlen=count + 1), 0
            rest = b""
            for last in chain([first], chunks):
                *whole, rest = (rest + last.data).split(b"\n")
                lines.extend(line + b"\n" for line in whole)
                length += len(last.data)
        if rest:
            lines.append(rest)
        # Fewer bytes than requested: the server has trimmed the rest.
        if begin == 0 or len(lines) > count or (end is not None and length < end - begin):
            return _with_data(last, b"".join(list(lines)[-count:]))
        window *= 2


def _with_data(chunk: Chunk, data: bytes) -> Chunk:
    return Chunk(data, chunk.next_offset, chunk.content_type, True, chunk.closed, chunk.incarnation)
