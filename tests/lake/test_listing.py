"""The listing: after any changes it has what the last of them said."""

from random import Random

import pytest

from headwater.lake import listing
from headwater.lake.catalog import FORKS, TOMBSTONES, Edition, ForkRow, TombstoneRow
from headwater.lake.listing import Changes, Heading, Listing
from headwater.streams.cold import ALL, Held

from .lives import plain, write

HEADING = Heading(0, "abc", Edition(20, 3), 19, 4, 5)
SEGMENT = write([plain("team/b", 4, 6)]).segment


def test_a_new_listing_is_empty() -> None:
    contents = Listing().contents(HEADING)
    assert contents[:7] == (0, "abc", 20, 3, 19, 4, 5)
    assert contents.segments == []
    assert contents.tombstones.equals(TOMBSTONES.empty_table())
    assert contents.forks.equals(FORKS.empty_table())


def test_what_is_listed_no_longer_goes() -> None:
    one, fork = TombstoneRow("team/a", 3, 5), ForkRow("team/f", 4, False, "team/a", 3, 0, 5)
    known = Listing()
    known.update(Changes([(1, Held(SEGMENT, 1)), (2, Held(SEGMENT, 2))], [(3, one)], [(4, fork)]))
    assert len(known.contents(HEADING).tombstones) == len(known.contents(HEADING).forks) == 1
    known.update(Changes([(1, None), (9, None)], [(3, None), (8, None)], [(4, None)]))
    contents = known.contents(HEADING)
    assert contents.segments == [(2, SEGMENT, 2)]
    assert len(contents.tombstones) == len(contents.forks) == 0


@pytest.mark.parametrize("seed", range(5))
def test_each_incarnation_has_the_row_that_was_given_last(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "CHUNKS_MAX", 3)
    random, expected, known = Random(seed), dict[int, int](), Listing()
    for _ in range(60):
        changed = {incarnation: random.choice([None, 1, 2, ALL]) for incarnation in random.choices(range(9), k=3)}
        for incarnation, below in changed.items():
            expected.pop(incarnation, None)
            if below is not None:
                expected[incarnation] = below
        rows = [(key, None if below is None else TombstoneRow("b/s", key, below)) for key, below in changed.items()]
        known.update(Changes([], rows, []))
        if random.random() < 0.7:
            table = known.contents(HEADING).tombstones
            assert table.schema.equals(TOMBSTONES)
            found = list(zip(table["incarnation"].to_pylist(), table["below"].to_pylist(), strict=True))
            assert dict(found) == expected
            assert len(found) == len(expected)
            assert table["incarnation"].num_chunks <= 4
