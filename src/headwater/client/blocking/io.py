"""Programs carried out with threads and blocking sockets."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import httpx2

from headwater.client.errors import TransportFailed
from headwater.client.settings import CONNECTIONS_MAX, KEPT_CONNECTIONS_MAX, AsyncValue, ClientSettings
from headwater.client.transport import failed, not_followed, plain_headers
from headwater.client.wire import Emit, More, Now, Open, Pause, Program, Request, Response, Send, Shut

T = TypeVar("T")
E = TypeVar("E")


class Carrier:
    """Sends requests by one `httpx2.Client`; safe to use from several threads."""

    def __init__(self, settings: ClientSettings, http: httpx2.Client | None) -> None:
        self.settings = settings
        self._owned = http is None
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_CONNECTIONS_MAX)
        self._http = http or httpx2.Client(limits=limits)

    def close(self) -> None:
        if self._owned:
            self._http.close()

    def send(self, request: Request, timeout_seconds: float | None = None) -> Response:
        """Send, and read the whole answer."""
        response = self.open(request, timeout_seconds)
        try:
            body = response.read()
        except httpx2.HTTPError as error:
            raise failed(request, error) from error
        finally:
            response.close()
        return Response(response.status_code, plain_headers(response.headers), body)

    def open(self, request: Request, timeout_seconds: float | None = None) -> httpx2.Response:
        """Send, and wait for the head of the answer."""
        longest = self.settings.wait_timeout_seconds if request.waits else self.settings.timeout_seconds
        read_seconds = longest if timeout_seconds is None else min(longest, timeout_seconds)
        headers = {name: _value(value) for name, value in self.settings.headers.items()} | dict(request.headers)
        params = {name: _value(value) for name, value in self.settings.params.items()} | dict(request.params)
        try:
            built = self._http.build_request(
                request.method,
                request.url,
                headers=headers,
                params=params or None,
                content=request.body,
                timeout=httpx2.Timeout(self.settings.timeout_seconds, read=read_seconds),
            )
            return self._http.send(built, stream=True, follow_redirects=not not_followed(request))
        except httpx2.InvalidURL as error:
            raise ValueError(f"{request.url} is no URL: {error}.") from error
        except httpx2.HTTPError as error:
            raise failed(request, error) from error

    def run(self, program: Program[T]) -> T:
        """Carry a program out that emits nothing, and return what it returns."""
        flow: Flow[Any] = Flow(self, program)
        with flow:
            for _ in flow:
                raise AssertionError("A program that was run emitted something.")
        result: T = flow.result
        return result


class Flow(Generic[E]):
    """What a program emits, as an iterator; `close` may be called from another thread."""

    def __init__(self, carrier: Carrier, program: Program[Any], timeout_seconds: float | None = None) -> None:
        self._carrier = carrier
        self._program = program
        self._opened: httpx2.Response | None = None
        self._bytes: Iterator[bytes] = iter(())
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._timer: threading.Timer | None = None
        self._outcome: Any = None
        self._failure: TransportFailed | None = None
        self.result: Any = None

    def __iter__(self) -> "Flow[E]":
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
        return self._stopped.is_set() or (self._deadline is not None and time.monotonic() >= self._deadline)

    def _resume(self) -> Any:
        outcome, failure, self._outcome, self._failure = self._outcome, self._failure, None, None
        return self._program.send(outcome) if failure is None else self._program.throw(failure)

    def _perform(self, effect: Any) -> Any:
        left = None if self._deadline is None else max(0.001, self._deadline - time.monotonic())
        match effect:
            case Send(request):
                return self._carrier.send(request, left)
            case Open(request):
                return self._open(request, left)
            case More():
                return self._more()
            case Shut():
                return self._shut()
            case Pause(seconds):
                return self._stopped.wait(seconds if left is None else min(seconds, left))
            case Now():
                return time.monotonic()
        raise AssertionError(f"No program may ask for {effect}.")

    def _open(self, request: Request, left: float | None) -> Response:
        self._opened = self._carrier.open(request)
        self._bytes = self._opened.iter_bytes()
        if left is not None:
            self._timer = threading.Timer(left, self.close)
            self._timer.daemon = True
            self._timer.start()
        return Response(self._opened.status_code, plain_headers(self._opened.headers))

    def _more(self) -> bytes:
        try:
            data = next(self._bytes, b"")
            if not data:
                self._shut()
            return data
        except httpx2.StreamError as error:
            raise TransportFailed("The connection was closed.", sent=True) from error
        except httpx2.HTTPError as error:
            raise TransportFailed(f"The connection broke while it was read: {error!r}.", sent=True) from error

    def _shut(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _finish(self) -> None:
        self._stopped.set()
        self._program.close()
        self._shut()

    def close(self) -> None:
        """Stop; a thread that waits for an event is woken, one that waits for a long-poll stops when it is answered."""
        self._stopped.set()
        with self._lock:
            opened = self._opened
            # A connection of HTTP/2 is not ours alone.
            if opened is not None and opened.http_version != "HTTP/2":
                stream = opened.extensions.get("network_stream")
                connection = stream.get_extra_info("socket") if stream is not None else None
                if isinstance(connection, socket.socket):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Flow[E]":
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()


def _value(value: AsyncValue) -> str:
    if isinstance(value, str):
        return value
    found = value()
    if not isinstance(found, str):
        raise TypeError("A function for a header or parameter of a blocking client must return a string.")
    return found
