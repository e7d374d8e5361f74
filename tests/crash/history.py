"""What a recovered state must be: exactly the result of the acknowledged batches, perhaps with those in flight."""

from collections import deque

from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Paid
from headwater.streams.commands.lake import ForgetSegments, PublishSegment, SwapSegments
from headwater.streams.images import image_of
from headwater.streams.state import State


class History:
    """Batches in the order in which they were appended to the log, and the state after the acknowledged ones."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.survived_in_flight = 0
        self._expected = State("")
        self.shadow = State("")
        """The state after the same commands if nothing ever goes to the lake."""
        self._in_flight: deque[tuple[int, list[Command]]] = deque()

    def send(self, at: int, commands: list[Command]) -> None:
        """A batch goes to the log; from now on it may survive a crash."""
        self._in_flight.append((at, commands))

    def withdraw(self) -> None:
        """The last batch did not reach the log after all."""
        self._in_flight.pop()

    def acknowledge(self) -> None:
        """The oldest batch in flight was decided; from now on it must survive."""
        self._apply_next()
        self.acknowledged += 1

    def check(self, recovered: State) -> None:
        """Compare byte by byte; batches in flight that survived are visible now, so they must survive from now on."""
        if self._expected.position == 0:
            # Nothing was promised yet, not even the journal's id.
            self._expected, self.shadow = State(recovered.log_id), State(recovered.log_id)
        lost = self._expected.position - recovered.position
        assert lost <= 0, f"the last {lost} acknowledged commands are lost"
        while self._in_flight and self._expected.position < recovered.position:
            self._apply_next()
            self.survived_in_flight += 1
        self._in_flight.clear()
        assert recovered.position == self._expected.position, "commands were applied that were never sent, or twice"
        assert image_of(recovered) == image_of(self._expected), "acknowledged history has changed"

    def _apply_next(self) -> None:
        at, commands = self._in_flight.popleft()
        apply(self._expected, Batch(self._expected.position + 1, at, commands))
        apply(self.shadow, Batch(self.shadow.position + 1, at, [_hot_only(command) for command in commands]))


def _hot_only(command: Command) -> Command:
    """Replace a command about the lake by one without effect, so that positions stay the same."""
    return Paid("") if isinstance(command, PublishSegment | SwapSegments | ForgetSegments) else command
