"""What tasks and threads cannot share: how programs are carried out, and how callers wait, with threads.

`asynchronous/runtime.py` has the same names with `Async`; the rest of this package is generated (`scripts/unasync`).
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import httpx2

from headwater.client.errors import TransportFailed
from headwater.client.settings import AsyncRequestValue
from headwater.client.transport import Opened
from headwater.client.wire import Emit, More, Now, Open, Pause, Program, Request, Response, Send, Shut

if TYPE_CHECKING:
    from headwater.client.blocking.carrier import Carrier

T = TypeVar("T")
E = TypeVar("E")

# A callback of a future runs in the thread that settles it, which may hold the lock that the callback needs.
Lock = threading.RLock


class Flow(Generic[E]):
    """The values that a program emits, as an iterator; `close` may be called from another thread."""

    def __init__(self, carrier: "Carrier", program: Program[Any], timeout_seconds: float | None = None) -> None:
        self._carrier = carrier
        self._program = program
        self._opened: Opened | None = None
        self._bytes: Iterator[bytes] = iter(())
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._deadline = None if timeout_seconds is None else clock() + timeout_seconds
        self._timer: threading.Timer | None = None
        self._outcome: Any = None
        self._failure: TransportFailed | None = None
        self.result: Any = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> E:
        try:
            while not self._over():
                effect = self._resume()
                if isinstance(effect, Emit):
                    value: E = effect.value
                    return value
                try:
                    self._outcome = self._perform(effect)
                except TransportFailed as error:
                    self._shut()
                    self._failure = error
        except StopIteration as end:
            self.result = end.value
            self._finish()
            raise StopIteration from None
        except BaseException:
            self._finish()
            raise
        self._finish()
        raise StopIteration

    def _over(self) -> bool:
        return self._stopped.is_set() or (self._deadline is not None and clock() >= self._deadline)

    def _resume(self) -> Any:
        outcome, failure, self._outcome, self._failure = self._outcome, self._failure, None, None
        return self._program.send(outcome) if failure is None else self._program.throw(failure)

    def _perform(self, effect: Any) -> Any:
        left_seconds = None if self._deadline is None else max(0.001, self._deadline - clock())
        match effect:
            case Send(request):
                return self._carrier.send(request, left_seconds)
            case Open(request):
                return self._open(request, left_seconds)
            case More():
                return self._more()
            case Shut():
                return self._shut()
            case Pause(seconds):
                return self._stopped.wait(seconds if left_seconds is None else min(seconds, left_seconds))
            case Now():
                return clock()
        raise AssertionError(f"Programs cannot ask for {effect}.")

    def _open(self, request: Request, left_seconds: float | None) -> Response:
        self._opened = self._carrier.open(request)
        self._bytes = self._opened.http.iter_bytes()
        if left_seconds is not None:
            self._timer = threading.Timer(left_seconds, self.close)
            self._timer.daemon = True
            self._timer.start()
        return self._opened.response()

    def _more(self) -> bytes:
        opened = self._opened
        try:
            data = next(self._bytes, b"")
            if not data:
                self._shut()
            return data
        except httpx2.StreamError as error:
            raise TransportFailed("The connection was closed.", sent=True) from error
        except httpx2.HTTPError as error:
            if opened is None or self._stopped.is_set():
                # `close` has shut the connection down; the server is not to blame.
                raise TransportFailed("The connection was closed.", sent=True) from error
            raise self._carrier.broken(opened, error) from error

    def _shut(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.http.close()

    def _finish(self) -> None:
        self._stopped.set()
        self._program.close()
        self._shut()

    def close(self) -> None:
        """Stop. A thread that waits for an event wakes up; one in a long-poll stops when that is answered."""
        self._stopped.set()
        with self._lock:
            opened = None if self._opened is None else self._opened.http
            # Other requests share a connection of HTTP/2.
            if opened is not None and opened.http_version != "HTTP/2":
                stream = opened.extensions.get("network_stream")
                connection = stream.get_extra_info("socket") if stream is not None else None
                if isinstance(connection, socket.socket):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()


class Condition(threading.Condition):
    """A condition that can also be awaited up to a point in time."""

    def wait_until(self, deadline: float | None) -> None:
        """Wait until notified, or until `clock()` reaches the deadline."""
        self.wait(None if deadline is None else max(0.0, deadline - clock()))


class Workers:
    """Threads that work in the background until they are done; they do not keep the process alive."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def start(self, count: int, work: Callable[[], None]) -> None:
        for _ in range(count):
            thread = threading.Thread(target=work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self._threads:
            thread.join()


def clock() -> float:
    """Seconds since an arbitrary moment."""
    return time.monotonic()


def new_future() -> "Future[Any]":
    return Future()


def result_of(future: "Future[T]") -> T:
    """Wait for a future."""
    return future.result()


def current(value: AsyncRequestValue) -> str:
    """The value of a header or parameter for this request."""
    if isinstance(value, str):
        return value
    found = value()
    if not isinstance(found, str):
        raise TypeError("A function for a header or parameter of a blocking client must return a string.")
    return found
