"""`headwater read` and `headwater tail`: what a stream holds, and what comes."""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from headwater.cli.connecting import JSON, Server, connected
from headwater.cli.failures import fail
from headwater.cli.streams.completing import NAME
from headwater.client import NOW, START, Chunk
from headwater.client.wire import RECORD_NEXT, STREAM_CLOSED, UP_TO_DATE
from headwater.protocol import content_types, json_mode
from headwater.protocol.refusals import Refusal


@click.command()
@NAME
@click.option("--offset", default=START, help="Where to begin: -1 at the start, or an offset that was given.")
@click.option("--lines", is_flag=True, help="One message of a JSON stream a line, instead of one array.")
@click.option("--records", is_flag=True, help="One message of a JSON stream a line, with its number.")
@click.option("--record", type=click.IntRange(min=0), default=None, help="Begin with this number; goes with --records.")
@click.option("--output", default="-", help="Write to this file.")
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
    """Write what a stream holds to standard output, byte for byte."""
    if records and (offset != START or lines or as_json):
        raise click.UsageError("--records takes --record N in place of an offset, and prints lines of JSON already.")
    if record is not None and not records:
        raise click.UsageError("--record N goes with --records.")
    if records:
        with opened(output) as file:
            for page in _record_pages(server, name, record or 0):
                file.write(page)
        return
    with server.stream(name).chunks(offset) as chunks:
        # Nothing is written over before there is something to write.
        first = next(chunks, None)
        with opened(output) as file:
            if first is not None:
                _write_all(file, first, chunks, name, lines=lines, as_json=as_json)


def _write_all(file: BinaryIO, first: Chunk, rest: Iterator[Chunk], name: str, *, lines: bool, as_json: bool) -> None:
    is_json = content_types.is_json(first.content_type)
    if lines and not is_json:
        fail(f"{name} is a stream of {first.content_type}, whose messages have no borders; leave --lines out.")
    last = first.data
    if is_json and not lines and not as_json:
        file.write(b"[")
    begun = False
    for chunk in _chained(first, rest):
        if as_json:
            file.write(chunk_line(chunk))
        elif lines:
            file.write(message_lines(chunk))
        elif is_json:
            if inner := chunk.data.strip()[1:-1]:
                file.write(b"," * begun + inner)
                begun = True
        else:
            _check_printable(chunk.data, file, name)
            file.write(chunk.data)
            last = chunk.data or last
    if is_json and not lines and not as_json:
        file.write(b"]\n")
    elif file.isatty() and not is_json and last and not last.endswith(b"\n"):
        file.write(b"\n")


def _record_pages(server: Server, name: str, first: int) -> Iterator[bytes]:
    """Lines with a number and a message each, as the server wrote them: no number in them is rounded by a parser."""
    url = server.stream(name).url
    while True:
        response = server.send("GET", url, {"record": str(first), "record_view": "envelope"})
        if RECORD_NEXT not in response.headers:
            fail(f"The server at {server.url} does not number its messages; leave --records out.")
        yield response.body
        following = int(response.headers[RECORD_NEXT])
        if response.flag(UP_TO_DATE) or response.flag(STREAM_CLOSED) or following == first:
            return
        first = following


def _chained(first: Chunk, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    yield first
    yield from rest


def _check_printable(data: bytes, file: BinaryIO, name: str) -> None:
    if b"\0" in data and file.isatty():
        file.flush()
        fail(f"{name} holds bytes that would upset the terminal; use --output FILE, or pipe them somewhere.")


@click.command()
@NAME
@click.option("--offset", default=NOW, show_default=True, help="Where to begin: now, -1 (the start), or an offset.")
@click.option(
    "--count", type=click.IntRange(min=1), help="End after so many lines; of a JSON stream, each message is one."
)
@JSON
@connected
def tail(server: Server, name: str, offset: str, count: int | None, as_json: bool) -> None:
    """Follow a stream until it is closed; Ctrl-C ends it too."""
    stream = server.stream(name)
    try:
        # At once, so that a wrong name or URL is told at once; what follows is patient.
        is_json = stream.head().is_json
        with stream.follow(offset) as chunks, opened("-") as file:
            for chunk in chunks:
                if as_json:
                    shown = b"" if chunk.empty and not chunk.closed else chunk_line(chunk)
                else:
                    shown = message_lines(chunk) if is_json else chunk.data
                    _check_printable(shown, file, name)
                if count is not None:
                    shown, count = _first_lines(shown, count)
                file.write(shown)
                file.flush()
                if count == 0:
                    return
    except KeyboardInterrupt:
        # This is how one ends it.
        return


def _first_lines(data: bytes, count: int) -> tuple[bytes, int]:
    """At most so many lines, and how many are left to come.

    >>> _first_lines(b"a\\nb\\nc", 1), _first_lines(b"a\\nb", 3)
    ((b'a\\n', 0), (b'a\\nb', 2))
    """
    lines = data.split(b"\n")
    if len(lines) > count:
        return b"\n".join(lines[:count]) + b"\n", 0
    return data, count - len(lines) + 1


# -- What is written ---------------------------------------------------------------------------------------------------


@contextmanager
def opened(output: str) -> Iterator[BinaryIO]:
    """A file to write to, or standard output for `-`."""
    if output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with open(output, "wb") as file:
            yield file
    except OSError as error:
        fail(f"Cannot write to {output}: {error.strerror or error}; give another file with --output.")


def message_lines(chunk: Chunk) -> bytes:
    """The messages of a JSON stream as they were written, one a line; line ends between their tokens are spaces."""
    found = json_mode.split(chunk.data) if chunk.data else []
    if isinstance(found, Refusal):
        fail(f"What came before offset {chunk.next_offset} is not JSON; check --url.")
    return b"".join(message.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n" for message in found)


def chunk_line(chunk: Chunk) -> bytes:
    """A piece of a stream and where to go on, as one line of JSON; messages are as they were written."""
    facts = json.dumps({"next_offset": chunk.next_offset, "up_to_date": chunk.up_to_date, "closed": chunk.closed})
    if content_types.is_json(chunk.content_type):
        name, value = "messages", b"[%b]" % message_lines(chunk).rstrip(b"\n").replace(b"\n", b",")
    else:
        try:
            name, value = "text", json.dumps(chunk.data.decode(), ensure_ascii=False).encode()
        except UnicodeDecodeError:
            name, value = "base64", json.dumps(b64encode(chunk.data).decode()).encode()
    return b'%b, "%b": %b}\n' % (facts[:-1].encode(), name.encode(), value)
