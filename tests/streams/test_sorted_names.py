import random

import pytest

from headwater.streams import sorted_names
from headwater.streams.sorted_names import SortedNames


def everything(names: SortedNames) -> list[str]:
    return list(names.after("", 1_000_000))


def test_an_empty_set_has_nothing_after_anything() -> None:
    assert everything(SortedNames()) == []


@pytest.mark.parametrize(
    ("name", "limit", "found"),
    [
        ("", 9, ["a", "b", "c", "d", "e"]),
        ("b", 9, ["c", "d", "e"]),
        ("bb", 9, ["c", "d", "e"]),
        ("e", 9, []),
        ("", 3, ["a", "b", "c"]),
        ("b", 1, ["c"]),
        ("", 0, []),
    ],
)
def test_names_after_a_name_come_in_order_and_within_the_limit(
    name: str, limit: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_names, "BLOCK_NAMES_MAX", 4)
    assert list(SortedNames("ecabd").after(name, limit)) == found


def test_names_sort_as_their_utf8_bytes_do() -> None:
    names = ["b/\U0001f600", "b/\uffff", "b/é", "b/z"]
    assert everything(SortedNames(names)) == sorted(names, key=str.encode)


@pytest.mark.parametrize("at_once", [0, 1, 2, 20])
@pytest.mark.parametrize("seed", range(3))
def test_any_adding_and_removing_leaves_the_same_set_as_sorting(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_names, "BLOCK_NAMES_MAX", 4)
    dice = random.Random(seed)
    model = {f"{number:02}" for number in dice.sample(range(60), at_once)}
    names = SortedNames(model)
    for _ in range(600):
        name = f"{dice.randrange(60):02}"
        if name in model:
            names.remove(name)
            model.remove(name)
        else:
            names.add(name)
            model.add(name)
        assert everything(names) == sorted(model)
    for name in sorted(model):
        names.remove(name)
    assert everything(names) == []
    assert names._blocks == []


def test_no_block_grows_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_names, "BLOCK_NAMES_MAX", 4)
    names = SortedNames(f"{number:03}" for number in range(50))
    assert max(map(len, names._blocks)) <= 4
    for number in range(50, 100):
        names.add(f"{number:03}")
    assert max(map(len, names._blocks)) <= 4
    assert everything(names) == [f"{number:03}" for number in range(100)]


@pytest.mark.parametrize("order", [1, -1])
def test_blocks_stay_half_full_while_names_are_only_added(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise walking and searching would cost more than the names themselves."""
    monkeypatch.setattr(sorted_names, "BLOCK_NAMES_MAX", 8)
    names = SortedNames()
    for number in range(100)[::order]:
        names.add(f"{number:03}")
    assert min(map(len, names._blocks)) >= 4


def test_removing_a_name_that_is_not_there_is_a_mistake_of_the_caller() -> None:
    names = SortedNames("ac")
    with pytest.raises(AssertionError):
        names.remove("b")
