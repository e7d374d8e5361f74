"""Our verdict on a token is that of PyJWT, an independent implementation, except where ours is stricter on purpose."""

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import jwt
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headwater.access.identities import Identity, Moment
from headwater.access.policy import Policy

from .files import ISSUER, NOW, provided, with_issuer
from .signing import ALGORITHMS, base64url, encode, make, signer

pytestmark = pytest.mark.attack

OTHER_VALUES = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)
WALL = int(NOW.wall_seconds)


@cache
def policy(algorithm: str) -> Policy:
    return with_issuer(Path(mkdtemp()), {"k1": signer(algorithm)})


def ours(algorithm: str, token: bytes) -> bool:
    return isinstance(policy(algorithm).identify_jwt(token, NOW), Identity)


def theirs(algorithm: str, token: bytes) -> bool:
    """PyJWT, told to require what we require. It has no clock to pass in, so we judge the times it leaves to us."""
    options: Any = {
        "require": ["exp", "iss", "aud", "sub"],
        "verify_exp": False,
        "verify_nbf": False,
        "verify_iat": False,
    }
    try:
        claims = jwt.decode(
            token, signer(algorithm).pem, algorithms=[algorithm], audience="headwater", issuer=ISSUER, options=options
        )
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return False
    return header.get("kid") == "k1" and _is_now(claims)


def _is_now(claims: dict[str, Any]) -> bool:
    try:
        ends, begins, issued = int(claims["exp"]), int(claims.get("nbf", 0)), int(claims.get("iat", 0))
    except (TypeError, ValueError, OverflowError):
        return False
    return ends > WALL and begins <= WALL + 30 and issued <= WALL + 30


@st.composite
def mutated(draw: st.DrawFn, algorithm: str) -> bytes:
    """A token, after mutations of its claims, its header and its bytes."""
    key = signer(algorithm, draw(st.sampled_from([0, 0, 0, 1])))
    claims = provided(nbf=draw(st.integers(WALL - 60, WALL + 60)), exp=draw(st.integers(WALL - 3, WALL + 60)))
    for name in draw(st.lists(st.sampled_from([*claims, "iat", "jti", "scope"]), max_size=2)):
        claims[name] = draw(OTHER_VALUES | st.just("headwater") | st.just(ISSUER) | st.integers(WALL - 60, WALL + 60))
    for name in draw(st.lists(st.sampled_from(["iss", "aud", "sub", "exp", "nbf"]), max_size=1)):
        claims.pop(name, None)
    header = draw(
        st.dictionaries(st.sampled_from(["kid", "alg", "typ", "crit", "b64", "jwk", "x"]), OTHER_VALUES, max_size=1)
    )
    token = bytearray(make(key, claims, **header))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = draw(st.integers(0, len(token) - 1))
        match draw(st.sampled_from(["flip", "cut", "insert", "swap"])):
            case "flip":
                token[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del token[place : place + draw(st.integers(1, 5))]
            case "insert":
                token[place:place] = draw(st.sampled_from([b".", b"=", b"\n", b"A", b"\0", b"ey"]))
            case _:
                token[place] = draw(st.sampled_from(b"ABCxyz019-_+/=. "))
        if not token:
            break
    return bytes(token)


@settings(max_examples=3_000, deadline=None)
@given(st.sampled_from(ALGORITHMS), st.data())
def test_no_token_is_accepted_that_pyjwt_refuses(algorithm: str, data: st.DataObject) -> None:
    token = data.draw(mutated(algorithm))
    verdict = ours(algorithm, token)
    event(f"accepted: {verdict}")
    assert not verdict or theirs(algorithm, token)


TIMES = st.integers(WALL - 60, WALL + 60)
WELL_FORMED = st.fixed_dictionaries(
    {"exp": st.integers(WALL - 5, WALL + 60)},
    optional={
        "nbf": TIMES,
        "iat": TIMES,
        "aud": st.sampled_from(["headwater", ["headwater"], ["a", "headwater"], "other", ["other"], None]),
        "iss": st.sampled_from([ISSUER, ISSUER, ISSUER, "https://other.example/", None]),
    },
)


@settings(max_examples=1_000, deadline=None)
@given(st.sampled_from(ALGORITHMS), st.sampled_from([0, 0, 0, 1]), WELL_FORMED)
def test_a_well_formed_token_gets_the_same_verdict_as_from_pyjwt(
    algorithm: str, which: int, claims: dict[str, object]
) -> None:
    token = make(signer(algorithm, which), provided(**claims))
    verdict = ours(algorithm, token)
    event(f"accepted: {verdict}")
    assert verdict == theirs(algorithm, token)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_neither_accepts_a_second_spelling_of_a_signature(algorithm: str) -> None:
    """The last character of a signature has bits that mean nothing."""
    token = make(signer(algorithm), provided())
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = token[:-1] + letters[letters.index(chr(token[-1])) ^ 1].encode()
    assert theirs(algorithm, token) and ours(algorithm, token)
    assert not theirs(algorithm, other) and not ours(algorithm, other)


@pytest.mark.parametrize("exp", [str(WALL + 60), True])
def test_ours_is_stricter_about_the_type_of_a_time(exp: object) -> None:
    assert not ours("ES256", make(signer("ES256"), provided(exp=exp)))


def test_pyjwt_accepts_our_tickets() -> None:
    from headwater.access import tickets  # noqa: PLC0415

    secret = bytes(range(32))
    ticket = tickets.sign(secret, ["read chat/x"], key_id="app", seconds=600, sub="ann", ticket_id="1", audience="hw")
    claims = jwt.decode(ticket, secret, algorithms=["HS256"], audience="hw")
    assert (claims["headwater"], claims["sub"], claims["exp"] - claims["iat"]) == (["read chat/x"], "ann", 600)
    assert jwt.get_unverified_header(ticket) == {"alg": "HS256", "kid": "app", "typ": "JWT"}


def test_duplicate_members_mean_the_same_to_both() -> None:
    """A forger cannot sign, but a careless issuer may repeat a member; both take the last one (RFC 7519)."""
    key = signer("ES256")
    body = json.dumps(provided()).encode()[:-1] + b',"sub":"last"}'
    signed = encode({"alg": "ES256", "kid": "k1"}, body)
    token = signed + b"." + base64url(key.sign(signed)).encode()
    found = policy("ES256").identify_jwt(token, Moment(NOW.wall_seconds, 0.0))
    assert isinstance(found, Identity) and found.subject == "last"
