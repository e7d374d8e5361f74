"""Extensions, section 1: buckets. Both bucket surfaces behave alike."""

import json
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from headwater.testing import running_server

from ...processes import eventually
from ...sockets import Wire, refused
from .pieces import JSON, TEXT, append, made, parsed, plain, standing

BAD_BUCKETS = [
    "abc",
    "a" * 65,
    "Agents",
    "agents!",
    "agen ts",
    "agén",
    "a.b.c",
    "%2e%2e%2e%2e",
    "agents%2Fx",
    "%00abcd",
]
SERVED = ["healthz", "readyz", "metrics", "openapi"]
"""Names at which there is something else to read."""
RESERVED_BUCKETS = ["__ds", "__internal", "healthz", "readyz", "metrics", "console", "openapi"]


@pytest.fixture(params=["", "/ds"], ids=["canonical", "ds"])
def surface(request: pytest.FixtureRequest) -> str:
    """The prefix of a bucket's path."""
    return str(request.param)


def ids(page: dict[str, list[dict[str, object]]]) -> list[object]:
    return [entry["stream_id"] for entry in page["streams"]]


def count(wire: Wire, bucket: str) -> int:
    return int(parsed(wire.ask("GET", bucket))["streams"])


# -- 1.1 Identifiers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["abcd", "a" * 64, "0123", "_-_-", "_default", "a-b_c-9"])
def test_a_bucket_id_is_4_to_64_small_letters_digits_underscores_and_dashes(
    wire: Wire, surface: str, name: str
) -> None:
    path = f"{surface}/{name}"
    assert wire.ask("PUT", path).status in (201, 409)
    assert parsed(wire.ask("GET", path))["bucket_id"] == name
    assert wire.ask("DELETE", path).status == 204


@pytest.mark.parametrize("name", [*BAD_BUCKETS, *RESERVED_BUCKETS])
def test_a_bucket_id_that_is_invalid_or_reserved_is_refused_by_every_method(
    wire: Wire, surface: str, name: str
) -> None:
    for method in ("PUT", "DELETE"):
        refused(wire.ask(method, f"{surface}/{quote(name, safe='%')}"), 400, "invalid_name")
    if surface or name not in SERVED:
        refused(wire.ask("GET", f"{surface}/{quote(name, safe='%')}"), 400, "invalid_name")
    for method in ("PUT", "GET", "POST", "DELETE"):
        refused(wire.ask(method, f"{surface}/{quote(name, safe='%')}/stream", TEXT, b"x"), 400, "invalid_name")
    refused(wire.ask("GET", f"{surface}/{quote(name, safe='%')}/streams"), 400, "invalid_name")


@pytest.mark.parametrize(
    "name",
    ["a", "Ünï-cødé", "日本語", "😀", "a b", "a?b", "a#b", "a%b", "a\nb", ".", "-1", "x" * 100, "STREAMS", "snapshot"],
)
def test_a_stream_id_is_any_utf8(wire: Wire, surface: str, bucket: str, name: str) -> None:
    path = made(wire, f"{surface}{bucket}/{quote(name, safe='')}", TEXT, b"abc")
    assert wire.ask("GET", path).body == b"abc"
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams"))) == [name]


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_bucket_and_stream_are_122_bytes_together_at_most(wire: Wire, surface: str, bucket: str, letter: str) -> None:
    room = 122 - len(bucket.removeprefix("/")) - 1
    size = len(letter.encode())
    longest = letter * (room // size) + "x" * (room % size)
    assert wire.ask("PUT", f"{surface}{bucket}/{quote(longest)}", TEXT).status == 201
    refused(wire.ask("PUT", f"{surface}{bucket}/{quote(longest)}x", TEXT), 400, "invalid_name")
    assert count(wire, bucket) == 1


@pytest.mark.parametrize("name", ["a%2Fb", "%2F", "..", "a..b", "%2e%2e", "a%00b", "%ff", ""])
def test_a_stream_id_has_no_slash_no_nul_and_no_two_dots(wire: Wire, surface: str, bucket: str, name: str) -> None:
    for method in ("PUT", "GET", "HEAD", "POST", "DELETE"):
        response = wire.ask(method, f"{surface}{bucket}/{name}", TEXT, b"x")
        assert response.status == 400
        assert method == "HEAD" or response.problem["code"] == "invalid_name"
    assert count(wire, bucket) == 0


def test_the_stream_id_streams_is_reserved_for_the_listing(wire: Wire, surface: str, bucket: str) -> None:
    refused(wire.ask("PUT", f"{surface}{bucket}/streams", TEXT), 400, "invalid_name")
    assert count(wire, bucket) == 0
    for method in ("POST", "DELETE"):
        response = wire.ask(method, f"{surface}{bucket}/streams", TEXT, b"x")
        refused(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "GET, HEAD, OPTIONS"


# -- 1.2 Create --------------------------------------------------------------------------------------------------------


def test_a_bucket_is_created_explicitly_and_once(wire: Wire, surface: str, free: str) -> None:
    created = wire.ask("PUT", f"{surface}{free}")
    assert (created.status, created.body) == (201, b"")
    refused(wire.ask("PUT", f"{surface}{free}"), 409, "bucket_exists")
    refused(wire.ask("PUT", free), 409, "bucket_exists")
    assert count(wire, free) == 0


@pytest.mark.parametrize("headers", [TEXT, {"Stream-Closed": "true"}, {**TEXT, "Stream-TTL": "60"}])
def test_the_put_of_a_stream_creates_no_bucket(wire: Wire, surface: str, free: str, headers: dict[str, str]) -> None:
    refused(wire.ask("PUT", f"{surface}{free}/stream", headers), 404, "bucket_not_found")
    refused(wire.ask("GET", f"{surface}{free}"), 404, "bucket_not_found")
    assert wire.ask("HEAD", f"{surface}{free}/stream").status == 404


def test_the_put_of_a_fork_creates_no_bucket_and_leaves_its_source_free(wire: Wire, text: str, bucket: str) -> None:
    refused(wire.ask("PUT", f"{bucket}-other/fork", {"Stream-Forked-From": text}), 404, "bucket_not_found")
    assert wire.ask("DELETE", text).status == 204
    refused(wire.ask("GET", text), 404, "stream_not_found")


# -- 1.3 Look ----------------------------------------------------------------------------------------------------------


def test_a_bucket_shows_its_id_and_how_many_streams_it_holds(wire: Wire, surface: str, bucket: str) -> None:
    for number in range(3):
        assert parsed(wire.ask("GET", f"{surface}{bucket}")) == {"bucket_id": bucket[1:], "streams": number}
        made(wire, f"{bucket}/{number}")
    head = wire.ask("HEAD", f"{surface}{bucket}")
    assert (head.status, head.body) == (200, b"")


def test_a_bucket_that_is_not_there_is_404_for_every_method(wire: Wire, surface: str, free: str) -> None:
    for method, path in (("GET", free), ("DELETE", free), ("GET", f"{free}/streams"), ("PUT", f"{free}/stream")):
        refused(wire.ask(method, f"{surface}{path}", TEXT), 404, "bucket_not_found")


def test_the_count_leaves_out_what_was_deleted_or_expired(wire: Wire, bucket: str) -> None:
    for name in ("a", "b", "c"):
        made(wire, f"{bucket}/{name}")
    made(wire, f"{bucket}/brief", {**TEXT, "Stream-TTL": "0"})
    made(wire, f"{bucket}/fork", {"Stream-Forked-From": f"{bucket}/a"})
    assert wire.ask("DELETE", f"{bucket}/a").status == 204
    assert wire.ask("DELETE", f"{bucket}/b").status == 204
    assert eventually(lambda: count(wire, bucket) == 2)
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams"))) == ["c", "fork"]


def test_the_count_is_exact_while_streams_come_and_go(wire: Wire, bucket: str) -> None:
    for number in range(20):
        made(wire, f"{bucket}/{number}")
        if number % 3 == 0:
            assert wire.ask("DELETE", f"{bucket}/{number}").status == 204
        assert count(wire, bucket) == len(ids(parsed(wire.ask("GET", f"{bucket}/streams"))))
    assert count(wire, bucket) == 13


# -- 1.4 List ----------------------------------------------------------------------------------------------------------


def test_a_listing_has_the_documented_form(wire: Wire, surface: str, bucket: str) -> None:
    before = int(time.time() * 1000)
    made(wire, f"{bucket}/user-1", TEXT, b"x" * 42)
    made(wire, f"{bucket}/user-2", {**JSON, "Stream-Closed": "true"}, b"[1,2]")
    made(wire, f"{bucket}/other")
    page = parsed(wire.ask("GET", f"{surface}{bucket}/streams?prefix=user-"))
    assert page.keys() == {"bucket_id", "prefix", "stream_count", "streams", "next_cursor", "has_more"}
    assert (page["bucket_id"], page["prefix"], page["stream_count"]) == (bucket[1:], "user-", 2)
    assert (page["next_cursor"], page["has_more"]) == (None, False)
    first, second = page["streams"]
    for entry in (first, second):
        assert before - 5_000 <= entry.pop("created_at_ms") <= entry.pop("last_write_at_ms") <= before + 60_000
    assert first == {"stream_id": "user-1", "status": "Open", "content_type": "text/plain", "tail_offset": 42}
    assert second == {"stream_id": "user-2", "status": "Closed", "content_type": "application/json", "tail_offset": 2}


def test_the_last_write_of_a_stream_is_its_last_append(wire: Wire, text: str, bucket: str) -> None:
    [created] = parsed(wire.ask("GET", f"{bucket}/streams"))["streams"]
    time.sleep(0.05)
    append(wire, text, b"abc")
    [written] = parsed(wire.ask("GET", f"{bucket}/streams"))["streams"]
    assert written["created_at_ms"] == created["created_at_ms"] == created["last_write_at_ms"]
    assert written["last_write_at_ms"] > created["last_write_at_ms"]
    assert written["tail_offset"] == 3


@pytest.fixture
def many(wire: Wire, bucket: str) -> Iterator[tuple[str, list[str]]]:
    """A bucket of names that sort in surprising ways, and those names in order."""
    names = ["A", "Z", "a", "a b", "a!", "a-1", "a-10", "a-2", "aa", "é", "日", "\uffee", "😀", "😀x"]
    for name in reversed(names):
        made(wire, f"{bucket}/{quote(name, safe='')}")
    yield bucket, sorted(names, key=str.encode)


def test_a_listing_is_sorted_by_the_bytes_of_the_ids(wire: Wire, many: tuple[str, list[str]]) -> None:
    bucket, names = many
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams"))) == names


@pytest.mark.parametrize("limit", [1, 2, 5, 13, 14, 15, 1000])
def test_pages_follow_each_other_by_the_cursor_and_hold_every_stream_once(
    wire: Wire, many: tuple[str, list[str]], limit: int
) -> None:
    bucket, names = many
    found: list[object] = []
    cursor = ""
    while True:
        page = parsed(wire.ask("GET", f"{bucket}/streams?limit={limit}&after={quote(cursor, safe='')}"))
        assert page["stream_count"] == len(page["streams"]) <= limit
        found += ids(page)
        assert page["has_more"] == (len(found) < len(names))
        if not page["has_more"]:
            assert page["next_cursor"] is None
            break
        assert page["next_cursor"] == ids(page)[-1]
        cursor = page["next_cursor"]
    assert found == names


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("", 14),
        ("a", 7),
        ("a-", 3),
        ("a-1", 2),
        ("a%20b", 1),
        ("a+b", 1),
        ("%F0%9F%98%80", 2),
        ("%C3%A9", 1),
        ("zz", 0),
        ("..", 0),
        ("%2F", 0),
    ],
)
def test_a_prefix_narrows_a_listing(wire: Wire, many: tuple[str, list[str]], prefix: str, found: int) -> None:
    bucket, _ = many
    page = parsed(wire.ask("GET", f"{bucket}/streams?prefix={prefix}"))
    assert (page["stream_count"], page["has_more"]) == (found, False)


def test_the_cursor_is_exclusive_and_need_not_exist(wire: Wire, many: tuple[str, list[str]]) -> None:
    bucket, names = many
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams?after=a-1"))) == names[names.index("a-1") + 1 :]
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams?after=a-1&prefix=a-"))) == ["a-10", "a-2"]
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams?after=a-11"))) == names[names.index("a-2") :]
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams?after=%F4%8F%BF%BF"))) == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1.5", "limit=1&limit=2"]
)
def test_a_limit_is_from_1_to_1000(wire: Wire, bucket: str, query: str) -> None:
    refused(wire.ask("GET", f"{bucket}/streams?{query}"), 400, "bad_request")


def test_a_page_holds_1000_streams_unless_told_otherwise(wire: Wire, bucket: str) -> None:
    head = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n"
    names = [f"{number:04}" for number in range(1001)]
    for first in range(0, 1001, 50):
        wire.send("".join(f"PUT {bucket}/{name} {head}" for name in names[first : first + 50]).encode())
        for _ in names[first : first + 50]:
            assert wire.receive().status == 201
    page = parsed(wire.ask("GET", f"{bucket}/streams"))
    assert (ids(page), page["has_more"], page["next_cursor"]) == (names[:1000], True, "0999")
    assert ids(parsed(wire.ask("GET", f"{bucket}/streams?after=0999"))) == ["1000"]
    assert count(wire, bucket) == 1001


def test_a_listing_passes_over_what_is_deleted_expired_or_kept_only_by_forks(wire: Wire, bucket: str) -> None:
    for name in ("a", "b", "c", "d"):
        made(wire, f"{bucket}/{name}", {**TEXT, "Stream-TTL": "0"} if name == "b" else TEXT)
    made(wire, f"{bucket}/e-fork", {"Stream-Forked-From": f"{bucket}/c"})
    wire.ask("DELETE", f"{bucket}/a")
    wire.ask("DELETE", f"{bucket}/c")
    first = parsed(wire.ask("GET", f"{bucket}/streams?limit=1"))
    assert (ids(first), first["has_more"], first["next_cursor"]) == (["d"], True, "d")
    second = parsed(wire.ask("GET", f"{bucket}/streams?limit=1&after=d"))
    assert (ids(second), second["has_more"]) == (["e-fork"], False)


# -- 1.5 Delete --------------------------------------------------------------------------------------------------------


def test_an_empty_bucket_is_deleted_and_may_be_made_again(wire: Wire, surface: str, bucket: str) -> None:
    deleted = wire.ask("DELETE", f"{surface}{bucket}")
    assert (deleted.status, deleted.body) == (204, b"")
    refused(wire.ask("GET", bucket), 404, "bucket_not_found")
    refused(wire.ask("PUT", f"{bucket}/stream", TEXT), 404, "bucket_not_found")
    refused(wire.ask("DELETE", bucket), 404, "bucket_not_found")
    assert wire.ask("PUT", bucket).status == 201
    made(wire, f"{bucket}/stream")


def test_a_bucket_with_a_stream_is_not_deleted_and_nothing_changes(wire: Wire, surface: str, text: str) -> None:
    bucket = text.rpartition("/")[0]
    before = standing(wire, text)
    refused(wire.ask("DELETE", f"{surface}{bucket}"), 409, "bucket_not_empty")
    assert (standing(wire, text), count(wire, bucket)) == (before, 1)
    append(wire, text, b"abc")
    made(wire, f"{bucket}/another")


def test_a_stream_that_only_its_forks_keep_counts_against_an_empty_bucket(wire: Wire, text: str, bucket: str) -> None:
    fork = made(wire, f"/v1/stream/{bucket[1:]}-elsewhere/fork", {"Stream-Forked-From": text})
    assert wire.ask("DELETE", text).status == 204
    assert count(wire, bucket) == 0
    refused(wire.ask("DELETE", bucket), 409, "bucket_not_empty")
    assert wire.ask("DELETE", fork).status == 204
    assert eventually(lambda: wire.ask("DELETE", bucket).status == 204)


def test_streams_whose_time_is_over_do_not_keep_a_bucket(wire: Wire, bucket: str) -> None:
    creates = [f"PUT {bucket}/{number} HTTP/1.1\r\nHost: localhost\r\nStream-TTL: 0\r\n\r\n" for number in range(5)]
    wire.send(f"{''.join(creates)}DELETE {bucket} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert [wire.receive().status for _ in range(6)] == [201] * 5 + [204]


def test_creates_behind_a_delete_on_one_connection_find_no_bucket(wire: Wire, bucket: str) -> None:
    head = "HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wire.send(f"DELETE {bucket} {head}PUT {bucket}/a {head}PUT {bucket} {head}PUT {bucket}/a {head}".encode())
    assert [wire.receive().status for _ in range(4)] == [204, 404, 201, 201]


# -- 1.6 Stream operations ---------------------------------------------------------------------------------------------


def test_all_stream_operations_apply_under_a_bucket(wire: Wire, surface: str, bucket: str) -> None:
    path = f"{surface}{bucket}/stream"
    created = wire.ask("PUT", path, JSON, b"[1]")
    assert (created.status, created.next_offset) == (201, plain(1))
    assert created.headers["location"] == f"http://localhost{path}"
    assert wire.ask("PUT", path, JSON).status == 200
    assert wire.ask("POST", path, JSON, b"[2,3]").next_offset == plain(3)
    assert wire.ask("HEAD", path).next_offset == plain(3)
    read = wire.ask("GET", f"{path}?offset={plain(1)}")
    assert (json.loads(read.body), read.next_offset) == ([2, 3], plain(3))
    assert wire.ask("GET", f"{path}?offset=-1&live=long-poll").body == b"[1,2,3]"
    assert wire.ask("POST", path, {"Stream-Closed": "true"}).status == 204
    refused(wire.ask("POST", path, JSON, b"4"), 409, "stream_closed")
    assert wire.ask("DELETE", path).status == 204
    refused(wire.ask("GET", path), 404, "stream_not_found")


@pytest.mark.parametrize(
    ("method", "below"),
    [
        ("GET", ""),
        ("HEAD", ""),
        ("POST", ""),
        ("DELETE", ""),
        ("PUT", ""),
        ("POST", "/append-batch"),
        ("GET", "/attrs"),
        ("PUT", "/attrs"),
        ("GET", "/snapshot"),
        ("GET", "/bootstrap"),
        ("PUT", f"/snapshot/{plain(0)}"),
        ("PUT", f"/retention/{plain(0)}"),
    ],
)
def test_without_its_bucket_every_stream_operation_is_404(
    wire: Wire, surface: str, free: str, method: str, below: str
) -> None:
    body = b"\0\0\0\1x" if below == "/append-batch" else b"{}" if below == "/attrs" else b"x"
    headers = JSON if below == "/attrs" else TEXT
    assert wire.ask(method, f"{surface}{free}/stream{below}", headers, body).status == 404
    refused(wire.ask("GET", free), 404, "bucket_not_found")


# -- All buckets, and the streams of all buckets -----------------------------------------------------------------------


def test_every_stream_and_bucket_can_be_listed_whatever_the_length_of_its_name() -> None:
    with running_server() as server, Wire(server.url) as wire:
        names = ["a/1", "a/b/c", "ab/1", "_default/notes", "Long Bucket/x"]
        for name in names:
            made(wire, f"/v1/stream/{quote(name.removeprefix('_default/'))}")
        assert wire.ask("PUT", "/empty").status == 201
        page = parsed(wire.ask("GET", "/__headwater/buckets"))
        assert page == {
            "prefix": "",
            "bucket_count": 5,
            "buckets": [
                {"bucket_id": "Long Bucket", "streams": 1},
                {"bucket_id": "_default", "streams": 1},
                {"bucket_id": "a", "streams": 2},
                {"bucket_id": "ab", "streams": 1},
                {"bucket_id": "empty", "streams": 0},
            ],
            "next_cursor": None,
            "has_more": False,
        }
        page = parsed(wire.ask("GET", "/__headwater/streams"))
        assert ids(page) == sorted(names) and page["bucket_id"] is None and page["stream_count"] == len(names)
        assert page["stream_count"] == parsed(wire.ask("GET", "/__headwater/status"))["streams"]
        assert ids(parsed(wire.ask("GET", "/__headwater/streams?prefix=a/"))) == ["a/1", "a/b/c"]


@pytest.mark.parametrize(("what", "member"), [("buckets", "bucket_id"), ("streams", "stream_id")])
def test_listings_of_the_whole_server_have_pages_of_a_limited_size(wire: Wire, what: str, member: str) -> None:
    for number in range(5):
        wire.ask("PUT", f"/v1/stream/{what}-page-{number}/x", TEXT)
    found: list[str] = []
    cursor = ""
    while True:
        page = parsed(wire.ask("GET", f"/__headwater/{what}?prefix={what}-page-&limit=2&after={quote(cursor)}"))
        assert len(page[what]) <= 2
        found += [entry[member] for entry in page[what]]
        if not page["has_more"]:
            assert page["next_cursor"] is None
            break
        cursor = page["next_cursor"]
    assert [name.removesuffix("/x") for name in found] == [f"{what}-page-{number}" for number in range(5)]
    for limit in ("0", "1001", "x"):
        refused(wire.ask("GET", f"/__headwater/{what}?limit={limit}"), 400, "bad_request")
