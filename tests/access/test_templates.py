"""Placeholders bring what a token claims into a grant, and nothing that widens it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.access.grants import GrantError
from headwater.access.templates import parse_template

pytestmark = pytest.mark.attack


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
