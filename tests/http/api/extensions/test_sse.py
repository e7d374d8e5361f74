"""Extensions, section 4: SSE is as in the base protocol, on every surface and with every extension."""

import json
from base64 import b64decode

import pytest

from headwater.testing import RunningServer

from ...sockets import Sse, Wire
from .pieces import JSON, append, flat, frames, made, plain, publish

BINARY = [
    "application/octet-stream",
    "application/x-ndjson",
    "application/vnd.durable-stream-records+ndjson",
    "image/png",
]
SURFACES = {"": plain, "/ds": plain, "/v1/stream": flat}


def opened(wire: Wire, target: str) -> Sse:
    return wire.open_sse(f"{target}&live=sse")


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("content_type", BINARY)
def test_a_binary_stream_is_raw_base64_and_says_so(wire: Wire, bucket: str, content_type: str, surface: str) -> None:
    payload = bytes(range(256))
    path = made(wire, f"{bucket}/s", {"Content-Type": content_type}, payload)
    events = opened(wire, f"{surface}{path}?offset=-1")
    assert events.headers["stream-sse-data-encoding"] == "base64"
    assert b64decode(events.event().data, validate=True) == payload


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "TEXT/html; charset=utf-8"])
def test_text_and_json_are_themselves(wire: Wire, bucket: str, content_type: str) -> None:
    path = made(wire, f"{bucket}/s", {"Content-Type": content_type}, b'"abc"')
    events = opened(wire, f"{path}?offset=-1")
    assert "stream-sse-data-encoding" not in events.headers
    assert events.event().data in ('"abc"', '["abc"]')


def test_a_snapshot_and_a_batch_change_nothing_about_events(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/s", {"Content-Type": "image/png"}, b"\0\1\2")
    publish(wire, path, plain(3), b"\xff")
    wire.ask("POST", f"{path}/append-batch", {"Content-Type": "image/png"}, frames(b"\3", b"\4"))
    data, control = opened(wire, f"{path}?offset={plain(3)}").events(2)
    assert (data.kind, b64decode(data.data, validate=True)) == ("data", b"\3\4")
    assert control.control["streamNextOffset"] == plain(5)


@pytest.mark.parametrize(("view", "lines"), [("", ["1", '{"a": 2}']), ("envelope", ['{"record":0,"value":1}', None])])
def test_records_are_lines_of_text_and_never_base64(
    wire: Wire, documents: str, view: str, lines: list[str | None]
) -> None:
    append(wire, documents, b'[1,{"a":\n2}]', headers=JSON)
    events = opened(wire, f"{documents}?record=0{'&record_view=' if view else ''}{view}")
    assert "stream-sse-data-encoding" not in events.headers
    found = events.event().data.split("\n")
    assert len(found) == 2
    assert all(expected in (None, line) for expected, line in zip(lines, found, strict=True))
    assert all(json.loads(line) for line in found)


@pytest.mark.parametrize("surface", SURFACES)
def test_control_events_tell_records_and_offsets_as_their_surface_prints_them(
    wire: Wire, documents: str, surface: str
) -> None:
    append(wire, documents, b"[1,2,3]", headers=JSON)
    publish(wire, documents, plain(1))
    data, control = opened(wire, f"{surface}{documents}?offset={plain(1)}").events(2)
    token, life = SURFACES[surface](3), wire_life(control.id)
    assert data.data == "[2,3]"
    assert data.id == control.id == f"{token}/{life}"
    facts = control.control
    assert (facts["streamNextOffset"], facts["upToDate"]) == (token, True)
    assert (facts["streamFirstRecord"], facts["streamNextRecord"]) == (1, 3)


def wire_life(event_id: str | None) -> str:
    assert event_id is not None
    return event_id.partition("/")[2]


def test_an_event_id_resumes_on_any_surface_and_by_records_too(
    server: RunningServer, wire: Wire, documents: str
) -> None:
    append(wire, documents, b"[1,2,3]", headers=JSON)
    first = opened(wire, f"{documents}?record=0&max_records=2").event()
    assert first.data == "1\n2"
    for target, data in (
        (f"/v1/stream{documents}?offset=-1", "[3]"),
        (f"/ds{documents}?offset=-1", "[3]"),
        (f"{documents}?record=0", "3"),
    ):
        with Wire(server.url) as again:
            events = again.open_sse(f"{target}&live=sse", {"Last-Event-ID": first.id or ""})
            assert events.event().data == data


def test_a_reader_goes_on_with_later_records_as_they_come(server: RunningServer, wire: Wire, documents: str) -> None:
    append(wire, documents, b"[1,2]", headers=JSON)
    events = opened(wire, f"{documents}?tail_records=1")
    assert events.event().data == "2"
    assert events.event().control["streamNextRecord"] == 2
    with Wire(server.url) as writer:
        append(writer, documents, b"[3,4]", headers=JSON)
        assert events.event().data == "3\n4"
        assert events.event().control["streamNextRecord"] == 4
