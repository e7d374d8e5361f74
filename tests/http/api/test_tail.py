"""Many streams on one connection: what each stream gets, refusals, ends, and bad requests."""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from headwater.protocol.limits import TAIL_BYTES_MAX, TAIL_STREAMS_MAX, TAIL_URL_STREAMS_MAX
from headwater.testing import RunningServer, running_server

from ..sockets import Sse, Wire, refused, request

URL = "/__headwater/tail"
TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
CLOSED = {"Stream-Closed": "true"}


@pytest.fixture
def other(server: RunningServer) -> Iterator[Wire]:
    """A second connection, to listen on while the first one writes."""
    with Wire(server.url) as wire:
        yield wire


@pytest.fixture
def bucket(path: str) -> str:
    """The start of names that no other test uses."""
    return f"tail/{path.rpartition('/')[2]}"


@pytest.fixture(scope="module")
def brief() -> Iterator[RunningServer]:
    """A server with short live reads and small pages."""
    with running_server("--sse-seconds", "2", "--heartbeat-seconds", "0.5", "--page-bytes", "1000") as server:
        yield server


def at(name: str) -> str:
    return f"/v1/stream/{name}"


def body_of(streams: Mapping[str, str]) -> bytes:
    return json.dumps({"streams": [{"stream": name, "offset": offset} for name, offset in streams.items()]}).encode()


def post(body: bytes) -> bytes:
    return request("POST", URL, JSON, body)


def follow(wire: Wire, streams: Mapping[str, str]) -> Sse:
    wire.send(post(body_of(streams)))
    return wire.receive_sse()


def next_of(sse: Sse, kind: str) -> dict[str, Any]:
    event = sse.event()
    assert event.kind == kind, event
    assert event.id is None
    found = json.loads(event.data)
    assert isinstance(found, dict)
    return found


def batches(sse: Sse, count: int) -> list[dict[str, Any]]:
    return [next_of(sse, "batch") for _ in range(count)]


# -- Batches -----------------------------------------------------------------------------------------------------------


def test_every_stream_gets_what_it_has_and_then_what_is_appended(wire: Wire, other: Wire, bucket: str) -> None:
    documents, text, data = f"{bucket}-json", f"{bucket}-text", f"{bucket}-data"
    wire.ask("PUT", at(documents), JSON, b'[{"a" : 1.0}, 2]')
    wire.ask("PUT", at(text), TEXT, "zwei\r\nZeilen ü".encode())
    wire.ask("PUT", at(data), BYTES, b"\x00\xff")
    incarnation = wire.ask("HEAD", at(documents)).headers["stream-incarnation"]
    sse = follow(other, {documents: "-1", text: "-1", data: "-1"})
    assert sse.headers["x-accel-buffering"] == "no"
    first = sse.event()
    assert (
        first.raw
        == (
            f'event: batch\ndata:{{"stream":"{documents}","incarnation":"{incarnation}",'
            '"nextOffset":"00000000000000000012","upToDate":true,"closed":false,"items":[{"a" : 1.0},2]}\n\n'
        ).encode()
    )
    of_text, of_data = batches(sse, 2)
    assert (of_text["stream"], of_text["text"]) == (text, "zwei\r\nZeilen ü")
    assert (of_data["stream"], of_data["base64"]) == (data, base64.b64encode(b"\x00\xff").decode())
    wire.ask("POST", at(text), TEXT, b"more")
    [more] = batches(sse, 1)
    assert (more["stream"], more["text"], more["upToDate"]) == (text, "more", True)
    wire.ask("POST", at(documents), JSON, b"[3,4]")
    assert batches(sse, 1)[0]["items"] == [3, 4]


def test_the_first_batch_is_empty_at_the_tail(wire: Wire, other: Wire, bucket: str) -> None:
    names = [f"{bucket}-{kind}" for kind in ("items", "text", "base64")]
    for name, kind in zip(names, (JSON, TEXT, BYTES), strict=True):
        wire.ask("PUT", at(name), kind, b'"old"')
    found = batches(follow(other, dict.fromkeys(names, "now")), 3)
    assert [one["stream"] for one in found] == names
    assert [found[0]["items"], found[1]["text"], found[2]["base64"]] == [[], "", ""]
    assert all(one["upToDate"] and not one["closed"] for one in found)
    assert other.silent_for(0.1)


def test_offsets_of_both_forms_are_accepted_and_lead_to_what_follows(wire: Wire, other: Wire, bucket: str) -> None:
    flat = wire.ask("PUT", at(bucket), TEXT, b"abc").next_offset
    wire.ask("POST", at(bucket), TEXT, b"def")
    [batch] = batches(follow(other, {bucket: flat}), 1)
    assert batch["text"] == "def"
    with Wire(f"http://{wire.socket.getpeername()[0]}:{wire.socket.getpeername()[1]}") as third:
        [again] = batches(follow(third, {bucket: batch["nextOffset"]}), 1)
        assert (again["text"], again["nextOffset"]) == ("", batch["nextOffset"])


def test_text_that_is_not_utf_8_comes_as_base64(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), TEXT, b"caf\xe9")
    [batch] = batches(follow(other, {bucket: "-1"}), 1)
    assert base64.b64decode(batch["base64"]) == b"caf\xe9"
    assert "text" not in batch


def test_messages_with_line_ends_are_one_event(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), JSON, b'{"a":\n1,\n\n "b":2}')
    event = follow(other, {bucket: "-1"}).event()
    assert json.loads(event.data)["items"] == [{"a": 1, "b": 2}]
    assert event.data.endswith('"items":[{"a":\n1,\n\n "b":2}]}')


def test_streams_take_turns_page_by_page(brief: RunningServer, bucket: str) -> None:
    names = [f"{bucket}-{number}" for number in range(3)]
    with Wire(brief.url) as wire:
        for name in names:
            wire.ask("PUT", at(name), TEXT, b"x" * 2500)
        found = batches(follow(wire, dict.fromkeys(names, "-1")), 9)
    assert [one["stream"] for one in found] == names * 3
    assert [len(one["text"]) for one in found] == [1000] * 6 + [500] * 3
    assert [one["upToDate"] for one in found] == [False] * 6 + [True] * 3


def test_a_thousand_streams_fit_on_one_connection(server: RunningServer, wire: Wire, bucket: str) -> None:
    names = [f"{bucket}-{number}" for number in range(TAIL_STREAMS_MAX)]
    for name in names:
        wire.send(request("PUT", at(name), TEXT, name.encode()))
        assert wire.receive().status == 201
    with Wire(server.url) as other:
        sse = follow(other, dict.fromkeys(names, "-1"))
        assert {one["stream"]: one["text"] for one in batches(sse, len(names))} == {name: name for name in names}
        for name in reversed(names):
            assert wire.ask("POST", at(name), TEXT, b"!").status == 204
        assert [one["stream"] for one in batches(sse, len(names))] == names[::-1]


# -- Refused, closed, ended --------------------------------------------------------------------------------------------


def test_a_missing_stream_is_refused_and_the_others_go_on(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), TEXT, b"abc")
    sse = follow(other, {f"{bucket}-missing": "-1", bucket: "-1"})
    no = next_of(sse, "refused")
    assert (no["stream"], no["status"], no["code"]) == (f"{bucket}-missing", 404, "stream_not_found")
    assert no["detail"].endswith(".")
    assert batches(sse, 1)[0]["text"] == "abc"
    wire.ask("PUT", at(f"{bucket}-missing"), TEXT, b"too late")
    wire.ask("POST", at(bucket), TEXT, b"def")
    assert batches(sse, 1)[0]["text"] == "def"


def test_a_trimmed_offset_is_refused_with_the_earliest(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", "/tail")
    wire.ask("PUT", f"/{bucket}", TEXT, b"abcdef")
    assert wire.ask("PUT", f"/{bucket}/snapshot/6", TEXT, b"six").status == 204
    wire.ask("POST", f"/{bucket}", TEXT, b"ghi")
    no = next_of(follow(other, {bucket: "0"}), "refused")
    assert (no["status"], no["code"], no["earliest"]) == (410, "offset_trimmed", f"{6:020d}")


def test_an_offset_beyond_the_tail_is_refused(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), TEXT, b"abc")
    no = next_of(follow(other, {bucket: "4000"}), "refused")
    assert (no["status"], no["code"]) == (400, "offset_beyond_tail")


def test_a_stream_that_is_deleted_meanwhile_is_refused(wire: Wire, other: Wire, bucket: str) -> None:
    for name in (bucket, f"{bucket}-b"):
        wire.ask("PUT", at(name), TEXT)
    sse = follow(other, {bucket: "-1", f"{bucket}-b": "-1"})
    batches(sse, 2)
    wire.ask("DELETE", at(bucket))
    no = next_of(sse, "refused")
    assert (no["stream"], no["status"], no["code"]) == (bucket, 404, "stream_not_found")
    wire.ask("POST", at(f"{bucket}-b"), TEXT, b"b")
    assert batches(sse, 1)[0]["text"] == "b"


def test_a_new_life_of_a_stream_is_never_taken_for_the_old_one(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), TEXT, b"abc")
    sse = follow(other, {bucket: "-1"})
    [first] = batches(sse, 1)
    wire.send(request("DELETE", at(bucket)) + request("PUT", at(bucket), TEXT, b"abcdefgh"))
    assert (wire.receive().status, wire.receive().status) == (204, 201)
    assert next_of(sse, "refused")["status"] in (404, 410)
    named = {"stream": bucket, "offset": first["nextOffset"], "incarnation": first["incarnation"]}
    wire.send(post(json.dumps({"streams": [named]}).encode()))
    no = next_of(wire.receive_sse(), "refused")
    assert (no["status"], no["code"]) == (410, "incarnation_changed")


def test_the_response_ends_when_all_streams_are_closed(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(f"{bucket}-a"), {**TEXT, **CLOSED}, b"the end")
    wire.ask("PUT", at(f"{bucket}-b"), TEXT)
    sse = follow(other, {f"{bucket}-a": "-1", f"{bucket}-b": "-1", f"{bucket}-missing": "-1"})
    [ended, empty] = batches(sse, 2)
    assert (ended["text"], ended["closed"], empty["closed"]) == ("the end", True, False)
    assert next_of(sse, "refused")["stream"] == f"{bucket}-missing"
    wire.ask("POST", at(f"{bucket}-b"), {**TEXT, **CLOSED}, b"b")
    [last] = batches(sse, 1)
    assert (last["text"], last["closed"]) == ("b", True)
    assert [(event.kind, event.data) for event in sse.rest()] == [("end", '{"reason":"closed"}')]


def test_a_response_beats_and_ends_after_a_while(brief: RunningServer, bucket: str) -> None:
    with Wire(brief.url) as wire:
        wire.ask("PUT", at(bucket), TEXT)
        sse = follow(wire, {bucket: "-1"})
        batches(sse, 1)
        assert sse.event(comments=True).kind == ":"
        assert [(event.kind, event.data) for event in sse.rest()] == [("end", '{"reason":"again"}')]


def test_a_server_that_drains_says_so(bucket: str) -> None:
    with running_server() as server, Wire(server.url) as wire:
        wire.ask("PUT", at(bucket), TEXT)
        sse = follow(wire, {bucket: "-1"})
        batches(sse, 1)
        server.process.terminate()
        assert [(event.kind, event.data) for event in sse.rest()] == [("end", '{"reason":"draining"}')]
        assert server.stop() == 0


# -- By GET ------------------------------------------------------------------------------------------------------------


def test_a_few_streams_can_be_named_in_the_url(wire: Wire, other: Wire, bucket: str) -> None:
    names = [f"{bucket}@home", f"{bucket} +ü"]
    for name in names:
        wire.ask("PUT", at(quote(name)), TEXT, b"abc")
    query = "&".join(f"s={quote(name, safe='')}%40-1" for name in names)
    found = batches(other.open_sse(f"{URL}?{query}&unknown=1"), 2)
    assert [(one["stream"], one["text"]) for one in found] == [(name, "abc") for name in names]


def test_an_incarnation_follows_the_offset_in_a_url(wire: Wire, other: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), TEXT, b"abc")
    incarnation = wire.ask("HEAD", at(bucket)).headers["stream-incarnation"]
    assert batches(other.open_sse(f"{URL}?s={bucket}@0/{incarnation}"), 1)[0]["text"] == "abc"
    foreign = next_of(wire.open_sse(f"{URL}?s={bucket}@0/another-1"), "refused")
    assert foreign["code"] == "incarnation_changed"


def test_a_client_of_http_1_0_gets_events_without_chunks(wire: Wire, bucket: str) -> None:
    wire.ask("PUT", at(bucket), {**TEXT, **CLOSED}, b"abc")
    sse = wire.open_sse(f"{URL}?s={bucket}@-1", version="1.0")
    assert "transfer-encoding" not in sse.headers
    assert [json.loads(event.data).get("text") for event in sse.rest()[:1]] == ["abc"]


# -- Bad requests ------------------------------------------------------------------------------------------------------

BAD_BODIES = {
    "no JSON": (b"{", "bad_request"),
    "nothing": (b"", "bad_request"),
    "no UTF-8": (b'{"streams":[{"stream":"a/\xff","offset":"-1"}]}', "bad_request"),
    "deep": (b"[" * 100_000, "bad_request"),
    "another shape": (b'["a/b"]', "bad_request"),
    "no streams": (b'{"streams":[]}', "bad_request"),
    "no offset": (b'{"streams":[{"stream":"a/b"}]}', "bad_request"),
    "a number": (b'{"streams":[{"stream":"a/b","offset":7}]}', "bad_request"),
    "an unknown member": (b'{"streams":[{"stream":"a/b","offset":"-1","live":"sse"}]}', "bad_request"),
    "an unknown member of all": (b'{"streams":[{"stream":"a/b","offset":"-1"}],"live":true}', "bad_request"),
    "no bucket": (body_of({"notes": "-1"}), "invalid_name"),
    "an empty name": (body_of({"": "-1"}), "invalid_name"),
    "a reserved bucket": (body_of({"__ds/x": "-1"}), "invalid_name"),
    "dots": (body_of({"a/../b": "-1"}), "invalid_name"),
    "a NUL": (body_of({"a/\0": "-1"}), "invalid_name"),
    "a long name": (body_of({"a/" + "x" * 200: "-1"}), "invalid_name"),
    "a bad offset": (body_of({"a/b": "tomorrow"}), "invalid_offset"),
    "a negative offset": (body_of({"a/b": "-2"}), "invalid_offset"),
    "an empty offset": (body_of({"a/b": ""}), "invalid_offset"),
    "a name twice": (
        b'{"streams":[{"stream":"a/b","offset":"-1"},{"stream":"a/b","offset":"now"}]}',
        "bad_request",
    ),
    "too many": (body_of({f"a/{number}": "-1" for number in range(TAIL_STREAMS_MAX + 1)}), "bad_request"),
}


@pytest.mark.parametrize("reason", BAD_BODIES)
def test_a_bad_body_is_refused_in_one_sentence(wire: Wire, reason: str) -> None:
    body, code = BAD_BODIES[reason]
    refused(wire.ask_raw(post(body)), 400, code)
    assert wire.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "bad_request"),
        ("s=", "bad_request"),
        ("s=a/b", "bad_request"),
        ("s=a/b@", "invalid_offset"),
        ("s=a/b@x", "invalid_offset"),
        ("s=b@-1", "invalid_name"),
        ("s=a/%ff@-1", "bad_request"),
        ("s=a/b@-1&s=a/b@now", "bad_request"),
        ("&".join(f"s=a/{number}@-1" for number in range(TAIL_URL_STREAMS_MAX + 1)), "bad_request"),
    ],
)
def test_a_bad_query_is_refused_in_one_sentence(wire: Wire, query: str, code: str) -> None:
    refused(wire.ask("GET", f"{URL}?{query}"), 400, code)


def test_a_body_that_is_too_large_is_refused(wire: Wire) -> None:
    refused(wire.ask_raw(post(b" " * (TAIL_BYTES_MAX + 1))), 413, "too_large")


def test_a_thousand_of_the_longest_names_fit_into_a_body_even_if_they_are_escaped(wire: Wire) -> None:
    names = [f"a/{number:0120d}" for number in range(TAIL_STREAMS_MAX)]
    named = [{"stream": name, "offset": "0000000000000000_0000000000000000", "incarnation": "f" * 60} for name in names]
    escaped = re.sub(r"a/0+\d+", lambda match: "".join(f"\\u{ord(one):04x}" for one in match[0]), json.dumps(named))
    wire.send(post(f'{{"streams":{escaped}}}'.encode()))
    events = wire.receive_sse().rest()
    assert [json.loads(event.data)["stream"] for event in events[:-1]] == names
    assert (events[-1].kind, events[-1].data) == ("end", '{"reason":"closed"}')


def test_there_is_no_head(wire: Wire) -> None:
    response = wire.ask("HEAD", f"{URL}?s=a/b@-1")
    assert (response.status, response.headers["allow"]) == (405, "POST, GET, OPTIONS")
