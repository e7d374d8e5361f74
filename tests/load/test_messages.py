"""A response ends where HTTP says that it ends, however it arrives."""

import pytest

from headwater.load import messages

HEAD = b"HTTP/1.1 200 OK\r\nServer: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (HEAD + b"Content-Length: 4\r\n\r\nabcd", b"abcd"),
        (HEAD + b"content-length:0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", b"abc"),
        (CHUNKED + b"7\r\n0\r\n\r\n0\r\r\n0\r\n\r\n", b"0\r\n\r\n0\r"),
        (CHUNKED + b"1\r\na\r\n0\r\nTrailer: 1\r\n\r\n", b"a"),
        (CHUNKED + b"0\r\n\r\n", b""),
    ],
)
def test_a_response_is_complete_with_its_last_byte_and_not_before(response: bytes, body: bytes) -> None:
    assert not any(messages.is_complete(response[:size]) for size in range(len(response)))
    assert messages.is_complete(response)
    assert messages.is_complete(bytearray(response))
    assert messages.body(response) == body


def test_the_response_to_head_has_no_body() -> None:
    response = HEAD + b"Content-Length: 4\r\n\r\n"
    assert messages.is_complete(response, is_head=True)
    assert not messages.is_complete(response)


def test_responses_that_follow_each_other_are_separated() -> None:
    first, second = HEAD + b"Content-Length: 2\r\n\r\nab", b"HTTP/1.1 503 No\r\nContent-Length: 1\r\n\r\nc"
    end = messages.response_end(first + second)
    assert end == len(first)
    assert messages.response_end(first + second, end) == len(first + second)


def test_a_server_says_that_it_closes_the_connection_in_the_head_only() -> None:
    assert messages.closes(HEAD + b"connection:  Close\r\nContent-Length: 0\r\n\r\n")
    assert not messages.closes(HEAD + b"Content-Length: 21\r\n\r\n\r\nConnection: close\r\n")
