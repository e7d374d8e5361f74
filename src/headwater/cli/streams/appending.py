"""`headwater append`: arguments or standard input, appended in order."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Protocol

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import NAME, Server, as_flat, connected
from headwater.cli.failures import fail
from headwater.cli.printing import counted, note, say
from headwater.cli.streams.inputs import BadInput, Batch, Cut, batches
from headwater.client import Appended, Producer, RequestRefused, Stream
from headwater.protocol import content_types

NO_SUCH_RESOURCE = frozenset({404, 405, 501})
"""How a server without batches refuses one, and how ours does for a stream with a slash in its name in the bucket."""
PENDING_BYTES_MAX = 256 * 1024
IN_FLIGHT_MAX = 2
"""One request travels while the other is applied. More would overtake each other and be refused out of order."""


class Writer(Protocol):
    """Writes batches to a stream."""

    messages: int
    duplicates: int
    next_offset: str | None

    def write(self, batch: Batch, *, last: bool) -> None: ...

    def finish(self, *, close: bool) -> None: ...


@verb(
    "headwater append demo/log 'hello, world'",
    "tail -f app.log | headwater append demo/log --lines",
    "headwater append demo/events --lines --producer import-7 < orders.ndjson",
)
@NAME
@click.argument("data", nargs=-1)
@click.option("--lines", is_flag=True, help="Each line is a message; on a JSON stream, each line is a JSON value.")
@click.option("--json-values", is_flag=True, help="The input is a sequence of JSON values; each is a message.")
@click.option(
    "--producer",
    metavar="ID",
    help="Append each message once, however often the command is repeated: message N is number N of this producer.",
)
@click.option(
    "--epoch", type=click.IntRange(min=0), default=0, help="Epoch of the producer; a higher one fences off lower ones."
)
@click.option("--close", is_flag=True, help="Close the stream with the last message.")
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
    """Append DATA, or standard input if there is none or it is -."""
    if lines and json_values:
        raise click.UsageError("--lines and --json-values exclude each other; choose one.")
    if epoch and producer is None:
        raise click.UsageError("--epoch needs a producer; name it with --producer.")
    stream = server.stream(name)
    is_json = content_types.is_json(stream.head().content_type)
    if json_values and not is_json:
        fail(f"{name} is a {stream.content_type} stream, not a JSON stream; leave --json-values out.")
    cut: Cut = "lines" if lines else "json-values" if json_values else "whole"
    writer: Writer
    writer = Plain(server, name, stream, is_json) if producer is None else Produced(stream, producer, epoch, is_json)
    try:
        for batch, last in _with_last(batches(data, cut, is_json), known=close):
            writer.write(batch, last=last)
        writer.finish(close=close)
    except (BadInput, ValueError) as error:
        # The messages before the bad one are written; the error says how many.
        writer.finish(close=False)
        before = f"; {counted(writer.messages, 'message')} before it appended" if writer.messages else ""
        fail(f"{str(error).rstrip('.')}{before}.", "invalid_input")
    _print(writer, name, as_json)


def _with_last(source: Iterator[Batch], *, known: bool) -> Iterator[tuple[Batch, bool]]:
    """Yield each batch and whether it is the last; only if that must be `known`, hold each back for the next."""
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
    """Sends one request at a time; one that gets no answer ends the command."""

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
        """Append messages in one request and keep their boundaries; return False if the server has no batches."""
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
    """Sends one request per message, numbered like the messages, so that a repeated run skips what is written."""

    def __init__(self, stream: Stream, id: str, epoch: int, is_json: bool) -> None:
        self.messages = self.duplicates = 0
        self.next_offset: str | None = None
        self._is_json = is_json
        # With one message per request, a longer input gives the same numbers to the same messages, so a duplicate is
        # a message that an earlier run has written.
        self._producer: Producer = stream.producer(
            id,
            epoch=epoch,
            on_duplicate="accept",
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
            appended = written.result()
            self.messages += not appended.duplicate
            self.duplicates += appended.duplicate
            self.next_offset = appended.next_offset


def _print(writer: Writer, name: str, as_json: bool) -> None:
    facts = {"messages": writer.messages, "duplicates": writer.duplicates, "next_offset": writer.next_offset}
    if as_json:
        click.echo(json.dumps({"name": name, **facts}))
        return
    if writer.duplicates and not writer.messages:
        # On standard error, so that a script that meant new messages does not lose them without a word.
        note(
            f"Nothing was appended to {name}: an earlier run of this producer has written "
            f"{counted(writer.duplicates, 'message')} under the same numbers; for new messages use a higher --epoch."
        )
        return
    before = f", skipped {counted(writer.duplicates, 'duplicate')}" if writer.duplicates else ""
    where = f"; the next offset is {writer.next_offset}" if writer.next_offset else ""
    say(f"Appended {counted(writer.messages, 'message')} to {name}{before}{where}.")
