"""Every refusal: its status, its code, one sentence, and that nothing has changed."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headwater.testing import RunningServer

from ..sockets import Response, Wire, refused, request, unchanged

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
ZERO = "0000000000000000_0000000000000000"
BEYOND = "9999999999999999_9999999999999999"
OFFSET = re.compile(r"-1|now|[0-9]{16}_[0-9]{16}|[0-9]{20}")


def producer(identity: str, epoch: int | str, seq: int | str) -> dict[str, str]:
    return {"Producer-Id": identity, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


# -- Offsets and queries (rows 12, 14, 15, 35; cursor without offset) --------------------------------------------------


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_a_live_read_without_an_offset_is_refused(wire: Wire, text: str, live: str) -> None:
    refused(wire.ask("GET", f"{text}?live={live}"), 400, "bad_request")


@pytest.mark.parametrize("offset", ["-1", "now", ZERO])
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_a_read_of_a_missing_stream_is_not_found(wire: Wire, path: str, offset: str, live: str) -> None:
    refused(wire.ask("GET", f"{path}?offset={offset}{live}"), 404, "stream_not_found")


BAD_OFFSETS = {
    "empty": "",
    "a comma": f"{ZERO},{ZERO}",
    "a space": "%20",
    "a trailing space": f"{ZERO}%20",
    "a plus that means a space": f"{ZERO}+",
    "a slash": "a/b",
    "two dots": "..",
    "NUL": "%00",
    "a trailing NUL": f"{ZERO}%00",
    "CR": f"{ZERO}%0D",
    "LF": f"{ZERO}%0A",
    "CRLF": f"{ZERO}%0D%0A",
    "LF after -1": "-1%0A",
    "LF after now": "now%0A",
    "now in capitals": "NOW",
    "minus two": "-2",
    "minus zero one": "-01",
    "a plain number": "0",
    "15 digits in a half": "000000000000000_0000000000000000",
    "17 digits in a half": "00000000000000000_0000000000000000",
    "three halves": f"{ZERO}_0000000000000000",
    "a dash for the underscore": "0000000000000000-0000000000000000",
    "19 digits": "0" * 19,
    "21 digits": "0" * 21,
    "a sign among the digits": "+0000000000000000000",
    "letters": "abcdefghijklmnop_abcdefghijklmnop",
    "digits of another script": quote("\N{DEVANAGARI DIGIT ZERO}" * 20),
    "full-width digits": quote("\N{FULLWIDTH DIGIT ZERO}" * 20),
    "not UTF-8": "%FF%FE",
    "half an escape": "%",
    "very long": "0" * 4000,
}


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
@pytest.mark.parametrize("offset", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_an_offset_that_the_server_never_gave_is_refused(wire: Wire, text: str, offset: str, live: str) -> None:
    refused(wire.ask("GET", f"{text}?offset={offset}{live}"), 400, "invalid_offset")


@pytest.fixture(scope="module")
def fuzzed(server: RunningServer) -> Iterator[Wire]:
    with Wire(server.url) as wire:
        assert wire.ask("PUT", "/v1/stream/fuzzed-offsets", TEXT, b"some text").status == 201
        yield wire


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=60) | st.from_regex(r"[0-9_ \n-]{0,40}") | st.binary(max_size=40))
@example(f"{ZERO}\n")
@example("-1\n")
def test_no_string_but_an_offset_is_an_offset(fuzzed: Wire, token: str | bytes) -> None:
    raw = token if isinstance(token, bytes) else token.encode("utf-8", "surrogatepass")
    response = fuzzed.ask("GET", f"/v1/stream/fuzzed-offsets?offset={quote(raw, safe='')}")
    if OFFSET.fullmatch(raw.decode("latin-1")):
        assert response.status == 200 or response.problem["code"] == "offset_beyond_tail"
    else:
        refused(response, 400, "invalid_offset")


@pytest.mark.parametrize(
    "query", ["offset=-1&offset=-1", f"offset={ZERO}&live=long-poll&offset=now", "offset=&offset="]
)
def test_a_repeated_offset_is_refused(wire: Wire, text: str, query: str) -> None:
    response = wire.ask("GET", f"{text}?{query}")
    refused(response, 400, response.problem["code"])
    assert response.problem["code"] in {"bad_request", "invalid_offset"}


@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
@pytest.mark.parametrize("offset", [BEYOND, "0000000000000000_0000000000000040", "00000000000000000004", "9" * 20])
def test_an_offset_beyond_the_tail_is_refused(wire: Wire, text: str, offset: str, live: str) -> None:
    tail = wire.ask("POST", text, TEXT, b"abc").next_offset
    response = wire.ask("GET", f"{text}?offset={offset}{live}")
    refused(response, 400, "offset_beyond_tail")
    assert response.next_offset == tail


def test_an_offset_inside_a_json_message_is_refused(wire: Wire, documents: str) -> None:
    wire.ask("POST", documents, JSON, b'[{"a":1},{"b":2}]')
    refused(wire.ask("GET", f"{documents}?offset=0000000000000000_0000000000000030"), 400, "offset_unaligned")
    assert wire.ask("GET", f"{documents}?offset=0000000000000000_0000000000000070").body == b'[{"b":2}]'


def test_a_cursor_without_an_offset_is_refused(wire: Wire, text: str) -> None:
    refused(wire.ask("GET", f"{text}?cursor=5"), 400, "bad_request")


@pytest.mark.parametrize("live", ["", "xyz", "true", "SSE", "sse%0A", "long_poll"])
def test_an_unknown_kind_of_live_read_is_refused(wire: Wire, text: str, live: str) -> None:
    refused(wire.ask("GET", f"{text}?offset=-1&live={live}"), 400, "bad_request")


@pytest.mark.parametrize("timeout", ["", "0", "60001", "-1", "1.5", "1e3", "abc", "01", "+5", "9" * 30, "%D9%A1"])
def test_a_timeout_that_is_no_number_from_1_to_60000_is_refused(wire: Wire, text: str, timeout: str) -> None:
    refused(wire.ask("GET", f"{text}?offset=-1&live=long-poll&timeout_ms={timeout}"), 400, "bad_request")


@pytest.mark.parametrize("query", ["a=b", "a", "=", "&&", "a=1&a=2", "OFFSET=x", "offset%20=x", "x=%FF%00"])
def test_unknown_parameters_are_ignored(wire: Wire, text: str, query: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    assert wire.ask("GET", f"{text}?{query}").body == b"abc"
    assert wire.ask("GET", f"{text}?offset=-1&{query}").body == b"abc"
    assert wire.ask("POST", f"{text}?{query}", TEXT, b"def").status == 204


# -- Creating (rows 17, 18, 24, 33, 34) --------------------------------------------------------------------------------

CONFIGURATIONS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "another content type": (TEXT, {"Content-Type": "text/html"}),
    "no content type, which is another one": (TEXT, {}),
    "a TTL that was not there": (TEXT, {**TEXT, "Stream-TTL": "60"}),
    "no TTL any more": ({**TEXT, "Stream-TTL": "60"}, TEXT),
    "another TTL": ({**TEXT, "Stream-TTL": "60"}, {**TEXT, "Stream-TTL": "61"}),
    "another expiry": (
        {**TEXT, "Stream-Expires-At": "2100-01-01T00:00:00Z"},
        {**TEXT, "Stream-Expires-At": "2100-01-01T00:00:01Z"},
    ),
    "an expiry for a TTL": (
        {**TEXT, "Stream-TTL": "60"},
        {**TEXT, "Stream-Expires-At": "2100-01-01T00:00:01Z"},
    ),
    "closed where it was open": (TEXT, {**TEXT, "Stream-Closed": "true"}),
    "open where it was closed": ({**TEXT, "Stream-Closed": "true"}, TEXT),
}


@pytest.mark.parametrize(("first", "second"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_second_put_with_another_configuration_is_a_conflict(
    server: RunningServer, wire: Wire, path: str, first: dict[str, str], second: dict[str, str]
) -> None:
    assert wire.ask("PUT", path, first).status == 201
    assert wire.ask("PUT", path, first).status == 200
    with unchanged(server.url, path):
        refused(wire.ask("PUT", path, second, b"never written"), 409, "stream_exists")


def test_a_second_put_of_a_stream_that_was_closed_meanwhile_is_a_conflict(wire: Wire, text: str) -> None:
    wire.ask("POST", text, {"Stream-Closed": "true"})
    refused(wire.ask("PUT", text, TEXT), 409, "stream_exists")
    assert wire.ask("PUT", text, {**TEXT, "Stream-Closed": "true"}).status == 200


def test_a_second_put_compares_the_media_type_and_the_instant_but_not_how_they_were_written(
    wire: Wire, path: str
) -> None:
    first = {"Content-Type": "Text/Plain", "Stream-Expires-At": "2100-01-01T00:00:00Z"}
    again = {"Content-Type": "text/plain; charset=utf-8", "Stream-Expires-At": "2100-01-01T02:00:00.000+02:00"}
    assert wire.ask("PUT", path, first, b"first").status == 201
    assert wire.ask("PUT", path, again, b"another body, which is not compared").status == 200
    response = wire.ask("GET", path)
    assert (response.body, response.headers["content-type"]) == (b"first", "Text/Plain")


@pytest.mark.parametrize("content_type", [None, "", "garbage", "text", "/", "text/", "a b/c", "text/plain\x80"])
def test_a_put_without_a_sensible_content_type_makes_a_stream_of_bytes(
    wire: Wire, path: str, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    response = wire.ask("PUT", path, headers)
    assert response.status == 201
    assert response.headers["content-type"] == "application/octet-stream"


BAD_TTLS = [
    "00060",
    "+60",
    "60.5",
    "1e3",
    "abc",
    "-1",
    "",
    "0x10",
    "60s",
    "6 0",
    "٦",
    "60, 60",
    "1" * 30,
    "-0",
    "1_000",
]


@pytest.mark.parametrize("ttl", BAD_TTLS)
def test_a_ttl_that_is_no_plain_number_of_seconds_is_refused(
    server: RunningServer, wire: Wire, path: str, ttl: str
) -> None:
    with unchanged(server.url, path):
        data = request("PUT", path, {**TEXT, "Stream-TTL": "?"}).replace(b"?", ttl.encode())
        refused(wire.ask_raw(data), 400, "invalid_header")


BAD_INSTANTS = [
    "not-a-timestamp",
    "",
    "2100-01-01",
    "2100-W01-1",
    "2100-W01-1T00:00:00Z",
    "2100-01-01T00:00:00",
    "2100-13-01T00:00:00Z",
    "2100-02-30T00:00:00Z",
    "2100-01-01T25:00:00Z",
    "2100-01-01T00:61:00Z",
    "2100-01-01T00:00Z",
    "20100101T000000Z",
    "4102444800",
    "2100-01-01T00:00:00Z2100-01-01T00:00:00Z",
    "2100-01-01T00:00:00+2:00",
    "2100-01-01T00:00:00+99:00",
    "12100-01-01T00:00:00Z",
    "Fri, 01 Jan 2100 00:00:00 GMT",
]


@pytest.mark.parametrize("instant", BAD_INSTANTS)
def test_an_expiry_that_is_no_timestamp_is_refused(server: RunningServer, wire: Wire, path: str, instant: str) -> None:
    with unchanged(server.url, path):
        refused(wire.ask("PUT", path, {**TEXT, "Stream-Expires-At": instant}), 400, "invalid_header")


@pytest.mark.parametrize("instant", ["2100-01-01T00:00:00Z", "2100-01-01T00:00:00+00:00", "2100-01-01T00:00:00.123Z"])
def test_an_expiry_may_be_written_in_z_or_as_an_offset(wire: Wire, path: str, instant: str) -> None:
    assert wire.ask("PUT", path, {**TEXT, "Stream-Expires-At": instant}).status == 201
    assert wire.ask("HEAD", path).headers["stream-expires-at"] == instant


def test_a_ttl_and_an_expiry_together_are_refused(server: RunningServer, wire: Wire, path: str) -> None:
    headers = {**TEXT, "Stream-TTL": "60", "Stream-Expires-At": "2100-01-01T00:00:00Z"}
    with unchanged(server.url, path):
        refused(wire.ask("PUT", path, headers), 400, "invalid_header")


# -- Appending (rows 18 to 23, 37) -------------------------------------------------------------------------------------


def test_an_append_without_a_content_type_is_refused(server: RunningServer, wire: Wire, text: str) -> None:
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {}, b"abc"), 400, "content_type_missing")
        refused(wire.ask("POST", text, {"Content-Type": ""}, b"abc"), 400, "content_type_missing")


@pytest.mark.parametrize("content_type", ["text/html", "garbage", "application/json", "text/plainer", "text"])
def test_an_append_of_another_content_type_is_a_conflict(
    server: RunningServer, wire: Wire, text: str, content_type: str
) -> None:
    with unchanged(server.url, text):
        response = wire.ask("POST", text, {"Content-Type": content_type}, b"1")
        refused(response, 409, "content_type_mismatch")


@pytest.mark.parametrize("closed", [None, "false", "1", "yes", "", "true, true", "truee"])
def test_an_empty_append_is_refused_unless_it_closes(
    server: RunningServer, wire: Wire, text: str, closed: str | None
) -> None:
    headers = TEXT if closed is None else {**TEXT, "Stream-Closed": closed}
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, headers, b""), 400, "empty_body")
        refused(wire.ask("POST", text, headers), 400, "empty_body")


def test_closing_is_said_in_any_case_and_ignores_the_content_type(wire: Wire, text: str) -> None:
    response = wire.ask("POST", text, {"Stream-Closed": "TRUE", "Content-Type": "image/png"})
    assert response.status == 204
    assert response.headers["stream-closed"] == "true"


def test_an_append_to_a_missing_stream_is_not_found(server: RunningServer, wire: Wire, path: str) -> None:
    with unchanged(server.url, path):
        refused(wire.ask("POST", path, TEXT, b"abc"), 404, "stream_not_found")
        refused(wire.ask("POST", path, {"Stream-Closed": "true"}), 404, "stream_not_found")
        refused(wire.ask("DELETE", path), 404, "stream_not_found")
        assert wire.ask("HEAD", path).status == 404


def test_an_append_to_a_closed_stream_is_a_conflict_that_says_so(server: RunningServer, wire: Wire, text: str) -> None:
    tail = wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"the end").next_offset
    with unchanged(server.url, text):
        for headers in (TEXT, {**TEXT, "Stream-Closed": "true"}, {"Content-Type": "text/html"}):
            response = wire.ask("POST", text, headers, b"more")
            refused(response, 409, "stream_closed")
            assert (response.headers["stream-closed"], response.next_offset) == ("true", tail)
        assert wire.ask("POST", text, {"Stream-Closed": "true"}).status == 204


BAD_NUMBERS = ["1abc", "0xyz", "1e3", "-1", "", "1.0", "+1", "0x1", "1 2", "0, 0", "9007199254740992", "9" * 40, "\xb2"]


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_a_producer_number_that_is_no_number_up_to_2_to_the_53_is_refused(
    server: RunningServer, wire: Wire, text: str, number: str
) -> None:
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {**TEXT, **producer("p", number, 0)}, b"a"), 400, "invalid_header")
        refused(wire.ask("POST", text, {**TEXT, **producer("p", 0, number)}, b"a"), 400, "invalid_header")


def test_the_largest_epoch_is_2_to_the_53_less_one(wire: Wire, text: str) -> None:
    response = wire.ask("POST", text, {**TEXT, **producer("p", 9007199254740991, 0)}, b"a")
    assert (response.status, response.headers["producer-epoch"]) == (200, "9007199254740991")


@pytest.mark.parametrize("missing", ["Producer-Id", "Producer-Epoch", "Producer-Seq"])
def test_producer_headers_go_together(server: RunningServer, wire: Wire, text: str, missing: str) -> None:
    triple = producer("p", 0, 0)
    present = triple.pop(missing)
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {**TEXT, **triple}, b"a"), 400, "producer_incomplete")
        refused(wire.ask("POST", text, {**TEXT, missing: present}, b"a"), 400, "producer_incomplete")
        refused(wire.ask("POST", text, {missing: present, "Stream-Closed": "true"}), 400, "producer_incomplete")


@pytest.mark.parametrize("identity", ["", " ", "x" * 256])
def test_a_producer_needs_a_name_of_sensible_length(
    server: RunningServer, wire: Wire, text: str, identity: str
) -> None:
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {**TEXT, **producer(identity, 0, 0)}, b"a"), 400, "invalid_header")


def test_a_repeated_producer_header_is_refused(server: RunningServer, wire: Wire, text: str) -> None:
    for repeated in producer("p", 0, 0):
        data = request("POST", text, {**TEXT, **producer("p", 0, 0)}, b"a")
        line = f"{repeated}: 0\r\n".encode()
        with unchanged(server.url, text), Wire(server.url) as fresh:
            response = fresh.ask_raw(data.replace(b"Producer-Id", line + b"Producer-Id", 1))
            refused(response, 400, str(response.problem["code"]))


def test_an_unknown_producer_begins_with_0(server: RunningServer, wire: Wire, text: str) -> None:
    with unchanged(server.url, text):
        response = wire.ask("POST", text, {**TEXT, **producer("p", 3, 7)}, b"a")
        problem = refused(response, 409, "producer_seq_conflict")
    assert (problem["expected_seq"], problem["received_seq"]) == (0, 7)
    assert response.headers["producer-expected-seq"] == "0"
    assert response.headers["producer-received-seq"] == "7"


def test_a_gap_in_a_producers_sequence_is_a_conflict(server: RunningServer, wire: Wire, text: str) -> None:
    wire.ask("POST", text, {**TEXT, **producer("p", 1, 0)}, b"a")
    with unchanged(server.url, text):
        response = wire.ask("POST", text, {**TEXT, **producer("p", 1, 2)}, b"c")
        problem = refused(response, 409, "producer_seq_conflict")
    assert (problem["expected_seq"], problem["received_seq"]) == (1, 2)
    assert response.headers["producer-expected-seq"] == "1"
    assert response.headers["producer-received-seq"] == "2"


def test_a_stale_producer_epoch_is_forbidden(server: RunningServer, wire: Wire, text: str) -> None:
    wire.ask("POST", text, {**TEXT, **producer("p", 5, 0)}, b"a")
    with unchanged(server.url, text):
        response = wire.ask("POST", text, {**TEXT, **producer("p", 4, 1)}, b"b")
        refused(response, 403, "producer_epoch_stale")
    assert response.headers["producer-epoch"] == "5"


def test_a_new_producer_epoch_begins_with_0(server: RunningServer, wire: Wire, text: str) -> None:
    wire.ask("POST", text, {**TEXT, **producer("p", 5, 0)}, b"a")
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {**TEXT, **producer("p", 6, 1)}, b"b"), 400, "producer_epoch_invalid")


def test_a_duplicate_is_answered_with_the_highest_accepted_sequence(
    server: RunningServer, wire: Wire, text: str
) -> None:
    offsets = [wire.ask("POST", text, {**TEXT, **producer("p", 0, seq)}, b"abc").next_offset for seq in range(3)]
    with unchanged(server.url, text):
        for seq in range(3):
            again = wire.ask("POST", text, {**TEXT, **producer("p", 0, seq)}, b"abc")
            assert (again.status, again.headers["producer-seq"], again.headers["producer-epoch"]) == (204, "2", "0")
            assert again.next_offset == offsets[2]


def test_another_body_under_the_last_accepted_sequence_is_refused(server: RunningServer, wire: Wire, text: str) -> None:
    triple = {**TEXT, **producer("p", 0, 0)}
    tail = wire.ask("POST", text, triple, b"abc").next_offset
    with unchanged(server.url, text):
        for body, headers in ((b"abd", triple), (b"ab", triple), (b"abcd", {**triple, "Stream-Closed": "true"})):
            response = wire.ask("POST", text, headers, body)
            refused(response, 409, "producer_payload_mismatch")
            assert response.next_offset == tail
        assert wire.ask("POST", text, triple, b"abc").status == 204
    created = f"{text}-created"
    assert wire.ask("PUT", created, triple, b"abc").status == 201
    with unchanged(server.url, created):
        refused(wire.ask("PUT", created, triple, b"xyz"), 409, "producer_payload_mismatch")
        assert wire.ask("PUT", created, triple, b"abc").status == 200
    assert wire.ask("POST", text, {**TEXT, **producer("p", 0, 1)}, b"d").status == 200


def test_a_duplicate_wins_over_a_sequence_conflict_and_holds_on_a_closed_stream(wire: Wire, text: str) -> None:
    headers = {**TEXT, **producer("p", 0, 0), "Stream-Seq": "b", "Stream-Closed": "true"}
    first = wire.ask("POST", text, headers, b"the end")
    assert (first.status, first.headers["stream-closed"]) == (200, "true")
    again = wire.ask("POST", text, {**headers, "Stream-Seq": "a"}, b"another end")
    assert (again.status, again.headers["stream-closed"], again.next_offset) == (204, "true", first.next_offset)
    assert wire.ask("GET", text).body == b"the end"


@pytest.mark.parametrize(("first", "second"), [("2", "10"), ("a", "B"), ("a", "a"), ("\xff", "\x7e"), ("b", "a")])
def test_a_stream_seq_that_does_not_sort_higher_byte_by_byte_is_a_conflict(
    server: RunningServer, wire: Wire, text: str, first: str, second: str
) -> None:
    assert wire.ask("POST", text, {**TEXT, "Stream-Seq": first}, b"a").status == 204
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {**TEXT, "Stream-Seq": second}, b"b"), 409, "stream_seq_conflict")
    assert wire.ask("POST", text, {**TEXT, "Stream-Seq": first + "0"}, b"c").status == 204


def test_a_stream_seq_that_is_too_long_is_refused(server: RunningServer, wire: Wire, text: str) -> None:
    with unchanged(server.url, text):
        refused(wire.ask("POST", text, {**TEXT, "Stream-Seq": "1" * 256}, b"a"), 400, "invalid_header")


def test_of_several_writers_with_one_stream_seq_exactly_one_succeeds(server: RunningServer, text: str) -> None:
    def write(number: int) -> Response:
        with Wire(server.url) as wire:
            return wire.ask("POST", text, {**TEXT, "Stream-Seq": "1"}, b"%d" % number)

    with ThreadPoolExecutor(5) as pool:
        responses = list(pool.map(write, range(5)))
    assert sorted(response.status for response in responses) == [204, 409, 409, 409, 409]
    assert {r.problem["code"] for r in responses if r.status == 409} == {"stream_seq_conflict"}


def test_checks_come_in_the_protocols_order(server: RunningServer, wire: Wire, path: str) -> None:
    """An append with every possible mistake: each correction reveals the next one."""
    wire.ask("PUT", path, JSON)
    wire.ask("POST", path, {**JSON, "Stream-Seq": "m", **producer("p", 1, 0)}, b"1")
    missing = f"{path}-missing"

    def code(target: str, headers: dict[str, str], body: bytes) -> str:
        response = wire.ask("POST", target, headers, body)
        assert response.status >= 400
        return str(response.problem["code"])

    with unchanged(server.url, path), unchanged(server.url, missing):
        seq = {"Stream-Seq": "a"}
        assert code(missing, {**seq, **producer("", 0, 0)}, b"") == "invalid_header"
        assert code(missing, {**seq, **producer("p", 0, 0)}, b"") == "empty_body"
        assert code(missing, {**seq, **producer("p", 0, 0)}, b"{") == "content_type_missing"
        assert code(missing, {**JSON, **seq, **producer("p", 0, 0)}, b"{") == "stream_not_found"
        assert code(path, {**TEXT, **seq, **producer("p", 0, 0)}, b"{") == "content_type_mismatch"
        for body in (b"2", b"{"):
            assert code(path, {**JSON, **seq, **producer("p", 0, 0)}, body) == "producer_epoch_stale"
            assert code(path, {**JSON, **seq, **producer("p", 1, 2)}, body) == "producer_seq_conflict"
            assert code(path, {**JSON, **seq, **producer("p", 1, 1)}, body) == "stream_seq_conflict"
        assert code(path, {**JSON, "Stream-Seq": "n", **producer("p", 1, 1)}, b"{") == "invalid_json"
    assert wire.ask("POST", path, {**JSON, "Stream-Seq": "n", **producer("p", 1, 1)}, b"2").status == 200


def test_a_closed_stream_is_said_to_be_closed_before_its_json_is_judged(wire: Wire, documents: str) -> None:
    headers = {**JSON, "Stream-Closed": "true", **producer("p", 0, 0)}
    assert wire.ask("POST", documents, headers, b"1").status == 200
    refused(wire.ask("POST", documents, JSON, b"{"), 409, "stream_closed")
    assert wire.ask("POST", documents, headers, b"{").status == 204


# -- JSON (rows 24, 25) ------------------------------------------------------------------------------------------------

BAD_JSON: dict[str, bytes] = {
    "NaN": b"NaN",
    "NaN inside": b'{"a":NaN}',
    "Infinity": b"[Infinity]",
    "minus Infinity": b"[1,-Infinity]",
    "nothing but space": b"  \n",
    "half an object": b'{"a":',
    "half an array": b"[1,2",
    "half a string": b'"abc',
    "trailing garbage": b'{"a":1} x',
    "two values": b"{}{}",
    "two numbers": b"1 2",
    "garbage after an array": b"[1]]",
    "a trailing NUL": b"{}\0",
    "a trailing comma in an array": b"[1,]",
    "a trailing comma in an object": b'{"a":1,}',
    "a leading comma": b"[,1]",
    "two commas": b"[1,,2]",
    "no colon": b'{"a" 1}',
    "a bare key": b"{a:1}",
    "a number as a key": b"{1:1}",
    "single quotes": b"'a'",
    "a comment": b"[1] // one",
    "a comment inside": b"[1,/* two */2]",
    "a leading zero": b"[01]",
    "a leading zero inside": b'{"a":[01]}',
    "a leading plus": b"[+1]",
    "a naked dot": b"[.5]",
    "a dot without digits": b"[1.]",
    "an exponent without digits": b"[1e]",
    "a naked minus": b"[-]",
    "hexadecimal": b"[0x10]",
    "true in capitals": b"[True]",
    "half a word": b"[tru]",
    "an unknown word": b"[undefined]",
    "an unknown escape": b'["\\x41"]',
    "an unknown escape inside": b'{"a":"\\q"}',
    "half a unicode escape": b'["\\u12"]',
    "a unicode escape without digits": b'[{"a":"\\uZZZZ"}]',
    "a raw line end in a string": b'["a\nb"]',
    "a raw tab in a string inside": b'[{"a":"\t"}]',
    "a raw NUL in a string": b'["\0"]',
    "another kind of space": b"[1,\x0b2]",
    "a no-break space": "[1,\u00a02]".encode(),
    "a byte order mark": b"\xef\xbb\xbf[1]",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "not UTF-8": b'"\xff"',
    "not UTF-8 inside": b'[1,{"a":"\xc3"}]',
    "a surrogate as UTF-8": b'"\xed\xa0\x80"',
    "an overlong slash": b'"\xc0\xaf"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "mismatched brackets": b"[1}",
    "deep nesting that never ends": b"[" * 200_000,
    "deep nesting of arrays": b"[" * 200_000 + b"]" * 200_000,
    "deep nesting of objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON)
def test_bad_json_is_refused(server: RunningServer, wire: Wire, documents: str, body: bytes) -> None:
    with unchanged(server.url, documents):
        refused(wire.ask("POST", documents, JSON, body), 400, "invalid_json")
        headers = {**JSON, **producer("p", 0, 0), "Stream-Closed": "true", "Stream-Seq": "z"}
        refused(wire.ask("POST", documents, headers, body), 400, "invalid_json")
    with unchanged(server.url, f"{documents}-new"):
        refused(wire.ask("PUT", f"{documents}-new", JSON, body), 400, "invalid_json")
    # The refused append changed neither the producer's state nor the sequence.
    headers = {**JSON, **producer("p", 0, 0), "Stream-Seq": "a"}
    assert wire.ask("POST", documents, headers, b"1").status == 200


def test_bad_json_behind_an_open_fork_leaves_no_fork(server: RunningServer, wire: Wire, documents: str) -> None:
    wire.ask("POST", documents, JSON, b"1")
    with unchanged(server.url, f"{documents}-fork"):
        refused(wire.ask("PUT", f"{documents}-fork", {"Stream-Forked-From": documents}, b"{"), 400, "invalid_json")
    assert wire.ask("DELETE", documents).status == 204
    assert wire.ask("HEAD", documents).status == 404


def test_an_empty_array_is_nothing_to_append_but_may_begin_a_stream(
    server: RunningServer, wire: Wire, path: str
) -> None:
    assert wire.ask("PUT", path, JSON, b"[]").status == 201
    with unchanged(server.url, path):
        refused(wire.ask("POST", path, JSON, b"[]"), 400, "empty_body")
        refused(wire.ask("POST", path, JSON, b" [ ] "), 400, "empty_body")
    assert wire.ask("GET", path).body == b"[]"


EXACT_JSON: dict[str, bytes] = {
    "a lone high surrogate": rb'"\ud800"',
    "a lone low surrogate inside": rb'{"a":["\uDFFF","\uD83D"]}',
    "a surrogate pair": rb'"\ud83d\ude00"',
    "an escaped backslash before a u": rb'"\\ud800"',
    "a number beyond 64 bits": b"12345678901234567890123456789",
    "a number beyond doubles": b"1e999999",
    "many digits": b"0.1000000000000000055511151231257827021181583404541015625",
    "one point nought": b"1.0",
    "minus nought": b"-0",
    "duplicate keys": b'{"a":1,"a":2}',
    "keys out of order": b'{"b":1,"a":2}',
    "space inside": b'{ "a" :\t[ 1 , 2 ] }',
    "line ends inside": b'{"a":\r\n1}',
    "escapes that need not be": rb'"\u0041\/"',
    "an escaped NUL": rb'"\u0000"',
    "an empty object": b"{}",
    "an empty key": b'{"":0}',
    "null": b"null",
    "true": b"true",
    "an empty string": b'""',
    "beyond the basic plane": '"😀"'.encode(),
    "a line separator": '"\u2028"'.encode(),
    "64 levels": b'{"a":[' * 32 + b"]}" * 32,
}


@pytest.mark.parametrize("value", EXACT_JSON.values(), ids=EXACT_JSON)
def test_legal_json_is_kept_byte_for_byte(wire: Wire, documents: str, value: bytes) -> None:
    assert wire.ask("POST", documents, JSON, b" \n" + value + b"\t ").status == 204
    assert wire.ask("POST", documents, JSON, b"[ 1 , " + value + b" ]").status == 204
    assert wire.ask("GET", documents).body == b"[" + value + b",1," + value + b"]"


def test_only_one_level_of_arrays_is_flattened(wire: Wire, documents: str) -> None:
    wire.ask("POST", documents, JSON, b"[[1,2],[],[[3]]]")
    wire.ask("POST", documents, {"Content-Type": "application/json; charset=utf-8"}, b'"x"')
    assert wire.ask("GET", documents).body == b'[[1,2],[],[[3]],"x"]'


# -- Names and methods -------------------------------------------------------------------------------------------------

BAD_NAMES: dict[str, str] = {
    "empty": "/v1/stream/",
    "an empty bucket": "/v1/stream//notes",
    "an empty stream": "/v1/stream/team/",
    "a .. segment": "/v1/stream/team/../notes",
    "a .. alone": "/v1/stream/..",
    "a .. at the end": "/v1/stream/team/..",
    "a .. in disguise": "/v1/stream/team/%2e%2E/notes",
    "a .. with its slash in disguise": "/v1/stream/team%2F..%2fnotes",
    "NUL": "/v1/stream/a%00b",
    "too long": "/v1/stream/" + "x" * 114,
    "too long with its bucket": "/v1/stream/team/" + "x" * 118,
    "too long in UTF-8": "/v1/stream/" + "%C3%A9" * 57,
    "not UTF-8": "/v1/stream/%FF",
    "a surrogate": "/v1/stream/%ED%A0%80",
    "half a character": "/v1/stream/caf%C3",
}


@pytest.mark.parametrize("path", BAD_NAMES.values(), ids=BAD_NAMES)
def test_a_bad_name_is_refused(wire: Wire, path: str) -> None:
    refused(wire.ask("PUT", path, TEXT, b"abc"), 400, "invalid_name")
    refused(wire.ask("POST", path, TEXT, b"abc"), 400, "invalid_name")
    refused(wire.ask("GET", path), 400, "invalid_name")
    refused(wire.ask("DELETE", path), 400, "invalid_name")
    assert wire.ask("HEAD", path).status == 400


GOOD_NAMES: dict[str, str] = {
    "as long as may be": "/v1/stream/" + "x" * 113,
    "dots that are no segment": "/v1/stream/a..b/...",
    "many segments": "/v1/stream/a/b/c/d",
    "a bucket of one letter": "/v1/stream/b/stream",
    "a reserved word that is not reserved here": "/v1/stream/metrics",
    "almost the reserved segment": "/v1/stream/__dsx/y",
    "the reserved segment further down": "/v1/stream/a/__ds",
    "other scripts": "/v1/stream/%E6%97%A5%E6%9C%AC/%F0%9F%98%80",
    "a question mark and a hash": "/v1/stream/a%3Fb%23c",
    "line ends": "/v1/stream/a%0D%0AX-Injected:%20yes",
    "quotes": "/v1/stream/%22quoted%22%5C",
    "a space": "/v1/stream/a%20b",
}


@pytest.mark.parametrize("path", GOOD_NAMES.values(), ids=GOOD_NAMES)
def test_any_other_name_is_a_name(wire: Wire, path: str) -> None:
    assert wire.ask("PUT", path, TEXT, b"abc").status == 201
    assert wire.ask("GET", path).body == b"abc"
    assert wire.ask("DELETE", path).status == 204
    refused(wire.ask("GET", path), 404, "stream_not_found")


def test_the_same_name_differently_encoded_is_the_same_stream(wire: Wire, path: str) -> None:
    assert wire.ask("PUT", f"{path}/caf%C3%A9", TEXT, b"abc").status == 201
    assert wire.ask("GET", f"{path}%2Fc%61f%c3%a9").body == b"abc"
    assert wire.ask("PUT", f"{path}%2Fcaf%C3%A9", TEXT).status == 200


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "PROPFIND", "MKCOL", "PURGE", "LINK", "SUBSCRIBE"])
def test_another_method_is_not_allowed_and_the_answer_says_which_are(
    server: RunningServer, wire: Wire, text: str, method: str
) -> None:
    with unchanged(server.url, text):
        response = wire.ask(method, text, {"Content-Length": "0"})
        refused(response, 405, "method_not_allowed")
        allowed = {name.strip() for name in response.headers["allow"].split(",")}
        assert allowed == {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}


@pytest.mark.parametrize("path", ["/ds", "/ds/", "/some-bucket/stream/elsewhere", "/some-bucket/streams/elsewhere"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_elsewhere_there_is_nothing(wire: Wire, method: str, path: str) -> None:
    refused(wire.ask(method, path, TEXT, b"abc"), 404, "not_found")


@pytest.mark.parametrize("path", ["/v1", "/v1/stream", "/index.html", "/v1/other/x", "/favicon.ico", "//"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_what_cannot_be_a_bucket_is_not_one(wire: Wire, method: str, path: str) -> None:
    refused(wire.ask(method, path, TEXT, b"abc"), 400, "invalid_name")


@pytest.mark.parametrize("path", ["__ds", "__ds/", "__ds/subscriptions/x", "__ds/jwks.json", "%5F%5Fds/x", "__ds?a=b"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE"])
def test_the_reserved_paths_of_subscriptions_are_not_implemented(wire: Wire, method: str, path: str) -> None:
    refused(wire.ask(method, f"/v1/stream/{path}", JSON, b"{}"), 501, "not_implemented")


# -- Forks (section 2.2, row 36) ---------------------------------------------------------------------------------------

BAD_SOURCES: dict[str, str] = {
    "a bare name": "source",
    "empty": "",
    "another tree": "/v2/stream/source",
    "no name": "/v1/stream/",
    "a .. segment": "/v1/stream/a/../b",
    "the reserved segment": "/v1/stream/__ds/x",
    "not UTF-8": "/v1/stream/%FF",
}


@pytest.mark.parametrize("source", BAD_SOURCES.values(), ids=BAD_SOURCES)
def test_a_fork_from_what_is_no_stream_is_refused(server: RunningServer, wire: Wire, path: str, source: str) -> None:
    with unchanged(server.url, path):
        response = wire.ask("PUT", path, {"Stream-Forked-From": source})
        refused(response, 400, str(response.problem["code"]))
        assert response.problem["code"] in {"invalid_header", "invalid_name"}


def test_a_fork_of_a_missing_stream_is_not_found(server: RunningServer, wire: Wire, path: str) -> None:
    with unchanged(server.url, path):
        refused(wire.ask("PUT", path, {"Stream-Forked-From": f"{path}-source"}), 404, "stream_not_found")


def test_a_fork_of_an_expired_stream_is_not_found(server: RunningServer, wire: Wire, path: str) -> None:
    assert wire.ask("PUT", f"{path}-source", {"Stream-TTL": "0"}).status == 201
    with unchanged(server.url, path):
        refused(wire.ask("PUT", path, {"Stream-Forked-From": f"{path}-source"}), 404, "stream_not_found")


@pytest.mark.parametrize("offset", ["", "abc", "now", "5", f"{ZERO},{ZERO}", "-2", f"{ZERO}0", "0x0"])
def test_a_fork_offset_that_is_no_offset_is_refused(server: RunningServer, wire: Wire, text: str, offset: str) -> None:
    fork = f"{text}-fork"
    with unchanged(server.url, fork):
        headers = {"Stream-Forked-From": text, "Stream-Fork-Offset": offset}
        refused(wire.ask("PUT", fork, headers), 400, "invalid_offset")


@pytest.mark.parametrize("offset", [BEYOND, "0000000000000000_0000000000000040", "9" * 20])
def test_a_fork_offset_beyond_the_tail_is_refused(server: RunningServer, wire: Wire, text: str, offset: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    fork = f"{text}-fork"
    with unchanged(server.url, fork):
        headers = {"Stream-Forked-From": text, "Stream-Fork-Offset": offset}
        refused(wire.ask("PUT", fork, headers), 400, "offset_beyond_tail")
    assert wire.ask("DELETE", text).status == 204
    assert wire.ask("HEAD", text).status == 404


@pytest.mark.parametrize("steps", ["-1", "01", "1.5", "abc", "", "+1", "1e3", "0x1", "1, 1"])
def test_a_fork_sub_offset_that_is_no_number_is_refused(
    server: RunningServer, wire: Wire, text: str, steps: str
) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    fork = f"{text}-fork"
    with unchanged(server.url, fork):
        headers = {"Stream-Forked-From": text, "Stream-Fork-Offset": ZERO, "Stream-Fork-Sub-Offset": steps}
        refused(wire.ask("PUT", fork, headers), 400, "invalid_header")


@pytest.mark.parametrize("steps", ["4", "1000", "9" * 19, "9" * 40])
def test_a_fork_sub_offset_past_the_append_is_refused(server: RunningServer, wire: Wire, text: str, steps: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    wire.ask("POST", text, TEXT, b"def")
    fork = f"{text}-fork"
    with unchanged(server.url, fork):
        headers = {"Stream-Forked-From": text, "Stream-Fork-Offset": ZERO, "Stream-Fork-Sub-Offset": steps}
        response = wire.ask("PUT", fork, headers)
        refused(response, 400, str(response.problem["code"]))
    assert wire.ask("DELETE", text).status == 204
    assert wire.ask("HEAD", text).status == 404


def test_a_fork_sub_offset_needs_an_offset_and_something_behind_it(
    server: RunningServer, wire: Wire, text: str
) -> None:
    fork = f"{text}-fork"
    headers = {"Stream-Forked-From": text, "Stream-Fork-Sub-Offset": "1"}
    with unchanged(server.url, fork):
        response = wire.ask("PUT", fork, {**headers, "Stream-Fork-Offset": ZERO})
        refused(response, 400, str(response.problem["code"]))
        wire.ask("POST", text, TEXT, b"abc")
        response = wire.ask("PUT", fork, headers)
        refused(response, 400, str(response.problem["code"]))


@pytest.mark.parametrize("header", ["Stream-Fork-Offset", "Stream-Fork-Sub-Offset"])
def test_fork_headers_without_a_source_are_refused(server: RunningServer, wire: Wire, path: str, header: str) -> None:
    with unchanged(server.url, path):
        value = "0" if header.endswith("Sub-Offset") else ZERO
        refused(wire.ask("PUT", path, {**TEXT, header: value}), 400, "invalid_header")


def test_a_fork_of_another_content_type_is_a_conflict_and_does_not_hold_its_source(
    server: RunningServer, wire: Wire, text: str
) -> None:
    fork = f"{text}-fork"
    with unchanged(server.url, fork):
        response = wire.ask("PUT", fork, {"Stream-Forked-From": text, "Content-Type": "text/html"})
        refused(response, 409, "content_type_mismatch")
    assert wire.ask("DELETE", text).status == 204
    assert wire.ask("HEAD", text).status == 404


def test_a_fork_over_a_stream_with_another_configuration_is_a_conflict(
    server: RunningServer, wire: Wire, text: str
) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    wire.ask("POST", text, TEXT, b"def")
    fork, other = f"{text}-fork", f"{text}-other"
    point = {"Stream-Forked-From": text, "Stream-Fork-Offset": ZERO, "Stream-Fork-Sub-Offset": "2"}
    assert wire.ask("PUT", fork, point).status == 201
    assert wire.ask("PUT", other, TEXT).status == 201
    with unchanged(server.url, fork), unchanged(server.url, other):
        assert wire.ask("PUT", fork, point).status == 200
        for headers in (
            TEXT,
            {**point, "Stream-Forked-From": other},
            {**point, "Stream-Fork-Offset": "0000000000000000_0000000000000030"},
            {**point, "Stream-Fork-Sub-Offset": "1"},
            {"Stream-Forked-From": text},
            {**point, "Stream-TTL": "60"},
            {**point, "Stream-Closed": "true"},
            {**point, "Content-Type": "text/html"},
        ):
            refused(wire.ask("PUT", fork, headers), 409, "stream_exists")
        refused(wire.ask("PUT", other, point), 409, "stream_exists")


def test_a_deleted_source_is_gone_and_neither_its_name_nor_its_bytes_can_be_taken(
    server: RunningServer, wire: Wire, text: str
) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    assert wire.ask("PUT", f"{text}-fork", {"Stream-Forked-From": text}).status == 201
    assert wire.ask("DELETE", text).status == 204
    with unchanged(server.url, f"{text}-fork"), unchanged(server.url, f"{text}-second"):
        refused(wire.ask("GET", text), 410, "stream_gone")
        refused(wire.ask("GET", f"{text}?offset=-1&live=long-poll"), 410, "stream_gone")
        refused(wire.ask("GET", f"{text}?offset=-1&live=sse"), 410, "stream_gone")
        refused(wire.ask("POST", text, TEXT, b"def"), 410, "stream_gone")
        refused(wire.ask("POST", text, {"Stream-Closed": "true"}), 410, "stream_gone")
        refused(wire.ask("DELETE", text), 410, "stream_gone")
        assert wire.ask("HEAD", text).status == 410
        refused(wire.ask("PUT", text, TEXT), 409, "fork_conflict")
        refused(wire.ask("PUT", f"{text}-second", {"Stream-Forked-From": text}), 409, "fork_conflict")


# -- Incarnations ------------------------------------------------------------------------------------------------------


def named_in(where: str, incarnation: str) -> tuple[str, dict[str, str]]:
    """The query and the headers that name an incarnation."""
    if where == "header":
        return "", {"Stream-Incarnation": incarnation}
    return f"&incarnation={quote(incarnation)}", {}


REQUESTS_THAT_NAME_A_LIFE: dict[str, tuple[str, str, dict[str, str], bytes | None]] = {
    "read": ("GET", "?offset=-1", {}, None),
    "long-poll": ("GET", "?offset=-1&live=long-poll", {}, None),
    "live read": ("GET", "?offset=-1&live=sse", {}, None),
    "look": ("HEAD", "?", {}, None),
    "append": ("POST", "?", TEXT, b"abc"),
    "close": ("POST", "?", {"Stream-Closed": "true"}, None),
    "delete": ("DELETE", "?", {}, None),
    "create": ("PUT", "?", TEXT, None),
}


@pytest.mark.parametrize("where", ["header", "query"])
@pytest.mark.parametrize("asked", REQUESTS_THAT_NAME_A_LIFE.values(), ids=REQUESTS_THAT_NAME_A_LIFE)
def test_a_request_that_names_another_life_of_the_stream_changes_nothing(
    server: RunningServer, wire: Wire, text: str, where: str, asked: tuple[str, str, dict[str, str], bytes | None]
) -> None:
    method, query, headers, body = asked
    first = wire.ask("HEAD", text).headers["stream-incarnation"]
    wire.ask("DELETE", text)
    second = wire.ask("PUT", text, TEXT, b"new").headers["stream-incarnation"]
    assert first != second
    with unchanged(server.url, text):
        for incarnation in (first, "garbage", f"{second}0", f"0{second}"):
            more_query, more_headers = named_in(where, incarnation)
            response = wire.ask(method, f"{text}{query}{more_query}", {**headers, **more_headers}, body)
            assert (response.status, response.headers["stream-incarnation"]) == (410, second)
            if method != "HEAD":
                refused(response, 410, "incarnation_changed")
    more_query, more_headers = named_in(where, second)
    if "sse" not in query:
        assert wire.ask(method, f"{text}{query}{more_query}", {**headers, **more_headers}, body).status < 300


def test_an_incarnation_given_twice_is_refused(server: RunningServer, wire: Wire, text: str) -> None:
    incarnation = wire.ask("HEAD", text).headers["stream-incarnation"]
    query = f"incarnation={incarnation}&incarnation={incarnation}"
    with unchanged(server.url, text):
        refused(wire.ask("GET", f"{text}?{query}"), 400, "bad_request")
        refused(wire.ask("POST", f"{text}?{query}", TEXT, b"abc"), 400, "bad_request")
        refused(wire.ask("DELETE", f"{text}?{query}"), 400, "bad_request")


# -- Creating with a producer or a sequence ----------------------------------------------------------------------------


def test_a_create_carries_a_producers_first_request(wire: Wire, path: str) -> None:
    headers = {**TEXT, **producer("p", 0, 0), "Stream-Seq": "b"}
    assert wire.ask("PUT", path, headers, b"first").status == 201
    assert wire.ask("POST", path, headers, b"first").status == 204
    refused(wire.ask("POST", path, headers, b"again"), 409, "producer_payload_mismatch")
    refused(wire.ask("POST", path, {**TEXT, "Stream-Seq": "a"}, b"x"), 409, "stream_seq_conflict")
    assert wire.ask("POST", path, {**TEXT, **producer("p", 0, 1), "Stream-Seq": "c"}, b" second").status == 200
    assert wire.ask("GET", path).body == b"first second"


BAD_CREATES: dict[str, tuple[dict[str, str], int, str]] = {
    "a sequence that is not a number": (producer("p", 0, "x"), 400, "invalid_header"),
    "no name": (producer("", 0, 0), 400, "invalid_header"),
    "one header of three": ({"Producer-Id": "p"}, 400, "producer_incomplete"),
    "a sequence that does not begin with 0": (producer("p", 0, 1), 409, "producer_seq_conflict"),
    "a Stream-Seq that is too long": ({"Stream-Seq": "1" * 256}, 400, "invalid_header"),
}


@pytest.mark.parametrize("bad", BAD_CREATES.values(), ids=BAD_CREATES)
def test_a_create_with_a_bad_producer_makes_nothing(
    server: RunningServer, wire: Wire, path: str, bad: tuple[dict[str, str], int, str]
) -> None:
    headers, status, code = bad
    with unchanged(server.url, path):
        refused(wire.ask("PUT", path, {**TEXT, **headers}, b"abc"), status, code)
