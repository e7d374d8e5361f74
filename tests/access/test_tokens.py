"""Tokens of the access file."""

import hashlib
from pathlib import Path

import pytest

from headwater.access import tokens
from headwater.access.grants import Action
from headwater.access.identities import Moment
from headwater.access.policy import Policy, load

from .files import NOW, denied, identity, may, write

pytestmark = pytest.mark.attack


def policy_with(folder: Path, token: str, more: str = "") -> Policy:
    digest = hashlib.sha256(token.encode()).hexdigest()
    return load(write(folder, f'[[token]]\nid = "ingest"\nsha256 = "{digest}"\ngrants = ["append agents/*"]\n{more}'))


def test_a_token_names_its_id_and_can_be_told_from_other_text() -> None:
    made = [tokens.make("a-1") for _ in range(100)]
    assert len(set(made)) == 100
    for token in made:
        assert tokens.id_of(token) == "a-1" and len(token) == len("hw_a-1_") + 43 + 6
        assert tokens.id_of(token[:-1] + ("0" if token[-1] != "0" else "1")) is None
    assert [tokens.id_of(text) for text in ("", "hw_", "hw_a_", "hw_A_" + "x" * 49, made[0] + "\n", " " + made[0])] == [
        None
    ] * 6


@pytest.mark.parametrize("token_id", ["", "A", "a_b", "a" * 33, "a\n", "é"])
def test_an_id_that_is_not_valid_is_refused(token_id: str) -> None:
    with pytest.raises(ValueError, match="not the id of a token"):
        tokens.make(token_id)


def test_a_token_of_the_file_is_an_identity(tmp_path: Path) -> None:
    token = tokens.make("ingest")
    found = identity(policy_with(tmp_path, token).identify_bearer(token.encode(), NOW))
    assert (found.name, found.kind, found.principal, found.expires_at) == (
        "ingest",
        "token",
        "token ingest",
        float("inf"),
    )
    assert may(found, Action.APPEND, "agents/x") and not may(found, Action.READ, "agents/x")


def test_a_token_that_differs_in_anything_is_unknown(tmp_path: Path) -> None:
    token = tokens.make("ingest")
    policy = policy_with(tmp_path, token)
    others = [
        token[:place] + ("A" if letter != "A" else "B") + token[place + 1 :] for place, letter in enumerate(token)
    ]
    others += [
        token[:-1],
        token[1:],
        token + "=",
        token.upper(),
        token.swapcase(),
        f" {token}",
        f"{token} ",
        f"{token}\n",
    ]
    others += [tokens.make("ingest"), tokens.make("other"), "", "hw_", token.replace("ingest", "ingesu")]
    for other in others:
        assert denied(policy.identify_bearer(other.encode(), NOW)) == "invalid", other


def test_a_token_ends_at_the_very_second_whatever_the_clock_does_later(tmp_path: Path) -> None:
    token = tokens.make("ingest")
    policy = policy_with(tmp_path, token, "expires = 2027-01-15T08:00:00Z")
    ends = 1_800_000_000.0
    assert identity(policy.identify_token(token.encode(), Moment(ends - 10, 100.0))).expires_at == 110.0
    assert denied(policy.identify_token(token.encode(), Moment(ends, 100.0))) == "expired"


def test_a_million_bad_tokens_leave_nothing_behind(tmp_path: Path) -> None:
    policy = policy_with(tmp_path, tokens.make("ingest"))
    before = len(policy.tokens)
    for number in range(10_000):
        assert denied(policy.identify_token(b"hw_ingest_%d" % number, NOW)) == "invalid"
    assert len(policy.tokens) == before
