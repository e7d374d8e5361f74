"""The shared journal, as one of the processes that propose batches to its sequencer sees it.

A process starts from the journal files and connects when it has nearly caught up; what the sequencer decides from then
on arrives over the socket. If the sequencer ends, or drops this process, the process cannot know what was decided: it
ends, and is started anew.
"""

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from headwater.log.journal import files, identity
from headwater.log.journal.files import JournalDamaged, first_position_of
from headwater.log.journal.replaying import Replay
from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.log.workers.decided import DecidedPosition
from headwater.log.workers.messages import Inbox, Kind, Message
from headwater.log.workers.outbox import Outbox
from headwater.storage.disk import Disk, RealDisk
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command

NEARLY = 1_000
"""How many commands a process may lack when it connects; what is decided while it reads them waits in the socket."""
ROUNDS_MAX = 20
"""After so many readings of the files a process connects, however fast they grow."""
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 5.0
"""How long the sequencer may take to answer."""

log = logging.getLogger(__name__)


class HistoryDropped(Exception):
    """Journal files were removed while they were read, because there is a newer image to start from."""


def end_process(error: BaseException) -> None:
    """End at once: without the sequencer no answer can be given."""
    log.critical("the connection to the sequencer was lost, so this process ends: %s", error)
    os._exit(1)


class _Sent(NamedTuple):
    """A batch of ours in flight."""

    at: int
    commands: list[Command]
    size_bytes: int


class SharedJournal:
    """A `CommandLog`: one of several proposers of the journal in a directory, which the sequencer holds."""

    batches_in_flight_max = 2
    shared = True
    outage = None

    def __init__(
        self,
        directory: Path,
        sequencer: Path,
        decided: DecidedPosition,
        disk: Disk | None = None,
        on_failure: Callable[[BaseException], None] = end_process,
    ) -> None:
        self._directory, self._path, self._decided = directory, sequencer, decided
        self._disk, self._on_failure = disk or RealDisk(), on_failure
        ours = identity.load(directory, self._disk)
        if ours is None:
            raise JournalDamaged(f"{directory / identity.NAME} is missing; restore it from a copy.")
        self.log_id, self._seed = ours.log_id, ours.seed
        self.size_bytes = 0
        self.has_room = True
        self.shortage = ""
        self._socket: socket.socket | None = None
        self._inbox = Inbox()
        self._outbox: Outbox
        self._early: list[Message] = []
        """What came behind the welcome, before `start`."""
        self._number = 0
        self._delivered = 0
        self._in_flight: dict[Ticket, _Sent] = {}
        self._barriers: deque[tuple[int, Reached]] = deque()
        self._closed = False

    # -- Catching up ----------------------------------------------------------------------------------------------

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above `after`, up to the position from which the sequencer sends the rest."""
        self._delivered = after
        for _ in range(ROUNDS_MAX):
            upto = self._decided.value
            if upto - self._delivered <= NEARLY:
                break
            yield from self._read(upto)
        welcome = self._connect()
        yield from self._read(welcome.number)

    def _read(self, upto: int) -> Iterator[Batch]:
        """What the files have up to a position that is durable."""
        after = self._delivered
        if after == upto:
            return
        names = [name for name in self._disk.names(self._directory) if files.is_journal_file(name)]
        if names and first_position_of(names[0]) > after + 1:
            raise HistoryDropped(f"Journal files after position {after} are gone.")
        replay = Replay(self._disk, self._directory, names, self.log_id, self._seed, after=after)
        try:
            for batch in replay.batches(upto):
                self._delivered = batch.last_position
                yield batch
        except FileNotFoundError as error:
            raise HistoryDropped(f"Journal files after position {after} are gone.") from error
        self.size_bytes += replay.size_bytes
        if self._delivered != upto:
            raise JournalDamaged(
                f"The journal in {self._directory} ends at position {self._delivered}, but the sequencer is at"
                f" {upto}; restore the journal from a copy."
            )

    def _connect(self) -> Message:
        """Connect, and wait for the welcome."""
        self._socket = sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(CONNECT_SECONDS)
        sock.connect(str(self._path))
        sock.sendall(Message(Kind.HELLO, number=os.getpid()).encode())
        while not self._early:
            messages = self._inbox.receive(sock)
            if messages is None:
                raise ConnectionResetError("The sequencer has ended.")
            self._early += messages
        welcome = self._early.pop(0)
        self._number = welcome.proposer
        return welcome

    # -- Appending ------------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        self._loop, self._deliver, self._give_back = asyncio.get_running_loop(), deliver, give_back
        if self._socket is None:
            self._delivered = self._connect().number
        assert self._socket is not None
        self._socket.setblocking(False)
        self._outbox = Outbox(self._socket)
        self._loop.add_reader(self._socket, self._receive)
        self._loop.call_soon(self._take_early)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        record = batches.encode(at, commands)
        self._in_flight[ticket] = _Sent(at, commands, len(record))
        frees = all(map(batches.frees_space, commands))
        head = Message(Kind.APPEND, frees, len(commands), ticket=ticket, payload=record).head()
        self._post([head, record])

    def _post(self, parts: list[bytes]) -> None:
        if self._closed:
            return
        assert self._socket is not None
        try:
            self._outbox.post(parts)
        except OSError as error:
            self._on_failure(error)
            return
        if self._outbox.unsent_bytes:
            self._loop.add_writer(self._socket, self._send)

    def _send(self) -> None:
        assert self._socket is not None
        try:
            self._outbox.send()
        except OSError as error:
            self._on_failure(error)
            return
        if not self._outbox.unsent_bytes:
            self._loop.remove_writer(self._socket)

    def barrier(self, reached: Reached) -> None:
        decided = self._decided.value
        if self._delivered >= decided:
            reached(True)
        else:
            self._barriers.append((decided, reached))

    def mark(self) -> bytes:
        return b""

    def forget(self, upto: int) -> None:
        """Let the sequencer remove files; from any thread. Without effect once the log is closed."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._post, [Message(Kind.FORGET, number=upto).encode()])

    def cut(self) -> int:
        """Let the sequencer begin a new file; it reads this before the next batch."""
        self._post([Message(Kind.CUT).encode()])
        return 0

    async def has_forgotten(self, upto: int) -> bool:
        names = await asyncio.to_thread(self._disk.names, self._directory)
        return all(first_position_of(name) > upto for name in names if files.is_journal_file(name))

    # -- Deliveries -----------------------------------------------------------------------------------------------

    def _take_early(self) -> None:
        early, self._early = self._early, []
        self._take(early)

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            messages = self._inbox.receive(self._socket)
            if messages is None:
                raise ConnectionResetError("it was closed")
        except BlockingIOError:
            return
        except OSError as error:
            self._loop.remove_reader(self._socket)
            self._on_failure(error)
            return
        if self._early:
            self._take_early()
        self._take(messages)

    def _take(self, messages: list[Message]) -> None:
        for kind, flag, entries, proposer, number, ticket, payload in messages:
            if kind == Kind.DECIDED:
                self._delivered = number + entries - 1
                if proposer == self._number:
                    sent = self._in_flight.pop(ticket)
                    self.size_bytes += sent.size_bytes
                    self._deliver(Batch(number, sent.at, sent.commands), ticket)
                else:
                    self.size_bytes += len(payload)
                    self._deliver(batches.decode(payload, number), None)
                while self._barriers and self._barriers[0][0] <= self._delivered:
                    self._barriers.popleft()[1](True)
            elif kind == Kind.GIVEN_BACK:
                del self._in_flight[ticket]
                self._give_back(ticket)
            elif kind == Kind.ROOM:
                self.has_room, self.shortage = bool(flag), payload.decode()

    def close(self) -> None:
        """Wait for what is in flight, then leave."""
        if self._socket is None or self._closed:
            return
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        until = time.monotonic() + CLOSE_SECONDS
        try:
            self._take_early()
            self._socket.settimeout(CLOSE_SECONDS)
            self._outbox.send()
            while self._in_flight and time.monotonic() < until:
                messages = self._inbox.receive(self._socket)
                if messages is None:
                    raise ConnectionResetError("it was closed")
                self._take(messages)
        except OSError as error:
            log.error("the connection to the sequencer was lost before the last batches came back: %s", error)
        self._closed = True
        self._socket.close()

    def abandon(self) -> None:
        """Leave without waiting for anything; also before `start`."""
        self._closed = True
        if self._socket is not None:
            self._socket.close()
