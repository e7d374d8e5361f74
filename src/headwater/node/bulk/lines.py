"""Bulk appends in progress: the rows of each stream form a line, and no row overtakes another in its line.

    a row is submitted alone        and the next of its line once it was accepted
    or directly after another       if anything that refuses that one refuses all rows after it too
    after a refused row             nothing is submitted; the rest of the line is answered with the same code

All rows of a line go to one incarnation of its stream, that of the first accepted row. Rows are submitted a slice per
turn of the loop, a row larger than a slice is cut in a thread while its line waits, and few rows are in flight at a
time. So a request of any size neither blocks the loop nor fills the queue of the log, and is refused for lack of room
only when a single append would be refused too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

import msgspec

from headwater.node.bulk.rows import BulkRows
from headwater.node.committer import Submit
from headwater.protocol.content_types import DEFAULT
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import MIB
from headwater.protocol.names import parse_whole
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands.streams import Append, Create
from headwater.streams.replies import Appended, ClosedOnly, Created, Duplicate, Existed, Reply
from headwater.streams.state import Stream

SLICE_ROWS = 250
SLICE_BYTES = MIB // 2
SLICE_MESSAGES = 4_096
"""How much is made and submitted in one turn of the loop: two or three milliseconds, also for JSON."""
WINDOW_ROWS = 1_000
WINDOW_BYTES = 8 * MIB
"""How much of a request may be in flight: about what is applied in ten milliseconds, and the size of one commit."""

Outcome = Appended | Duplicate | ClosedOnly | Created | Refusal
_ACCEPTED = (Appended, Duplicate, ClosedOnly, Created)
_MISSING = frozenset({Code.STREAM_NOT_FOUND, Code.STREAM_GONE})


class Submitter(Protocol):
    """Where appends are submitted: the part of a node that a bulk append needs."""

    @property
    def submit(self) -> Submit:
        """Has a command decided."""

    def present(self, name: str) -> Stream | Refusal:
        """The living stream of that name, or why there is none."""

    def judge_append(self, command: Append) -> Reply | None:
        """The answer to an append with bad messages that takes precedence over theirs."""


class _Line:
    """The rows of one stream, in order, and its progress."""

    __slots__ = ("at", "highest", "in_flight", "incarnation", "queued", "refusal", "rows", "sure")

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows
        self.at = 0
        self.in_flight = 0
        self.queued = False
        self.incarnation: int | None = None
        self.sure = False
        """Whether every row in flight follows an accepted row so closely that one refusal refuses all."""
        self.highest: int | None = None
        """The highest number that the stream knows of the producer, if the last accepted row was a duplicate."""
        self.refusal: Refusal | None = None
        """The answer to rows after a refused one."""


class BulkAppend:
    """The rows of one request; `wanted` says whether the client still waits for them.

    Large rows are cut in `threads`, by default those of the loop. `submit` stands in for the target's.
    """

    def __init__(
        self,
        target: Submitter,
        rows: BulkRows,
        wanted: Callable[[], bool],
        threads: Executor | None = None,
        *,
        submit: Submit | None = None,
    ) -> None:
        self._target, self._rows, self._wanted, self._threads = target, rows, wanted, threads
        self._submit_command = submit or target.submit
        self.outcomes: list[Outcome] = [_UNDECIDED] * len(rows)
        self._undecided = len(rows)
        self._fresh = deque(rows.lines.values())
        """The rows of lines that have not begun. There may be as many lines as rows, so each is made when it begins."""
        self._ready: deque[_Line] = deque()
        self._rows_in_flight = self._bytes_in_flight = 0
        self._woken = asyncio.Event()

    async def run(self) -> bool:
        """Have every row decided; False if the client left, and some rows may never have been submitted."""
        while self._undecided:
            if not self._wanted():
                return False
            if self._may_submit:
                await self._submit_slice()
                await asyncio.sleep(0)
            else:
                self._woken.clear()
                await self._woken.wait()
        return True

    @property
    def _may_submit(self) -> bool:
        has_room = self._rows_in_flight < WINDOW_ROWS and self._bytes_in_flight < WINDOW_BYTES
        return has_room and bool(self._ready or self._fresh)

    async def _submit_slice(self) -> None:
        rows = size = messages = 0
        while rows < SLICE_ROWS and size < SLICE_BYTES and messages < SLICE_MESSAGES and self._may_submit:
            line = self._ready.popleft() if self._ready else _Line(self._fresh.popleft())
            line.queued = False
            if line.refusal is not None:
                continue  # A row before it was refused while it waited for its turn.
            row = line.rows[line.at]
            rows, size, messages = rows + 1, size + self._rows.sizes[row], messages + self._rows.messages(row)
            await self._send(line, row)
            self._queue(line)

    def _queue(self, line: _Line) -> None:
        """Queue a line for its next row, if that may be submitted."""
        if line.queued or line.at == len(line.rows):
            return
        if not line.in_flight or (line.sure and self._goes_with_the_last(line)):
            line.queued = True
            self._ready.append(line)

    def _goes_with_the_last(self, line: _Line) -> bool:
        if line.at == 0:
            return False
        row = line.rows[line.at]
        if line.highest is not None and self._rows.producers[row][2] == line.highest + 1:
            return False  # The row before it may be refused as other content under a known number, and this one not.
        return self._rows.goes_with(row, line.rows[line.at - 1])

    # -- One row ------------------------------------------------------------------------------------------------------

    async def _send(self, line: _Line, row: int) -> None:
        rows, target = self._rows, self._target
        if not line.in_flight:
            line.sure = line.incarnation is not None and self._goes_with_the_last(line)
        line.at += 1
        line.in_flight += 1
        self._rows_in_flight += 1
        self._bytes_in_flight += rows.sizes[row]
        founding = bool(rows.creates[row]) and line.incarnation is None
        unnamed: str | Refusal = DEFAULT
        name = parse_whole(rows.names[row])
        if isinstance(name, Refusal):
            self._decide(line, row, name)
            return
        if founding or rows.content_types[row] is None:
            stream = target.present(name)
            if isinstance(stream, Stream):
                unnamed, founding = stream.content_type, False
            elif not founding:
                unnamed = stream
        append = await self._made(row, unnamed, line.incarnation)
        if line.refusal is not None:
            # A row before it was refused meanwhile.
            self._decide(line, row, line.refusal)
        elif isinstance(append, Append):
            self._submit(line, row, append, founding=founding)
        elif isinstance(append, BadBody):
            standing = target.judge_append(append.append)
            if standing is None or (founding and _is_missing(standing)):
                standing = append.refusal
            self._decide(line, row, standing)
        else:
            self._decide(line, row, append)

    async def _made(self, row: int, unnamed: str | Refusal, incarnation: int | None) -> Append | BadBody | Refusal:
        make = partial(self._rows.append, row, unnamed, incarnation)
        if self._rows.sizes[row] <= SLICE_BYTES and self._rows.messages(row) <= SLICE_MESSAGES:
            return make()
        return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    def _submit(self, line: _Line, row: int, append: Append, *, founding: bool) -> None:
        if not founding:
            self._submit_command(append, partial(self._appended, line, row, append))
            return
        # As one command, so that no stream is created for messages that are refused.
        content_type = append.content_type or self._rows.content_types[row] or DEFAULT
        messages = append.payload, append.ends
        create = Create(append.name, content_type, FOREVER, append.close, *messages, producer=append.producer)
        self._submit_command(create, partial(self._founded, line, row, append))

    def _founded(self, line: _Line, row: int, append: Append, reply: Reply) -> None:
        exists = isinstance(reply, Existed) or (isinstance(reply, Refusal) and reply.code is Code.STREAM_EXISTS)
        if exists:
            # Another client created it meanwhile, with a content type and lifetime of its choice.
            self._submit(line, row, append, founding=False)
        else:
            self._decide(line, row, reply)

    def _appended(self, line: _Line, row: int, append: Append, reply: Reply) -> None:
        if self._rows.creates[row] and append.incarnation is None and _is_missing(reply):
            # It existed before and has been deleted since.
            self._submit(line, row, append, founding=True)
        else:
            self._decide(line, row, reply)

    def _decide(self, line: _Line, row: int, reply: Reply) -> None:
        line.in_flight -= 1
        self._rows_in_flight -= 1
        self._bytes_in_flight -= self._rows.sizes[row]
        self._undecided -= 1
        self._woken.set()
        if isinstance(reply, Refusal):
            self.outcomes[row] = line.refusal or reply
            self._stop(line, reply)
            return
        assert isinstance(reply, _ACCEPTED)
        self.outcomes[row] = reply
        line.incarnation = reply.incarnation
        line.highest = reply.producer_seq if isinstance(reply, Duplicate) else None
        self._queue(line)

    def _stop(self, line: _Line, refusal: Refusal) -> None:
        """End a line at a refused row."""
        if line.refusal is None:
            detail = f"An earlier row of the same stream was refused: {refusal.detail}"
            line.refusal = msgspec.structs.replace(refusal, detail=detail)
            for row in line.rows[line.at :]:
                self.outcomes[row] = line.refusal
            self._undecided -= len(line.rows) - line.at
            line.at = len(line.rows)


_UNDECIDED = Refusal(Code.INTERNAL, "This row was not decided.")


def _is_missing(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code in _MISSING
