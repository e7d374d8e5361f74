"""`headwater append`: what is given, or what comes through a pipe, written in order."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Protocol

import click

from headwater.cli.connecting import JSON, Server, as_flat, connected
from headwater.cli.failures import fail
from headwater.cli.printing import say
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.inputs import BadInput, Batch, Cut, batches
from headwater.client import Appended, Producer, RequestRefused, Stream
from headwater.protocol import content_types

NO_SUCH_RESOURCE = frozenset({404, 405, 501})
"""What a server without batches may say to one, and ours where a stream's name has no place below its bucket."""
PENDING_BYTES_MAX = 256 * 1024
IN_FLIGHT_MAX = 2
"""One is on its way while the other is applied. With more, some overtake others and are refused until those arrive."""


class Writer(Protocol):
    """Where batches go."""

    messages: int
    duplicates: int
    next_offset: str | None

    def write(self, batch: Batch, *, last: bool) -> None: ...

    def finish(self, *, close: bool) -> None: ...


@click.command()
@NAME
@click.argument("data", nargs=-1)
@click.option("--lines", is_flag=True, help="Each line is a message; on a JSON stream, each line is a JSON value.")
@click.option("--json-values", is_flag=True, help="JSON values one after another, each a message, also an array.")
@click.option(
    "--producer", help="Write each message once, however often this is run: message N is number N of this id."
)
@click.option(
    "--epoch", type=click.IntRange(min=0), default=0, help="Which life of the producer; a higher one takes over."
)
@click.option("--close", is_flag=True, help="Close the stream behind the last message.")
@JSON
@connected
def append(
    server: Server,
    *,
    name: str,
    data: tuple[str, ...],
    lines: bool,
    json_values: bool,
    producer: str | None,
    epoch: int,
    close: bool,
    as_json: bool,
) -> None:
    """Append DATA, or with none (or -) what is piped in."""
    if lines and json_values:
        raise click.UsageError("--lines and --json-values are two ways to cut the input; choose one.")
    if epoch and producer is None:
        raise click.UsageError("--epoch is of a producer; name it with --producer.")
    stream = server.stream(name)
    is_json = content_types.is_json(stream.head().content_type)
    if json_values and not is_json:
        fail(f"{name} is a stream of {stream.content_type}, so it takes no JSON values; leave --json-values out.")
    cut: Cut = "lines" if lines else "json-values" if json_values else "whole"
    writer: Writer
    writer = Plain(server, name, stream, is_json) if producer is None else Produced(stream, producer, epoch, is_json)
    try:
        for batch, last in _with_last(batches(data, cut, is_json), known=close):
            writer.write(batch, last=last)
        writer.finish(close=close)
    except (BadInput, ValueError) as error:
        # What came before is written, and said to be.
        writer.finish(close=False)
        fail(f"{str(error).rstrip('.')} ({_counted(writer.messages)} appended before it).")
    _tell(writer, name, as_json)


def _with_last(source: Iterator[Batch], *, known: bool) -> Iterator[tuple[Batch, bool]]:
    """Each batch, and whether it is the last; only where that must be known is one held back until the next comes."""
    if not known:
        for batch in source:
            yield batch, False
        return
    held: Batch | None = None
    for batch in source:
        if held is not None:
            yield held, False
        held = batch
    if held is not None:
        yield held, True


class Plain:
    """Requests one after another; one that got no answer ends the command."""

    def __init__(self, server: Server, name: str, stream: Stream, is_json: bool) -> None:
        self.messages = self.duplicates = 0
        self.next_offset: str | None = None
        self._stream, self._is_json = stream, is_json
        self._closed = False
        self._batched: Stream | None = server.extended(name)
        self._batched.content_type = stream.content_type

    def write(self, batch: Batch, *, last: bool) -> None:
        if self._is_json:
            self._append(b"[%b]" % b",".join(batch), len(batch), last)
        elif len(batch) == 1 or not self._append_batch(batch):
            for at, message in enumerate(batch, 1):
                self._append(message, 1, last and at == len(batch))

    def finish(self, *, close: bool) -> None:
        if close and not self._closed:
            self.next_offset = self._stream.close_stream().next_offset

    def _append(self, body: bytes, messages: int, last: bool) -> None:
        done = self._stream.close_stream(body) if last else self._stream.append(body)
        self._closed = last
        self.messages += messages
        self.next_offset = done.next_offset

    def _append_batch(self, batch: Batch) -> bool:
        """Append each message with borders of its own in one request; False if there is no such request here."""
        if self._batched is None:
            return False
        try:
            acks = self._batched.append_batch(batch)
        except RequestRefused as error:
            if error.status not in NO_SUCH_RESOURCE and error.code != "invalid_name":
                raise
            self._batched = None
            return False
        for ack in acks:
            if not ack.ok:
                raise ValueError(f"The server refused message {self.messages + 1}: {ack.error or ack.code}")
            self.messages += 1
            self.next_offset = as_flat(ack.next_offset)
        return True


class Produced:
    """A request for each message, numbered as the messages are: what was written by an earlier run is left out."""

    def __init__(self, stream: Stream, id: str, epoch: int, is_json: bool) -> None:
        self.messages = self.duplicates = 0
        self.next_offset: str | None = None
        self._is_json = is_json
        # One message a request: a longer input later has the same numbers for the same messages.
        self._producer: Producer = stream.producer(
            id,
            epoch=epoch,
            batch_messages_max=1,
            linger_ms=0,
            in_flight_max=IN_FLIGHT_MAX,
            pending_bytes_max=PENDING_BYTES_MAX,
        )

    def write(self, batch: Batch, *, last: bool) -> None:
        for message in batch:
            written = self._producer.append(b"[%b]" % message if self._is_json else message)
            written.add_done_callback(self._count)

    def finish(self, *, close: bool) -> None:
        if close:
            self.next_offset = self._producer.close_stream().next_offset
        self._producer.close()

    def _count(self, written: "Future[Appended]") -> None:
        if written.exception() is None:
            told = written.result()
            self.messages += not told.duplicate
            self.duplicates += told.duplicate
            self.next_offset = told.next_offset


def _tell(writer: Writer, name: str, as_json: bool) -> None:
    facts = {"messages": writer.messages, "duplicates": writer.duplicates, "next_offset": writer.next_offset}
    if as_json:
        click.echo(json.dumps({"name": name, **facts}))
        return
    before = f", {_counted(writer.duplicates)} had been there" if writer.duplicates else ""
    where = f"; the stream goes on at {writer.next_offset}" if writer.next_offset else ""
    say(f"Appended {_counted(writer.messages)} to {name}{before}{where}.")


def _counted(messages: int) -> str:
    return f"{messages:,} message{'' if messages == 1 else 's'}"
