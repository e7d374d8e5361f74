"""Grants reach what they say and nothing else."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.access.grants import (
    GRANTABLE,
    GRANTS_MAX,
    NO_RIGHTS,
    SERVER_NAME,
    Action,
    Grant,
    GrantError,
    compile_rights,
    covering,
    narrow,
    parse_grant,
    parse_template,
)

pytestmark = pytest.mark.attack

SEGMENTS = st.text("ab_-", min_size=1, max_size=4)
STREAMS = st.builds("/".join, st.lists(SEGMENTS, min_size=1, max_size=2))
NAMES = st.builds("{}/{}".format, SEGMENTS, STREAMS) | st.just(SERVER_NAME)


@pytest.mark.parametrize(
    "value",
    [
        "a/b",
        "/",
        "*",
        "a*",
        "..",
        ".",
        "a\0",
        "a\n",
        "",
        "x" * 65,
        "é",
        "{sub}",
        "a b",
        17,
        ["a"],
        None,
        True,
        {"a": 1},
    ],
)
def test_a_claim_that_could_widen_a_grant_leaves_it_out(value: object) -> None:
    assert parse_template("read users/{sub}/*").fill({"sub": value}) is None


def test_a_missing_claim_leaves_the_grant_out() -> None:
    assert parse_template("read users/{sub}/*").fill({}) is None


@pytest.mark.parametrize("value", ["user-17", "a.b", "auth0:1", "ann@example.com", "x" * 64, "...", "_"])
def test_a_plain_claim_is_filled_in(value: str) -> None:
    grant = parse_template("read users/{sub}/*").fill({"sub": value})
    assert grant is not None and grant.reach == f"users/{value}/" and grant.is_prefix


def test_several_claims_and_the_same_one_twice_are_filled_in() -> None:
    grant = parse_template("read {org}/{sub}/{org}").fill({"org": "acme", "sub": "ann"})
    assert str(grant) == "read acme/ann/acme"


@pytest.mark.parametrize(
    ("template", "sub"),
    [("read {sub}/*", "__headwater"), ("read _{sub}/*", "_x"), ("read a/.{sub}/*", "."), ("read {sub}/x", "__")],
)
def test_a_grant_that_would_reach_reserved_names_once_filled_is_left_out(template: str, sub: str) -> None:
    assert parse_template(template).fill({"sub": sub}) is None


@pytest.mark.parametrize(
    "text",
    [
        "read users/{sub}*",
        "read {sub}*/*",
        "read users/{sub}-*",
        "read users/{a}{b}/*",
        "read users/{a}-{b}/*",
        "read users/{}/*",
        "read users/{a b}/*",
        "read users/{sub/*",
        "read users/sub}/*",
        "{sub} users/*",
        "read tenant-1*",
    ],
)
def test_a_template_that_could_reach_others_is_refused(text: str) -> None:
    with pytest.raises(GrantError) as refused:
        parse_template(text)
    assert str(refused.value).endswith(".")


VALUES = st.text("ab-._", min_size=1, max_size=4)


@given(VALUES, VALUES, st.sampled_from(["read {sub}/*", "read u/{sub}/*", "read u/x-{sub}", "read u/{sub}-x/*"]))
def test_two_subjects_never_share_a_grant(one: str, other: str, text: str) -> None:
    first, second = (parse_template(text).fill({"sub": sub}) for sub in (one, other))
    if one != other and first is not None and second is not None:
        assert not first.reach.startswith(second.reach) or not second.is_prefix
        assert first.reach != second.reach


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    """A grant of any of the five forms."""
    words = draw(st.lists(st.sampled_from(["read", "append", "admin"]), min_size=1, unique=True))
    forms = [
        st.just("*"),
        st.builds("{}/*".format, SEGMENTS),
        st.builds("{}*/*".format, SEGMENTS),
        st.builds("{}/{}*".format, SEGMENTS, STREAMS),
        st.builds("{}/{}".format, SEGMENTS, STREAMS),
    ]
    pattern = draw(st.one_of(forms).filter(_is_valid))
    return parse_grant(f"{','.join(words)} {pattern}")


def _is_valid(pattern: str) -> bool:
    try:
        parse_grant(f"read {pattern}")
    except GrantError:
        return False
    return True


def says(pattern: str, name: str) -> bool:
    """The meaning of a pattern, spelled out form by form and not by prefixes."""
    if pattern == "*":
        return True
    bucket, _, stream = name.partition("/")
    wanted_bucket, _, wanted_stream = pattern.partition("/")
    if not stream or name.startswith("__"):
        return False
    if wanted_bucket.endswith("*"):
        return bucket.startswith(wanted_bucket[:-1])
    if wanted_stream.endswith("*"):
        return bucket == wanted_bucket and stream.startswith(wanted_stream[:-1])
    return (bucket, stream) == (wanted_bucket, wanted_stream)


@given(grants(), NAMES)
def test_a_grant_reaches_exactly_what_its_pattern_says(grant: Grant, name: str) -> None:
    pattern = str(grant).partition(" ")[2]
    rights = compile_rights([grant])
    for action in GRANTABLE:
        expected = action in grant.actions and says(pattern, name)
        assert grant.covers(action, name) == rights.allows(action, name) == expected


@given(grants())
def test_a_grant_that_is_printed_is_the_same_grant(grant: Grant) -> None:
    assert parse_grant(str(grant)) == grant


@given(st.lists(grants(), max_size=5), st.lists(grants(), max_size=5), NAMES)
def test_what_is_narrowed_allows_a_name_if_both_lists_do(some: list[Grant], others: list[Grant], name: str) -> None:
    narrowed = narrow(some, others)
    for action in GRANTABLE:
        both = covering(some, action, name) is not None and covering(others, action, name) is not None
        assert compile_rights(narrowed).allows(action, name) == both
        assert (covering(narrowed, action, name) is not None) == both


@given(st.lists(grants(), max_size=5), st.lists(grants(), max_size=5))
def test_narrowing_gives_no_more_patterns_than_there_were(some: list[Grant], others: list[Grant]) -> None:
    patterns = {(grant.reach, grant.is_prefix) for grant in narrow(some, others)}
    assert patterns <= {(grant.reach, grant.is_prefix) for grant in (*some, *others)}


@given(st.lists(grants(), max_size=5), st.lists(grants(), max_size=5))
def test_narrowing_gives_one_grant_for_each_pattern(some: list[Grant], others: list[Grant]) -> None:
    narrowed = narrow(some, others)
    assert len({(grant.reach, grant.is_prefix) for grant in narrowed}) == len(narrowed)


def test_narrowing_long_lists_does_not_compare_each_grant_with_each() -> None:
    some = [parse_grant(f"read many/{number:03}*") for number in range(GRANTS_MAX)]
    others = [
        parse_grant(f"read,append {bucket}/*") for bucket in ("many", *(f"b{n:03}" for n in range(1, GRANTS_MAX)))
    ]
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        narrowed = narrow(some, others)
    finally:
        sys.setprofile(None)
    assert len(narrowed) == GRANTS_MAX
    assert calls < GRANTS_MAX * GRANTS_MAX / 4


@given(st.lists(grants(), max_size=5), st.text("ab_-/", max_size=6), st.text("ab_-/", max_size=6))
def test_a_prefix_is_covered_only_if_every_name_below_it_is(held: list[Grant], prefix: str, rest: str) -> None:
    rights = compile_rights(held)
    if rights.allows_all_below(Action.READ, prefix):
        assert rights.allows(Action.READ, prefix + rest)


@given(st.lists(grants(), max_size=8), NAMES)
def test_compiling_changes_no_judgement(held: list[Grant], name: str) -> None:
    for action in GRANTABLE:
        assert compile_rights(held).allows(action, name) == any(grant.covers(action, name) for grant in held)


def test_a_tenant_does_not_reach_another_whose_name_begins_alike() -> None:
    tenant = compile_rights([parse_grant("* tenant-1/*")])
    assert tenant.allows(Action.READ, "tenant-1/x") and tenant.allows(Action.READ, "tenant-1/")
    assert not tenant.allows(Action.READ, "tenant-10/x")
    acme = compile_rights([parse_grant("* acme-*/*")])
    assert acme.allows(Action.READ, "acme-1/x") and acme.allows_all_below(Action.READ, "acme-")
    assert not acme.allows(Action.READ, "acme/x") and not acme.allows(Action.READ, "_default/acme-1")
    assert not acme.allows_all_below(Action.READ, "acme")


def test_a_listing_needs_a_prefix_and_is_never_covered_by_a_name() -> None:
    rights = compile_rights([parse_grant("read chat/room-42"), parse_grant("read chat/hall-*")])
    assert rights.allows(Action.READ, "chat/room-42")
    for prefix in ("chat/room-42", "chat/", "chat/hall", ""):
        assert not rights.allows_all_below(Action.READ, prefix)
    assert rights.allows_all_below(Action.READ, "chat/hall-") and rights.allows_all_below(Action.READ, "chat/hall-1")


def test_only_the_pattern_for_everything_reaches_the_server() -> None:
    assert compile_rights([parse_grant("observe *")]).allows(Action.OBSERVE, SERVER_NAME)
    for text in ("* _default/*", "* a*/*", "* _a*/*"):
        assert not compile_rights([parse_grant(text)]).allows(Action.OBSERVE, SERVER_NAME)
    for pattern in ("__headwater", "__headwater/*", "__*/*", "_*/*", "__headwater/x", "__x/y*", "*/*"):
        with pytest.raises(GrantError):
            parse_grant(f"* {pattern}")


def test_an_action_that_needs_no_grant_is_allowed_to_everybody() -> None:
    assert NO_RIGHTS.allows(Action.NONE, SERVER_NAME) and NO_RIGHTS.allows(Action.NONE, "a/b")
    assert not any(NO_RIGHTS.allows(action, "a/b") for action in GRANTABLE)
    assert [action.word for action in Action] == [
        "read", "append", "create", "delete", "snapshot", "pipeline", "observe", "admin", "none",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("read tenant-1*", "say tenant-1/* for the bucket, or tenant-1*/* for all that begin so"),
        ("read notes", "say notes/* for the bucket, or _default/notes for the stream that was created without one"),
        ("read a*b", "write BUCKET/*"),
        ("read a*b/*", "in the middle"),
        ("read a*/b", "in the middle"),
        ("read a/b*c", "in the middle"),
        ("read a/**", "in the middle"),
        ("read */*", "write * for everything"),
        ("read */x", "in the middle"),
        ("read /x", "reaches no stream"),
        ("read a/", "reaches no stream"),
        ("read a/../b", "reaches no stream"),
        ("read a/b\0", "reaches no stream"),
        ("read a/" + "x" * 121, "reaches no stream"),
        ("read a/" + "x" * 121 + "*", "reaches no stream"),
        ("read a/\ud800", "Unicode"),
        ("read", "one space"),
        ("read ", "one space"),
        ("", "one space"),
        ("read  a/*", "one space"),
        ("read a/* ", "one space"),
        (" read a/*", "unknown action"),
        ("write a/*", "write * or some of read, append"),
        ("none a/*", "unknown action"),
        ("READ a/*", "unknown action"),
        ("read,*", "one space"),
        ("read,* a/*", "unknown action '*'"),
        ("read, a/*", "unknown action ''"),
        ("read users/{sub}/*", "placeholders are for the rules of an issuer only"),
    ],
)
def test_what_is_not_a_grant_is_refused_in_one_sentence(text: str, advice: str) -> None:
    with pytest.raises(GrantError) as refused:
        parse_grant(text)
    assert advice in str(refused.value)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


@given(st.text(max_size=40))
def test_any_text_is_a_grant_or_refused(text: str) -> None:
    for begin in ("", "read ", "read a/"):
        try:
            parse_grant(begin + text)
            parse_template(begin + text)
        except GrantError as error:
            assert str(error).isprintable()
