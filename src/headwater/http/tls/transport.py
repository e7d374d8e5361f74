"""A connection with TLS: a transport for the protocol above it, and a protocol for the TCP transport below it.

The loop's own TLS is not used. Its transport counts nothing that waits in the TCP transport below it, so a client that
does not read one large response would go unnoticed; it cannot close one direction only; and a few seconds after a close
it cuts what a slow client has not read yet. This one encrypts only what the TCP transport takes, a slice at a time, so
large responses neither hold up the event loop nor exist twice in memory.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from headwater.http.tls.certificates import SecurableProtocol

RECORD_BYTES = 16 * 1024
"""The most that one read returns."""
SLICE_BYTES = 4 * RECORD_BYTES
"""How much is encrypted at once."""
TURN_BYTES = 4 * SLICE_BYTES
"""How much is encrypted in one turn of the event loop: about 0.2 ms."""
WRITE_BUFFER_BYTES = 64 * 1024
IDLE_BYTES_MAX = 64 * 1024
"""How much a client may send of which nothing is for the protocol above: new keys, of which each costs 40 us."""

Data = bytes | bytearray | memoryview


class SecuredConnection(asyncio.Protocol, asyncio.Transport):
    """One connection; `inner` is the protocol above it, and `failed` is called if the handshake is not completed."""

    def __init__(
        self,
        context: ssl.SSLContext,
        inner: asyncio.Protocol,
        *,
        handshake_seconds: float,
        failed: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake_seconds = handshake_seconds
        self._failed = failed
        self._tcp: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._high_bytes = WRITE_BUFFER_BYTES
        self._arrived = b""
        self._idle_bytes = 0
        self._queue: deque[Data] = deque()
        self._queued_bytes = 0
        self._ready = self._lost = False
        self._paused_below = self._paused_above = self._reading_paused = False
        self._eof = self._eof_told = False
        self._closing = self._ending = self._ended = False

    # -- The TCP transport's side ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(self._handshake_seconds, self._give_up)
        self.set_write_buffer_limits()
        # Before the handshake, so that a client that does not complete it counts as a connection too.
        self._inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ready:
            self._failed()
        self._closing = self._lost = True
        self._stop_timer()
        if self._turn is not None:
            self._turn.cancel()
        self._arrived = b""
        self._queue.clear()
        self._queued_bytes = 0
        inner = self._inner
        # Break every reference cycle, so that the connection is freed without the garbage collector.
        del self._inner, self._failed, self._tls
        inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._closing or self._eof:
            return  # What comes after the end is dropped.
        self._arrived += data
        self._take_in()

    def _take_in(self) -> None:
        """Decrypt what has arrived, a slice at a time; where little comes of it, others get a turn in between."""
        while self._arrived and not (self._closing or self._eof or self._reading_paused):
            piece, self._arrived = self._arrived[:RECORD_BYTES], self._arrived[RECORD_BYTES:]
            self._incoming.write(piece)
            was_ready = self._ready
            passed_bytes = self._deliver() if was_ready or self._shake_hands() else 0
            self._idle_bytes = 0 if passed_bytes or not was_ready else self._idle_bytes + len(piece)
            if self._idle_bytes > IDLE_BYTES_MAX:
                self.abort()
            elif self._arrived and 2 * passed_bytes < len(piece):
                asyncio.get_running_loop().call_soon(self._take_in)
                break
        self._steer()

    def _steer(self) -> None:
        """Read from the client unless something that it has sent still waits."""
        if self._closing or self._tcp.is_closing():
            return
        if self._reading_paused or self._arrived:
            self._tcp.pause_reading()
        else:
            self._tcp.resume_reading()

    def eof_received(self) -> bool:
        if not self._ready or self._closing:
            return False
        self._eof = True
        self._deliver()
        return True

    def pause_writing(self) -> None:
        self._paused_below = True

    def resume_writing(self) -> None:
        self._paused_below = False
        if not self._lost:
            self._pump()

    # -- Handshake ------------------------------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Go on with the handshake; returns whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError:
            # The client learns the reason from an alert.
            self._closing = True
            self._send()
            self._tcp.close()
            return False
        self._ready = True
        self._stop_timer()
        self._send()
        if isinstance(self._inner, SecurableProtocol):
            self._inner.introduce(self._tls.getpeercert())
        self._pump()
        return True

    def _give_up(self) -> None:
        self._timer = None
        self.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- Input ----------------------------------------------------------------------------------------------------

    def _deliver(self) -> int:
        """Pass on what has arrived, then the end of the input; returns how many bytes that was."""
        if self._reading_paused or self._closing:
            return 0
        pieces: list[bytes] = []
        incoming, tls = self._incoming, self._tls
        try:
            while incoming.pending or tls.pending():
                piece = tls.read(RECORD_BYTES)
                if not piece:
                    self._eof = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._eof = True
        except ssl.SSLError:
            self._send()
            self.abort()
            return 0
        if self._outgoing.pending:
            self._send()
            self._judge_room()
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if data:
            self._inner.data_received(data)
        if self._eof and not self._eof_told and self.is_reading():
            self._eof_told = True
            if not self._inner.eof_received():
                self.close()
        return len(data)

    def is_reading(self) -> bool:
        return not (self._reading_paused or self._closing)

    def pause_reading(self) -> None:
        if not self._reading_paused and not self._closing:
            self._reading_paused = True
            self._steer()

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self._steer()
            if self._eof or self._incoming.pending or self._arrived:
                asyncio.get_running_loop().call_soon(self._deliver_rest)

    def _deliver_rest(self) -> None:
        if not self._lost:
            self._deliver()
            self._take_in()

    # -- Output ---------------------------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        if self._closing or self._ending or not data:
            return
        if self._ready and not (self._queue or self._paused_below) and len(data) <= SLICE_BYTES:
            self._encrypt(data)
        else:
            self._add(data)
            self._pump()
        self._judge_room()

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        pieces = list(list_of_data)
        if sum(map(len, pieces)) <= SLICE_BYTES:
            self.write(b"".join(pieces))
        elif not (self._closing or self._ending):
            for piece in pieces:
                self._add(piece)
            self._pump()
            self._judge_room()

    def _add(self, data: Data) -> None:
        if data:
            self._queue.append(data)
            self._queued_bytes += len(data)

    def _pump(self) -> None:
        """Encrypt and send as much as the TCP transport takes, and as one turn of the loop allows."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        queue, done_bytes = self._queue, 0
        while queue and self._ready and not (self._paused_below or self._tcp.is_closing()):
            if done_bytes >= TURN_BYTES:
                self._turn = asyncio.get_running_loop().call_soon(self._pump)
                return
            piece = queue.popleft()
            if len(piece) > SLICE_BYTES:
                view = memoryview(piece)
                queue.appendleft(view[SLICE_BYTES:])
                piece = view[:SLICE_BYTES]
            self._queued_bytes -= len(piece)
            done_bytes += len(piece)
            self._encrypt(piece)
        if not queue:
            self._flushed()

    def _flushed(self) -> None:
        """Everything is encrypted and with the TCP transport."""
        if (self._closing or self._ending) and not self._ended:
            self._finish()
            self._ended = True
            if self._closing:
                self._tcp.close()
            else:
                self._tcp.write_eof()
        if self._paused_above and not self._paused_below:
            # Later, because the protocol above may be in the middle of a write.
            asyncio.get_running_loop().call_soon(self._resume_above)

    def _resume_above(self) -> None:
        if self._paused_above and not (self._queue or self._paused_below or self._lost):
            self._paused_above = False
            self._inner.resume_writing()

    def _encrypt(self, data: Data) -> None:
        try:
            sent_bytes = self._tls.write(data)
            while sent_bytes < len(data):
                sent_bytes += self._tls.write(memoryview(data)[sent_bytes:])
        except ssl.SSLError:
            self.abort()
        else:
            self._tcp.write(self._outgoing.read())

    def _send(self) -> None:
        """Send what TLS itself has to say."""
        if self._outgoing.pending and (data := self._outgoing.read()) and not self._ended:
            self._tcp.write(data)

    def _finish(self) -> None:
        """Tell the client that this was all."""
        with suppress(ssl.SSLError):  # The client has not said the same; it need not.
            self._tls.unwrap()
        self._send()

    def _judge_room(self) -> None:
        if not (self._paused_above or self._lost) and self.get_write_buffer_size() > self._high_bytes:
            self._paused_above = True
            self._inner.pause_writing()
            if not (self._queue or self._paused_below):
                asyncio.get_running_loop().call_soon(self._resume_above)

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes + self._tcp.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause above `high`; resume when all is encrypted and the TCP transport has room."""
        self._high_bytes = WRITE_BUFFER_BYTES if high is None else high
        self._tcp.set_write_buffer_limits(high=self._high_bytes // 2)

    # -- The end --------------------------------------------------------------------------------------------------

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not (self._ending or self._closing):
            self._ending = True
            self._pump()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        if not self._ready:
            self.abort()
            return
        if not self._reading_paused:
            self._tcp.pause_reading()
        self._closing = True
        if self._ended:
            self._tcp.close()
        else:
            self._pump()

    def abort(self) -> None:
        self._closing = True
        self._tcp.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tcp.get_extra_info(name, default)
