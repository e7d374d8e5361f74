"""An object store that fails, lies, forgets and lags; it stands before any `Store` in tests.

What goes wrong is planned, for one call or for all calls of a kind, or left to chance. The chance is given, so a
failure can be had again as long as the calls come in the same order.

    >>> store = FaultyStore(MemoryStore())
    >>> store.plan["create"] = Fault.TRUNCATE
    >>> store.create("a", b"whole")
    >>> store.heal()
    >>> store.read("a")
    b'wh'
"""

import time
from collections.abc import Callable, Iterator
from enum import Enum
from random import Random
from threading import RLock
from typing import Literal, NamedTuple

from headwater.storage.memory import MemoryStore
from headwater.storage.store import Item, Store, StoreFailed

Call = Literal["create", "read", "delete", "items"]

TIMEOUT_SECONDS = 0.0
"""How long a call takes that times out, unless a test says otherwise."""
LAG_OBJECTS = 3


class Fault(Enum):
    """What can go wrong with a call."""

    FAIL_BEFORE = "fails before it acts"
    FAIL_AFTER = "acts, then fails"
    TIME_OUT = "takes its time, then fails; whether it acted is left to chance"
    TRUNCATE = "stores, or returns, a part and says that this is all"
    FLIP = "stores, or returns, one wrong bit"
    LOSE = "says that it stored an object, and did not"
    LAG = "lists all but the newest objects"


POSSIBLE: dict[Call, tuple[Fault, ...]] = {
    "create": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.TRUNCATE, Fault.FLIP, Fault.LOSE),
    "read": (Fault.FAIL_BEFORE, Fault.TIME_OUT, Fault.TRUNCATE, Fault.FLIP),
    "delete": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT),
    "items": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.LAG),
}
"""Which calls can go wrong how; a listing that fails after it acted breaks off in the middle."""
HONEST = frozenset({Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.LAG})
"""What a store may do that keeps its word; the others are damage."""


class Happened(NamedTuple):
    """A fault that was had."""

    call: Call
    key: str
    fault: Fault


class _Once(NamedTuple):
    call: Call
    fault: Fault
    in_key: str


class FaultyStore:
    """A `Store` whose faults a test decides; with odds above 0, chance does, from among `faults`."""

    def __init__(
        self,
        store: Store | None = None,
        random: Random | None = None,
        odds: float = 0.0,
        faults: frozenset[Fault] = HONEST,
    ) -> None:
        self.store: Store = MemoryStore() if store is None else store
        """What it stands before, and what is really there."""
        self.plan: dict[Call, Fault] = {}
        """What goes wrong with every call of a kind."""
        self.odds, self.faults = odds, faults
        self.timeout_seconds = TIMEOUT_SECONDS
        self.lag_objects = LAG_OBJECTS
        self.happened: list[Happened] = []
        self._once: list[_Once] = []
        self._newest: list[str] = []
        self._random = random or Random(0)
        self._lock = RLock()

    # -- The store ------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.store.url

    def create(self, key: str, data: bytes) -> None:
        fault = self._choose("create", key)
        if fault is Fault.LOSE:
            return
        self._act("create", key, fault, lambda: self._create(key, self._damage(data, fault)))

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        fault = self._choose("read", key)
        data: list[bytes] = []
        self._act("read", key, fault, lambda: data.append(self.store.read(key, start, size)))
        return self._damage(data[0], fault)

    def delete(self, key: str) -> None:
        self._act("delete", key, self._choose("delete", key), lambda: self.store.delete(key))

    def items(self, prefix: str) -> Iterator[Item]:
        fault = self._choose("items", prefix)
        if fault is Fault.FAIL_AFTER:
            return self._break_off(prefix)
        self._act("items", prefix, fault, lambda: None)
        with self._lock:
            hidden = self._newest[-self.lag_objects :] if fault is Fault.LAG else []
        return (item for item in self.store.items(prefix) if item.key not in hidden)

    # -- Faults ---------------------------------------------------------------------------------------------------

    def fail_next(self, call: Call, fault: Fault = Fault.FAIL_BEFORE, in_key: str = "") -> None:
        """Have the next such call go wrong on a key that contains this."""
        assert fault in POSSIBLE[call], f"{call} cannot go wrong like that: it {fault.value}"
        self._once.append(_Once(call, fault, in_key))

    def lose(self, key: str) -> None:
        """Let go of an object that was acknowledged."""
        self.store.delete(key)

    def heal(self) -> None:
        """Have nothing go wrong from now on; what was lost or damaged remains so."""
        with self._lock:
            self.plan.clear()
            self._once.clear()
            self.odds = 0.0

    def _create(self, key: str, data: bytes) -> None:
        self.store.create(key, data)
        with self._lock:
            self._newest.append(key)

    def _choose(self, call: Call, key: str) -> Fault | None:
        with self._lock:
            fault = self._planned(call, key)
            if fault is None and self._random.random() < self.odds:
                possible = [fault for fault in POSSIBLE[call] if fault in self.faults]
                fault = self._random.choice(possible) if possible else None
            if fault is not None:
                assert fault in POSSIBLE[call], f"{call} cannot go wrong like that: it {fault.value}"
                self.happened.append(Happened(call, key, fault))
            return fault

    def _planned(self, call: Call, key: str) -> Fault | None:
        for once in self._once:
            if once.call == call and once.in_key in key:
                self._once.remove(once)
                return once.fault
        return self.plan.get(call)

    def _act(self, call: Call, key: str, fault: Fault | None, act: Callable[[], None]) -> None:
        match fault:
            case Fault.FAIL_BEFORE:
                raise StoreFailed(f"The store fails to {call} {key}, as planned.")
            case Fault.FAIL_AFTER:
                act()
                raise StoreFailed(f"The store fails after it did {call} {key}, as planned.")
            case Fault.TIME_OUT:
                time.sleep(self.timeout_seconds)
                if self._chance(2):
                    act()
                raise StoreFailed(f"The store takes too long to {call} {key}, as planned.")
        act()

    def _break_off(self, prefix: str) -> Iterator[Item]:
        items = list(self.store.items(prefix))
        yield from items[: self._chance(len(items) + 1)]
        raise StoreFailed(f"The store breaks off its items of {prefix or 'all'}, as planned.")

    def _damage(self, data: bytes, fault: Fault | None) -> bytes:
        if fault is Fault.TRUNCATE:
            return data[: len(data) // 2]
        if fault is Fault.FLIP and data:
            bit = self._chance(len(data) * 8)
            return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        return data

    def _chance(self, below: int) -> int:
        with self._lock:
            return self._random.randrange(below)
