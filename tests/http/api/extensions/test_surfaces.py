"""Three surfaces, one namespace: a stream created on one exists on all, and each prints offsets in its own form."""

from collections.abc import Callable

import pytest

from ...sockets import Response, Wire, refused
from .pieces import JSON, TEXT, append, flat, frames, made, parsed, plain, publish, standing

FORMS: dict[str, Callable[[int], str]] = {"": plain, "/ds": plain, "/v1/stream": flat}
SURFACES = list(FORMS)
BUCKETED = ["", "/ds"]


@pytest.fixture(params=SURFACES, ids=["canonical", "ds", "flat"])
def here(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SURFACES, ids=["canonical", "ds", "flat"])
def there(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- One namespace -----------------------------------------------------------------------------------------------------


def test_a_stream_made_on_one_surface_is_there_on_the_others(wire: Wire, bucket: str, here: str, there: str) -> None:
    path = f"{bucket}/stream"
    created = wire.ask("PUT", f"{here}{path}", TEXT, b"abc")
    assert (created.status, created.next_offset) == (201, FORMS[here](3))
    assert created.headers["location"] == f"http://localhost{here}{path}"
    assert wire.ask("PUT", f"{there}{path}", TEXT).status == 200
    assert wire.ask("POST", f"{there}{path}", TEXT, b"def").next_offset == FORMS[there](6)
    for surface, form in FORMS.items():
        read = wire.ask("GET", f"{surface}{path}")
        assert (read.body, read.next_offset) == (b"abcdef", form(6))
        assert read.headers["stream-incarnation"] == created.headers["stream-incarnation"]
        assert read.headers["etag"] == wire.ask("GET", path).headers["etag"]
    assert wire.ask("DELETE", f"{there}{path}").status == 204
    for surface in SURFACES:
        refused(wire.ask("GET", f"{surface}{path}"), 404, "stream_not_found")


def test_a_path_without_a_slash_on_the_flat_surface_is_in_the_default_bucket(wire: Wire, free: str) -> None:
    name = free.removeprefix("/")
    made(wire, f"/v1/stream/{name}", TEXT, b"abc")
    for surface in BUCKETED:
        assert wire.ask("GET", f"{surface}/_default/{name}").body == b"abc"
    listing = parsed(wire.ask("GET", f"/_default/streams?prefix={name}"))
    assert [entry["stream_id"] for entry in listing["streams"]] == [name]


def test_on_the_flat_surface_a_bucket_is_there_while_it_holds_a_stream(wire: Wire, free: str) -> None:
    made(wire, f"/v1/stream{free}/a")
    assert parsed(wire.ask("GET", free)) == {"bucket_id": free[1:], "streams": 1}
    made(wire, f"{free}/b")
    assert len(parsed(wire.ask("GET", f"{free}/streams"))["streams"]) == 2
    refused(wire.ask("DELETE", free), 409, "bucket_not_empty")
    for name in "ab":
        assert wire.ask("DELETE", f"/ds{free}/{name}").status == 204
    refused(wire.ask("GET", free), 404, "bucket_not_found")
    refused(wire.ask("DELETE", free), 404, "bucket_not_found")
    refused(wire.ask("PUT", f"{free}/c", TEXT), 404, "bucket_not_found")


def test_the_put_of_a_bucket_that_holds_a_stream_says_that_it_exists(wire: Wire, free: str) -> None:
    made(wire, f"/v1/stream{free}/a")
    refused(wire.ask("PUT", free), 409, "bucket_exists")


def test_names_that_only_the_flat_surface_allows_stay_there_and_are_listed(wire: Wire, bucket: str) -> None:
    for name in ("a/b", "streams", "a..b"):
        made(wire, f"/v1/stream{bucket}/{name}", TEXT, name.encode())
        assert wire.ask("GET", f"/v1/stream{bucket}/{name}").body == name.encode()
    listing = parsed(wire.ask("GET", f"{bucket}/streams"))
    assert [entry["stream_id"] for entry in listing["streams"]] == ["a..b", "a/b", "streams"]
    refused(wire.ask("GET", f"{bucket}/a%2Fb"), 400, "invalid_name")
    refused(wire.ask("GET", f"{bucket}/a..b"), 400, "invalid_name")
    refused(wire.ask("PUT", f"/v1/stream{bucket}/..", TEXT), 400, "invalid_name")
    refused(wire.ask("PUT", f"/v1/stream{bucket}/a/../b", TEXT), 400, "invalid_name")


def test_a_bucket_whose_name_is_not_valid_on_the_bucket_surfaces_is_unreachable_there(wire: Wire, free: str) -> None:
    for bucket in ("abc", "UPPER", "healthz"):
        made(wire, f"/v1/stream/{bucket}{free}", TEXT, b"abc")
        assert wire.ask("GET", f"/v1/stream/{bucket}{free}").body == b"abc"
        for surface in BUCKETED:
            refused(wire.ask("GET", f"{surface}/{bucket}{free}"), 400, "invalid_name")


@pytest.mark.parametrize("below", ["snapshot", "bootstrap", "attrs", "append-batch", "retention"])
def test_the_flat_surface_has_no_sub_resources(wire: Wire, bucket: str, below: str) -> None:
    made(wire, f"{bucket}/stream")
    path = made(wire, f"/v1/stream{bucket}/stream/{below}", TEXT, b"a stream like any other")
    assert wire.ask("GET", path).body == b"a stream like any other"
    assert wire.ask("DELETE", path).status == 204


# -- Offsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [plain(3), flat(3)])
def test_both_forms_of_an_offset_are_understood_everywhere(
    wire: Wire, text: str, bucket: str, here: str, token: str
) -> None:
    append(wire, text, b"abc", b"def")
    form = FORMS[here]
    for live in ("", "&live=long-poll"):
        read = wire.ask("GET", f"{here}{text}?offset={token}{live}")
        assert (read.body, read.next_offset) == (b"def", form(6))
    point = {"Stream-Forked-From": text, "Stream-Fork-Offset": token}
    created = wire.ask("PUT", f"{here}{bucket}/fork", point)
    assert (created.status, created.next_offset) == (201, form(3))
    assert wire.ask("PUT", f"{here}{bucket}/fork", {**point, "Stream-Fork-Offset": plain(3)}).status == 200
    events = wire.open_sse(f"{here}{text}?offset={token}&live=sse")
    assert events.event().data == "def"
    assert events.event().control["streamNextOffset"] == form(6)


def test_an_offset_plus_one_reads_from_the_same_place(wire: Wire, text: str, here: str) -> None:
    append(wire, text, b"abc", b"def")
    plus_one = f"{flat(3)[:-1]}1"
    read = wire.ask("GET", f"{here}{text}?offset={plus_one}")
    assert (read.body, read.next_offset) == (b"def", FORMS[here](6))
    assert read.headers["etag"] == wire.ask("GET", f"{here}{text}?offset={flat(3)}").headers["etag"]
    assert wire.ask("GET", f"{here}{text}?offset={flat(6)[:-1]}1").body == b""
    refused(wire.ask("GET", f"{here}{text}?offset={flat(7)}"), 400, "offset_beyond_tail")


def test_below_a_bucket_a_plain_decimal_is_an_offset(wire: Wire, text: str, bucket: str) -> None:
    append(wire, text, b"abc", b"def")
    [entry] = parsed(wire.ask("GET", f"{bucket}/streams"))["streams"]
    tail = entry["tail_offset"]
    assert tail == 6
    for surface in BUCKETED:
        path = f"{surface}{text}"
        assert wire.ask("GET", f"{path}?offset=3").body == wire.ask("GET", f"{path}?offset=0003").body == b"def"
        assert wire.ask("GET", f"{path}?offset={tail}").body == b""
        refused(wire.ask("GET", f"{path}?offset={'9' * 21}"), 400, "invalid_offset")
        fork = f"{surface}{bucket}/fork-{len(surface)}"
        made(wire, fork, {"Stream-Forked-From": text, "Stream-Fork-Offset": "3"})
        assert wire.ask("GET", fork).body == b"abc"
    refused(wire.ask("GET", f"/v1/stream{text}?offset=3"), 400, "invalid_offset")
    forked = {"Stream-Forked-From": text, "Stream-Fork-Offset": "3"}
    refused(wire.ask("PUT", f"/v1/stream{bucket}/other", forked), 400, "invalid_offset")
    assert publish(wire, text, "3", b"folded").headers["stream-snapshot-offset"] == plain(3)
    assert wire.ask("GET", f"{text}/snapshot/3").body == b"folded"
    assert wire.ask("PUT", f"{text}/retention/3").status == 204


def test_a_snapshot_or_a_retention_needs_a_position(wire: Wire, text: str) -> None:
    append(wire, text, b"abc")
    for place in ("-1", "now", "x"):
        refused(wire.ask("PUT", f"{text}/snapshot/{place}", TEXT, b"folded"), 400, "invalid_offset")
        refused(wire.ask("PUT", f"{text}/retention/{place}"), 400, "invalid_offset")
    publish(wire, text, "0")
    refused(wire.ask("GET", f"{text}/snapshot/-1"), 404, "snapshot_not_found")


def test_every_offset_in_an_answer_is_printed_as_its_surface_does(wire: Wire, text: str, here: str) -> None:
    append(wire, text, b"abc", b"def")
    publish(wire, text, plain(3))
    path, form = f"{here}{text}", FORMS[here]
    assert wire.ask("HEAD", path).headers["stream-snapshot-offset"] == form(3)
    assert wire.ask("GET", f"{path}?offset={plain(3)}").next_offset == form(6)
    assert wire.ask("GET", path).headers["stream-earliest-offset"] == form(3)
    assert wire.ask("GET", f"{path}?offset={plain(9)}").next_offset == form(6)
    assert wire.ask("GET", f"{path}?offset=now").next_offset == form(6)
    conflict = wire.ask("POST", path, JSON, b"1")
    assert (conflict.status, conflict.next_offset) == (409, form(6))
    if here in BUCKETED:
        acks = parsed(wire.ask("POST", f"{path}/append-batch", TEXT, frames(b"g")))
        assert acks[0]["stream_next_offset"] == form(7)
        assert wire.ask("GET", f"{path}/bootstrap").headers["stream-snapshot-offset"] == form(3)


def test_a_cached_page_is_printed_for_the_surface_that_asks(wire: Wire, text: str) -> None:
    append(wire, text, b"abc")
    for _ in range(2):
        for surface, form in FORMS.items():
            assert wire.ask("GET", f"{surface}{text}").next_offset == form(3)


# -- Forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_names_its_source_by_any_surface(wire: Wire, text: str, bucket: str, here: str, there: str) -> None:
    append(wire, text, b"abc")
    fork = f"{bucket}/fork"
    assert wire.ask("PUT", f"{here}{fork}", {"Stream-Forked-From": f"{there}{text}"}, b"def").status == 201
    for surface in SURFACES:
        assert wire.ask("PUT", f"{surface}{fork}", {"Stream-Forked-From": f"{surface}{text}"}).status == 200
        assert wire.ask("GET", f"{surface}{fork}").body == b"abcdef"


@pytest.mark.parametrize(
    "source", ["", "/", "x", "/ds", "/abcd", "/abcd/streams", "/abcd/s/attrs", "/v1/stream/", "/a/b/c/d"]
)
def test_a_source_that_is_no_stream_is_refused(wire: Wire, bucket: str, here: str, source: str) -> None:
    refused(wire.ask("PUT", f"{here}{bucket}/fork", {"Stream-Forked-From": source}), 400, "invalid_header")
    assert wire.ask("HEAD", f"{bucket}/fork").status == 404


# -- Incarnations ------------------------------------------------------------------------------------------------------

REQUESTS: list[tuple[str, str, dict[str, str], bytes | None]] = [
    ("GET", "", {}, None),
    ("GET", "?offset=now", {}, None),
    ("GET", "?offset=-1&live=long-poll", {}, None),
    ("GET", "?offset=-1&live=sse", {}, None),
    ("GET", "?record=0", {}, None),
    ("HEAD", "", {}, None),
    ("POST", "", JSON, b"2"),
    ("POST", "", {"Stream-Closed": "true"}, None),
    ("PUT", "", JSON, None),
    ("DELETE", "", {}, None),
]
BELOW: list[tuple[str, str, dict[str, str], bytes | None]] = [
    ("POST", "/append-batch", JSON, frames(b"2")),
    ("PUT", "/attrs", JSON, b'{"title":"t"}'),
    ("GET", "/attrs", {}, None),
    ("PUT", f"/snapshot/{plain(1)}", TEXT, b"folded"),
    ("GET", "/snapshot", {}, None),
    ("GET", f"/snapshot/{plain(1)}", {}, None),
    ("DELETE", f"/snapshot/{plain(1)}", {}, None),
    ("PUT", f"/retention/{plain(1)}", {}, None),
    ("GET", "/bootstrap", {}, None),
]
EVERY_REQUEST = [
    *((surface, *request) for surface in SURFACES for request in REQUESTS),
    *((surface, *request) for surface in BUCKETED for request in BELOW),
]


@pytest.mark.parametrize("where", ["header", "query"])
@pytest.mark.parametrize(
    ("surface", "method", "below", "headers", "body"),
    EVERY_REQUEST,
    ids=[f"{surface}-{method}{below}-{len(body or b'')}" for surface, method, below, _, body in EVERY_REQUEST],
)
def test_a_request_for_another_life_is_refused_and_changes_nothing(
    *,
    wire: Wire,
    bucket: str,
    surface: str,
    method: str,
    below: str,
    headers: dict[str, str],
    body: bytes | None,
    where: str,
) -> None:
    path = made(wire, f"{bucket}/stream", JSON, b"1")
    former = wire.ask("HEAD", path).headers["stream-incarnation"]
    wire.ask("DELETE", path)
    made(wire, path, JSON, b"1")
    before, life = standing(wire, path), wire.ask("HEAD", path).headers["stream-incarnation"]
    assert life != former

    def ask(incarnation: str) -> Response:
        if where == "header":
            return wire.ask(method, f"{surface}{path}{below}", {**headers, "Stream-Incarnation": incarnation}, body)
        joint = "&" if "?" in below else "?"
        return wire.ask(method, f"{surface}{path}{below}{joint}incarnation={incarnation}", headers, body)

    for other in (former, "nonsense", "", f"{life}0"):
        response = ask(other)
        assert response.status == 410
        assert response.headers["stream-incarnation"] == life
        assert method == "HEAD" or response.problem["code"] == "incarnation_changed"
    assert standing(wire, path) == before
    if "live=sse" not in below:
        response = ask(life)
        assert response.status != 410
        assert response.headers["stream-incarnation"] == life


@pytest.mark.parametrize(("surface", "method", "below", "headers", "body"), EVERY_REQUEST)
def test_every_answer_about_a_stream_carries_its_incarnation(
    *, wire: Wire, bucket: str, surface: str, method: str, below: str, headers: dict[str, str], body: bytes | None
) -> None:
    path = made(wire, f"{bucket}/stream", JSON, b"1")
    life = wire.ask("HEAD", path).headers["stream-incarnation"]
    if "live=sse" in below:
        assert wire.open_sse(f"{surface}{path}{below}").headers["stream-incarnation"] == life
    else:
        assert wire.ask(method, f"{surface}{path}{below}", headers, body).headers["stream-incarnation"] == life


def test_an_incarnation_is_never_used_again_for_a_url(wire: Wire, bucket: str) -> None:
    lives = set()
    for number in range(10):
        created = wire.ask("PUT", f"{bucket}/stream", TEXT)
        lives.add(created.headers["stream-incarnation"])
        assert len(lives) == number + 1
        wire.ask("DELETE", f"{bucket}/stream")


def test_the_incarnation_in_the_header_and_in_the_query_must_agree(wire: Wire, text: str) -> None:
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    assert wire.ask("GET", f"{text}?incarnation={life}", {"Stream-Incarnation": life}).status == 200
    refused(wire.ask("GET", f"{text}?incarnation={life}", {"Stream-Incarnation": "x"}), 400, "bad_request")


# -- What every resource has -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", BUCKETED)
@pytest.mark.parametrize(
    ("below", "allow"),
    [
        ("", "PUT, GET, HEAD, DELETE, OPTIONS"),
        ("/streams", "GET, HEAD, OPTIONS"),
        ("/s", "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
        ("/s/append-batch", "POST, OPTIONS"),
        ("/s/attrs", "PUT, GET, HEAD, OPTIONS"),
        ("/s/snapshot", "PUT, GET, HEAD, DELETE, OPTIONS"),
        (f"/s/snapshot/{plain(0)}", "PUT, GET, HEAD, DELETE, OPTIONS"),
        (f"/s/retention/{plain(0)}", "PUT, OPTIONS"),
        ("/s/bootstrap", "GET, OPTIONS"),
    ],
)
def test_an_unsupported_method_gets_the_supported_ones(
    wire: Wire, bucket: str, surface: str, below: str, allow: str
) -> None:
    response = wire.ask("PATCH", f"{surface}{bucket}{below}", TEXT, b"x")
    refused(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allow
    preflight = wire.ask("OPTIONS", f"{surface}{bucket}{below}")
    assert preflight.status == 204
    assert {"If-Match", "Stream-Attrs", "Stream-Record-Match", "Prefer"} <= set(
        preflight.headers["access-control-allow-headers"].split(", ")
    )
