import pytest

from headwater.protocol import names
from headwater.protocol.limits import NAME_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"notes", "_default/notes"),
        (b"team/notes", "team/notes"),
        (b"team/notes/1", "team/notes/1"),
        (b"team%2Fnotes", "team/notes"),
        (b"a%20b", "_default/a b"),
        (b"%E2%82%AC", "_default/€"),
        (b"a..b/c..", "a..b/c.."),
        (b"100%", "_default/100%"),
    ],
)
def test_the_first_slash_ends_the_bucket(path: bytes, name: str) -> None:
    assert names.parse_flat(path) == name


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (b"", "empty"),
        (b"/notes", "empty"),
        (b"team/", "empty"),
        (b"a%00b", "NUL"),
        (b"..", "'..' segment"),
        (b"../notes", "'..' segment"),
        (b"team/../notes", "'..' segment"),
        (b"team/%2e%2E", "'..' segment"),
        (b"%ff", "not UTF-8"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_path_that_names_no_stream_is_refused(path: bytes, reason: str) -> None:
    refusal = names.parse_flat(path)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_NAME
    assert reason in refusal.detail


@pytest.mark.parametrize("letter", ["a", "é", "€", "😀"])
def test_a_name_is_measured_in_bytes_with_its_bucket(letter: str) -> None:
    letters, rest = divmod(NAME_BYTES_MAX - len("team/"), len(letter.encode()))
    longest = f"team/{letter * letters}{'a' * rest}"
    assert names.parse_flat(longest.encode()) == longest
    refusal = names.parse_flat(longest.encode() + b"a")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_NAME
    assert f"{NAME_BYTES_MAX + 1} bytes" in refusal.detail


@pytest.mark.parametrize(
    ("path", "reserved"),
    [(b"__ds", True), (b"__ds/subscriptions/x", True), (b"%5f%5Fds/x", True), (b"__dsx", False), (b"a/__ds", False)],
)
def test_the_subscription_apis_keep_their_first_segment(path: bytes, reserved: bool) -> None:
    assert names.is_reserved(path) is reserved


@pytest.mark.parametrize("name", ["_default/notes", "team/notes/1", "team/a%20b", "a..b/c..", "100%/€"])
def test_a_whole_name_is_taken_as_it_is(name: str) -> None:
    assert names.parse_whole(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "no bucket"),
        ("notes", "no bucket"),
        ("/notes", "empty"),
        ("team/", "empty"),
        ("team/a\0b", "NUL"),
        ("../notes", "'..' segment"),
        ("team/../notes", "'..' segment"),
        ("__ds/jwks.json", "reserved"),
        ("team/" + "€" * NAME_BYTES_MAX, "bytes long"),
    ],
)
def test_a_whole_name_that_no_url_could_have_made_is_refused(name: str, reason: str) -> None:
    refusal = names.parse_whole(name)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_NAME
    assert reason in refusal.detail
