from base64 import b64decode

import pytest

from headwater.protocol import sse


def received(event: bytes) -> list[str]:
    """The data lines of one event as a browser sees them: cut at every line end, one leading space taken away."""
    lines = event.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [line.removeprefix("data:").removeprefix(" ") for line in lines if line.startswith("data:")]


@pytest.mark.parametrize(
    ("payload", "lines"),
    [
        (b"", [""]),
        (b"line1", ["line1"]),
        (b"a\nb", ["a", "b"]),
        (b"a\rb", ["a", "b"]),
        (b"a\r\nb\rc\n", ["a", "b", "c", ""]),
        (b" indented", [" indented"]),
        (b"  two\n three", ["  two", " three"]),
        (b"x\revent: control\rdata:{}\n\nid: 9", ["x", "event: control", "data:{}", "", "id: 9"]),
        ("é\u2028é".encode(), ["é\u2028é"]),
    ],
)
def test_text_arrives_line_by_line_and_forges_nothing(payload: bytes, lines: list[str]) -> None:
    event = sse.data_event(payload, "7/j-1", text=True)
    assert received(event) == lines
    assert event.startswith(b"event: data\ndata:")
    assert event.endswith(b"\nid: 7/j-1\n\n")
    assert event.count(b"\n\n") == 1
    assert b"\r" not in event


def test_text_has_no_space_after_the_colon() -> None:
    assert sse.data_event(b"line1", "7", text=True) == b"event: data\ndata:line1\nid: 7\n\n"


def test_binary_is_one_base64_string() -> None:
    payload = bytes(range(256)) * 4
    [line] = received(sse.data_event(payload, "7", text=False))
    assert b64decode(line, validate=True) == payload


@pytest.mark.parametrize(
    ("cursor", "up_to_date", "closed", "data"),
    [
        (5, False, False, '{"streamNextOffset":"42","streamCursor":"5"}'),
        (5, True, False, '{"streamNextOffset":"42","streamCursor":"5","upToDate":true}'),
        (5, True, True, '{"streamNextOffset":"42","upToDate":true,"streamClosed":true}'),
        (None, True, False, '{"streamNextOffset":"42","upToDate":true}'),
    ],
)
def test_a_control_event_says_where_to_resume(cursor: int | None, up_to_date: bool, closed: bool, data: str) -> None:
    event = sse.control_event("42", "42/j-1", cursor, up_to_date=up_to_date, closed=closed)
    assert event.decode() == f"event: control\ndata:{data}\nid: 42/j-1\n\n"


def test_a_control_event_of_a_json_stream_tells_its_records() -> None:
    event = sse.control_event("42", "42/j-1", 5, up_to_date=False, closed=False, records=(3, 9))
    data = '{"streamNextOffset":"42","streamFirstRecord":3,"streamNextRecord":9,"streamCursor":"5"}'
    assert event.decode() == f"event: control\ndata:{data}\nid: 42/j-1\n\n"


def test_a_heartbeat_is_a_comment_that_clients_ignore() -> None:
    assert sse.HEARTBEAT.startswith(b":")
    assert sse.HEARTBEAT.endswith(b"\n\n")
