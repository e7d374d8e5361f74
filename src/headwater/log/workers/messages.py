"""The messages between the sequencer and the processes that propose batches to it, over a Unix socket.

    kind 1 | flag 1 | zero 2 | entries 4 | length 4 | proposer 4 | number 8 | ticket 8 | payload

A decided batch is sent with its record to all but the process that proposed it, which still has the commands: it gets
the head alone. The socket is ordered, reliable and local, so messages carry no checksums; the journal's frames do.
"""

from enum import IntEnum
from socket import socket
from struct import Struct
from typing import NamedTuple

HEAD = Struct("<BBHIIIQQ")
RECEIVE_BYTES = 1 << 18
"""How much is read from a socket at a time."""


class Kind(IntEnum):
    """What a message says. Numbers and flags that a kind does not name are zero."""

    HELLO = 1
    """A proposer begins: `number` is its process id."""
    WELCOME = 2
    """Every batch after position `number` will follow; `proposer` is what the sequencer calls this one."""
    APPEND = 3
    """Order this record of so many `entries`; the flag says whether all of them free space."""
    DECIDED = 4
    """The record of `proposer` is durable, and its first position is `number`."""
    GIVEN_BACK = 5
    """There is no room for the record with this ticket."""
    ROOM = 6
    """The flag says whether there is room; the payload, in UTF-8, what is missing."""
    FORGET = 7
    """Nothing up to position `number` will ever be replayed again."""
    CUT = 8
    """Begin a new file with the next record."""


class Message(NamedTuple):
    """One message."""

    kind: int
    flag: int = 0
    entries: int = 0
    proposer: int = 0
    number: int = 0
    ticket: int = 0
    payload: bytes = b""

    def head(self) -> bytes:
        """Everything but the payload."""
        kind, flag, entries, proposer, number, ticket, payload = self
        return HEAD.pack(kind, flag, 0, entries, len(payload), proposer, number, ticket)

    def encode(self) -> bytes:
        return self.head() + self.payload


class Inbox:
    """Receives from a socket, and cuts the bytes into messages."""

    def __init__(self) -> None:
        # Once, and not for each call: the system would have to provide and take back that much memory.
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._data = bytearray()
        self._needed = HEAD.size
        """How many bytes there must be before another message can be whole."""

    def receive(self, sock: socket) -> list[Message] | None:
        """Every message that one read of the socket completes; None at its end. Raises what the socket raises."""
        size = sock.recv_into(self._buffer)
        return self.feed(self._buffer[:size]) if size else None

    def feed(self, data: bytes | memoryview) -> list[Message]:
        """Every message that these bytes complete, in order."""
        kept, found = self._data, list[Message]()
        kept += data
        at, end = 0, len(kept)
        if end < self._needed:
            return found
        self._needed = HEAD.size
        with memoryview(kept) as view:
            while end - at >= HEAD.size:
                kind, flag, _, entries, length, proposer, number, ticket = HEAD.unpack_from(view, at)
                begin = at + HEAD.size
                if end - begin < length:
                    self._needed = HEAD.size + length
                    break
                at = begin + length
                found.append(Message(kind, flag, entries, proposer, number, ticket, bytes(view[begin:at])))
        del kept[:at]
        return found
