"""The endpoint table is the only one: the reference, reserved names and limits follow from it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater.http
from headwater.access.grants import Action
from headwater.http.api import snapshots
from headwater.http.table.endpoints import ENDPOINTS, ROUTER
from headwater.http.table.router import Found
from headwater.protocol.limits import APPEND_BYTES_MAX, BATCH_BYTES_MAX, BULK_BYTES_MAX, MIB, SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

PACKAGE = Path(headwater.http.__file__).parent
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "http.md"


def described() -> Iterator[tuple[str, str, str, str]]:
    """Every URL, method, summary and success of the table; without HEAD where it is the same as GET."""
    for endpoint in ENDPOINTS:
        for method, route in endpoint.routes.items():
            if method != b"HEAD" or route is not endpoint.routes[b"GET"]:
                yield endpoint.path, method.decode(), route.summary, ", ".join(map(str, route.gives)) or "never"


def test_the_reference_has_the_table_of_urls() -> None:
    listed = re.findall(r"^\| `(/\S*)` \| `([A-Z]+)` \| (.+) \| (.+) \|$", REFERENCE.read_text(), re.MULTILINE)
    assert listed == list(described())


def test_the_reference_says_which_action_each_url_needs() -> None:
    requests: dict[str, list[str]] = {f"`{action.word}`": [] for action in Action if action is not Action.NONE}
    requests["none"] = []
    for endpoint in ENDPOINTS:
        methods: dict[str, list[str]] = {}
        for method, route in endpoint.routes.items():
            if method != b"HEAD":
                word = "none" if route.action is Action.NONE else f"`{route.action.word}`"
                methods.setdefault(word, []).append(method.decode())
        for word, words in methods.items():
            requests[word].append(f"`{' '.join(words)} {endpoint.path}`")
    listed = dict(re.findall(r"^\| (`[a-z]+`|none) \| (`[A-Z]+ .+`) \|$", REFERENCE.read_text(), re.MULTILINE))
    assert listed == {word: ", ".join(found) for word, found in requests.items()}


AUDITED = """
PUT /{bucket} 201 bucket_made
DELETE /{bucket} 204 bucket_dropped
PUT /{bucket}/{stream} 201 created
DELETE /{bucket}/{stream} 204 deleted
PUT /{bucket}/{stream}/snapshot 204 snapshot
PUT /{bucket}/{stream}/snapshot/{offset} 204 snapshot
PUT /{bucket}/{stream}/retention 204 retained
PUT /{bucket}/{stream}/retention/{offset} 204 retained
PUT /__headwater/consumers/{consumer} 204 consumer_registered
DELETE /__headwater/consumers/{consumer} 204 consumer_dropped
POST /__headwater/swap 200 swapped
POST /__headwater/purge 202 purged
"""


def test_these_requests_are_audited() -> None:
    """Appends and reads must not be: the short path answers them, and it does not audit."""
    audited = [
        f"{method.decode()} {endpoint.path} {status} {event}"
        for endpoint in ENDPOINTS
        for method, route in endpoint.routes.items()
        for status, event in route.events.items()
    ]
    assert sorted(audited) == sorted(AUDITED.strip().splitlines())


def test_the_reference_names_the_reserved_buckets() -> None:
    [names] = re.findall(r"the buckets (.+) and `(\w+)`, and the stream `streams`", REFERENCE.read_text())
    assert [*re.findall(r"`(\w+)`", names[0]), names[1]] == sorted(ROUTER.reserved_buckets)


def test_where_there_is_get_there_is_head_except_bootstrap_and_tail() -> None:
    without = [one.path for one in ENDPOINTS if b"GET" in one.routes and b"HEAD" not in one.routes]
    assert without == ["/{bucket}/{stream}/bootstrap", "/__headwater/tail"]


@pytest.mark.parametrize("name", sorted(ROUTER.reserved_buckets))
def test_a_reserved_bucket_cannot_be_created_and_has_no_streams(name: str) -> None:
    for method, path in (("PUT", f"/{name}"), ("DELETE", f"/{name}"), ("GET", f"/{name}/s"), ("GET", f"/ds/{name}")):
        refusal = ROUTER.find(method.encode(), path.encode())
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.INVALID_NAME


@pytest.mark.parametrize(
    ("method", "path", "limit"),
    [
        ("POST", "/v1/stream/s", APPEND_BYTES_MAX),
        ("PUT", "/team/s", APPEND_BYTES_MAX),
        ("POST", "/team/s/append-batch", BATCH_BYTES_MAX),
        ("POST", "/team/s/append%2Dbatch", BATCH_BYTES_MAX),
        ("PUT", "/ds/team/s/snapshot/0", SNAPSHOT_BYTES_MAX),
        ("PUT", "/team/s/snapshot", SNAPSHOT_BYTES_MAX),
        ("POST", "/__headwater/append", BULK_BYTES_MAX),
        ("POST", "/__headwater/scan", 32 * MIB),
    ],
)
def test_a_body_has_the_limit_of_its_route(method: str, path: str, limit: int) -> None:
    found = ROUTER.find(method.encode(), path.encode())
    assert isinstance(found, Found)
    assert found.route.body_bytes_max == limit
    assert (found.route.intake is snapshots.intake) == ("/snapshot" in path)


@pytest.mark.parametrize(
    "path", ["/ds/__headwater/status", "/%5F%5Fheadwater/status", "/__other/s", "/__headwater/consumers%2F{}"]
)
def test_the_servers_own_paths_have_one_spelling(path: str) -> None:
    refusal = ROUTER.find(b"GET", path.encode())
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_NAME


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/team/s/snapshot%2F{}",
        "/team/s/retention%2F%7B%7D",
        "/team/s/snapshot%2F0",
    ],
)
def test_an_encoded_slash_is_part_of_a_segment(method: bytes, path: str) -> None:
    refusal = ROUTER.find(method, path.encode())
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.NOT_FOUND


@pytest.mark.parametrize("path", ["/__headwater/status/", "/__headwater/status/a%20b", "/__headwater/nosuch/a%20b"])
def test_below_an_endpoint_without_parameters_there_is_nothing(path: str) -> None:
    refusal = ROUTER.find(b"GET", path.encode())
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.NOT_FOUND


def test_no_header_of_the_protocol_is_spelled_out_in_the_front() -> None:
    spelled = re.compile(r"""["'{} ]b?["']?(?:Stream|Producer|stream|producer)-[A-Za-z]""")
    lines = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if spelled.search(line)
    ]
    assert not lines, "\n".join(lines)
