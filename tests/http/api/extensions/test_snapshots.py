"""Extensions, section 2: snapshots, and the retention that comes with them."""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from headwater.storage.blobs import deadline_of
from headwater.testing import RunningServer, running_server

from ...processes import eventually, open_files, resident_bytes
from ...sockets import Response, Wire, chunked, refused, request
from .pieces import BYTES, JSON, MIB, TEXT, append, flat, made, parsed, parts, plain, publish, standing

RESET = struct.pack("ii", 1, 0)
"""Makes the end of a connection abrupt."""


@pytest.fixture
def numbers(wire: Wire, documents: str) -> str:
    """A stream of six JSON messages of a byte each, in three appends."""
    append(wire, documents, b"[1,2,3]", b"4", b"[5,6]", headers=JSON)
    return documents


@pytest.fixture(scope="module")
def keeping() -> Iterator[RunningServer]:
    """A server that keeps history until an explicit request."""
    with running_server("--retention", "explicit") as server:
        yield server


@pytest.fixture
def kept(keeping: RunningServer) -> Iterator[tuple[Wire, str]]:
    """A connection to it, and a stream like `numbers` there."""
    with Wire(keeping.url) as wire:
        assert wire.ask("PUT", "/history").status in (201, 409)
        path = made(wire, f"/history/{time.monotonic_ns()}", JSON)
        append(wire, path, b"[1,2,3]", b"4", b"[5,6]", headers=JSON)
        yield wire, path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[RunningServer, Wire, Path]]:
    """A server with a data directory, a connection, and the folder of its snapshots."""
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        wire.ask("PUT", "/agents")
        made(wire, "/agents/stream")
        append(wire, "/agents/stream", b"abc", b"def")
        yield server, wire, tmp_path / "data" / "snapshots"


def trimmed(wire: Wire, target: str, earliest: str) -> None:
    """Assert that a refused read gets the earliest offset."""
    response = wire.ask("GET", target)
    refused(response, 410, "offset_trimmed")
    assert response.headers["stream-earliest-offset"] == earliest
    assert "stream-incarnation" in response.headers


# -- 2.1 Offsets -------------------------------------------------------------------------------------------------------


def test_offsets_count_payload_bytes_and_sort_as_text(wire: Wire, text: str) -> None:
    tokens = [append(wire, text, b"x" * size) for size in (1, 9, 90, 900)]
    assert tokens == sorted(tokens) == [plain(1), plain(10), plain(100), plain(1000)]


def test_reads_snapshots_and_bootstrap_agree_on_the_boundaries_between_messages(wire: Wire, numbers: str) -> None:
    boundaries = []
    for position in range(8):
        read = wire.ask("GET", f"{numbers}?offset={plain(position)}").status == 200
        published = wire.ask("PUT", f"{numbers}/snapshot/{plain(position)}", TEXT, b"s").status == 204
        assert read == published
        boundaries += [position] if read else []
        if read:
            assert len(parts(wire.ask("GET", f"{numbers}/bootstrap"))) == 1 + 6 - position
    assert boundaries == [0, 1, 2, 3, 4, 5, 6]


# -- 2.2 Publish -------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_published(wire: Wire, numbers: str) -> None:
    response = publish(wire, numbers, plain(4), b"folded", {"Content-Type": "application/x-folded"})
    assert response.body == b""
    assert response.headers["stream-snapshot-offset"] == response.next_offset == plain(4)
    assert response.headers["stream-up-to-date"] == "false"
    assert response.headers["stream-incarnation"] == wire.ask("HEAD", numbers).headers["stream-incarnation"]


def test_a_snapshot_at_the_tail_is_up_to_date_and_says_whether_the_stream_has_ended(wire: Wire, numbers: str) -> None:
    assert "stream-closed" not in publish(wire, numbers, plain(6)).headers
    wire.ask("POST", numbers, {**JSON, "Stream-Closed": "true"}, b"7")
    response = publish(wire, numbers, plain(7))
    assert (response.headers["stream-up-to-date"], response.headers["stream-closed"]) == ("true", "true")


@pytest.mark.parametrize(
    ("sent", "kept_type"),
    [
        ("text/html; charset=utf-8", "text/html; charset=utf-8"),
        ("application/vnd.x+json", "application/vnd.x+json"),
        (None, "application/octet-stream"),
    ],
)
def test_the_type_of_a_snapshot_is_kept_and_octet_stream_if_none_was_said(
    wire: Wire, numbers: str, sent: str | None, kept_type: str
) -> None:
    publish(wire, numbers, plain(4), b"folded", {} if sent is None else {"Content-Type": sent})
    assert wire.ask("GET", f"{numbers}/snapshot/{plain(4)}").headers["content-type"] == kept_type


def test_an_empty_snapshot_is_one_too(wire: Wire, numbers: str) -> None:
    assert wire.ask("PUT", f"{numbers}/snapshot/{plain(4)}").status == 204
    response = wire.ask("GET", f"{numbers}/snapshot/{plain(4)}")
    assert (response.status, response.body) == (200, b"")


@pytest.mark.parametrize("offset", ["", "now", "-1", "x", f"{0:021}", "0_0", "%20"])
def test_an_offset_that_is_none_is_refused(wire: Wire, numbers: str, offset: str) -> None:
    before = standing(wire, numbers)
    response = wire.ask("PUT", f"{numbers}/snapshot/{offset}", TEXT, b"folded")
    refused(response, 400, "invalid_offset")
    assert standing(wire, numbers) == before


def test_an_offset_inside_a_message_is_refused(wire: Wire, documents: str, bucket: str) -> None:
    append(wire, documents, b'["abc",2]', headers=JSON)
    for position in range(1, 5):
        response = wire.ask("PUT", f"{documents}/snapshot/{plain(position)}", TEXT, b"folded")
        refused(response, 400, "offset_unaligned")
    text = made(wire, f"{bucket}/text", TEXT, b"abc")
    append(wire, text, b"def")
    refused(wire.ask("PUT", f"{text}/snapshot/{plain(4)}", TEXT, b"folded"), 400, "offset_unaligned")
    publish(wire, text, plain(3))


def test_a_snapshot_of_no_stream_is_404(wire: Wire, bucket: str) -> None:
    refused(wire.ask("PUT", f"{bucket}/missing/snapshot/{plain(0)}", TEXT, b"x"), 404, "stream_not_found")


@pytest.mark.parametrize("offset", [plain(7), plain(10**12), "9" * 20, flat(7)])
def test_a_snapshot_beyond_the_tail_is_a_conflict(wire: Wire, numbers: str, offset: str) -> None:
    before = standing(wire, numbers)
    response = wire.ask("PUT", f"{numbers}/snapshot/{offset}", TEXT, b"folded")
    refused(response, 409, "snapshot_conflict")
    assert response.next_offset == plain(6)
    assert standing(wire, numbers) == before


def test_a_snapshot_before_the_retained_start_is_gone(wire: Wire, numbers: str) -> None:
    publish(wire, numbers, plain(4))
    before = standing(wire, numbers)
    for position in (0, 3):
        response = wire.ask("PUT", f"{numbers}/snapshot/{plain(position)}", TEXT, b"folded")
        refused(response, 410, "offset_trimmed")
        assert response.headers["stream-earliest-offset"] == plain(4)
    assert standing(wire, numbers) == before


def test_the_same_snapshot_again_is_acknowledged_and_another_one_there_is_a_conflict(wire: Wire, numbers: str) -> None:
    publish(wire, numbers, plain(4))
    append(wire, numbers, b"7", headers=JSON)
    again = publish(wire, numbers, plain(4))
    assert again.headers["stream-snapshot-offset"] == plain(4)
    for body, headers in ((b"other", TEXT), (b"folded", JSON)):
        response = wire.ask("PUT", f"{numbers}/snapshot/{plain(4)}", headers, body)
        refused(response, 409, "snapshot_conflict")
    assert wire.ask("GET", f"{numbers}/snapshot/{plain(4)}").body == b"folded"


def test_a_snapshot_may_come_in_chunks(wire: Wire, numbers: str) -> None:
    head = request("PUT", f"{numbers}/snapshot/{plain(4)}", {**TEXT, "Transfer-Encoding": "chunked"})
    assert wire.ask_raw(head + chunked(b"fol", b"ded")).status == 204
    assert wire.ask("GET", f"{numbers}/snapshot/{plain(4)}").body == b"folded"


def test_a_client_may_wait_for_leave_to_send_a_snapshot(wire: Wire, numbers: str) -> None:
    wire.send(
        request("PUT", f"{numbers}/snapshot/{plain(4)}", {**TEXT, "Content-Length": "6", "Expect": "100-continue"})
    )
    assert wire.receive().status == 100
    assert wire.ask_raw(b"folded").status == 204


def test_a_snapshot_by_record_is_at_the_records_offset(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/json", JSON, b'[10,"b",300]')
    response = wire.ask("PUT", f"{path}/snapshot?record=2", TEXT, b"folded")
    assert (response.status, response.headers["stream-snapshot-offset"]) == (204, plain(5))
    assert wire.ask("HEAD", path).headers["stream-record-first"] == "2"
    for record, status, code in ((1, 410, "offset_trimmed"), (4, 400, "offset_beyond_tail")):
        refused(wire.ask("PUT", f"{path}/snapshot?record={record}", TEXT, b"x"), status, code)
    for target in ("/snapshot", f"/snapshot/{plain(5)}?record=2", "/snapshot?record=-1", "/snapshot?record=x"):
        refused(wire.ask("PUT", f"{path}{target}", TEXT, b"x"), 400, "bad_request")


def test_appends_go_on_while_a_snapshot_is_sent(server: RunningServer, wire: Wire, numbers: str) -> None:
    with Wire(server.url) as slow:
        slow.send(request("PUT", f"{numbers}/snapshot/{plain(4)}", {**TEXT, "Content-Length": "6"}, None) + b"fol")
        for number in range(20):
            append(wire, numbers, b"%d" % (number % 10), headers=JSON)
        assert slow.ask_raw(b"ded").status == 204
    assert wire.ask("GET", f"{numbers}?offset={plain(4)}").body == b"[5,6,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9]"


def test_a_snapshot_and_a_retention_see_the_writes_before_them_on_their_connection(wire: Wire, numbers: str) -> None:
    snapshot = request("PUT", f"{numbers}/snapshot/{plain(7)}", TEXT, b"folded")
    wire.send(request("POST", numbers, JSON, b"7") + snapshot + request("PUT", f"{numbers}/retention/{plain(7)}"))
    assert [wire.receive().status for _ in range(3)] == [204, 204, 204]


def test_a_snapshot_is_published_before_the_writes_that_follow_it_on_its_connection(wire: Wire, numbers: str) -> None:
    etag = wire.ask("HEAD", numbers).headers["etag"]
    snapshot = request("PUT", f"{numbers}/snapshot/{plain(4)}", {**TEXT, "If-Match": etag}, b"folded")
    wire.send(snapshot + request("POST", numbers, JSON, b"7") + request("DELETE", numbers))
    assert [wire.receive().status for _ in range(3)] == [204, 204, 204]


def test_a_snapshot_of_a_stream_that_was_replaced_while_it_was_sent_is_refused(
    server: RunningServer, wire: Wire, numbers: str
) -> None:
    life = wire.ask("HEAD", numbers).headers["stream-incarnation"]
    with Wire(server.url) as slow:
        headers = {**TEXT, "Content-Length": "6", "Stream-Incarnation": life}
        slow.send(request("PUT", f"{numbers}/snapshot/{plain(4)}", headers) + b"fol")
        wire.ask("DELETE", numbers)
        made(wire, numbers, JSON, b"[1,2,3,4,5,6]")
        refused(slow.ask_raw(b"ded"), 410, "incarnation_changed")
    assert "stream-snapshot-offset" not in wire.ask("HEAD", numbers).headers


# -- 2.2 Retention by snapshots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", ["-1", plain(0), plain(3), flat(3)])
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_what_is_before_the_snapshot_is_gone_for_every_read(wire: Wire, numbers: str, offset: str, live: str) -> None:
    publish(wire, numbers, plain(4))
    trimmed(wire, f"{numbers}?offset={offset}{live}", plain(4))


def test_a_read_without_an_offset_begins_before_the_snapshot_too(wire: Wire, numbers: str) -> None:
    assert wire.ask("GET", numbers).status == 200
    publish(wire, numbers, plain(4))
    trimmed(wire, numbers, plain(4))
    response = wire.ask("GET", f"/v1/stream{numbers}")
    refused(response, 410, "offset_trimmed")
    assert response.headers["stream-earliest-offset"] == flat(4)


def test_what_is_before_the_snapshot_is_gone_for_reads_by_record(wire: Wire, numbers: str) -> None:
    publish(wire, numbers, plain(4))
    trimmed(wire, f"{numbers}?record=3", plain(4))
    response = wire.ask("GET", f"{numbers}?record=3")
    assert (response.headers["stream-record-first"], response.headers["stream-record-next"]) == ("4", "6")
    assert wire.ask("GET", f"{numbers}?record=4").body == b"5\n6\n"
    assert wire.ask("GET", f"{numbers}?tail_records=99").body == b"5\n6\n"


def test_what_is_before_the_snapshot_is_gone_for_forks(wire: Wire, numbers: str, bucket: str) -> None:
    publish(wire, numbers, plain(4))
    for offset in ("-1", plain(3), flat(0)):
        fork = {"Stream-Forked-From": numbers, "Stream-Fork-Offset": offset}
        response = wire.ask("PUT", f"{bucket}/fork", fork)
        refused(response, 410, "offset_trimmed")
        assert response.headers["stream-earliest-offset"] == plain(4)
    assert wire.ask("HEAD", f"{bucket}/fork").status == 404
    wire.ask("DELETE", numbers)
    refused(wire.ask("GET", numbers), 404, "stream_not_found")


def test_what_follows_the_snapshot_is_read_as_before(wire: Wire, numbers: str) -> None:
    before = wire.ask("GET", f"{numbers}?offset={plain(4)}")
    assert before.headers["stream-record-first"] == "0"
    publish(wire, numbers, plain(4))
    after = wire.ask("GET", f"{numbers}?offset={plain(4)}")
    assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])
    assert after.headers["stream-record-first"] == "4"
    assert wire.ask("GET", f"{numbers}?offset={plain(6)}").body == b"[]"
    assert wire.ask("GET", f"{numbers}?offset=now").next_offset == plain(6)


def test_a_reader_that_waits_at_the_tail_is_not_disturbed(server: RunningServer, wire: Wire, numbers: str) -> None:
    with Wire(server.url) as reader:
        reader.send(request("GET", f"{numbers}?offset={plain(6)}&live=long-poll"))
        publish(wire, numbers, plain(6))
        append(wire, numbers, b"7", headers=JSON)
        assert reader.receive().body == b"[7]"


def test_no_byte_of_a_snapshot_is_ever_in_an_ordinary_read(wire: Wire, numbers: str) -> None:
    publish(wire, numbers, plain(4), b'"SNAPSHOT"', JSON)
    assert wire.ask("GET", f"{numbers}?offset={plain(4)}").body == b"[5,6]"
    events = wire.open_sse(f"{numbers}?offset={plain(4)}&live=sse")
    assert events.event().data == "[5,6]"


# -- 2.3 Read the latest -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", ["", "/ds"])
def test_the_latest_snapshot_is_found_by_a_redirect(wire: Wire, numbers: str, surface: str) -> None:
    publish(wire, numbers, plain(1))
    publish(wire, numbers, plain(4))
    for method in ("GET", "HEAD"):
        response = wire.ask(method, f"{surface}{numbers}/snapshot")
        assert (response.status, response.body) == (307, b"")
        assert response.headers["location"] == f"http://localhost{surface}{numbers}/snapshot/{plain(4)}"
        assert response.headers["stream-snapshot-offset"] == response.next_offset == plain(4)
        assert response.headers["stream-up-to-date"] == "false"
        assert response.headers["cache-control"] == "no-store"
    path = response.headers["location"].removeprefix("http://localhost")
    assert wire.ask("GET", path).body == b"folded"


def test_without_a_snapshot_there_is_nothing_to_redirect_to(wire: Wire, numbers: str, bucket: str) -> None:
    refused(wire.ask("GET", f"{numbers}/snapshot"), 404, "snapshot_not_found")
    refused(wire.ask("GET", f"{bucket}/missing/snapshot"), 404, "stream_not_found")


# -- 2.4 HEAD ----------------------------------------------------------------------------------------------------------


def test_head_shows_the_latest_snapshot_and_nothing_where_there_is_none(wire: Wire, numbers: str) -> None:
    assert "stream-snapshot-offset" not in wire.ask("HEAD", numbers).headers
    for position in (1, 4):
        publish(wire, numbers, plain(position))
        assert wire.ask("HEAD", numbers).headers["stream-snapshot-offset"] == plain(position)
        assert wire.ask("GET", f"{numbers}/snapshot").headers["location"].endswith(plain(position))
    assert wire.ask("HEAD", f"/v1/stream{numbers}").headers["stream-snapshot-offset"] == flat(4)


# -- 2.5 Read one ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [plain(4), flat(4), quote(flat(4).replace("_", "%5F"), safe="%")])
def test_a_snapshot_is_read_by_either_form_of_its_offset(wire: Wire, numbers: str, offset: str) -> None:
    body = bytes(range(256)) * 3000
    publish(wire, numbers, plain(4), body, BYTES)
    response = wire.ask("GET", f"{numbers}/snapshot/{offset}")
    assert (response.status, response.body) == (200, body)
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["stream-snapshot-offset"] == response.next_offset == plain(4)
    assert response.headers["stream-up-to-date"] == "false"
    assert response.headers["content-length"] == str(len(body))
    head = wire.ask("HEAD", f"{numbers}/snapshot/{offset}")
    assert (head.status, head.headers["content-length"]) == (200, str(len(body)))


@pytest.mark.parametrize("offset", [plain(0), plain(3), plain(5), plain(99), "x", "now"])
def test_there_is_no_other_snapshot(wire: Wire, numbers: str, offset: str) -> None:
    publish(wire, numbers, plain(4))
    refused(wire.ask("GET", f"{numbers}/snapshot/{offset}"), 404, "snapshot_not_found")


def test_a_superseded_snapshot_is_unreachable_at_once(wire: Wire, numbers: str) -> None:
    publish(wire, numbers, plain(1), b"old")
    publish(wire, numbers, plain(4), b"new")
    refused(wire.ask("GET", f"{numbers}/snapshot/{plain(1)}"), 404, "snapshot_not_found")
    assert wire.ask("GET", f"{numbers}/snapshot/{plain(4)}").body == b"new"


@pytest.fixture
def narrow(server: RunningServer) -> Iterator[Wire]:
    """A connection that receives little at a time, so that large responses are sent piece by piece."""
    with Wire(server.url, receive_buffer_bytes=4096) as wire:
        yield wire


def test_many_snapshots_may_be_asked_for_at_once_on_one_connection(wire: Wire, narrow: Wire, numbers: str) -> None:
    body = os.urandom(8 * MIB)
    publish(wire, numbers, plain(4), body, BYTES)
    get = request("GET", f"{numbers}/snapshot/{plain(4)}")
    narrow.send(get + request("GET", f"{numbers}/bootstrap") + get + request("HEAD", numbers) + get)
    assert narrow.receive().body == body
    assert parts(narrow.receive())[0] == ("application/octet-stream", body)
    assert narrow.receive().body == body
    assert narrow.receive(bodiless=True).status == 200
    assert narrow.receive().body == body


def test_an_sse_read_behind_a_large_snapshot_begins_when_that_is_sent(wire: Wire, narrow: Wire, numbers: str) -> None:
    body = os.urandom(8 * MIB)
    publish(wire, numbers, plain(4), body, BYTES)
    narrow.send(
        request("GET", f"{numbers}/snapshot/{plain(4)}") + request("GET", f"{numbers}?offset={plain(4)}&live=sse")
    )
    assert narrow.receive().body == body
    assert narrow.receive_sse().event().data == "[5,6]"


def test_a_client_that_sends_no_more_still_gets_the_whole_snapshot(wire: Wire, numbers: str) -> None:
    body = bytes(range(256)) * 8192
    publish(wire, numbers, plain(4), body, BYTES)
    wire.send(request("GET", f"{numbers}/snapshot/{plain(4)}"))
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.receive().body == body
    assert wire.ended()


# -- 2.6 Delete --------------------------------------------------------------------------------------------------------


def test_the_latest_snapshot_is_never_deleted_and_there_is_no_other(wire: Wire, numbers: str) -> None:
    refused(wire.ask("DELETE", f"{numbers}/snapshot/{plain(4)}"), 404, "snapshot_not_found")
    publish(wire, numbers, plain(1))
    publish(wire, numbers, plain(4))
    response = wire.ask("DELETE", f"{numbers}/snapshot/{plain(4)}")
    refused(response, 409, "snapshot_conflict")
    assert "stream-incarnation" in response.headers
    refused(wire.ask("DELETE", f"{numbers}/snapshot/{flat(4)}"), 409, "snapshot_conflict")
    for offset in (plain(1), plain(6), "x"):
        refused(wire.ask("DELETE", f"{numbers}/snapshot/{offset}"), 404, "snapshot_not_found")
    refused(wire.ask("DELETE", f"{numbers}/snapshot"), 404, "snapshot_not_found")
    assert wire.ask("GET", f"{numbers}/snapshot/{plain(4)}").body == b"folded"


# -- Retention on request ----------------------------------------------------------------------------------------------


def test_where_history_is_kept_a_snapshot_takes_none_away(kept: tuple[Wire, str]) -> None:
    wire, path = kept
    publish(wire, path, plain(4))
    assert wire.ask("GET", path).body == b"[1,2,3,4,5,6]"
    assert wire.ask("HEAD", path).headers["stream-record-first"] == "0"
    refused(wire.ask("PUT", f"{path}/snapshot/{plain(3)}", TEXT, b"x"), 409, "snapshot_conflict")


def test_history_goes_on_request_as_far_as_a_snapshot_covers_it(kept: tuple[Wire, str]) -> None:
    wire, path = kept
    refused(wire.ask("PUT", f"{path}/retention/{plain(3)}"), 409, "snapshot_conflict")
    publish(wire, path, plain(4))
    refused(wire.ask("PUT", f"{path}/retention/{plain(5)}"), 409, "snapshot_conflict")
    assert wire.ask("GET", path).body == b"[1,2,3,4,5,6]"
    response = wire.ask("PUT", f"{path}/retention/{flat(3)}")
    assert response.status == 204
    assert "stream-incarnation" in response.headers
    trimmed(wire, path, plain(3))
    assert wire.ask("GET", f"{path}?offset={plain(3)}").body == b"[4,5,6]"
    refused(wire.ask("PUT", f"{path}/retention/{plain(2)}"), 410, "offset_trimmed")
    refused(wire.ask("PUT", f"{path}/snapshot/{plain(2)}", TEXT, b"x"), 410, "offset_trimmed")
    assert parts(wire.ask("GET", f"{path}/bootstrap"))[1:] == [("application/json", b"5"), ("application/json", b"6")]


def test_history_goes_by_record(kept: tuple[Wire, str]) -> None:
    wire, path = kept
    publish(wire, path, plain(4))
    assert wire.ask("PUT", f"{path}/retention?record=2").status == 204
    assert wire.ask("HEAD", path).headers["stream-record-first"] == "2"
    trimmed(wire, path, plain(2))
    refused(wire.ask("PUT", f"{path}/retention?record=9"), 400, "offset_beyond_tail")


def test_a_retention_that_is_malformed_changes_nothing(kept: tuple[Wire, str]) -> None:
    wire, path = kept
    publish(wire, path, plain(4))
    before = standing(wire, path)
    for target, code in (
        ("/retention", "bad_request"),
        (f"/retention/{plain(3)}?record=3", "bad_request"),
        ("/retention/now", "invalid_offset"),
        ("/retention/-1", "invalid_offset"),
    ):
        refused(wire.ask("PUT", f"{path}{target}"), 400, code)
    refused(wire.ask("PUT", f"{path}-missing/retention/{plain(0)}"), 404, "stream_not_found")
    assert wire.ask("GET", path).body == b"[1,2,3,4,5,6]"
    assert standing(wire, path) == before


def test_a_fork_between_what_is_retained_and_the_snapshot_would_not_be_whole(kept: tuple[Wire, str]) -> None:
    wire, path = kept
    fork = {"Stream-Forked-From": path, "Stream-Fork-Offset": plain(3)}
    made(wire, f"{path}-before", fork)
    publish(wire, path, plain(4))
    made(wire, f"{path}-with-all-history", fork)
    assert wire.ask("PUT", f"{path}/retention/{plain(2)}").status == 204
    refused(wire.ask("PUT", f"{path}-after", fork), 410, "offset_trimmed")
    made(wire, f"{path}-at-the-snapshot", {**fork, "Stream-Fork-Offset": plain(4)})
    for name in ("before", "with-all-history"):
        assert wire.ask("GET", f"{path}-{name}").body == b"[1,2,3]"


# -- Forks of trimmed streams ------------------------------------------------------------------------------------------


def test_a_fork_of_a_trimmed_stream_reads_and_bootstraps_whatever_becomes_of_its_source(
    wire: Wire, numbers: str, bucket: str
) -> None:
    publish(wire, numbers, plain(4), b"first", {"Content-Type": "text/html"})
    fork = made(wire, f"{bucket}/fork", {"Stream-Forked-From": numbers, "Stream-Fork-Offset": plain(5)}, b"7")

    def check() -> None:
        trimmed(wire, f"{fork}?offset={plain(3)}", plain(4))
        assert wire.ask("GET", f"{fork}?offset={plain(4)}").body == b"[5,7]"
        assert wire.ask("GET", f"{fork}?record=4").body == b"5\n7\n"
        response = wire.ask("GET", f"{fork}/bootstrap")
        assert parts(response) == [("text/html", b"first"), ("application/json", b"5"), ("application/json", b"7")]
        assert response.headers["stream-snapshot-offset"] == plain(4)
        assert response.next_offset == plain(6)
        assert wire.ask("GET", f"{fork}/snapshot/{plain(4)}").body == b"first"

    check()
    publish(wire, numbers, plain(6), b"second")
    check()
    assert wire.ask("DELETE", numbers).status == 204
    check()
    refused(wire.ask("GET", f"{numbers}/bootstrap"), 410, "stream_gone")
    publish(wire, fork, plain(6), b"third")
    assert parts(wire.ask("GET", f"{fork}/bootstrap")) == [("text/plain", b"third")]
    assert wire.ask("DELETE", fork).status == 204


# -- On disk -----------------------------------------------------------------------------------------------------------


def only(folder: Path, *contents: bytes) -> Callable[[], bool]:
    """Whether the folder holds these files and no others."""

    def holds() -> bool:
        try:
            return sorted(path.read_bytes() for path in folder.iterdir()) == sorted(contents)
        except FileNotFoundError:
            return False  # One of them is just being deleted.

    return holds


def test_a_superseded_snapshot_is_deleted_from_disk(disk: tuple[RunningServer, Wire, Path]) -> None:
    _, wire, folder = disk
    publish(wire, "/agents/stream", plain(3), b"first")
    assert only(folder, b"first")()
    publish(wire, "/agents/stream", plain(6), b"second")
    assert eventually(only(folder, b"second"))
    publish(wire, "/agents/stream", plain(6), b"second")
    refused(wire.ask("PUT", f"/agents/stream/snapshot/{plain(6)}", TEXT, b"other"), 409, "snapshot_conflict")
    refused(wire.ask("PUT", f"/agents/stream/snapshot/{plain(3)}", TEXT, b"older"), 410, "offset_trimmed")
    refused(wire.ask("PUT", f"/agents/stream/snapshot/{plain(9)}", TEXT, b"later"), 409, "snapshot_conflict")
    refused(wire.ask("PUT", "/agents/stream/snapshot/x", TEXT, b"nowhere"), 400, "invalid_offset")
    assert eventually(only(folder, b"second"))
    wire.ask("DELETE", "/agents/stream")
    assert eventually(only(folder))


def test_a_snapshot_that_a_fork_needs_stays_on_disk_until_the_fork_ends(disk: tuple[RunningServer, Wire, Path]) -> None:
    _, wire, folder = disk
    publish(wire, "/agents/stream", plain(3), b"first")
    made(wire, "/agents/fork", {"Stream-Forked-From": "/agents/stream"})
    publish(wire, "/agents/stream", plain(6), b"second")
    wire.ask("DELETE", "/agents/stream")
    time.sleep(0.2)
    assert only(folder, b"first", b"second")()
    wire.ask("DELETE", "/agents/fork")
    assert eventually(only(folder))


def test_a_client_that_disconnects_in_the_middle_of_an_upload_leaves_nothing_behind(
    disk: tuple[RunningServer, Wire, Path],
) -> None:
    server, wire, folder = disk
    before, files = standing(wire, "/agents/stream"), open_files(server.pid)
    for abrupt in (False, True):
        with Wire(server.url) as client:
            head = request("PUT", f"/agents/stream/snapshot/{plain(3)}", {**TEXT, "Content-Length": str(4 * MIB)})
            client.send(head + b"x" * MIB)
            assert eventually(lambda: any(path.stat().st_size for path in folder.iterdir()))
            if abrupt:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        assert eventually(only(folder))
    assert standing(wire, "/agents/stream") == before
    assert eventually(lambda: open_files(server.pid) <= files)


def test_a_client_that_goes_while_its_upload_waits_for_its_turn_leaves_nothing_behind(
    disk: tuple[RunningServer, Wire, Path],
) -> None:
    server, wire, folder = disk
    files = open_files(server.pid)
    for number in range(20):
        with Wire(server.url) as client:
            client.send(
                request("PUT", f"/other-{number}")
                + request("PUT", f"/agents/missing-{number}/snapshot/{plain(0)}", TEXT, b"lost")
            )
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    assert eventually(only(folder))
    assert eventually(lambda: open_files(server.pid) <= files)
    publish(wire, "/agents/stream", plain(3), b"kept")
    assert eventually(only(folder, b"kept"))


def test_a_snapshot_is_still_sent_whole_after_it_was_superseded(disk: tuple[RunningServer, Wire, Path]) -> None:
    server, wire, folder = disk
    body = os.urandom(16 * MIB)
    publish(wire, "/agents/stream", plain(3), body, BYTES)
    files = open_files(server.pid)
    with (
        Wire(server.url, receive_buffer_bytes=4096) as reader,
        Wire(server.url, receive_buffer_bytes=4096) as starter,
    ):
        reader.send(request("GET", f"/agents/stream/snapshot/{plain(3)}"))
        starter.send(request("GET", "/agents/stream/bootstrap"))
        reader.take(1)
        starter.take(1)
        publish(wire, "/agents/stream", plain(6), b"second")
        assert eventually(only(folder, b"second"))
        reader._buffer[:0] = starter._buffer[:0] = b"H"
        assert reader.receive().body == body
        assert parts(starter.receive()) == [("application/octet-stream", body), ("text/plain", b"def")]
    assert eventually(lambda: open_files(server.pid) <= files)


def test_snapshots_and_attributes_survive_a_crash(tmp_path: Path) -> None:
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        wire.ask("PUT", "/agents")
        wire.ask("PUT", "/empty-one")
        made(wire, "/agents/s", {**JSON, "Stream-Attrs": '{"title":"first"}'}, b"[1,2,3]")
        assert wire.ask("PUT", "/agents/s/attrs", JSON, b'{"title":"second","metadata":{"a":[1]}}').status == 204
        publish(wire, "/agents/s", plain(1), b"old")
        publish(wire, "/agents/s", plain(2), b"folded", {"Content-Type": "text/html"})
        before = standing(wire, "/agents/s")
        with Wire(server.url) as client:
            client.send(request("PUT", f"/agents/s/snapshot/{plain(3)}", {"Content-Length": "200000"}) + b"h" * 100_000)
            assert eventually(lambda: any(path.suffix == ".tmp" for path in (tmp_path / "snapshots").iterdir()))
            server.kill()
    [unfinished] = (tmp_path / "snapshots").glob("*.tmp")
    assert (deadline_of(unfinished.name) or 0) > time.time() * 1e6, "it could be published for another while"
    for start in range(3):
        with running_server(data=tmp_path) as server, Wire(server.url) as wire:
            assert standing(wire, "/agents/s") == before
            trimmed(wire, "/agents/s", plain(2))
            response = wire.ask("GET", "/agents/s/bootstrap")
            assert parts(response) == [("text/html", b"folded"), ("application/json", b"3")]
            assert parsed(wire.ask("GET", "/agents/s/attrs"))["title"] == "second"
            assert parsed(wire.ask("GET", "/empty-one"))["streams"] == 0
            if start == 0:
                assert unfinished.exists()
                # As if its deadline had passed meanwhile.
                unfinished.rename(unfinished.with_name(f"{1:014x}{unfinished.name[14:]}"))
            else:
                assert eventually(only(tmp_path / "snapshots", b"folded"))
            server.kill()


# -- Large ones --------------------------------------------------------------------------------------------------------


def test_a_large_snapshot_passes_through_without_ever_being_in_memory(disk: tuple[RunningServer, Wire, Path]) -> None:
    server, wire, _ = disk
    piece, count = os.urandom(MIB), 100
    publish(wire, "/agents/stream", plain(3), b"small")
    before = resident_bytes(server.pid)
    highest = 0
    wire.send(request("PUT", f"/agents/stream/snapshot/{plain(6)}", {**BYTES, "Content-Length": str(count * MIB)}))
    for _ in range(count):
        wire.send(piece)
        highest = max(highest, resident_bytes(server.pid))
    assert wire.receive().status == 204
    assert highest - before < 30 * MIB
    wire.send(request("GET", f"/agents/stream/snapshot/{plain(6)}"))
    status, headers, _ = wire.receive_head()
    assert (status, headers["content-length"]) == (200, str(count * MIB))
    for _ in range(count):
        assert wire.take(MIB) == piece
        highest = max(highest, resident_bytes(server.pid))
    assert highest - before < 30 * MIB


@pytest.mark.parametrize("announced", [True, False])
def test_a_snapshot_over_128_mib_is_refused_and_the_client_gets_to_read_that(
    disk: tuple[RunningServer, Wire, Path], announced: bool
) -> None:
    """A pipeline from a client that reads nothing before it has sent everything."""
    server, wire, folder = disk
    before = standing(wire, "/agents/stream")
    size, piece = 129 * MIB, bytes(MIB)
    framing = {"Content-Length": str(size)} if announced else {"Transfer-Encoding": "chunked"}
    with Wire(server.url) as client:
        client.send(request("PUT", f"/agents/stream/snapshot/{plain(3)}", {**BYTES, **framing}))
        for _ in range(129):
            client.send(piece if announced else b"%x\r\n%b\r\n" % (MIB, piece))
        response = client.receive()
        refused(response, 413, "too_large")
        assert response.headers["connection"] == "close"
        assert client.ended()
    assert eventually(only(folder))
    assert standing(wire, "/agents/stream") == before


def test_a_snapshot_of_exactly_128_mib_is_taken(disk: tuple[RunningServer, Wire, Path]) -> None:
    _, wire, _ = disk
    piece = bytes(MIB)
    wire.send(request("PUT", f"/agents/stream/snapshot/{plain(3)}", {**BYTES, "Content-Length": str(128 * MIB)}))
    for _ in range(128):
        wire.send(piece)
    assert wire.receive().status == 204
    assert wire.ask("HEAD", f"/agents/stream/snapshot/{plain(3)}").headers["content-length"] == str(128 * MIB)


def test_a_snapshot_that_is_damaged_on_disk_is_never_given_whole(disk: tuple[RunningServer, Wire, Path]) -> None:
    server, wire, folder = disk
    tail = wire.ask("HEAD", "/agents/stream").headers["stream-next-offset"]
    publish(wire, "/agents/stream", tail, bytes(3 * MIB))
    [path] = folder.iterdir()
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    for target in (f"/agents/stream/snapshot/{tail}", "/agents/stream/bootstrap"):
        with Wire(server.url) as reader:
            reader.send(request("GET", target))
            with pytest.raises((OSError, EOFError)):
                reader.receive()
    assert "is damaged" in server.output()


# -- The digest --------------------------------------------------------------------------------------------------------


def test_a_snapshot_has_a_digest_by_which_the_next_one_replaces_it(wire: Wire, text: str) -> None:
    append(wire, text, b"a", b"b")

    def published(offset: int, body: bytes, match: str) -> Response:
        return wire.ask("PUT", f"{text}/snapshot/{offset}", {**TEXT, "Stream-Snapshot-Match": match}, body)

    refused(published(1, b"one", "other"), 409, "snapshot_conflict")
    assert "stream-snapshot-digest" not in wire.ask("HEAD", text).headers
    first = published(1, b"one", "none")
    assert first.status == 204
    digest = first.headers["stream-snapshot-digest"]
    for method, path, status in (
        ("HEAD", text, 200),
        ("GET", f"{text}/snapshot", 307),
        ("GET", f"{text}/snapshot/1", 200),
        ("HEAD", f"{text}/snapshot/1", 200),
        ("GET", f"{text}/bootstrap", 200),
    ):
        response = wire.ask(method, path)
        assert (response.status, response.headers["stream-snapshot-digest"]) == (status, digest)
    refused(published(2, b"two", "none"), 409, "snapshot_conflict")
    refused(published(2, b"two", "other"), 409, "snapshot_conflict")
    assert wire.ask("GET", f"{text}/snapshot/1").body == b"one"
    second = published(2, b"two", digest)
    assert (second.status, wire.ask("GET", f"{text}/snapshot/2").body) == (204, b"two")
    assert second.headers["stream-snapshot-digest"] != digest


@pytest.mark.parametrize("place", ["snapshot/9", "retention/9"])
def test_nothing_is_known_of_an_offset_beyond_the_tail(wire: Wire, documents: str, place: str) -> None:
    append(wire, documents, b"[1,2]", headers=JSON)
    publish(wire, documents, "1")
    refused(wire.ask("PUT", f"{documents}/{place}", TEXT, b"x"), 409, "snapshot_conflict")
    assert wire.ask("HEAD", documents).headers["stream-snapshot-offset"] == plain(1)
