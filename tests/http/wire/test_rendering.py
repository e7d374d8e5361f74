"""Responses with the same page share their bytes, and no others do."""

import msgspec
import pytest

from headwater.http.wire.rendering import SHARED_BYTES_MAX, SHARED_MAX, Renderer
from headwater.http.wire.statuses import Voice
from headwater.protocol.offsets import Form
from headwater.streams.replies import Page

FLAT, PLAIN = Voice(Form.FLAT, "log"), Voice(Form.PLAIN, "log")


def page(body: bytes, incarnation: int = 1) -> Page:
    return Page(incarnation, "text/plain", 0, len(body), True, False, body)


def test_readers_of_a_page_share_its_bytes() -> None:
    renderer, one = Renderer(), page(b"hello")
    first = renderer.page(one, FLAT, close=False)
    assert first[0].endswith(b"\r\n\r\nhello")
    assert renderer.page(one, FLAT, close=False) is first


def test_another_page_with_the_same_bytes_has_its_own_headers() -> None:
    renderer = Renderer()
    [first], [second] = (renderer.page(page(b"hello", number), FLAT, close=False) for number in (1, 2))
    assert (b"log-1" in first, b"log-2" in second) == (True, True)


def test_each_surface_gets_its_own_offsets() -> None:
    renderer, one = Renderer(), page(b"hello")
    [flat], [plain] = (renderer.page(one, voice, close=False) for voice in (FLAT, PLAIN))
    assert (b"_0000000000000050\r\n" in flat, b"00000000000000000005\r\n" in plain) == (True, True)


def test_the_last_response_on_a_connection_says_so() -> None:
    renderer, one = Renderer(), page(b"hello")
    [kept], [last] = (renderer.page(one, FLAT, close=close) for close in (False, True))
    assert (b"Connection: close" in kept, b"Connection: close" in last) == (False, True)


def test_the_date_is_at_most_a_second_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("headwater.http.wire.rendering.time.monotonic", lambda: now)
    renderer, one = Renderer(), page(b"hello")
    first = renderer.page(one, FLAT, close=False)
    now = 101.0
    assert renderer.page(one, FLAT, close=False) is not first


def test_pages_are_never_mixed_up_however_many_there_are() -> None:
    renderer = Renderer()
    for number in range(3 * SHARED_MAX):
        size = SHARED_BYTES_MAX + number % 3 - 1
        body = str(number).encode().ljust(size)
        # Nothing but the renderer keeps the page, so another may get its place in memory.
        response = b"".join(renderer.page(msgspec.structs.replace(page(body)), FLAT, close=False))
        assert response.endswith(body)
