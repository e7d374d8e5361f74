"""Server-sent events as many readers take them: the data, and the offset at which to resume."""

import pytest

from headwater.load.messages import LoadFailed
from headwater.load.sse import EventStream
from headwater.protocol import sse

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def data(text: bytes) -> bytes:
    return sse.data_event(text, "7", text=True)


def control(offset: str, *, closed: bool = False) -> bytes:
    return sse.control_event(offset, "7", 1, up_to_date=True, closed=closed)


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


FIRST, SECOND = data(b"one") + control("1"), data(b" two\nlines") + control("2")
LAST = b"0\r\n\r\n"
RESPONSES = {
    "one chunk for each pair": CHUNKED + chunk(control("0")) + chunk(FIRST) + chunk(SECOND) + LAST,
    "a comment between": CHUNKED + chunk(FIRST) + chunk(sse.HEARTBEAT) + chunk(SECOND) + LAST,
    "events cut by chunks": CHUNKED + chunk(FIRST[:20]) + chunk(FIRST[20:] + SECOND[:3]) + chunk(SECOND[3:]) + LAST,
    "one chunk for all": CHUNKED + chunk(FIRST + SECOND) + LAST,
    "two data events": CHUNKED + chunk(data(b"o") + data(b"ne") + control("1") + SECOND) + LAST,
    "no chunks": HEAD + b"\r\n" + FIRST + SECOND,
    "other line ends": CHUNKED + chunk((FIRST + SECOND).replace(b"\n", b"\r\n")) + LAST,
    "other spaces": CHUNKED + chunk((FIRST + SECOND).replace(b"event: ", b"event:")) + LAST,
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_the_data_is_the_same_however_the_response_is_cut(response: bytes) -> None:
    for size in (1, 2, 3, 7, 50, 10_000):
        stream = EventStream()
        pieces = [stream.feed(response[at : at + size]) for at in range(0, len(response), size)]
        assert b"".join(pieces) == b"one two\nlines"
        assert stream.next_offset == "2"
        assert stream.is_ended == response.endswith(LAST)
        assert not stream.is_closed


def test_data_counts_only_once_its_control_event_has_arrived() -> None:
    stream = EventStream()
    assert stream.feed(CHUNKED + chunk(FIRST) + chunk(data(b"late"))) == b"one"
    assert stream.next_offset == "1"
    assert stream.feed(chunk(control("9"))) == b"late"
    assert stream.next_offset == "9"


def test_the_end_of_a_response_is_not_the_end_of_the_stream() -> None:
    stream = EventStream()
    stream.feed(CHUNKED)
    assert not stream.has_position
    stream.feed(chunk(FIRST) + LAST)
    assert (stream.has_position, stream.is_ended, stream.is_closed) == (True, True, False)
    closed = EventStream()
    closed.feed(CHUNKED + chunk(data(b"one") + control("1", closed=True)))
    assert (closed.is_ended, closed.is_closed) == (False, True)


def test_a_refused_live_read_fails() -> None:
    with pytest.raises(LoadFailed, match="404"):
        EventStream().feed(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
