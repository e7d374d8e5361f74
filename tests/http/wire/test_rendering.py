"""Pages are rendered as any other answer, whichever way is taken."""

from itertools import product

import pytest

from headwater.http.wire import statuses
from headwater.http.wire.rendering import COPY_BYTES_MAX, TEMPLATES_MAX, Renderer
from headwater.http.wire.statuses import Dialect
from headwater.protocol.offsets import Form
from headwater.streams.replies import Page

FLAT, PLAIN = Dialect(Form.FLAT, "log"), Dialect(Form.PLAIN, "log")
GUARDED, PRIVATE = FLAT._replace(guarded=True), PLAIN._replace(private=True, by_origin=True)
BODIES = (b"", b"[]", b'["100%d"]', b"x" * (COPY_BYTES_MAX - 1), b"x" * COPY_BYTES_MAX)
RECORDS = ((None, None, None), (0, 7, None), (2, 9, 4))


def page(body: bytes, incarnation: int = 1) -> Page:
    return Page(incarnation, "text/plain", 0, len(body), True, False, body)


@pytest.mark.parametrize("dialect", [FLAT, PLAIN, GUARDED, PRIVATE])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain; x=%d%b%%", "application/octet-stream"])
def test_a_page_is_rendered_as_any_answer_is(dialect: Dialect, content_type: str) -> None:
    renderer = Renderer()
    booleans = (False, True)
    for body, records, up_to_date, closed, close in product(BODIES, RECORDS, booleans, booleans, booleans):
        one = Page(3, content_type, 5, 5 + len(body), up_to_date, closed, body, *records)
        rendered = renderer.page(one, dialect, close=close)
        assert b"".join(rendered) == b"".join(renderer.response(statuses.answer(one, dialect), close=close))


def test_another_page_with_the_same_bytes_has_its_own_headers() -> None:
    renderer = Renderer()
    [first], [second] = (renderer.page(page(b"hello", number), FLAT, close=False) for number in (1, 2))
    assert (b"log-1" in first, b"log-2" in second) == (True, True)


def test_each_surface_gets_its_own_offsets() -> None:
    renderer, one = Renderer(), page(b"hello")
    [flat], [plain] = (renderer.page(one, dialect, close=False) for dialect in (FLAT, PLAIN))
    assert (b"_0000000000000050\r\n" in flat, b"00000000000000000005\r\n" in plain) == (True, True)


def test_the_last_response_on_a_connection_says_so() -> None:
    renderer, one = Renderer(), page(b"hello")
    [kept], [last] = (renderer.page(one, FLAT, close=close) for close in (False, True))
    assert (b"Connection: close" in kept, b"Connection: close" in last) == (False, True)


def test_the_date_is_at_most_a_second_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now, date = 100.0, "Mon"
    monkeypatch.setattr("headwater.http.wire.rendering.time.monotonic", lambda: now)
    monkeypatch.setattr("headwater.http.wire.rendering.formatdate", lambda usegmt: date)
    renderer, one = Renderer(), page(b"hello")
    assert b"Date: Mon\r\n" in renderer.page(one, FLAT, close=False)[0]
    now, date = 101.0, "Tue"
    assert b"Date: Tue\r\n" in renderer.page(one, FLAT, close=False)[0]


def test_content_types_are_never_mixed_up_however_many_there_are() -> None:
    renderer = Renderer()
    for number in [*range(3 * TEMPLATES_MAX), *range(TEMPLATES_MAX)]:
        [response] = renderer.page(Page(1, f"text/x-{number}", 0, 1, True, False, b"a"), FLAT, close=False)
        assert f"Content-Type: text/x-{number}\r\n".encode() in response
    assert len(renderer._pages) <= TEMPLATES_MAX
