"""Events are found however they arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.errors import ProtocolViolation
from headwater.client.sse import EventParser, SentEvent
from headwater.protocol.sse import HEARTBEAT, data_event


def events(*pieces: bytes) -> list[SentEvent]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    boundaries = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(boundaries)]


WIRE = b"event: data\ndata:one\ndata: two\nid: 7\n\n: a comment\n\nevent:control\ndata:{}\n\n"
FOUND = [SentEvent("data", b"one\ntwo", "7"), SentEvent("control", b"{}")]


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
@given(places=st.lists(st.integers(0, 200)))
def test_events_do_not_depend_on_where_the_bytes_are_cut(line_end: bytes, places: list[int]) -> None:
    assert events(*cut(WIRE.replace(b"\n", line_end), places)) == FOUND


@given(st.text("ab:\r\n ", max_size=40), st.lists(st.integers(0, 200)))
def test_line_ends_may_be_mixed(text: str, places: list[int]) -> None:
    wire = text.encode()
    byte_by_byte = events(*[bytes([byte]) for byte in wire])
    assert events(*cut(wire, places)) == byte_by_byte == events(wire)


@given(st.binary(), st.lists(st.integers(0, 500)))
def test_what_the_server_writes_is_what_is_read(payload: bytes, places: list[int]) -> None:
    wire = HEARTBEAT + data_event(payload, "9", text=True) + HEARTBEAT
    (event,) = events(*cut(wire, places))
    assert event.data == payload.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert event.id == "9"


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)))
def test_any_bytes_can_be_parsed(junk: bytes, places: list[int]) -> None:
    assert events(*cut(junk, places)) == events(junk)


def test_an_unfinished_event_is_dropped() -> None:
    assert events(b"event: data\ndata: half") == []
    assert events(b"event: data\ndata: whole\n") == []


def test_only_one_leading_space_is_taken_away() -> None:
    assert events(b"data:  two\n\n") == [SentEvent("message", b" two")]


def test_other_separators_of_unicode_are_ordinary_characters() -> None:
    text = "a\u0085b\u2028c\u2029d\u000be".encode()
    assert events(b"data:" + text + b"\n\n") == [SentEvent("message", text)]


def test_unknown_fields_are_ignored_and_a_field_needs_no_colon() -> None:
    assert events(b"retry: 5\nwhatever\ndata\ndata:x\n\n") == [SentEvent("message", b"\nx")]


def test_an_event_with_a_name_but_no_data_is_seen() -> None:
    assert events(b"event: control\n\n") == [SentEvent("control", b"")]


def test_a_byte_order_mark_at_the_beginning_is_ignored() -> None:
    assert events(b"\xef\xbb\xbfdata:x\n\n") == [SentEvent("message", b"x")]


def test_an_event_without_end_is_given_up() -> None:
    parser = EventParser(event_bytes_max=100)
    with pytest.raises(ProtocolViolation, match="larger than 100 bytes"):
        for _ in range(50):
            parser.feed(b"data: some\n")


def test_a_line_without_end_is_given_up() -> None:
    parser = EventParser(event_bytes_max=100)
    with pytest.raises(ProtocolViolation, match="larger than 100 bytes"):
        for _ in range(50):
            parser.feed(b"data: some")
