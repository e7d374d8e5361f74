"""Records: the messages of a JSON stream by number."""

import json

import pytest

from headwater.testing import RunningServer

from ...sockets import Response, Wire, refused, request
from .pieces import JSON, TEXT, append, flat, frames, made, plain, publish

NDJSON, ENVELOPES = "application/x-ndjson", "application/vnd.durable-stream-records+ndjson"


@pytest.fixture
def ten(wire: Wire, documents: str) -> str:
    """A stream of ten one-byte messages, in appends of one to four."""
    append(wire, documents, b"0", b"[1,2]", b"[3,4,5]", b"[6,7,8,9]", headers=JSON)
    return documents


def ordinals(response: Response) -> tuple[str | None, str | None, str | None]:
    """Start, first and next, from the headers."""
    names = ("stream-record-start", "stream-record-first", "stream-record-next")
    start, first, following = (response.headers.get(name) for name in names)
    return start, first, following


# -- On ordinary requests ----------------------------------------------------------------------------------------------


def test_an_append_shows_the_ordinals_that_it_wrote(wire: Wire, documents: str) -> None:
    assert ordinals(wire.ask("POST", documents, JSON, b"1")) == ("0", None, "1")
    assert ordinals(wire.ask("POST", documents, JSON, b"[2,3,4]")) == ("1", None, "4")
    assert ordinals(wire.ask("POST", documents, JSON, b"[[]]")) == ("4", None, "5")


def test_a_retried_append_shows_the_ordinals_that_it_wrote_first_and_an_older_one_none(
    wire: Wire, documents: str
) -> None:
    def send(seq: int) -> Response:
        producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
        return wire.ask("POST", documents, {**JSON, **producer}, b"[1,2]")

    assert [ordinals(send(0)), ordinals(send(1))] == [("0", None, "2"), ("2", None, "4")]
    append(wire, documents, b"9", headers=JSON)
    again, older = send(1), send(0)
    assert (again.status, ordinals(again), again.next_offset) == (204, ("2", None, "4"), plain(4))
    assert (older.status, ordinals(older), older.next_offset) == (204, (None, None, None), plain(5))


def test_head_and_reads_tell_the_oldest_and_the_next_ordinal(wire: Wire, ten: str) -> None:
    assert ordinals(wire.ask("HEAD", ten)) == (None, "0", "10")
    assert ordinals(wire.ask("GET", ten)) == (None, "0", "10")
    assert ordinals(wire.ask("GET", f"{ten}?max_bytes=4")) == (None, "0", "4")
    assert ordinals(wire.ask("GET", f"{ten}?offset={plain(7)}&max_bytes=1")) == (None, "0", "8")
    assert ordinals(wire.ask("GET", f"{ten}?offset=now")) == (None, "0", "10")
    publish(wire, ten, plain(4))
    assert ordinals(wire.ask("HEAD", ten)) == (None, "4", "10")
    assert ordinals(wire.ask("GET", f"{ten}?offset={plain(7)}&max_bytes=1")) == (None, "4", "8")


def test_what_is_not_json_shows_none(wire: Wire, text: str) -> None:
    response = wire.ask("POST", text, {"Content-Type": "text/plain"}, b"abc")
    for each in (response, wire.ask("HEAD", text), wire.ask("GET", text)):
        assert ordinals(each) == (None, None, None)


def test_the_extensions_of_a_stream_name_records_only_where_there_are_some(wire: Wire, text: str, bucket: str) -> None:
    documents = wire.ask("PUT", f"{bucket}/json", JSON)
    names = set(documents.headers["stream-extensions"].split(", "))
    assert names >= {"snapshot", "bootstrap", "append-batch", "attrs", "retention", "records"}
    assert names - set(wire.ask("HEAD", text).headers["stream-extensions"].split(", ")) == {
        "json-record-coordinates-v1",
        "records",
    }


# -- Reads by records --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "start", "body"),
    [
        ("record=0", 0, "0123456789"),
        ("record=4", 4, "456789"),
        ("record=4&max_records=3", 4, "456"),
        ("record=4&max_records=100", 4, "456789"),
        ("record=9", 9, "9"),
        ("record=10", 10, ""),
        ("record=now", 10, ""),
        ("tail_records=0", 10, ""),
        ("tail_records=3", 7, "789"),
        ("tail_records=3&max_records=1", 7, "7"),
        ("tail_records=100", 0, "0123456789"),
    ],
)
@pytest.mark.parametrize(("surface", "form"), [("", plain), ("/ds", plain), ("/v1/stream", flat)])
def test_records_are_read_a_line_each(
    *, wire: Wire, ten: str, query: str, start: int, body: str, surface: str, form: object
) -> None:
    response = wire.ask("GET", f"{surface}{ten}?{query}")
    assert response.status == 200
    assert response.headers["content-type"] == NDJSON
    assert response.body == "".join(f"{digit}\n" for digit in body).encode()
    end = start + len(body)
    assert ordinals(response) == (str(start), "0", str(end))
    assert callable(form)
    assert response.next_offset == form(end)
    assert ("stream-up-to-date" in response.headers) == (end == 10)


def test_an_envelope_shows_each_records_ordinal(wire: Wire, ten: str) -> None:
    response = wire.ask("GET", f"{ten}?record=8&record_view=envelope")
    assert response.headers["content-type"] == ENVELOPES
    assert response.body == b'{"record":8,"value":8}\n{"record":9,"value":9}\n'


def test_a_line_is_a_message_whose_values_are_never_changed(wire: Wire, documents: str) -> None:
    values = [b'{"b": 1.0,\r\n "a" : "x\\ny", "a":1e400}', b'"\\ud800"', b"[ 1 ,\n2 ]", "é😀".encode().join([b'"'] * 2)]
    append(wire, documents, *values, headers=JSON)
    elements = [b'{"b": 1.0,\r\n "a" : "x\\ny", "a":1e400}', b'"\\ud800"', b"1", b"2", values[3]]
    expected = [element.translate(bytes.maketrans(b"\r\n", b"  ")) for element in elements]
    assert wire.ask("GET", f"{documents}?record=0").body.split(b"\n") == [*expected, b""]
    assert wire.ask("GET", documents).body == b"[%b]" % b",".join(elements)


@pytest.mark.parametrize(
    "query",
    [
        "record=0&tail_records=1",
        "record=0&offset=-1",
        "tail_records=1&offset=now",
        "max_records=1",
        "record_view=envelope",
        "offset=-1&max_records=1",
        "record=0&max_records=0",
        "record=0&max_records=-1",
        "record=0&max_records=x",
        "record=0&max_bytes=10",
        "record=-1",
        "record=1.5",
        "record=",
        "record=01",
        "tail_records=-1",
        "tail_records=now",
        "record=0&record_view=other",
        "record=0&record=1",
    ],
)
def test_a_read_by_records_that_contradicts_itself_is_refused(wire: Wire, ten: str, query: str) -> None:
    refused(wire.ask("GET", f"{ten}?{query}"), 400, "bad_request")


def test_what_is_not_json_is_not_read_by_records(wire: Wire, text: str) -> None:
    for query in ("record=0", "record=now", "tail_records=1", "record=0&live=sse", "record=now&live=long-poll"):
        response = wire.ask("GET", f"{text}?{query}")
        refused(response, 400, "bad_request")
        assert "stream-incarnation" in response.headers


def test_a_record_above_the_next_or_below_the_first_gets_the_bounds(wire: Wire, ten: str) -> None:
    above = wire.ask("GET", f"{ten}?record=11")
    refused(above, 400, "offset_beyond_tail")
    assert (ordinals(above), above.next_offset) == ((None, "0", "10"), plain(10))
    publish(wire, ten, plain(4))
    below = wire.ask("GET", f"{ten}?record=3")
    refused(below, 410, "offset_trimmed")
    assert (ordinals(below), below.headers["stream-earliest-offset"]) == ((None, "4", "10"), plain(4))
    assert wire.ask("GET", f"{ten}?record=4").body == b"4\n5\n6\n7\n8\n9\n"


@pytest.mark.parametrize("huge", ["9" * 19, str(2**63), str(10**18)])
def test_an_ordinal_however_large_is_above_the_next(wire: Wire, ten: str, huge: str) -> None:
    refused(wire.ask("GET", f"{ten}?record={huge}"), 400, "offset_beyond_tail")
    assert wire.ask("GET", f"{ten}?tail_records={huge}&max_records=1").body == b"0\n"
    refused(wire.ask("PUT", f"{ten}/snapshot?record={huge}", JSON, b"1"), 400, "offset_beyond_tail")
    refused(wire.ask("PUT", f"{ten}/retention?record={huge}"), 400, "offset_beyond_tail")
    conditional = {**JSON, "Stream-Record-Match": huge}
    refused(wire.ask("POST", ten, conditional, b"1"), 412, "record_precondition_failed")


def test_pages_by_records_follow_each_other_by_ordinal_or_by_offset(wire: Wire, ten: str) -> None:
    found, record = b"", "0"
    while True:
        response = wire.ask("GET", f"{ten}?record={record}&max_records=3")
        found += response.body
        record = response.headers["stream-record-next"]
        rest = wire.ask("GET", f"{ten}?offset={response.next_offset}").body
        assert [*map(int, found.split()), *json.loads(rest)] == list(range(10))
        if response.headers.get("stream-up-to-date") == "true":
            break
    assert record == "10"


def test_records_of_a_fork_go_on_behind_those_of_its_source(wire: Wire, ten: str, bucket: str) -> None:
    point = {"Stream-Forked-From": ten, "Stream-Fork-Offset": plain(3), "Stream-Fork-Sub-Offset": "2"}
    fork = made(wire, f"{bucket}/fork", point, b'["a","b"]')
    append(wire, ten, b"10", headers=JSON)
    response = wire.ask("GET", f"{fork}?record=2&record_view=envelope")
    lines = [json.loads(line) for line in response.body.splitlines()]
    assert [(line["record"], line["value"]) for line in lines] == [(2, 2), (3, 3), (4, 4), (5, "a"), (6, "b")]
    assert ordinals(wire.ask("HEAD", fork)) == (None, "0", "7")


# -- Live --------------------------------------------------------------------------------------------------------------


def test_a_long_poll_by_records_waits_for_the_next(server: RunningServer, wire: Wire, ten: str) -> None:
    assert wire.ask("GET", f"{ten}?record=8&live=long-poll").body == b"8\n9\n"
    ended = wire.ask("GET", f"{ten}?record=now&live=long-poll&timeout_ms=50")
    assert (ended.status, ended.headers["stream-record-next"]) == (204, "10")
    with Wire(server.url) as reader:
        reader.send(request("GET", f"{ten}?tail_records=0&live=long-poll&max_records=1&record_view=envelope"))
        assert reader.silent_for(0.1)
        append(wire, ten, b"[10,11]", headers=JSON)
        polled = reader.receive()
        assert polled.body == b'{"record":10,"value":10}\n'
        assert ordinals(polled) == ("10", "0", "11")
        assert "stream-cursor" in polled.headers


def test_an_sse_read_by_records_has_at_most_so_many_an_event(wire: Wire, ten: str) -> None:
    events = wire.open_sse(f"{ten}?record=6&max_records=3&live=sse")
    found = events.events(4)
    assert [event.data for event in found if event.kind == "data"] == ["6\n7\n8", "9"]
    assert [event.control["streamNextRecord"] for event in found if event.kind == "control"] == [9, 10]


def test_a_create_with_messages_tells_their_records(wire: Wire, bucket: str) -> None:
    created = wire.ask("PUT", f"{bucket}/json", JSON, b"[1,2]")
    assert (created.headers["stream-record-start"], created.headers["stream-record-next"]) == ("0", "2")
    fork = wire.ask("PUT", f"{bucket}/fork", {"Stream-Forked-From": f"{bucket}/json"}, b"[3]")
    assert (fork.headers["stream-record-start"], fork.headers["stream-record-next"]) == ("2", "3")
    for headers, body in ((JSON, b"[]"), (JSON, None), (TEXT, b"abc")):
        empty = wire.ask("PUT", f"{bucket}/{len(headers)}-{body!r:.4}".replace("'", ""), headers, body)
        assert (empty.status, "stream-record-start" in empty.headers) == (201, False)


def test_responses_to_clients_that_may_look_for_records_name_their_extension(wire: Wire, bucket: str) -> None:
    path, word = f"{bucket}/json", "json-record-coordinates-v1"
    made(wire, path, JSON, b"[1,2]")
    producer = {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    requests: list[tuple[str, str, dict[str, str], bytes | None, int]] = [
        ("PUT", path, JSON, None, 200),
        ("HEAD", path, {}, None, 200),
        ("POST", path, JSON, b"3", 204),
        ("POST", path, producer, b"4", 200),
        ("POST", path, producer, b"4", 204),
        ("POST", path, producer, b"5", 409),
        ("POST", path, {**JSON, "Stream-Record-Match": "0"}, b"5", 412),
        ("POST", path, TEXT, b"5", 409),
        ("POST", path, JSON, b"{", 400),
        ("POST", f"{path}/append-batch", JSON, frames(b"5", b"{"), 200),
        ("GET", path, {}, None, 200),
        ("GET", f"{path}?offset=now", {}, None, 200),
        ("GET", f"{path}?record=0", {}, None, 200),
        ("GET", f"{path}?record=99", {}, None, 400),
        ("GET", f"{path}?offset=99", {}, None, 400),
        ("GET", f"{path}?offset=now&live=long-poll&timeout_ms=1", {}, None, 204),
        ("GET", f"/v1/stream{path}", {}, None, 200),
        ("PUT", f"{path}/attrs", JSON, b"{}", 204),
        ("GET", f"{path}/attrs", {}, None, 200),
        ("GET", f"{path}/snapshot", {}, None, 404),
        ("PUT", f"{path}/snapshot/2", JSON, b"{}", 204),
        ("GET", f"{path}/snapshot", {}, None, 307),
        ("GET", f"{path}/snapshot/2", {}, None, 200),
        ("GET", f"{path}/bootstrap", {}, None, 200),
        ("GET", path, {}, None, 410),
        ("POST", path, {"Stream-Closed": "true"}, None, 204),
        ("POST", path, JSON, b"6", 409),
    ]
    for method, target, headers, body, status in requests:
        response = wire.ask(method, target, headers, body)
        assert response.status == status, (method, target, response.head)
        looks = (target == path and method in ("PUT", "HEAD")) or (target.endswith("?record=0"))
        assert (word in response.headers.get("stream-extensions", "").split(", ")) == looks, (method, target, status)
