"""`headwater read`."""

from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.failures import fail
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.output import check_printable, chunk_line, message_lines, opened
from headwater.client import START, Chunk
from headwater.client.wire import Response
from headwater.protocol import content_types, headers


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
