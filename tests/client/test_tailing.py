"""Which request a reader of many streams sends next, given what has arrived."""

import json
from typing import Any

import pytest

from headwater.client.errors import (
    BadRequest,
    NotFound,
    OffsetTrimmed,
    ProtocolViolation,
    ServerUnavailable,
    TransportFailed,
)
from headwater.client.retrying import RetryPolicy
from headwater.client.settings import ClientSettings
from headwater.client.tailing import ManyReader, followed
from headwater.client.values import OnRefused
from headwater.client.wire import Response

from .script import LOST, UNREACHABLE, Line, Script

URL = "http://h/__headwater/tail"
POLICY = RetryPolicy(attempts_max=4, first_delay_seconds=1.0, dice=lambda: 0.0)
SETTINGS = ClientSettings("http://h", follow_retry=POLICY)
A_MINUTE = 60.0
AGAIN = b'event: end\ndata:{"reason":"again"}\n\n'
BUSY = Response(503, {"retry-after": "3"}, b'{"code":"waiters_too_many"}')


def batch(name: str, offset: int, *, closed: bool = False, up_to_date: bool = True, **payload: Any) -> bytes:
    facts = {
        "stream": f"_default/{name}",
        "incarnation": f"j-{name}",
        "nextOffset": f"{offset:020d}",
        "upToDate": up_to_date,
        "closed": closed,
        **(payload or {"text": ""}),
    }
    return f"event: batch\ndata:{json.dumps(facts)}\n\n".encode()


def refused(name: str, status: int, code: str, **more: str) -> bytes:
    facts = {"stream": f"_default/{name}", "status": status, "code": code, "detail": "No.", **more}
    return f"event: refused\ndata:{json.dumps(facts)}\n\n".encode()


def events(*pieces: Any) -> tuple[Response, list[Any]]:
    return Response(200, {"content-type": "text/event-stream"}), list(pieces)


class Following:
    """A reader of the streams a and b, and what it has returned."""

    def __init__(self, *answers: Line, on_refused: OnRefused = "raise") -> None:
        self.script = Script(answers)
        self.reader = ManyReader(URL, POLICY, followed(SETTINGS, {"a": None, "b": "7"}), on_refused)

    def run(self) -> list[tuple[str, bytes]]:
        return [(name, chunk.data) for name, chunk in self.script.run(self.reader.run())]

    @property
    def asked(self) -> list[dict[str, tuple[str, str | None]]]:
        """The offset and the incarnation of each stream, by request."""
        bodies = [json.loads(request.body or b"") for request in self.script.requests]
        return [
            {one["stream"].partition("/")[2]: (one["offset"], one["incarnation"]) for one in body["streams"]}
            for body in bodies
        ]


def test_a_reader_asks_for_what_follows_the_last_batch_of_each_stream() -> None:
    following = Following(
        events(batch("a", 3, text="abc"), batch("b", 7), A_MINUTE, AGAIN),
        events(batch("a", 3), batch("b", 9, base64="AAE="), A_MINUTE, AGAIN),
    )
    assert following.run() == [("a", b"abc"), ("b", b""), ("b", b"\0\1")]
    assert following.asked == [
        {"a": ("-1", None), "b": ("7", None)},
        {"a": (f"{3:020d}", "j-a"), "b": (f"{7:020d}", "j-b")},
        {"a": (f"{3:020d}", "j-a"), "b": (f"{9:020d}", "j-b")},
    ]
    assert following.script.pauses == []
    assert following.reader.offsets == {"a": f"{3:020d}", "b": f"{9:020d}"}


def test_a_batch_that_a_lost_connection_has_cut_is_read_again() -> None:
    whole = batch("b", 9, text="gh")
    following = Following(events(batch("a", 3, text="abc"), whole[:-1], A_MINUTE, LOST), events(whole))
    assert following.run() == [("a", b"abc"), ("b", b"gh")]
    assert following.asked[1] == {"a": (f"{3:020d}", "j-a"), "b": ("7", None)}


def test_closed_streams_are_not_asked_for_again_and_a_reader_ends_when_all_are() -> None:
    following = Following(
        events(batch("a", 3, text="abc", closed=True), A_MINUTE, AGAIN), events(batch("b", 7, closed=True))
    )
    assert following.run() == [("a", b"abc"), ("b", b"")]
    assert following.asked[1] == {"b": ("7", None)}
    assert following.script.shut


def test_messages_are_returned_as_the_bytes_that_they_were() -> None:
    raw = batch("a", 3, items=[0], closed=True).replace(b"[0]", b'[{"x" : 1.0}, "\xc3\xbc"]')
    assert Following(events(raw)).run() == [("a", b'[{"x" : 1.0}, "\xc3\xbc"]')]


def test_a_refused_stream_raises_the_error_of_a_read() -> None:
    with pytest.raises(NotFound, match=r"GET http://h/v1/stream/b was answered with 404: No\.") as missing:
        Following(events(refused("b", 404, "stream_not_found"))).run()
    assert (missing.value.code, missing.value.url) == ("stream_not_found", "http://h/v1/stream/b")
    with pytest.raises(OffsetTrimmed) as trimmed:
        Following(events(refused("b", 410, "offset_trimmed", earliest="12"))).run()
    assert trimmed.value.earliest_offset == "12"


def test_a_refused_stream_can_be_dropped() -> None:
    following = Following(
        events(refused("b", 404, "stream_not_found"), batch("a", 1, text="a", closed=True)), on_refused="drop"
    )
    assert following.run() == [("a", b"a")]
    assert isinstance(following.reader.refused["b"], NotFound)


def test_a_stream_that_is_refused_for_the_moment_is_asked_for_again_until_patience_ends() -> None:
    busy = events(batch("a", 1), A_MINUTE, refused("b", 503, "overloaded"))
    following = Following(busy, busy, busy, busy)
    with pytest.raises(ServerUnavailable):
        following.run()
    assert following.script.pauses == [0.5, 1.0, 2.0]
    assert following.asked[3]["b"] == ("7", None)


def test_a_server_that_is_busy_or_away_is_asked_again_until_patience_ends() -> None:
    following = Following(BUSY, UNREACHABLE, LOST, events(batch("a", 1), A_MINUTE, AGAIN), BUSY, BUSY, BUSY, BUSY)
    with pytest.raises(ServerUnavailable):
        following.run()
    assert following.script.pauses == [3.0, 1.0, 2.0, 3.0, 3.0, 3.0]


def test_connections_that_do_not_last_are_given_up() -> None:
    following = Following(*[events() for _ in range(10)])
    with pytest.raises(TransportFailed, match="do not last"):
        following.run()
    assert following.script.pauses == [0.5, 1.0, 2.0]


def test_connections_that_last_for_a_moment_are_opened_ever_more_slowly() -> None:
    following = Following(*[events(batch("a", number, text="x")) for number in range(5)])
    assert len(following.run()) == 5
    assert following.script.pauses == [0.5, 1.0, 2.0, 4.0, 5.0]


def test_a_request_that_is_refused_raises() -> None:
    with pytest.raises(BadRequest):
        Following(Response(400)).run()
    with pytest.raises(NotFound):
        Following(Response(404)).run()


@pytest.mark.parametrize(
    "answer",
    [
        Response(200, {"content-type": "text/html"}),
        events(b"event: batch\ndata:{\n\n"),
        events(b"event: batch\ndata:{}\n\n"),
        events(b"event: refused\ndata:\n\n"),
        events(b"event: end\ndata:[]\n\n"),
        events(batch("c", 1)),
        events(refused("c", 404, "stream_not_found")),
        events(batch("a", 1, base64="?")),
    ],
)
def test_events_that_violate_the_protocol_raise(answer: Line) -> None:
    with pytest.raises(ProtocolViolation):
        Following(answer).run()


def test_unknown_events_and_members_are_passed_over() -> None:
    later = b'event: news\ndata:{}\n\n: alive\n\nevent: end\ndata:{"reason":"credential_expired","at":1}\n\n'
    following = Following(events(batch("a", 1, text="a", more=1), A_MINUTE, later), events())
    assert following.run() == [("a", b"a")]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "from 1 to 1000"),
        ([str(number) for number in range(1001)], "from 1 to 1000"),
        (["a", "_default/a"], "the same stream"),
        (["http://h/v1/stream/a"], "is a URL"),
        (["a/../b"], "not a valid name"),
        (["x" * 200], "bytes long"),
    ],
)
def test_names_that_cannot_be_followed_are_refused_before_anything_is_sent(names: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        followed(SETTINGS, dict.fromkeys(names))
