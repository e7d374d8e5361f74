"""Inspecting an object alone yields the description of its writer, and every changed byte is detected."""

import struct
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given

from headwater.lake.format import GROUPS_KEY, SCHEMA, SegmentKey
from headwater.lake.segments import sealing, writer
from headwater.lake.segments.reader import SegmentDamaged, read_footer
from headwater.lake.segments.writer import Written
from headwater.lake.verify.inspecting import inspect
from headwater.protocol.producers import Producer

from ..forged_lakes import changed_footer, forge, table_of
from ..lives import (
    ID,
    LAST_POSITION,
    LIMITS,
    RANDOMLY,
    Life,
    Limits,
    NewAppend,
    life,
    plain,
    reading,
    some_lives,
    write,
    write_tables,
)

KEY = SegmentKey(0, 0, LAST_POSITION, ID)
THREE = [
    life("team-a/notes", 7, [NewAppend([b"one"]), NewAppend([b"2"], Producer("p", 3, 4))], offset=100, record=5),
    life("team/chat", 20, [NewAppend([b"{}", b'"b"', b"3"], Producer("q", 0, 0)), NewAppend([b"null"])]),
    plain("team/x", 30, 20, 30),
]


def check(data: bytes, key: SegmentKey = KEY) -> None:
    inspect(reading(data), len(data), key)


@RANDOMLY
@given(some_lives(), LIMITS)
def test_an_inspection_yields_the_description_of_the_writer(lives: list[Life], limits: Limits) -> None:
    written = write(lives, limits)
    found = inspect(reading(written.data), len(written.data), KEY)
    assert found.segment == written.segment
    assert list(found.rows) == written.rows


def small() -> Written:
    return write(THREE, Limits(10, 3))


def test_every_changed_byte_is_detected() -> None:
    written, random = small(), Random(4)
    check(written.data)
    footer = len(written.data) - written.segment.footer_bytes
    places = [*random.sample(range(footer), 200), *random.sample(range(footer, len(written.data)), 400)]
    for at in {*places, 0, footer - 1, footer, *range(len(written.data) - 12, len(written.data))}:
        data = bytearray(written.data)
        data[at] ^= 1 << random.randrange(8)
        with pytest.raises(SegmentDamaged):
            check(bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:7],
        lambda data: data[:12],
        lambda data: data[:-1],
        lambda data: data[1:],
        lambda data: data[:-8] + b"\xff\xff\xff\xffPAR1",
        lambda data: data[:-8] + b"\0\0\0\0PAR1",
        lambda data: data + data,
        lambda data: b"x" + data,
        lambda data: bytes(len(data)),
    ],
)
def test_an_object_of_another_size_is_not_a_segment(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(SegmentDamaged):
        check(change(small().data))


def test_rows_outside_the_positions_in_the_key_are_found() -> None:
    written = small()
    with pytest.raises(SegmentDamaged, match="position is not within"):
        check(written.data, KEY._replace(last_position=30))


def test_a_footer_without_a_seal_is_refused() -> None:
    data, _ = forge([table_of(*THREE)])
    with pytest.raises(SegmentDamaged, match="is damaged or not sealed"):
        check(data)


def test_rows_that_break_a_rule_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = forge([table_of(THREE[1], THREE[0])])
    monkeypatch.setattr("headwater.lake.verify.inspecting.is_sealed", lambda footer: True)
    with pytest.raises(SegmentDamaged, match="names are not in order"):
        check(data)
    data, _ = forge([table_of(*THREE).drop_columns("append")])
    with pytest.raises(SegmentDamaged, match="columns are not those"):
        check(data)
    one, other = (table_of(plain(name, 5, 3)) for name in ("a/x", "b/x"))
    data, _ = forge([one, table_of(plain("a/y", 7, 3)), other])
    with pytest.raises(SegmentDamaged, match="the same incarnation"):
        check(data)


COUNTED = [name for name in SCHEMA.names if name not in ("payload", "producer_id")]


@pytest.mark.parametrize("missing", ["offset", "next_offset"])
def test_a_segment_without_the_statistics_that_reads_need_is_refused(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_COUNTED", [name for name in COUNTED if name != missing])
        without = small()
    with pytest.raises(SegmentDamaged, match=f"statistics of '{missing}' in row group 0"):
        check(without.data)


def test_a_segment_may_lack_statistics_that_nothing_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_COUNTED", ["offset", "next_offset"])
    check(small().data)


FAR = life(
    "team/far", 7, [NewAppend([b"one"]), NewAppend([b"2"], Producer("producer", 3, 4))], offset=70_001, record=50_001
)


@pytest.mark.parametrize(
    ("column", "value", "other"),
    [
        ("offset", 70_001, 70_000),
        ("offset", 70_004, 70_003),
        ("next_offset", 70_005, 70_009),
        ("record", 50_002, 50_001),
        ("committed_at", 1_700_000_000_000_008, 2**63 - 1),
        ("bucket", "team", "tean"),
        ("content_type", "text/plain", "text/\0\xff"),
    ],
)
def test_wrong_statistics_are_found(column: str, value: int | str, other: int | str) -> None:
    old, new = (struct.pack("<q", one) if isinstance(one, int) else one.encode() for one in (value, other))
    data = changed_footer(write([FAR]), old, new.ljust(len(old)))
    with pytest.raises(SegmentDamaged, match=f"statistics of '{column}' in row group 0"):
        check(data)


@pytest.mark.parametrize("column", ["content_type", "producer_id"])
def test_text_that_is_not_utf_8_is_refused(column: str) -> None:
    table = table_of(life("team/chat", 20, [NewAppend([b"{}"], Producer("p", 0, 0))]))
    text = pa.array([b"text/\xff"]).view(pa.string())
    written = write_tables([table.set_column(SCHEMA.get_field_index(column), SCHEMA.field(column), text)])
    with pytest.raises(SegmentDamaged, match="UTF8"):
        check(written.data)


def test_a_time_that_python_cannot_represent_is_accepted() -> None:
    field = SCHEMA.field("committed_at")
    times = pa.array([-(2**62), 2**62], pa.int64()).cast(field.type)
    written = write_tables([table_of(FAR).set_column(SCHEMA.get_field_index(field.name), field, times)])
    found = inspect(reading(written.data), len(written.data), KEY)
    assert (found.segment.first_at, found.segment.last_at) == (-(2**62), 2**62)


@pytest.mark.parametrize(
    "groups",
    [
        '[[0,"x",0,5,1]]',
        "[[0,-2,0,5,1]]",
        "[[-1,2,0,5,1]]",
        "[[0,2,0,5]]",
        "[[0,2,0,5,1,0]]",
        "[[0,2.5,0,5,1]]",
        "[[0,true,0,5,1]]",
        "[[0,null,0,5,1]]",
        "[[[0],2,0,5,1]]",
        "[0,2,0,5,1]",
        '{"a":[0,2,0,5,1]}',
        "null",
        "[[0,2,0,5,1]",
        "[" * 20,
    ],
)
def test_row_groups_that_are_not_described_by_five_numbers_each_are_refused(groups: str) -> None:
    written = write([FAR])
    original = read_footer(reading(written.data), written.segment).metadata.metadata[GROUPS_KEY.encode()]
    data = changed_footer(written, original, groups.encode().ljust(len(original)))
    with pytest.raises(SegmentDamaged, match="cannot be decoded"):
        check(data)


def test_a_stream_named_like_the_seal_changes_nothing() -> None:
    name = "a/" + sealing._MARK.decode("latin-1") + "00000000"
    written = write([plain(name, 1, 3)])
    found = inspect(reading(written.data), len(written.data), KEY)
    assert found.rows[0].name == name
