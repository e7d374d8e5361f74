"""Appends under a condition: If-Match, Stream-Record-Match."""

import threading

import pytest

from headwater.testing import RunningServer

from ...sockets import Response, Wire, refused
from .pieces import JSON, TEXT, append, flat, frames, made, parsed, plain, publish, standing

PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0"}


def tag(wire: Wire, path: str, method: str = "HEAD") -> str:
    return wire.ask(method, path).headers["etag"]


def post(wire: Wire, path: str, body: bytes | None = b"x", **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return wire.ask("POST", path, {**TEXT, **named}, body)


def failed(response: Response, tail: int) -> None:
    refused(response, 412, "precondition_failed")
    assert response.next_offset == plain(tail)
    assert "stream-incarnation" in response.headers


# -- If-Match ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", ["", "/ds", "/v1/stream"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_append_goes_in_while_the_stream_is_as_it_was_seen(wire: Wire, text: str, method: str, surface: str) -> None:
    append(wire, text, b"abc")
    seen = tag(wire, text, method)
    assert post(wire, f"{surface}{text}", b"def", If_Match=seen).status == 204
    response = post(wire, f"{surface}{text}", b"ghi", If_Match=seen)
    assert response.status == 412
    assert response.next_offset == (flat(6) if surface == "/v1/stream" else plain(6))
    assert wire.ask("GET", text).body == b"abcdef"


def test_what_counts_is_where_the_tag_ends_not_where_it_begins(wire: Wire, text: str) -> None:
    append(wire, text, b"abc", b"def")
    page = wire.ask("GET", f"{text}?max_bytes=3")
    failed(post(wire, text, If_Match=page.headers["etag"]), 6)
    rest = wire.ask("GET", f"{text}?offset={page.next_offset}")
    assert post(wire, text, If_Match=rest.headers["etag"]).status == 204


def test_a_close_goes_in_while_the_stream_is_as_it_was_seen(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    append(wire, text, b"abc")
    before = standing(wire, text)
    failed(post(wire, text, None, Stream_Closed="true", If_Match=seen), 3)
    failed(post(wire, text, b"x", Stream_Closed="true", If_Match=seen), 3)
    assert standing(wire, text) == before
    assert post(wire, text, None, Stream_Closed="true", If_Match=tag(wire, text)).status == 204


def test_the_tag_of_a_closed_stream_is_no_tag_of_an_open_one(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    wire.ask("POST", text, {"Stream-Closed": "true"})
    assert tag(wire, text) != seen
    refused(post(wire, text, If_Match=seen), 409, "stream_closed")
    assert post(wire, text, None, Stream_Closed="true", If_Match=seen).status == 204


def test_the_tag_of_another_life_never_matches(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    wire.ask("DELETE", text)
    refused(post(wire, text, If_Match=seen), 404, "stream_not_found")
    made(wire, text)
    failed(post(wire, text, If_Match=seen), 0)
    assert post(wire, text, If_Match=tag(wire, text)).status == 204


@pytest.mark.parametrize("value", ['"other"', '""', "x", '"a", "b"', 'W/"x"'])
def test_a_tag_that_is_not_ours_never_matches(wire: Wire, text: str, value: str) -> None:
    failed(post(wire, text, If_Match=value), 0)
    assert wire.ask("HEAD", text).next_offset == plain(0)


def test_one_tag_of_several_is_enough_and_a_star_is_any(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    assert post(wire, text, If_Match=f'"other", {seen}').status == 204
    assert post(wire, text, If_Match="*").status == 204
    refused(post(wire, f"{text}-missing", If_Match="*"), 404, "stream_not_found")


def test_the_condition_comes_after_the_type_and_before_the_sequence(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    assert post(wire, text, Stream_Seq="b").status == 204
    refused(post(wire, text, b"1", Content_Type="application/json", If_Match=seen), 409, "content_type_mismatch")
    failed(post(wire, text, Stream_Seq="a", If_Match=seen), 1)
    refused(post(wire, text, Stream_Seq="a", If_Match=tag(wire, text)), 409, "stream_seq_conflict")


def test_a_retry_of_an_accepted_append_is_a_duplicate_not_a_failed_condition(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    first = post(wire, text, b"abc", If_Match=seen, **PRODUCER, Producer_Seq="0")
    assert (first.status, first.next_offset) == (200, plain(3))
    append(wire, text, b"def")
    again = post(wire, text, b"abc", If_Match=seen, **PRODUCER, Producer_Seq="0")
    assert (again.status, again.next_offset) == (204, plain(3))
    failed(post(wire, text, b"ghi", If_Match=seen, **PRODUCER, Producer_Seq="1"), 6)
    refused(post(wire, text, b"x", If_Match=seen, **PRODUCER, Producer_Seq="9"), 409, "producer_seq_conflict")
    assert post(wire, text, b"ghi", **PRODUCER, Producer_Seq="1").status == 200
    assert wire.ask("GET", text).body == b"abcdefghi"


def test_of_many_writers_that_saw_the_same_exactly_one_goes_in(server: RunningServer, wire: Wire, text: str) -> None:
    for round_ in range(5):
        seen = tag(wire, text)
        statuses: list[int] = []

        def write(seen: str, statuses: list[int]) -> None:
            with Wire(server.url) as writer:
                statuses.append(post(writer, text, b"x", If_Match=seen).status)

        threads = [threading.Thread(target=write, args=(seen, statuses)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [204] + [412] * 7
        assert wire.ask("HEAD", text).next_offset == plain(round_ + 1)


# -- Stream-Record-Match -----------------------------------------------------------------------------------------------


def test_an_append_goes_in_if_the_next_record_is_the_expected_one(wire: Wire, documents: str) -> None:
    json_post = {**JSON, "Stream-Record-Match": "0"}
    assert wire.ask("POST", documents, json_post, b"[1,2]").status == 204
    before = standing(wire, documents)
    response = wire.ask("POST", documents, json_post, b"3")
    refused(response, 412, "record_precondition_failed")
    assert (response.headers["stream-record-next"], response.next_offset) == ("2", plain(2))
    assert standing(wire, documents) == before
    assert wire.ask("POST", documents, {**JSON, "Stream-Record-Match": "2"}, b"3").status == 204


@pytest.mark.parametrize("value", ["-1", "x", "", "1.0", "01", "9" * 30])
def test_a_record_to_match_is_a_whole_number(wire: Wire, documents: str, value: str) -> None:
    response = wire.ask("POST", documents, {**JSON, "Stream-Record-Match": value}, b"1")
    refused(response, 400, "invalid_header")
    assert wire.ask("HEAD", documents).next_offset == plain(0)


def test_what_is_not_json_has_no_record_to_match(wire: Wire, text: str) -> None:
    response = post(wire, text, Stream_Record_Match="0")
    refused(response, 400, "bad_request")
    assert "stream-incarnation" in response.headers
    assert wire.ask("HEAD", text).next_offset == plain(0)


def test_a_retry_is_a_duplicate_whatever_record_it_expected(wire: Wire, documents: str) -> None:
    headers = {**JSON, **PRODUCER, "Producer-Seq": "0", "Stream-Record-Match": "0"}
    assert wire.ask("POST", documents, headers, b"1").status == 200
    again = wire.ask("POST", documents, headers, b"1")
    assert (again.status, again.headers["stream-record-next"]) == (204, "1")
    late = {**headers, "Producer-Seq": "1"}
    refused(wire.ask("POST", documents, late, b"2"), 412, "record_precondition_failed")


def test_both_conditions_must_hold(wire: Wire, documents: str) -> None:
    seen = tag(wire, documents)
    append(wire, documents, b"1", headers=JSON)
    for if_match, record, code in ((seen, "1", "precondition_failed"), ("*", "0", "record_precondition_failed")):
        headers = {**JSON, "If-Match": if_match, "Stream-Record-Match": record}
        refused(wire.ask("POST", documents, headers, b"2"), 412, code)
    headers = {**JSON, "If-Match": tag(wire, documents), "Stream-Record-Match": "1"}
    assert wire.ask("POST", documents, headers, b"2").status == 204


# -- On deletes, snapshots and creates ---------------------------------------------------------------------------------


def test_a_delete_may_be_for_one_version_of_the_stream(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    append(wire, text, b"abc")
    before = standing(wire, text)
    for value in (seen, '"other"', f"W/{tag(wire, text)}"):
        response = wire.ask("DELETE", text, {"If-Match": value})
        refused(response, 412, "precondition_failed")
        assert response.next_offset == plain(3)
    assert standing(wire, text) == before
    assert wire.ask("DELETE", text, {"If-Match": f'"other", {tag(wire, text)}'}).status == 204
    refused(wire.ask("DELETE", text, {"If-Match": "*"}), 404, "stream_not_found")
    made(wire, text)
    assert wire.ask("DELETE", text, {"If-Match": "*"}).status == 204


def test_a_snapshot_may_be_for_one_version_of_the_stream(wire: Wire, text: str) -> None:
    seen = tag(wire, text)
    append(wire, text, b"abc")
    refused(wire.ask("PUT", f"{text}/snapshot/3", {**TEXT, "If-Match": seen}, b"s"), 412, "precondition_failed")
    refused(wire.ask("GET", f"{text}/snapshot"), 404, "snapshot_not_found")
    assert wire.ask("PUT", f"{text}/snapshot/3", {**TEXT, "If-Match": tag(wire, text)}, b"s").status == 204


@pytest.mark.parametrize("surface", ["", "/ds", "/v1/stream"])
def test_a_create_may_demand_that_there_is_no_stream(wire: Wire, bucket: str, surface: str) -> None:
    path, only_new = f"{surface}{bucket}/new", {**TEXT, "If-None-Match": " * "}
    assert wire.ask("PUT", path, only_new, b"abc").status == 201
    before = standing(wire, path)
    response = wire.ask("PUT", path, only_new, b"abc")
    refused(response, 412, "precondition_failed")
    assert response.next_offset == (flat(3) if surface == "/v1/stream" else plain(3))
    refused(wire.ask("PUT", path, {**JSON, "If-None-Match": "*"}), 412, "precondition_failed")
    assert standing(wire, path) == before
    assert wire.ask("PUT", path, TEXT).status == 200
    fork = {"Stream-Forked-From": path, "If-None-Match": "*"}
    assert wire.ask("PUT", f"{path}-fork", fork).status == 201
    refused(wire.ask("PUT", f"{path}-fork", fork), 412, "precondition_failed")


# -- On batches --------------------------------------------------------------------------------------------------------


def test_the_condition_of_a_batch_holds_for_all_its_frames_or_for_none(wire: Wire, documents: str) -> None:
    batch = f"{documents}/append-batch"
    for name in ("Stream-Record-Match", "If-Match"):
        headers = {name: tag(wire, documents) if name == "If-Match" else "0"}
        acks = parsed(wire.ask("POST", batch, {**JSON, **headers}, frames(b"1", b"[2,3]", b"4")))
        assert [ack["status"] for ack in acks] == [204, 204, 204]
        before = standing(wire, documents)
        response = wire.ask("POST", batch, {**JSON, **headers}, frames(b"5", b"6"))
        assert (response.status, response.next_offset) == (412, before[1][0])
        assert standing(wire, documents) == before


def test_a_bad_frame_does_not_fail_the_condition_of_those_behind_it(wire: Wire, documents: str) -> None:
    headers = {**JSON, "Stream-Record-Match": "0", "If-Match": tag(wire, documents)}
    acks = parsed(wire.ask("POST", f"{documents}/append-batch", headers, frames(b"1", b"{", b"2")))
    assert [ack["status"] for ack in acks] == [204, 400, 204]
    assert wire.ask("GET", documents).body == b"[1,2]"


def test_the_condition_of_a_producers_batch_is_judged_once_and_after_the_duplicate_rule(
    wire: Wire, documents: str
) -> None:
    batch = f"{documents}/append-batch"
    headers = {**JSON, **PRODUCER, "Producer-Seq": "0", "Stream-Record-Match": "0", "If-Match": tag(wire, documents)}
    assert [ack["status"] for ack in parsed(wire.ask("POST", batch, headers, frames(b"1", b"2")))] == [200, 200]
    assert [ack["status"] for ack in parsed(wire.ask("POST", batch, headers, frames(b"1", b"2")))] == [204, 204]
    late = {**headers, "Producer-Seq": "1"}
    response = wire.ask("POST", batch, late, frames(b"3"))
    refused(response, 412, "precondition_failed")
    assert response.next_offset == plain(2)


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize("value", ["*", '"other"', "seen"])
@pytest.mark.parametrize(
    "change",
    [
        ("PUT", "", None, "If-None-Match"),
        ("PUT", "/attrs", b"{}", None),
        ("PUT", "/retention/0", None, None),
        ("PUT", "/snapshot/3", b"folded", "If-Match"),
        ("POST", "", b"x", "If-Match"),
        ("POST", "/append-batch", frames(b"x"), "If-Match"),
        ("DELETE", "", None, "If-Match"),
    ],
)
def test_a_condition_that_is_not_evaluated_is_refused(
    wire: Wire, text: str, change: tuple[str, str, bytes | None, str | None], header: str, value: str
) -> None:
    method, below, body, evaluated = change
    append(wire, text, b"abc")
    publish(wire, text, plain(3))
    before, seen = standing(wire, text), tag(wire, text)
    headers = (JSON if below == "/attrs" else TEXT) | {header: seen if value == "seen" else value}
    response = wire.ask(method, f"{text}{below}", headers, body)
    if header == evaluated:
        assert response.status in ((400, 412) if value == '"other"' else (200, 204, 400, 412))
    else:
        refused(response, 400, "invalid_header")
        assert header in response.problem["detail"]
    if response.status >= 400:
        assert standing(wire, text) == before


def test_a_condition_on_a_bucket_is_refused(wire: Wire, free: str) -> None:
    for header in ("If-Match", "If-None-Match"):
        refused(wire.ask("PUT", free, {header: "*"}), 400, "invalid_header")
        refused(wire.ask("GET", free), 404, "bucket_not_found")
    assert wire.ask("PUT", free).status == 201
    refused(wire.ask("DELETE", free, {"If-Match": '"x"'}), 400, "invalid_header")
    assert wire.ask("GET", free, {"If-None-Match": '"x"'}).status == 200


@pytest.mark.parametrize("value", ['"other"', 'W/"a", "b"', "**", ""])
def test_a_create_can_only_ask_that_there_is_no_stream_at_all(wire: Wire, bucket: str, value: str) -> None:
    path = f"{bucket}/new"
    refused(wire.ask("PUT", path, {**TEXT, "If-None-Match": value}), 400, "invalid_header")
    assert wire.ask("HEAD", path).status == 404
