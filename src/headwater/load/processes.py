"""Processes that send load or read it, each with a pipe to the process that started it."""

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

from headwater.load.messages import LoadFailed


class Failure(NamedTuple):
    """The reason why a process gave up, as it goes through the pipe."""

    reason: str


class Crew:
    """One process for each set of arguments; `function` gets the pipe first, and its result is sent last.

    The processes are spawned: a fork would inherit the threads' locks and the sockets of this process.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> None:
        context = get_context("spawn")
        self._members: list[tuple[BaseProcess, Pipe]] = []
        for given in arguments:
            ours, theirs = context.Pipe()
            process = context.Process(target=_run, args=(function, theirs, given), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))

    @property
    def pipes(self) -> list[Pipe]:
        return [pipe for _, pipe in self._members]

    def send(self, message: object) -> None:
        for pipe in self.pipes:
            # A process that has failed no longer listens; its reason is in the pipe.
            with contextlib.suppress(BrokenPipeError):
                pipe.send(message)

    def receive(self, pipe: Pipe, deadline: float | None = None) -> Any:
        """Return the next message of a process; the failure of the process is raised here."""
        if deadline is not None and not pipe.poll(max(0.0, deadline - time.monotonic())):
            raise LoadFailed("a process of the load generator did not report in time")
        try:
            message = pipe.recv()
        except (EOFError, ConnectionResetError):
            raise LoadFailed("a process of the load generator ended early") from None
        if isinstance(message, Failure):
            raise LoadFailed(message.reason)
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process, pipe in self._members:
            pipe.close()
            process.terminate()
        for process, _ in self._members:
            process.join()


def _run(function: Callable[..., Any], pipe: Pipe, arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches every process of a terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, EOFError):
        try:
            pipe.send(function(pipe, *arguments))
        except (OSError, ValueError) as error:
            if not isinstance(error, BrokenPipeError):
                pipe.send(Failure(str(error) or type(error).__name__))
