"""The pipeline of a connection: its unanswered requests in order, what each waits for, and the live responses."""

from collections import deque

from headwater.http.exchange.exchange import (
    IN_TURN,
    LIVE,
    READ,
    WRITE,
    Exchange,
    LiveResponse,
    StreamedResponse,
)


class Pipeline:
    """The exchanges of one connection whose responses have not been sent."""

    __slots__ = ("_live", "_waiting_streams", "exchanges")

    def __init__(self) -> None:
        self.exchanges: deque[Exchange] = deque()
        self._live: dict[Exchange, LiveResponse] = {}
        self._waiting_streams: dict[Exchange, StreamedResponse] = {}

    def may_start(self, exchange: Exchange) -> bool:
        """Whether nothing before this exchange holds it up."""
        exchanges = self.exchanges
        if exchanges[0] is exchange:
            return True
        reads = exchange.kind is READ or exchange.kind is LIVE
        for other in exchanges:
            if other is exchange:
                break
            kind = other.kind
            blocks = kind is IN_TURN or (kind is WRITE and exchange.kind is not WRITE) or (kind is LIVE and reads)
            # A read that still waits for its page may fill the connection with it.
            if other.start is not None or other.fetching or (blocks and other.response is None):
                return False
        return True

    def first_waiting(self) -> Exchange | None:
        """The first exchange whose work has not begun."""
        return next((exchange for exchange in self.exchanges if exchange.start is not None), None)

    def take_only(self) -> bytes | None:
        """The response to the only exchange, which is then over, if it is in one part and nothing else ends with it."""
        if len(self.exchanges) != 1 or self._live:
            return None
        only = self.exchanges[0]
        response = only.response
        if response is None or len(response) != 1 or only.close or only.live_slots or only.request.intake is not None:
            return None
        self.exchanges.popleft()
        return response[0]

    def take_finished(self, out: list[bytes]) -> Exchange | None:
        """Move the responses whose turn has come to `out`; returns the last of their exchanges."""
        exchanges = self.exchanges
        last: Exchange | None = None
        while exchanges and (response := exchanges[0].response) is not None:
            last = exchanges.popleft()
            out += response
            if last.request.intake is not None:
                last.request.intake.release()
            if last.live_slots:
                last.release_live_slots()
            if self._live and (live := self._live.pop(last, None)) is not None:
                live.abandon()
            if last.close:
                self.drop()
        return last

    def drop(self) -> None:
        """Nothing more is answered; breaks every reference cycle."""
        for live in list(self._live.values()):
            live.abandon()
        self._live.clear()
        self._waiting_streams.clear()
        for exchange in self.exchanges:
            exchange.drop()
        self.exchanges.clear()

    def drop_after(self, exchange: Exchange) -> None:
        """Nothing after this exchange is answered, or has been begun."""
        while self.exchanges[-1] is not exchange:
            self.exchanges.pop().drop()

    # -- Live responses -------------------------------------------------------------------------------------------

    @property
    def endless(self) -> bool:
        """Whether a response may wait forever for something to send."""
        return any(live.endless for live in self._live.values())

    def go_live(self, exchange: Exchange, live: LiveResponse) -> None:
        self._live[exchange] = live

    def queue_stream(self, exchange: Exchange, stream: StreamedResponse) -> None:
        """Keep a response that is sent piece by piece until it is the first in line."""
        self._live[exchange] = self._waiting_streams[exchange] = stream

    def next_stream(self) -> StreamedResponse | None:
        """The streamed response whose turn has come."""
        return self._waiting_streams.pop(self.exchanges[0], None) if self.exchanges else None

    def begun(self) -> list[LiveResponse]:
        """Live responses, except those that wait for a response before them."""
        return [live for exchange, live in self._live.items() if exchange not in self._waiting_streams]
