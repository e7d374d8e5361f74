"""What the faulty store may do to a program, and what it may not."""

from collections import Counter
from random import Random

import pytest

from headwater.storage.memory import MemoryStore
from headwater.storage.store import KeyExists, KeyMissing, StoreFailed

from .faulty_store import HONEST, POSSIBLE, Call, Fault, FaultyStore, Happened


def keys(store: FaultyStore) -> list[str]:
    return [item.key for item in store.items("")]


def test_without_a_plan_nothing_goes_wrong() -> None:
    store = FaultyStore()
    store.create("a", b"data")
    assert (store.read("a"), store.read("a", 1, 2), keys(store)) == (b"data", b"at", ["a"])
    with pytest.raises(KeyExists):
        store.create("a", b"other")
    store.delete("a")
    with pytest.raises(KeyMissing):
        store.read("a")
    assert (store.url, store.happened) == ("memory:", [])


def test_a_call_that_fails_before_it_acts_changes_nothing() -> None:
    store = FaultyStore()
    store.create("old", b"data")
    store.plan |= {"create": Fault.FAIL_BEFORE, "delete": Fault.FAIL_BEFORE}
    with pytest.raises(StoreFailed, match="create new"):
        store.create("new", b"data")
    with pytest.raises(StoreFailed, match="delete old"):
        store.delete("old")
    assert keys(store) == ["old"]


def test_a_call_that_fails_after_it_acted_has_acted() -> None:
    store = FaultyStore()
    store.create("old", b"data")
    store.plan |= {"create": Fault.FAIL_AFTER, "delete": Fault.FAIL_AFTER}
    with pytest.raises(StoreFailed, match="create new"):
        store.create("new", b"data")
    with pytest.raises(StoreFailed, match="delete old"):
        store.delete("old")
    assert keys(store) == ["new"]


def test_a_call_that_times_out_may_have_acted() -> None:
    store = FaultyStore(random=Random(1))
    store.timeout_seconds = 0.001
    store.plan["create"] = Fault.TIME_OUT
    for number in range(20):
        with pytest.raises(StoreFailed, match="timed out"):
            store.create(f"{number}", b"data")
    assert 0 < len(keys(store)) < 20


def test_a_store_may_keep_a_part_and_say_that_this_is_all() -> None:
    store = FaultyStore()
    store.fail_next("create", Fault.TRUNCATE)
    store.create("a", b"0123456789")
    assert store.read("a") == b"01234"


def test_a_store_may_keep_a_wrong_bit() -> None:
    store = FaultyStore()
    store.fail_next("create", Fault.FLIP)
    store.create("a", bytes(100))
    assert sum(byte.bit_count() for byte in store.read("a")) == 1
    assert store.read("a") == store.read("a")


def test_a_read_may_come_back_short_or_wrong_and_right_the_next_time() -> None:
    store = FaultyStore()
    store.create("a", bytes(100))
    store.fail_next("read", Fault.TRUNCATE)
    store.fail_next("read", Fault.FLIP)
    assert store.read("a") == bytes(50)
    assert sum(byte.bit_count() for byte in store.read("a")) == 1
    assert store.read("a") == bytes(100)


def test_objects_may_be_lost_that_were_acknowledged() -> None:
    store = FaultyStore()
    store.fail_next("create", Fault.LOSE, in_key="b")
    for key in ("a", "b", "c"):
        store.create(key, b"data")
    store.lose("c")
    assert keys(store) == ["a"]


def test_a_listing_may_miss_the_newest_objects() -> None:
    store = FaultyStore()
    store.lag_objects = 2
    for key in ("d", "c", "b", "a"):
        store.create(key, b"data")
    store.plan["items"] = Fault.LAG
    assert keys(store) == ["c", "d"]
    assert store.read("a") == b"data"
    store.heal()
    assert keys(store) == ["a", "b", "c", "d"]


def test_a_listing_may_break_off() -> None:
    store = FaultyStore()
    for key in ("a", "b", "c"):
        store.create(key, b"data")
    store.plan["items"] = Fault.FAIL_AFTER
    lengths = set()
    for _ in range(20):
        items, taken = store.items(""), []
        with pytest.raises(StoreFailed, match="broke off"):
            while True:
                taken.append(next(items).key)
        assert taken == ["a", "b", "c"][: len(taken)]
        lengths.add(len(taken))
    assert len(lengths) > 1


def test_a_single_fault_waits_for_its_key() -> None:
    store = FaultyStore()
    store.fail_next("create", in_key="catalog/")
    store.create("segments/1", b"data")
    with pytest.raises(StoreFailed):
        store.create("catalog/1", b"data")
    store.create("catalog/1", b"data")
    assert store.happened == [Happened("create", "catalog/1", Fault.FAIL_BEFORE)]


def test_a_healed_store_keeps_its_damage_and_does_no_more() -> None:
    store = FaultyStore(odds=1.0)
    store.plan["create"] = Fault.TRUNCATE
    store.create("a", b"data")
    store.fail_next("read")
    store.heal()
    store.create("b", b"data")
    assert (store.read("a"), store.read("b")) == (b"da", b"data")


def calls(store: FaultyStore) -> list[str]:
    """Do many things to a store; returns how each went."""
    outcomes = []
    for number in range(500):
        key = f"{number % 50}"
        try:
            match number // 50 % 5:
                case 0:
                    store.create(key, b"%d" % number * 10)
                case 1:
                    outcomes.append(store.read(key).hex())
                case 2:
                    outcomes.append(" ".join(keys(store)))
                case 3:
                    store.replace(key, b"%d" % number * 10)
                case 4:
                    store.delete(key)
        except (StoreFailed, KeyMissing, KeyExists) as error:
            outcomes.append(str(error))
    return outcomes


def test_a_seed_decides_everything() -> None:
    first, same, other = (
        FaultyStore(MemoryStore(), Random(seed), odds=0.3, faults=frozenset(Fault)) for seed in (7, 7, 8)
    )
    assert (calls(first), first.happened) == (calls(same), same.happened)
    assert calls(other) != calls(FaultyStore(MemoryStore(), Random(7), odds=0.3, faults=frozenset(Fault)))


def test_chance_has_every_fault_that_it_may_and_no_other() -> None:
    for faults in (HONEST, frozenset(Fault), frozenset({Fault.FLIP})):
        had: Counter[tuple[Call, Fault]] = Counter()
        for seed in range(20):
            store = FaultyStore(MemoryStore(), Random(seed), odds=0.5, faults=faults)
            calls(store)
            had.update((happened.call, happened.fault) for happened in store.happened)
        assert set(had) == {
            (call, fault) for call, possible in POSSIBLE.items() for fault in possible if fault in faults
        }


def test_a_fault_that_a_call_cannot_have_is_a_mistake_of_the_test() -> None:
    store = FaultyStore()
    with pytest.raises(AssertionError, match="delete has no such fault"):
        store.fail_next("delete", Fault.FLIP)
    store.plan["read"] = Fault.LAG
    with pytest.raises(AssertionError, match="read has no such fault"):
        store.read("a")
