"""The sequencer: gathers the batches that several processes propose, makes them durable, and tells all of them.

One thread, one loop: it reads what has arrived from every proposer, commits all of it with one write and one sync,
publishes the decided position, and sends every record to every proposer. What arrives meanwhile waits in the sockets
and is the next commit. It never decodes a command: whatever it must know of a record is in the message's head.
"""

import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from headwater.log.journal.writer import JournalWriter, NoRoom, end_process
from headwater.log.workers.decided import DecidedPosition
from headwater.log.workers.messages import HEAD, Inbox, Kind, Message
from headwater.log.workers.outbox import Outbox

UNREAD_BYTES_MAX = 256 * 1024 * 1024
"""How much may wait for a proposer that does not read, before it is dropped."""
STOP_SECONDS = 5.0
"""How long proposers may take to finish after the process that started all of them is gone."""

log = logging.getLogger(__name__)


class _Proposer:
    """A connected process."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.socket, self.number = sock, number
        self.pid = 0
        """0 until it has said hello."""
        self.inbox, self.outbox = Inbox(), Outbox(sock)
        self.watches_writes = False
        self.gone = False


class _Proposed(NamedTuple):
    """A record that waits for its place in the order."""

    proposer: _Proposer
    message: Message


class Sequencer:
    """Orders the batches of every process that connects to `listener`, in a journal that was read to its end."""

    def __init__(
        self,
        journal: JournalWriter,
        listener: socket.socket,
        decided: DecidedPosition,
        *,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
        on_dropped: Callable[[int], None] = lambda pid: None,
        on_failure: Callable[[BaseException], None] = end_process,
    ) -> None:
        self._journal, self._listener, self._decided = journal, listener, decided
        self._unread_bytes_max, self._on_dropped, self._on_failure = unread_bytes_max, on_dropped, on_failure
        self._proposers: dict[int, _Proposer] = {}
        self._numbers = count(1)
        self._waiting: deque[_Proposed] = deque()
        self._room = (True, "")
        """What proposers were told last."""
        self._stopping = False
        self._until = float("inf")
        self._woken, self.waker = socket.socketpair()
        """A byte written to the waker, from any thread or by a signal, makes the loop turn."""
        self.waker.setblocking(False)
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Open the journal for appends; proposers may connect from now on."""
        self._journal.make_ready()
        self._journal.on_spare = self._wake
        self._journal.start_thread(self._journal.make_spares_forever)
        self._decided.value = self._journal.last_position
        for sock, work in ((self._listener, self._accept), (self._woken, self._turn)):
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, work)

    def run(self) -> None:
        """Run until stopped and all proposers have disconnected."""
        try:
            while not (self._stopping and (not self._proposers or time.monotonic() > self._until)):
                for key, events in self._selector.select(None if self._until == float("inf") else 0.1):
                    key.data(events)
                if self._waiting:
                    self._commit()
        except Exception as error:
            self._on_failure(error)
        self._close()

    def stop(self, seconds: float = float("inf")) -> None:
        """End when the last proposer has left, or after so many seconds; may be called from a signal handler."""
        self._stopping = True
        self._until = min(self._until, time.monotonic() + seconds)
        self._wake()

    def stop_with(self, lifeline: socket.socket) -> None:
        """Stop when the other end of a socket is closed, because its process has died."""
        self._selector.register(lifeline, selectors.EVENT_READ, lambda _: self._stop_with(lifeline))

    def _stop_with(self, lifeline: socket.socket) -> None:
        self._selector.unregister(lifeline)
        self.stop(STOP_SECONDS)

    def _wake(self) -> None:
        with suppress(OSError):  # Then it is awake, or has ended.
            self.waker.send(b"\0")

    def _turn(self, events: int) -> None:
        self._woken.recv(4096)
        room = (self._journal.has_room, self._journal.shortage)
        if room != self._room:
            self._room = room
            for proposer in list(self._proposers.values()):
                self._post(proposer, [self._room_message().encode()])

    def _close(self) -> None:
        self._listener.close()
        for proposer in list(self._proposers.values()):
            self._remove(proposer)
        self._journal.close()
        self._selector.close()
        self.waker.close()
        self._woken.close()

    # -- Proposers ------------------------------------------------------------------------------------------------

    def _accept(self, events: int) -> None:
        with suppress(BlockingIOError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            proposer = _Proposer(sock, next(self._numbers))
            self._proposers[proposer.number] = proposer
            self._selector.register(sock, selectors.EVENT_READ, lambda events: self._serve(proposer, events))

    def _serve(self, proposer: _Proposer, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._post(proposer, [])
        if not events & selectors.EVENT_READ or proposer.gone:
            return
        try:
            messages = proposer.inbox.receive(proposer.socket)
        except BlockingIOError:
            return
        except OSError:
            messages = None
        if messages is None:
            self._remove(proposer)
            return
        for message in messages:
            self._take(proposer, message)

    def _take(self, proposer: _Proposer, message: Message) -> None:
        if message.kind == Kind.APPEND:
            self._waiting.append(_Proposed(proposer, message))
        elif message.kind == Kind.FORGET:
            self._journal.forget(message.number)
        elif message.kind == Kind.CUT:
            self._journal.cut()
        elif message.kind == Kind.HELLO:
            proposer.pid = message.number
            welcome = Message(Kind.WELCOME, proposer=proposer.number, number=self._journal.last_position)
            self._post(proposer, [welcome.encode(), self._room_message().encode()])
        else:
            log.error("process %d sent a message of kind %d, which has no meaning", proposer.pid, message.kind)
            self._drop(proposer)

    def _room_message(self) -> Message:
        has_room, shortage = self._room
        return Message(Kind.ROOM, flag=has_room, payload=shortage.encode())

    def _post(self, proposer: _Proposer, parts: list[bytes]) -> None:
        """Send to one proposer without waiting for it."""
        if proposer.gone:
            return
        outbox = proposer.outbox
        try:
            outbox.post(parts) if parts else outbox.send()
        except OSError:
            self._remove(proposer)
            return
        if outbox.unsent_bytes > self._unread_bytes_max:
            log.error("process %d does not read what was decided, so it is dropped", proposer.pid)
            self._drop(proposer)
        elif bool(outbox.unsent_bytes) != proposer.watches_writes:
            proposer.watches_writes = bool(outbox.unsent_bytes)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if proposer.watches_writes else 0)
            key = self._selector.get_key(proposer.socket)
            self._selector.modify(proposer.socket, events, key.data)

    def _drop(self, proposer: _Proposer) -> None:
        self._remove(proposer)
        self._on_dropped(proposer.pid)

    def _remove(self, proposer: _Proposer) -> None:
        if not proposer.gone:
            proposer.gone = True
            self._selector.unregister(proposer.socket)
            proposer.socket.close()
            del self._proposers[proposer.number]

    # -- Commits --------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Make everything that waits durable, then tell all proposers.

        A record that frees space and finds none waits for a spare, and all others behind it: the files that an image
        makes superfluous are removed meanwhile.
        """
        decided: list[tuple[_Proposed, int]] = []
        refused: list[_Proposed] = []
        waiting = self._waiting
        while waiting:
            one = waiting[0]
            frees, message = bool(one.message.flag), one.message
            try:
                position = self._journal.stage(message.payload, message.entries, frees=frees, waits=False)
            except NoRoom:
                if frees and not self._stopping:
                    break
                refused.append(one)
            else:
                decided.append((one, position))
            waiting.popleft()
        self._journal.sync()
        # Written before anything is sent, so an acknowledged position is never above the one that others read here.
        self._decided.value = self._journal.last_position
        if decided:
            self._announce(decided)
        for proposer, message in refused:
            self._post(proposer, [Message(Kind.GIVEN_BACK, ticket=message.ticket).encode()])

    def _announce(self, decided: list[tuple[_Proposed, int]]) -> None:
        """Send every record to every proposer but its own, which has the commands and gets the head alone."""
        records = []
        for (origin, message), position in decided:
            _, _, entries, _, _, ticket, payload = message
            own = HEAD.pack(Kind.DECIDED, 0, 0, entries, 0, origin.number, position, ticket)
            head = HEAD.pack(Kind.DECIDED, 0, 0, entries, len(payload), origin.number, position, ticket)
            records.append((origin, own, head, payload))
        for proposer in list(self._proposers.values()):
            if proposer.pid:
                parts: list[bytes] = []
                for origin, own, head, payload in records:
                    if origin is proposer:
                        parts.append(own)
                    else:
                        parts += head, payload
                self._post(proposer, parts)
