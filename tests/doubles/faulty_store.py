"""An object store that fails, corrupts, loses and lags: a wrapper of any `Store` for tests.

Faults are planned for one call or for all calls of a kind, or are chosen at random. The test provides the random
generator, so a failure is reproducible as long as the calls are made in the same order.

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

Call = Literal["create", "replace", "read", "delete", "items"]

TIMEOUT_SECONDS = 0.0
"""How long a call takes to time out, unless a test says otherwise."""
LAG_OBJECTS = 3


class Fault(Enum):
    """How a call can fail."""

    FAIL_BEFORE = "fails before it acts"
    FAIL_AFTER = "acts, then fails"
    TIME_OUT = "takes long, then fails; whether it acted is random"
    TRUNCATE = "stores or returns only a part, and reports success"
    FLIP = "stores or returns one wrong bit"
    LOSE = "reports that it stored an object, but did not"
    LAG = "lists all but the newest objects"


POSSIBLE: dict[Call, tuple[Fault, ...]] = {
    "create": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.TRUNCATE, Fault.FLIP, Fault.LOSE),
    "replace": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.TRUNCATE, Fault.FLIP, Fault.LOSE),
    "read": (Fault.FAIL_BEFORE, Fault.TIME_OUT, Fault.TRUNCATE, Fault.FLIP),
    "delete": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT),
    "items": (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.LAG),
}
"""The faults of each call. A listing with FAIL_AFTER breaks off in the middle."""
HONEST = frozenset({Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT, Fault.LAG})
"""The faults of a store that never corrupts data; the others are damage."""


class Happened(NamedTuple):
    """A fault that occurred."""

    call: Call
    key: str
    fault: Fault


class _Once(NamedTuple):
    call: Call
    fault: Fault
    in_key: str


class FaultyStore:
    """A `Store` whose faults a test plans; with odds above 0 they are also chosen at random from `faults`."""

    def __init__(
        self,
        store: Store | None = None,
        random: Random | None = None,
        odds: float = 0.0,
        faults: frozenset[Fault] = HONEST,
    ) -> None:
        self.store: Store = MemoryStore() if store is None else store
        """The wrapped store, with the objects that are really there."""
        self.plan: dict[Call, Fault] = {}
        """The fault of every call of a kind."""
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

    def replace(self, key: str, data: bytes) -> None:
        fault = self._choose("replace", key)
        if fault is Fault.LOSE:
            return
        self._act("replace", key, fault, lambda: self.store.replace(key, self._damage(data, fault)))

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

    def remove_leftovers(self) -> None:
        self.store.remove_leftovers()

    # -- Faults ---------------------------------------------------------------------------------------------------

    def fail_next(self, call: Call, fault: Fault = Fault.FAIL_BEFORE, in_key: str = "") -> None:
        """Plan a fault of the next such call whose key contains `in_key`."""
        assert fault in POSSIBLE[call], f"{call} has no such fault: it {fault.value}"
        self._once.append(_Once(call, fault, in_key))

    def lose(self, key: str) -> None:
        """Lose an object that was acknowledged."""
        self.store.delete(key)

    def heal(self) -> None:
        """Plan no more faults; lost or damaged objects remain so."""
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
                assert fault in POSSIBLE[call], f"{call} has no such fault: it {fault.value}"
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
                raise StoreFailed(f"Planned fault: the store failed to {call} {key}.")
            case Fault.FAIL_AFTER:
                act()
                raise StoreFailed(f"Planned fault: the store failed after it did {call} {key}.")
            case Fault.TIME_OUT:
                time.sleep(self.timeout_seconds)
                if self._chance(2):
                    act()
                raise StoreFailed(f"Planned fault: the store timed out on {call} {key}.")
        act()

    def _break_off(self, prefix: str) -> Iterator[Item]:
        items = list(self.store.items(prefix))
        yield from items[: self._chance(len(items) + 1)]
        raise StoreFailed(f"Planned fault: the store broke off its listing of {prefix or 'everything'}.")

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
