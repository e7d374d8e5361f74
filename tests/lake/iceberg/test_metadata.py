"""Metadata files: read back as written, never mistaken for another, and with few snapshots however many commits."""

from itertools import pairwise

import pytest

from headwater.lake.format import SCHEMA
from headwater.lake.iceberg.bounds import buckets, high_text
from headwater.lake.iceberg.manifests import TableLocation
from headwater.lake.iceberg.metadata import HOUR_MS, MINUTE_MS, Snapshot, Table, decode, encode, thinned

from ..lives import plain, write

LOCATION = TableLocation("s3://bucket/lake", 0, SCHEMA)
SUMMARY = {"operation": "append", "headwater.position": "7", "headwater.list-crc": "3"}


def snapshot(sequence: int, at_ms: int = 0) -> Snapshot:
    return Snapshot(sequence + 100, sequence + 99 if sequence else None, sequence, at_ms, f"list-{sequence}", SUMMARY)


TABLE = Table("messages", 7, "uuid", "abc", LOCATION.url, 5, (snapshot(0), snapshot(1)), ((4, "messages/old"),))


def test_a_table_is_read_back_as_it_was_written() -> None:
    assert decode(TABLE.key, encode(TABLE, LOCATION)) == TABLE


@pytest.mark.parametrize("key", ["messages/metadata/0000000008-abc.metadata.json", "messages/metadata/x.json"])
def test_a_metadata_file_under_another_key_is_damage(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        decode(key, encode(TABLE, LOCATION))


def test_any_changed_byte_is_damage() -> None:
    data = encode(TABLE, LOCATION)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(ValueError, match=r"^it"):
            decode(TABLE.key, bytes(changed))


def test_however_many_commits_there_are_few_snapshots_stay_and_the_last_one_always() -> None:
    day = 24 * HOUR_MS
    known = tuple(snapshot(number, number * 1_000) for number in range(2 * day // 1_000))
    kept = thinned(known, known[-1].at_ms, day)
    assert len(kept) < 350
    assert {one.id for one in known[-60:]} <= kept
    ages = sorted(known[-1].at_ms - one.at_ms for one in known if one.id in kept)
    assert day - HOUR_MS < ages[-1] <= day
    assert max(later - earlier for earlier, later in pairwise(ages)) <= 2 * HOUR_MS
    assert thinned(known[:1], known[0].at_ms + 10 * day, MINUTE_MS) == {known[0].id}
    assert thinned((), 0, day) == set()


def test_buckets_of_a_segment_are_between_their_bounds() -> None:
    """Full names have another order than buckets: `team-a/x` is before `team/x`, and so is `team.b/x`."""
    names = ["team-a/x", "team/x", "team0/x", "team0-z/x", "team b/x", "team.b/x", "team.b c/x", "- /x", "-/x", "té+/x"]
    for first in range(len(names)):
        for last in range(first, len(names)):
            ordered = sorted(names)[first : last + 1]
            segment = write([plain(name, number + 1, 3) for number, name in enumerate(ordered)]).segment
            low, high = buckets(segment)
            assert all(low <= name.partition("/")[0] <= high for name in ordered)


@pytest.mark.parametrize(
    "text", ["", "a", "é" * 64, "b" * 65, "\ud7ff" * 65, "\U0010ffff" * 64 + "a", "a" + "\U0010ffff" * 70]
)
def test_an_upper_bound_is_never_below_the_text(text: str) -> None:
    above = high_text(text)
    assert above is None or above >= text.encode()
