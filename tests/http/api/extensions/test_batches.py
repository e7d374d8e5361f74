"""append-batch: several appends in one request."""

import pytest

from ...sockets import Wire, refused
from .pieces import JSON, MIB, TEXT, append, frames, made, parsed, plain, standing

PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "1"}


def batch(wire: Wire, path: str, *payloads: bytes, **headers: str) -> list[dict[str, object]]:
    """The acknowledgements of a batch."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = wire.ask("POST", f"{path}/append-batch", {**TEXT, **named}, frames(*payloads))
    acks = parsed(response)
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["stream-incarnation"] == wire.ask("HEAD", path).headers["stream-incarnation"]
    assert isinstance(acks, list)
    return acks


def written(position: int, status: int = 204) -> dict[str, object]:
    return {"status": status, "stream_next_offset": plain(position)}


@pytest.mark.parametrize("surface", ["", "/ds"])
def test_each_frame_is_an_append_with_an_acknowledgement_of_its_own(wire: Wire, text: str, surface: str) -> None:
    assert batch(wire, f"{surface}{text}", b"a", b"bcd", b"ef") == [written(1), written(4), written(6)]
    assert wire.ask("GET", text).body == b"abcdef"


def test_frames_of_json_tell_their_records(wire: Wire, documents: str) -> None:
    acks = batch(wire, documents, b"1", b"[2,3]", b' {"a": 1} ', Content_Type="application/json")
    assert acks == [
        {**written(1), "stream_record_start": 0, "stream_record_next": 1},
        {**written(3), "stream_record_start": 1, "stream_record_next": 3},
        {**written(11), "stream_record_start": 3, "stream_record_next": 4},
    ]
    assert wire.ask("GET", documents).body == b'[1,2,3,{"a": 1}]'


def test_a_frame_with_bad_json_fails_alone(wire: Wire, documents: str) -> None:
    acks = batch(wire, documents, b"1", b"{", b"[]", b"2", Content_Type="application/json")
    assert [ack["status"] for ack in acks] == [204, 400, 400, 204]
    assert (acks[1]["error_code"], acks[2]["error_code"]) == ("invalid_json", "empty_body")
    assert acks[1]["stream_closed"] is False
    assert isinstance(acks[1]["error"], str)
    assert "error" not in acks[0]
    assert acks[3] == {**written(2), "stream_record_start": 1, "stream_record_next": 2}
    assert wire.ask("GET", documents).body == b"[1,2]"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "empty_body"),
        (frames(b"a") + b"\0\0\0\0", 400, "bad_request"),
        (frames(b"a") + b"\0\0\0", 400, "bad_request"),
        (frames(b"a") + b"\0\0\0\5abc", 400, "bad_request"),
        (frames(*[b"a"] * 513), 413, "too_large"),
    ],
)
def test_a_malformed_batch_is_refused_as_a_whole_and_nothing_is_written(
    wire: Wire, text: str, body: bytes, status: int, code: str
) -> None:
    before = standing(wire, text)
    for headers in (TEXT, {**TEXT, **PRODUCER, "Producer-Seq": "0"}):
        refused(wire.ask("POST", f"{text}/append-batch", headers, body), status, code)
    assert standing(wire, text) == before


def test_a_batch_has_512_frames_at_most(wire: Wire, text: str) -> None:
    assert batch(wire, text, *[b"a"] * 512) == [written(position) for position in range(1, 513)]


def test_a_batch_is_32_mib_at_most(wire: Wire, text: str) -> None:
    piece = bytes(8 * MIB - 4)
    assert [ack["status"] for ack in batch(wire, text, *[piece] * 4)] == [204] * 4
    before = standing(wire, text)
    response = wire.ask("POST", f"{text}/append-batch", TEXT, frames(*[piece] * 4) + b"\0")
    refused(response, 413, "too_large")
    assert wire.ended()
    assert before[1][0] == plain(4 * len(piece))


def test_with_minimal_preferred_there_is_no_body_if_all_succeeded(wire: Wire, documents: str) -> None:
    prefer = {**JSON, "Prefer": "respond-async, return = minimal"}
    response = wire.ask("POST", f"{documents}/append-batch", prefer, frames(b"1", b"2"))
    assert (response.status, response.headers["preference-applied"]) == (204, "return=minimal")
    assert "stream-incarnation" in response.headers
    acks = parsed(wire.ask("POST", f"{documents}/append-batch", prefer, frames(b"3", b"{")))
    assert [ack["status"] for ack in acks] == [204, 400]


# -- With a producer ---------------------------------------------------------------------------------------------------


def test_with_a_producer_one_sequence_covers_the_batch(wire: Wire, text: str) -> None:
    acks = batch(wire, text, b"a", b"bc", **PRODUCER, Producer_Seq="0")
    assert acks == [written(1, 200), written(3, 200)]
    assert batch(wire, text, b"d", **PRODUCER, Producer_Seq="1") == [written(4, 200)]
    headers = {**TEXT, **PRODUCER, "Producer-Seq": "1"}
    for prefer, status in (("none", 200), ("return=minimal", 204)):
        again = wire.ask("POST", f"{text}/append-batch", {**headers, "Prefer": prefer}, frames(b"d"))
        assert (again.status, again.headers["producer-epoch"], again.headers["producer-seq"]) == (status, "1", "1")
    response = wire.ask("POST", f"{text}/append-batch", {**TEXT, **PRODUCER, "Producer-Seq": "5"}, frames(b"x"))
    problem = refused(response, 409, "producer_seq_conflict")
    assert (problem["expected_seq"], problem["received_seq"]) == (2, 5)
    assert wire.ask("GET", text).body == b"abcd"


def test_a_batch_that_is_sent_again_is_acknowledged_as_it_was(wire: Wire, documents: str) -> None:
    headers = {"Content_Type": "application/json", **PRODUCER}
    first = batch(wire, documents, b"1", b"[2,3]", **headers, Producer_Seq="0")
    assert [(ack["stream_record_start"], ack["stream_record_next"]) for ack in first] == [(0, 1), (1, 3)]
    append(wire, documents, b"4", headers=JSON)
    again = batch(wire, documents, b"1", b"[2,3]", **headers, Producer_Seq="0")
    assert again == [{**ack, "status": 204} for ack in first]
    assert wire.ask("GET", documents).body == b"[1,2,3,4]"


@pytest.mark.parametrize("others", [[b"ab", b"c"], [b"a", b"bd"], [b"a", b"bcd"], [b"a"]])
def test_other_frames_under_the_last_sequence_are_refused(wire: Wire, text: str, others: list[bytes]) -> None:
    batch(wire, text, b"a", b"bc", **PRODUCER, Producer_Seq="0")
    headers = {**TEXT, **PRODUCER, "Producer-Seq": "0"}
    response = wire.ask("POST", f"{text}/append-batch", headers, frames(*others))
    refused(response, 409, "producer_payload_mismatch")
    assert wire.ask("GET", text).body == b"abc"


def test_other_frames_for_the_batch_that_closed_the_stream_get_the_end_of_what_was_accepted(
    wire: Wire, documents: str
) -> None:
    headers = {"Content_Type": "application/json", **PRODUCER, "Stream_Closed": "true", "Producer_Seq": "0"}
    [first] = batch(wire, documents, b"[1,2,3]", **headers)
    for others in ([b"1", b"23"], [b"1", b"2345"]):
        acks = batch(wire, documents, *others, **headers)
        assert acks == [{"status": 204, "stream_next_offset": first["stream_next_offset"]}] * 2


def test_an_older_batch_that_is_sent_again_gets_the_tail(wire: Wire, text: str) -> None:
    batch(wire, text, b"a", b"bc", **PRODUCER, Producer_Seq="0")
    batch(wire, text, b"d", **PRODUCER, Producer_Seq="1")
    append(wire, text, b"efg")
    assert batch(wire, text, b"a", b"bc", **PRODUCER, Producer_Seq="0") == [written(7), written(7)]
    assert wire.ask("GET", text).body == b"abcdefg"


def test_with_a_producer_it_is_all_or_nothing(wire: Wire, documents: str) -> None:
    before = standing(wire, documents)
    headers = {**JSON, **PRODUCER, "Producer-Seq": "0"}
    refused(wire.ask("POST", f"{documents}/append-batch", headers, frames(b"1", b"{", b"2")), 400, "invalid_json")
    refused(wire.ask("POST", f"{documents}/append-batch", headers, frames(b"1", b"[]")), 400, "empty_body")
    assert standing(wire, documents) == before
    assert wire.ask("POST", f"{documents}/append-batch", headers, frames(b"1", b"2")).status == 200


def test_producer_headers_that_are_incomplete_are_refused(wire: Wire, text: str) -> None:
    response = wire.ask("POST", f"{text}/append-batch", {**TEXT, **PRODUCER}, frames(b"a"))
    refused(response, 400, "producer_incomplete")
    assert wire.ask("HEAD", text).next_offset == plain(0)


def test_a_fenced_producer_learns_so_before_its_json_is_judged(wire: Wire, documents: str) -> None:
    batch(wire, documents, b"1", Content_Type="application/json", **PRODUCER, Producer_Seq="0")
    stale = {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    for path, body in ((f"{documents}/append-batch", frames(b"{")), (documents, b"{")):
        response = wire.ask("POST", path, stale, body)
        refused(response, 403, "producer_epoch_stale")
        assert response.headers["producer-epoch"] == "1"
    gap = {**JSON, **PRODUCER, "Producer-Seq": "7"}
    refused(wire.ask("POST", documents, gap, b"{"), 409, "producer_seq_conflict")
    refused(wire.ask("POST", documents, {**JSON, "Stream-Record-Match": "5"}, b"{"), 412, "record_precondition_failed")
    refused(wire.ask("POST", documents, {**JSON, **PRODUCER, "Producer-Seq": "1"}, b"{"), 400, "invalid_json")


# -- With a condition --------------------------------------------------------------------------------------------------


def test_a_condition_that_fails_is_the_answer_to_the_whole_batch(wire: Wire, documents: str) -> None:
    append(wire, documents, b"1", headers=JSON)
    before = standing(wire, documents)
    for payloads in ([b"2", b"3"], [b"{", b"3"], [b"{"]):
        # The second frame would fit where the first does not.
        headers = {**JSON, "Stream-Record-Match": "0"}
        response = wire.ask("POST", f"{documents}/append-batch", headers, frames(*payloads))
        refused(response, 412, "record_precondition_failed")
        assert (response.headers["stream-record-next"], response.next_offset) == ("1", plain(1))
        response = wire.ask("POST", f"{documents}/append-batch", {**JSON, "If-Match": '"none"'}, frames(*payloads))
        refused(response, 412, "precondition_failed")
    assert standing(wire, documents) == before


def test_a_condition_that_holds_is_for_the_whole_batch(wire: Wire, documents: str) -> None:
    acks = batch(wire, documents, b"1", b"{", b"[2,3]", Content_Type="application/json", Stream_Record_Match="0")
    assert [ack["status"] for ack in acks] == [204, 400, 204]
    assert acks[0] == {**written(1), "stream_record_start": 0, "stream_record_next": 1}
    assert acks[1]["error_code"] == "invalid_json"
    assert acks[2] == {**written(3), "stream_record_start": 1, "stream_record_next": 3}
    [bad] = parsed(wire.ask("POST", f"{documents}/append-batch", {**JSON, "Stream-Record-Match": "3"}, frames(b"{")))
    assert (bad["status"], bad["error_code"]) == (400, "invalid_json")
    assert wire.ask("GET", documents).body == b"[1,2,3]"


def test_one_stream_seq_covers_the_batch(wire: Wire, text: str) -> None:
    assert batch(wire, text, b"a", b"bc", Stream_Seq="1") == [written(1), written(3)]
    response = wire.ask("POST", f"{text}/append-batch", {**TEXT, "Stream-Seq": "1"}, frames(b"d", b"e"))
    refused(response, 409, "stream_seq_conflict")
    assert wire.ask("GET", text).body == b"abc"


# -- The stream's own rules --------------------------------------------------------------------------------------------


def test_a_batch_to_no_stream_is_404(wire: Wire, bucket: str) -> None:
    for body in (frames(b"a"), frames(b"a", b"b")):
        refused(wire.ask("POST", f"{bucket}/missing/append-batch", TEXT, body), 404, "stream_not_found")
        refused(wire.ask("POST", f"{bucket}/missing/append-batch", JSON, frames(b"{")), 404, "stream_not_found")
    assert wire.ask("HEAD", f"{bucket}/missing").status == 404


def test_a_batch_may_close_the_stream_with_its_last_frame(wire: Wire, text: str) -> None:
    assert batch(wire, text, b"a", b"b", Stream_Closed="true") == [written(1), written(2)]
    assert wire.ask("HEAD", text).headers["stream-closed"] == "true"
    acks = batch(wire, text, b"c", b"d")
    for ack in acks:
        error = ack.pop("error")
        assert isinstance(error, str)
        assert ack == {**written(2, 409), "stream_closed": True, "error_code": "stream_closed"}
    assert wire.ask("GET", text).body == b"ab"


def test_the_retry_of_a_batch_that_closed_the_stream_succeeds(wire: Wire, text: str) -> None:
    first = batch(wire, text, b"a", b"b", **PRODUCER, Producer_Seq="0", Stream_Closed="true")
    again = batch(wire, text, b"a", b"b", **PRODUCER, Producer_Seq="0", Stream_Closed="true")
    assert again == [{**ack, "status": 204} for ack in first]


def test_a_batch_of_another_type_is_refused_frame_by_frame_or_as_a_whole(wire: Wire, text: str) -> None:
    acks = batch(wire, text, b"1", b"2", Content_Type="application/json")
    assert [(ack["status"], ack["error_code"]) for ack in acks] == [(409, "content_type_mismatch")] * 2
    headers = {**JSON, **PRODUCER, "Producer-Seq": "0"}
    refused(wire.ask("POST", f"{text}/append-batch", headers, frames(b"1")), 409, "content_type_mismatch")
    refused(wire.ask("POST", f"{text}/append-batch", {}, frames(b"1")), 400, "content_type_missing")
    assert wire.ask("HEAD", text).next_offset == plain(0)


def test_a_batch_for_another_life_changes_nothing(wire: Wire, text: str) -> None:
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    wire.ask("DELETE", text)
    made(wire, text)
    before = standing(wire, text)
    headers = {**TEXT, "Stream-Incarnation": life}
    refused(wire.ask("POST", f"{text}/append-batch", headers, frames(b"a", b"b")), 410, "incarnation_changed")
    refused(wire.ask("POST", f"{text}/append-batch?incarnation={life}", TEXT, frames(b"a")), 410, "incarnation_changed")
    assert standing(wire, text) == before


def test_a_batch_is_only_posted(wire: Wire, text: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        response = wire.ask(method, f"{text}/append-batch", TEXT, frames(b"a"))
        refused(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST, OPTIONS"
