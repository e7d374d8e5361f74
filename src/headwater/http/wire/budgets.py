"""Budgets: how much all clients together may hold of something that is limited, such as memory."""

import asyncio
from collections import deque
from collections.abc import Callable

from headwater.http.wire.intakes import Refuse
from headwater.protocol.refusals import Code, Refusal


class Budget:
    """A shared amount: what a request takes of it, it must give back."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self.full = False
        self.on_return: Callable[[], None] = lambda: None
        """Called when some of it has been given back."""

    def take(self, amount: int) -> bool:
        """Take this much, unless that is more than is left."""
        if self.used + amount > self.limit:
            return False
        self.use(amount)
        return True

    def use(self, amount: int) -> None:
        """Take this much, whether or not it is left."""
        self.used += amount
        self.full = self.used >= self.limit

    def give_back(self, amount: int) -> None:
        self.used -= amount
        self.full = self.used >= self.limit
        self.on_return()


class TurnBudget:
    """How much of something large the loop does in one turn; what comes then waits in line for the next turns."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._line: deque[Callable[[], None]] = deque()
        self.full = False

    def use(self, amount: int) -> None:
        """Take this much, whether or not it is left."""
        if not self._used:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._used += amount
        self.full = self._used >= self._limit

    def wait(self, go_on: Callable[[], None]) -> None:
        """Go on in a later turn; only while this one is full."""
        assert self.full, "only a full turn is followed by another"
        self._line.append(go_on)

    def _next_turn(self) -> None:
        self._used, self.full = 0, False
        try:
            while self._line and not self.full:
                self._line.popleft()()
        finally:
            if self._line and not self.full:  # One of them failed.
                self.use(self._limit)


class Charge:
    """The intake of a body in memory: it takes its size from the budget."""

    STEP_BYTES = 1024 * 1024
    """How much a body of unknown size takes at a time."""

    full = False

    def __init__(self, budget: Budget) -> None:
        self._budget, self._taken = budget, 0

    def begin(self, size: int | None, refuse: Refuse) -> None:
        if not self._take(self.STEP_BYTES if size is None else size):
            refuse(no_room_for_bodies(self._budget))

    def extend(self, size: int) -> bool:
        while size > self._taken:
            if not self._take(self.STEP_BYTES):
                return False
        return True

    def _take(self, amount: int) -> bool:
        taken = self._budget.take(amount)
        if taken:
            self._taken += amount
        return taken

    def abandon(self) -> None:
        self.release()

    def release(self) -> None:
        taken, self._taken = self._taken, 0
        if taken:
            self._budget.give_back(taken)


def no_room_for_bodies(budget: Budget) -> Refusal:
    detail = f"Request bodies take all the {budget.limit} bytes of memory that they may; try again in a second."
    return Refusal(Code.OVERLOADED, detail)


class Line:
    """Lets in so many at a time, and as many as the budget has room for; the others wait, first come, first served."""

    def __init__(self, what: str, inside_max: int, waiting_max: int, wait_seconds: float, budget: Budget) -> None:
        self._what, self.inside_max, self.waiting_max = what, inside_max, waiting_max
        self.wait_seconds, self._budget = wait_seconds, budget
        self._waiting: dict[Place, int] = {}
        """Those in line, in order, and how much each needs."""
        self.inside = 0
        budget.on_return = self.admit

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def join(self, place: "Place", size: int) -> Refusal | None:
        """Go in or to the end of the line, unless that is too long."""
        if len(self._waiting) >= self.waiting_max:
            return self._refusal(f"{self.inside} {self._what} are in progress and {self.waiting} wait for their turn")
        self._waiting[place] = size
        self.admit()
        return None

    def admit(self) -> None:
        """Let in those at the front of the line."""
        while self._waiting and self.inside < self.inside_max:
            place, size = next(iter(self._waiting.items()))
            if not self._budget.take(size):
                return
            del self._waiting[place]
            self.inside += 1
            place.let_in(size)

    def leave(self, place: "Place", size: int) -> None:
        """End a wait, or what was going on inside."""
        if self._waiting.pop(place, None) is None:
            self.inside -= 1
            self._budget.give_back(size)
        self.admit()

    def time_out(self, place: "Place") -> Refusal:
        """End a wait that has lasted too long."""
        del self._waiting[place]
        return self._refusal(f"{self.inside} {self._what} are in progress, and this one waited {self.wait_seconds:g} s")

    def timer(self, expired: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self.wait_seconds, expired)

    def _refusal(self, why: str) -> Refusal:
        return Refusal(Code.OVERLOADED, f"{why}; try again in a second.")


class Place:
    """A place in line, and the intake of a body that is received once it is inside."""

    def __init__(self, line: Line, size_max: int, balance: Callable[[], None]) -> None:
        self._line, self._size_max, self._balance = line, size_max, balance
        self._size = 0
        self._inside = self._at_work = False
        self._timer: asyncio.TimerHandle | None = None
        self._entered: Callable[[], None] = balance
        self._refuse: Refuse

    @property
    def full(self) -> bool:
        return self._timer is not None

    def begin(self, size: int | None, refuse: Refuse) -> None:
        self._join(self._size_max if size is None else size, self._balance, refuse)

    def enter(self, size: int, entered: Callable[[], None], refuse: Refuse) -> None:
        """Go in, perhaps after a wait, and call back to begin the work; at once if it is already inside."""
        self._at_work = True
        if self._inside:
            entered()
        else:
            self._join(size, entered, refuse)

    def _join(self, size: int, entered: Callable[[], None], refuse: Refuse) -> None:
        self._entered, self._refuse = entered, refuse
        self._timer = self._line.timer(self._time_out)
        refusal = self._line.join(self, size)
        if refusal is not None:
            self._stop_waiting()
            refuse(refusal)

    def let_in(self, size: int) -> None:
        """The line has moved on: it is this one's turn."""
        self._inside, self._size = True, size
        self._stop_waiting()
        self._entered()

    def _time_out(self) -> None:
        self._stop_waiting()
        self._refuse(self._line.time_out(self))

    def _stop_waiting(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None

    def extend(self, size: int) -> bool:
        return True

    def abandon(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Make room for the next. Idempotent."""
        if self._timer is not None:
            self._stop_waiting()
            self._line.leave(self, 0)
        elif self._inside:
            self._inside = False
            self._line.leave(self, self._size)

    def release(self) -> None:
        """Leave; but work that goes on inside leaves by itself, even if the client has disconnected."""
        if not (self._at_work and self._inside):
            self.leave()
