"""The public format: columns, keys, ids and names."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake import format
from headwater.lake.format import SegmentKey

DIGITS = st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=1)
POSITIONS = st.integers(0, 10**20 - 1)


def test_the_columns_of_version_2_are_these() -> None:
    assert format.VERSION == "2"
    assert [(field.name, str(field.type), field.nullable) for field in format.SCHEMA] == [
        ("bucket", "string", False),
        ("stream", "string", False),
        ("incarnation", "int64", False),
        ("offset", "int64", False),
        ("next_offset", "int64", False),
        ("record", "int64", False),
        ("append", "int64", False),
        ("position", "int64", False),
        ("committed_at", "timestamp[us, tz=UTC]", False),
        ("producer_id", "string", True),
        ("producer_epoch", "int64", True),
        ("producer_seq", "int64", True),
        ("content_type", "string", False),
        ("payload", "binary", False),
    ]
    assert isinstance(format.SCHEMA, pa.Schema)


# -- Keys --------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**16), POSITIONS, POSITIONS, st.integers(0, 10**15), DIGITS)
def test_a_key_is_parsed_into_its_parts(shard: int, first: int, last: int, deadline_us: int, random: str) -> None:
    id = format.new_segment_id(deadline_us, random)
    assert format.parse_segment_key(format.segment_key(shard, first, last, id)) == SegmentKey(shard, first, last, id)


def test_keys_sort_by_position() -> None:
    keys = [format.segment_key(0, first, first + 1, "19a8a1dec01x") for first in (0, 9, 10, 99, 10**19)]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "catalog/shard=0/00000000000000000007-0000000001.json",
        "segments/shard=0/7-8-19a8a1dec01x.parquet",
        "segments/shard=0/00000000000000000007-00000000000000000008-19a8a1dec01.parquet",
        "segments/shard=0/00000000000000000007-00000000000000000008-19a8a1dec01x.parquet.tmp",
        "segments/shard=0/00000000000000000007-00000000000000000008-19a8a1dec01x.parquet\n",
        "segments/shard=0/00000000000000000007-00000000000000000008-19A8A1DEC01x.parquet",
        "segments/shard=x/00000000000000000007-00000000000000000008-19a8a1dec01x.parquet",
        "other/segments/shard=0/00000000000000000007-00000000000000000008-19a8a1dec01x.parquet",
    ],
)
def test_other_keys_are_not_segments(key: str) -> None:
    assert format.parse_segment_key(key) is None


# -- Ids ---------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 16**11 * 1000 - 1000), DIGITS)
def test_an_id_holds_its_deadline_rounded_up_to_the_millisecond(deadline_us: int, random: str) -> None:
    deadline = format.deadline_us_of(format.new_segment_id(deadline_us, random))
    assert deadline_us <= deadline < deadline_us + 1000


def test_ids_sort_by_deadline() -> None:
    ids = [format.new_segment_id(deadline, "x") for deadline in (0, 1, 10**9, 10**15, 16**11 * 1000 - 1000)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("deadline_us", [-1000, 16**11 * 1000 - 999])
def test_a_deadline_that_does_not_fit_is_an_error(deadline_us: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        format.new_segment_id(deadline_us, "x")


@pytest.mark.parametrize("random", ["", "A", "a-b", "a/b", "a.b", "é", "a\n"])
def test_an_id_ends_in_digits_and_lower_case_letters(random: str) -> None:
    with pytest.raises(ValueError, match="digits and lower-case letters"):
        format.new_segment_id(0, random)


# -- Names -------------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_characters="/")), st.text())
def test_a_name_is_split_and_joined_without_change(bucket: str, stream: str) -> None:
    assert format.split_name(format.name_of(bucket, stream)) == (bucket, stream)


def test_a_name_without_a_bucket_is_an_error() -> None:
    with pytest.raises(ValueError, match="'notes' has no bucket"):
        format.split_name("notes")
