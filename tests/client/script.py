"""Carries programs out without a network: a script has the answers, and requests are recorded."""

from collections.abc import Callable, Iterable
from typing import Any

from headwater.client.errors import TransportFailed
from headwater.client.wire import Emit, More, Now, Open, Pause, Program, Request, Response, Send, Shut

LOST = TransportFailed("The answer was lost.", sent=True)
UNREACHABLE = TransportFailed("Connection refused.", sent=False)
STEPS_MAX = 10_000

Line = Response | TransportFailed | list[bytes | float | TransportFailed] | tuple[Response, list[Any]]
"""A response, a failure, or an opened response and its body: bytes, seconds that pass, a break."""


class Script:
    """Carries a program out against a list of answers."""

    def __init__(self, answers: Iterable[Line]) -> None:
        self._answers = iter(answers)
        self._body: list[Any] = []
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.shut = 0
        self.clock = 0.0
        self.result: Any = None

    def run(self, program: Program[Any], stop: Callable[[Any], bool] = lambda value: False) -> list[Any]:
        """The values that the program emits, until it or the script ends, or `stop` returns true."""
        emitted: list[Any] = []
        outcome: Any = None
        failure: TransportFailed | None = None
        for _ in range(STEPS_MAX):
            try:
                effect = program.send(outcome) if failure is None else program.throw(failure)
            except StopIteration as end:
                self.result = end.value
                return emitted
            outcome, failure = None, None
            if isinstance(effect, Emit):
                emitted.append(effect.value)
                if stop(effect.value):
                    program.close()
                    return emitted
                continue
            try:
                outcome = self._perform(effect)
            except TransportFailed as error:
                failure = error
            except StopIteration:
                program.close()
                return emitted
        raise AssertionError("The program does not end.")

    def _perform(self, effect: Any) -> Any:
        match effect:
            case Send(request) | Open(request):
                self.requests.append(request)
                answer = next(self._answers)
                if isinstance(answer, TransportFailed):
                    raise answer
                if isinstance(answer, tuple):
                    answer, body = answer
                    self._body = list(body)
                return answer
            case More():
                return self._more()
            case Shut():
                self.shut += 1
            case Pause(seconds):
                self.pauses.append(seconds)
                self.clock += seconds
            case Now():
                return self.clock
        return None

    def _more(self) -> bytes:
        while self._body:
            piece = self._body.pop(0)
            if isinstance(piece, TransportFailed):
                raise piece
            if isinstance(piece, float):
                self.clock += piece
            else:
                assert isinstance(piece, bytes)
                return piece
        return b""

    @property
    def params(self) -> list[dict[str, str]]:
        return [dict(request.params) for request in self.requests]
