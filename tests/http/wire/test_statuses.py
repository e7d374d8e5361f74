import json

import msgspec
import pytest

from headwater.http.wire import statuses
from headwater.http.wire.codes import REFUSALS
from headwater.http.wire.statuses import Answer, Dialect
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.offsets import Form
from headwater.protocol.refusals import Code, Problem, RateLimit, Refusal
from headwater.streams.commands.snapshots import Snapshot
from headwater.streams.replies import (
    Acknowledged,
    Appended,
    BucketDropped,
    BucketOpened,
    ClosedOnly,
    Created,
    Deleted,
    Described,
    Duplicate,
    Existed,
    Page,
    Published,
    Reply,
)

PLAIN = Dialect(Form.PLAIN, "j")
TAIL = {"Stream-Next-Offset": "00000000000000000042", "Stream-Incarnation": "j-7"}
CLOSED = {"Stream-Closed": "true"}
PRODUCER = {"Producer-Epoch": "1", "Producer-Seq": "5"}
TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
MADE = {"Stream-Extensions": statuses.EXTENSIONS}
RECORDS = {"Stream-Record-Start": "0", "Stream-Record-Next": "1"}
RICH = {"Stream-Extensions": statuses.JSON_EXTENSIONS}
UP_TO_DATE = {"Stream-Up-To-Date": "true"}
VARY = {"Vary": "Stream-Incarnation"}
TO_ALL = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*"}
CACHED = {"Cache-Control": "public, max-age=60, stale-while-revalidate=300", **VARY, **TO_ALL}
NO_CACHE = {"Cache-Control": "no-cache", **VARY, **TO_ALL}
NO_STORE = {"Cache-Control": "no-store"}


def headers_of(answer: Answer) -> dict[str, str]:
    assert not answer.headers or answer.headers.endswith("\r\n")
    lines = [line.split(": ", 1) for line in answer.headers.split("\r\n")[:-1]]
    headers = dict(lines)
    assert len(headers) == len(lines), "a header was sent twice"
    return headers


@pytest.mark.parametrize(
    ("reply", "status", "headers"),
    [
        (Created(7, "text/plain", 42, False), 201, TEXT | MADE | TAIL),
        (Created(7, "text/plain", 42, True), 201, TEXT | MADE | TAIL | CLOSED),
        (Created(7, "text/plain", 42, False, 1, 5), 201, TEXT | MADE | TAIL | PRODUCER),
        (Existed(7, "text/plain", 42, False), 200, TEXT | MADE | TAIL),
        (Appended(7, 42, False), 204, TAIL),
        (Appended(7, 42, False, 0, 1), 204, TAIL | RECORDS),
        (Appended(7, 42, True, 0, 1), 204, TAIL | CLOSED | RECORDS),
        (Appended(7, 42, False, 0, 1, 1, 5), 200, TAIL | PRODUCER | RECORDS),
        (Appended(7, 42, True, 0, 1, 1, 5), 200, TAIL | PRODUCER | CLOSED | RECORDS),
        (ClosedOnly(7, 42), 204, TAIL | CLOSED),
        (ClosedOnly(7, 42, 1, 5), 204, TAIL | CLOSED | PRODUCER),
        (Duplicate(7, 42, False, 1, 5), 204, TAIL | PRODUCER),
        (Duplicate(7, 42, True, 1, 5), 204, TAIL | PRODUCER | CLOSED),
        (Duplicate(7, 42, False, 1, 5, 0, 1), 204, TAIL | PRODUCER | RECORDS),
        (Deleted(7), 204, {"Stream-Incarnation": "j-7"}),
        (Acknowledged(7), 204, {"Stream-Incarnation": "j-7"}),
        (BucketOpened(), 201, NO_STORE),
        (BucketDropped(), 204, {}),
        (
            Published(7, 42, 42, True, "d1"),
            204,
            TAIL
            | UP_TO_DATE
            | CLOSED
            | {"Stream-Snapshot-Offset": "00000000000000000042", "Stream-Snapshot-Digest": "d1"},
        ),
        (
            Published(7, 42, 50, True, "d1"),
            204,
            TAIL
            | {"Stream-Up-To-Date": "false", "Stream-Snapshot-Offset": "00000000000000000042"}
            | {"Stream-Snapshot-Digest": "d1"},
        ),
        (
            Described(7, "text/plain", 42, False, FOREVER),
            200,
            TEXT | MADE | TAIL | NO_STORE | VARY | {"ETag": '"j-7:0:42"'},
        ),
        (
            Described(7, "text/plain", 42, True, Lifetime(ttl_seconds=3600)),
            200,
            TEXT | MADE | TAIL | NO_STORE | VARY | CLOSED | {"ETag": '"j-7:0:42:c"', "Stream-TTL": "3600"},
        ),
        (
            Described(7, "text/plain", 42, False, Lifetime(expires_at=0, expires_at_text="1970-01-01T00:00:00+00:00")),
            200,
            TEXT
            | MADE
            | TAIL
            | NO_STORE
            | VARY
            | {"ETag": '"j-7:0:42"', "Stream-Expires-At": "1970-01-01T00:00:00+00:00"},
        ),
        (
            Described(7, "application/json", 42, False, FOREVER, Snapshot(2, 1, "b", "t/t", 0, "d0"), 1, 9, b"{}"),
            200,
            JSON
            | RICH
            | TAIL
            | NO_STORE
            | VARY
            | {"ETag": '"j-7:0:42"', "Stream-Snapshot-Offset": "00000000000000000002"}
            | {"Stream-Snapshot-Digest": "d0"}
            | {"Stream-Record-First": "1", "Stream-Record-Next": "9"},
        ),
        (
            Page(7, "application/json", 2, 42, False, False, b"[1]", 1, 9),
            200,
            JSON | TAIL | CACHED | {"ETag": '"j-7:2:42"', "Stream-Record-First": "1", "Stream-Record-Next": "9"},
        ),
        (
            Page(7, "text/plain", 2, 42, False, False, b"part"),
            200,
            TEXT | TAIL | CACHED | {"ETag": '"j-7:2:42"'},
        ),
        (
            Page(7, "text/plain", 2, 42, False, True, b"part of a closed stream"),
            200,
            TEXT | TAIL | CACHED | {"ETag": '"j-7:2:42"'},
        ),
        (
            Page(7, "text/plain", 2, 42, True, True, b"the end"),
            200,
            TEXT | TAIL | CACHED | UP_TO_DATE | CLOSED | {"ETag": '"j-7:2:42:c"'},
        ),
        (
            Page(7, "text/plain", 42, 42, True, False, b""),
            200,
            TEXT | TAIL | NO_CACHE | UP_TO_DATE | {"ETag": '"j-7:42:42"'},
        ),
    ],
)
def test_a_reply_has_one_answer(reply: Reply, status: int, headers: dict[str, str]) -> None:
    answer = statuses.answer(reply, PLAIN)
    assert answer.status == status
    assert headers_of(answer) == headers
    assert answer.body == (reply.body if isinstance(reply, Page) else b"")


def test_the_surface_decides_how_offsets_are_printed() -> None:
    answer = statuses.answer(ClosedOnly(7, 42), Dialect(Form.FLAT, "j"))
    assert headers_of(answer)["Stream-Next-Offset"] == "0000000000000000_0000000000000420"


# -- Refusals ----------------------------------------------------------------------------------------------------------

PROBLEM = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}


@pytest.mark.parametrize("code", Code)
def test_every_refusal_is_a_problem_document_with_a_stable_code(code: Code) -> None:
    answer = statuses.answer(Refusal(code, "What happened."), PLAIN)
    status, title = REFUSALS[code]
    assert answer.status == status
    assert json.loads(answer.body) == {
        "type": f"urn:headwater:error:{code.value}",
        "title": title,
        "status": status,
        "detail": "What happened.",
        "code": code.value,
    }


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.INVALID_OFFSET, 400),
        (Code.INVALID_HEADER, 400),
        (Code.INVALID_JSON, 400),
        (Code.CONTENT_TYPE_MISMATCH, 409),
        (Code.NOT_FOUND, 404),
        (Code.STREAM_NOT_FOUND, 404),
        (Code.STREAM_GONE, 410),
        (Code.STREAM_EXISTS, 409),
        (Code.STREAM_CLOSED, 409),
        (Code.OFFSET_TRIMMED, 410),
        (Code.OFFSET_BEYOND_TAIL, 400),
        (Code.OFFSET_UNALIGNED, 400),
        (Code.INCARNATION_CHANGED, 410),
        (Code.PRODUCER_INCOMPLETE, 400),
        (Code.PRODUCER_EPOCH_STALE, 403),
        (Code.PRODUCER_EPOCH_INVALID, 400),
        (Code.PRODUCER_SEQ_CONFLICT, 409),
        (Code.PRODUCERS_TOO_MANY, 429),
        (Code.STREAM_SEQ_CONFLICT, 409),
        (Code.FORK_CONFLICT, 409),
        (Code.TOO_LARGE, 413),
        (Code.RANGES_UNAVAILABLE, 409),
        (Code.SWAP_REFUSED, 409),
    ],
)
def test_the_statuses_are_those_of_the_protocol(code: Code, status: int) -> None:
    assert REFUSALS[code][0] == status


@pytest.mark.parametrize(
    ("refusal", "headers"),
    [
        (Refusal(Code.STREAM_NOT_FOUND, ""), {}),
        (Refusal(Code.STREAM_CLOSED, "", incarnation=7, next_offset=42, closed=True), TAIL | CLOSED),
        (Refusal(Code.OFFSET_TRIMMED, "", earliest_offset=42), {"Stream-Earliest-Offset": "00000000000000000042"}),
        (Refusal(Code.OFFSET_TRIMMED, "", earliest_offset=0), {"Stream-Earliest-Offset": "00000000000000000000"}),
        (Refusal(Code.OFFSET_BEYOND_TAIL, "", next_offset=0), {"Stream-Next-Offset": "00000000000000000000"}),
        (Refusal(Code.PRODUCER_EPOCH_STALE, "", producer_epoch=0), {"Producer-Epoch": "0"}),
        (Refusal(Code.METHOD_NOT_ALLOWED, "", allow="GET, HEAD"), {"Allow": "GET, HEAD"}),
        (Refusal(Code.OVERLOADED, ""), {"Retry-After": "1"}),
        (Refusal(Code.WAITERS_TOO_MANY, ""), {"Retry-After": "1"}),
        (Refusal(Code.DRAINING, ""), {"Retry-After": "1"}),
        (Refusal(Code.PRODUCERS_TOO_MANY, ""), {"Retry-After": "1"}),
        (Refusal(Code.AUTH_UNAVAILABLE, ""), {"Retry-After": "5"}),
        (Refusal(Code.UNAUTHORIZED, "", challenge="Bearer"), {"WWW-Authenticate": "Bearer"}),
        (
            Refusal(Code.RATE_LIMITED, "", rate_limit=RateLimit("requests", 50, 1, 3)),
            {"Retry-After": "3", "RateLimit-Policy": '"requests";q=50;w=1', "RateLimit": '"requests";r=0;t=3'},
        ),
        (
            Refusal(Code.LIVE_READS_TOO_MANY, "", rate_limit=RateLimit("live-reads", 20, None, 5)),
            {"Retry-After": "5", "RateLimit-Policy": '"live-reads";q=20', "RateLimit": '"live-reads";r=0;t=5'},
        ),
    ],
)
def test_the_facts_of_a_refusal_are_headers(refusal: Refusal, headers: dict[str, str]) -> None:
    assert headers_of(statuses.answer(refusal, PLAIN)) == PROBLEM | headers


def test_a_gap_shows_the_expected_and_the_received_sequence_in_headers_and_body() -> None:
    answer = statuses.answer(Refusal(Code.PRODUCER_SEQ_CONFLICT, "", expected_seq=0, received_seq=3), PLAIN)
    assert headers_of(answer) == PROBLEM | {"Producer-Expected-Seq": "0", "Producer-Received-Seq": "3"}
    assert json.loads(answer.body).items() >= {"expected_seq": 0, "received_seq": 3}.items()


def test_ranges_that_cannot_be_read_are_named_in_the_body() -> None:
    problems = (Problem(3, Code.OFFSET_TRIMMED, 42), Problem(5, Code.STREAM_GONE))
    answer = statuses.answer(Refusal(Code.RANGES_UNAVAILABLE, "", problems=problems), PLAIN)
    assert json.loads(answer.body)["problems"] == [
        {"index": 3, "code": "offset_trimmed", "earliest": 42},
        {"index": 5, "code": "stream_gone", "earliest": None},
    ]


# -- Reads that are more than their reply ------------------------------------------------------------------------------


@pytest.mark.parametrize(("closed", "more"), [(False, {}), (True, CLOSED)])
def test_a_read_from_now_is_never_stored_and_never_tagged(closed: bool, more: dict[str, str]) -> None:
    answer = statuses.from_now(Page(7, "application/json", 42, 42, True, closed, b"[]"), PLAIN)
    assert (answer.status, answer.body) == (200, b"[]")
    assert headers_of(answer) == {"Content-Type": "application/json"} | TAIL | UP_TO_DATE | NO_STORE | more


def test_an_unmodified_page_has_the_headers_and_no_body() -> None:
    page = Page(7, "text/plain", 0, 42, True, False, b"x" * 42)
    answer = statuses.not_modified(page, PLAIN)
    assert (answer.status, answer.body) == (304, b"")
    assert headers_of(answer) == headers_of(statuses.answer(page, PLAIN))


def test_a_long_poll_that_finds_data_is_a_page_with_a_cursor() -> None:
    page = Page(7, "text/plain", 0, 42, True, False, b"x" * 42)
    answer = statuses.polled(page, PLAIN, 9)
    assert (answer.status, answer.body) == (200, page.body)
    assert headers_of(answer) == headers_of(statuses.answer(page, PLAIN)) | {"Stream-Cursor": "9"}


@pytest.mark.parametrize(("closed", "more"), [(False, {"Stream-Cursor": "9"}), (True, CLOSED)])
def test_a_long_poll_that_finds_nothing_goes_on_unless_the_stream_has_ended(closed: bool, more: dict[str, str]) -> None:
    answer = statuses.poll_ended(Page(7, "text/plain", 42, 42, True, closed, b""), PLAIN, 9)
    assert (answer.status, answer.body) == (204, b"")
    assert headers_of(answer) == TAIL | UP_TO_DATE | NO_STORE | more


def test_a_page_may_be_for_the_clients_own_cache_only_and_byte_streams_for_saving() -> None:
    dialect = Dialect(Form.PLAIN, "j", private=True, attachments=True)
    page = headers_of(statuses.answer(Page(7, "application/octet-stream", 0, 42, True, False, b"x" * 42), dialect))
    assert page["Cache-Control"] == "private, max-age=60, stale-while-revalidate=300"
    assert page["Content-Disposition"] == "attachment"
    text = headers_of(statuses.answer(Page(7, "text/plain", 0, 42, True, False, b"x" * 42), dialect))
    assert "Content-Disposition" not in text


def test_a_page_that_not_everybody_may_read_is_checked_before_each_use_of_a_cache() -> None:
    page = Page(7, "text/plain", 0, 42, True, False, b"x" * 42)
    guarded = headers_of(statuses.answer(page, PLAIN._replace(guarded=True)))
    assert (guarded["Cache-Control"], guarded["Vary"]) == ("private, no-cache", "Stream-Incarnation, Authorization")
    by_origin = headers_of(statuses.answer(page, PLAIN._replace(by_origin=True)))
    assert by_origin["Vary"] == "Stream-Incarnation, Origin"
    assert "Access-Control-Allow-Origin" not in by_origin


def test_a_read_of_a_json_stream_names_its_records_and_one_by_record_the_extensions() -> None:
    page = Page(7, "application/json", 42, 42, True, False, b"[]", 0, 3)
    by_record = msgspec.structs.replace(page, record=3)
    makers = (statuses.from_now, lambda page, dialect: statuses.poll_ended(page, dialect, 9), statuses.answer)
    for make in makers:
        found = headers_of(make(page, PLAIN))
        assert found["Stream-Record-Next"] == "3"
        assert "Stream-Extensions" not in found
        assert headers_of(make(by_record, PLAIN))["Stream-Extensions"] == statuses.JSON_EXTENSIONS
