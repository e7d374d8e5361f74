"""Streams of messages of one byte: pages and events have a limit on messages too, and nothing is lost by it."""

import json

import pytest

from headwater.protocol.limits import PAGE_MESSAGES_MAX

from ..sockets import Wire, request

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
MESSAGES = 2 * PAGE_MESSAGES_MAX + 7
DIGITS = [number % 10 for number in range(MESSAGES)]
SIZES = [PAGE_MESSAGES_MAX, PAGE_MESSAGES_MAX, 7]


@pytest.fixture
def digits(wire: Wire, path: str) -> str:
    """A JSON stream of one-digit messages, in two appends."""
    first, second = (json.dumps(part).encode() for part in (DIGITS[:5000], DIGITS[5000:]))
    assert wire.ask("PUT", path, JSON, first).status == 201
    assert wire.ask("POST", path, JSON, second).status == 204
    return path


def test_pages_of_tiny_messages_end_after_the_most_messages_a_page_may_have(wire: Wire, digits: str) -> None:
    offset = "-1"
    sizes: list[int] = []
    found: list[int] = []
    while len(found) < MESSAGES:
        page = wire.ask("GET", f"{digits}?offset={offset}")
        messages = json.loads(page.body)
        assert ("stream-up-to-date" in page.headers) == (len(found) + len(messages) == MESSAGES)
        offset = page.next_offset
        sizes.append(len(messages))
        found += messages
    assert (found, sizes) == (DIGITS, SIZES)


def test_a_long_poll_gives_such_a_page(wire: Wire, digits: str) -> None:
    page = wire.ask("GET", f"{digits}?offset=-1&live=long-poll")
    assert json.loads(page.body) == DIGITS[:PAGE_MESSAGES_MAX]


def test_an_event_has_as_many_messages_as_a_page_and_all_of_them_arrive(wire: Wire, digits: str) -> None:
    events = wire.open_sse(f"{digits}?offset=-1&live=sse").events(6)
    data = [json.loads(event.data) for event in events if event.kind == "data"]
    assert [len(messages) for messages in data] == SIZES
    assert [digit for messages in data for digit in messages] == DIGITS


@pytest.mark.parametrize("view", ["", "&record_view=envelope"])
def test_a_read_of_records_gives_no_more_than_a_page_of_them_at_a_time(wire: Wire, digits: str, view: str) -> None:
    found: list[object] = []
    sizes = []
    while len(found) < MESSAGES:
        page = wire.ask("GET", f"{digits}?record={len(found)}&max_records=1000000{view}")
        lines = [json.loads(line) for line in page.body.splitlines()]
        assert page.headers["stream-record-next"] == str(len(found) + len(lines))
        sizes.append(len(lines))
        found += lines
    assert sizes == SIZES
    assert found == ([{"record": at, "value": digit} for at, digit in enumerate(DIGITS)] if view else DIGITS)


def test_pages_of_a_text_of_tiny_appends_end_likewise(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, TEXT)
    appends = PAGE_MESSAGES_MAX + 3
    for first in range(0, appends, 50):
        count = min(50, appends - first)
        wire.send(request("POST", path, TEXT, b"x") * count)
        assert {wire.receive().status for _ in range(count)} == {204}
    page = wire.ask("GET", f"{path}?offset=-1")
    assert len(page.body) == PAGE_MESSAGES_MAX
    assert wire.ask("GET", f"{path}?offset={page.next_offset}").body == b"xxx"
