"""How `read` and `tail` write what they read: bytes unchanged, messages one per line, chunks as JSON."""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from headwater.cli.failures import fail
from headwater.client import Chunk
from headwater.protocol import content_types, json_mode
from headwater.protocol.refusals import Refusal


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
