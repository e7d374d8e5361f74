"""A mapping in parts behaves like a dictionary, and what was frozen does not change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.cold import Tombstone
from headwater.streams.images import Walk
from headwater.streams.parted import PARTS, Parted
from headwater.streams.segments import DeadRows
from headwater.streams.state import State

from .tombstones import first_rows

NUMBERS = st.one_of(st.integers(0, 5), st.sampled_from([PARTS, PARTS + 1, 3 * PARTS]))
STEPS = st.lists(st.tuples(st.sampled_from(["set", "delete", "freeze"]), NUMBERS, st.integers(0, 9)), max_size=30)


@given(STEPS)
def test_it_holds_what_a_dictionary_would_hold(steps: list[tuple[str, int, int]]) -> None:
    parted, model = Parted[int](), dict[int, int]()
    frozen = []
    for kind, number, value in steps:
        if kind == "set":
            parted[number] = model[number] = value
        elif kind == "freeze":
            frozen.append((parted.freeze(), dict(model)))
        elif number in model:
            del parted[number], model[number]
        else:
            with pytest.raises(KeyError):
                del parted[number]
        assert (len(parted), dict(parted), parted.get(number)) == (len(model), model, model.get(number))
        assert (number in parted) == (number in model)
    for entries, expected in frozen:
        assert dict(entries) == expected


def test_an_image_of_many_tombstones_begins_without_a_copy_of_them() -> None:
    class Uncopied(Parted[Tombstone]):
        copied = 0

        def _part_to_change(self, number: int) -> dict[int, Tombstone]:
            before = self._parts[number % PARTS]
            part = super()._part_to_change(number)
            self.copied += len(part) if part is not before else 0
            return part

    state, lives = State("log"), 200_000
    for number in range(lives):
        state.cold.hide(f"b/{number}", number, 9, first_rows(number % 100))
    tombstones = state.cold.tombstones = Uncopied(state.cold.tombstones)
    walk = Walk(state)
    assert tombstones.copied == 0
    state.cold.hide("b/7", 7, 99, first_rows(5))
    assert tombstones.copied < 2 * lives // PARTS
    assert dict(walk._tombstones)[7] == Tombstone("b/7", 9, (DeadRows(7, 0, 1),))
    walk.end()
