"""Tokens that somebody forged, bent or kept too long, on every algorithm."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.access.identities import Denied
from headwater.access.jws import TOKEN_BYTES_MAX, HmacKey, decode_base64url, encode_base64url, sign_hs256
from headwater.access.policy import Policy

from .files import ISSUER, NOW, denied, identity, provided, ticketed, with_issuer, with_key
from .signing import ALGORITHMS, Signer, base64url, encode, make, signer

pytestmark = pytest.mark.attack

EVERY = [*ALGORITHMS, "HS256"]


@pytest.fixture(scope="module", params=EVERY)
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def key(algorithm: str) -> Signer:
    return signer(algorithm)


@pytest.fixture(scope="module")
def policy(algorithm: str, key: Signer, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("policy")
    more = 'audience = "headwater"\n'
    return with_key(folder, more=more) if algorithm == "HS256" else with_issuer(folder, {"k1": key})


@pytest.fixture(scope="module")
def claims(algorithm: str) -> Callable[..., dict[str, object]]:
    if algorithm != "HS256":
        return provided
    return lambda **more: ticketed(**{"aud": "headwater", **more})


Claims = Callable[..., dict[str, object]]


def signed_with(secret: bytes, header: dict[str, object], claims: object) -> bytes:
    signed = encode(header, claims)
    return signed + b"." + encode_base64url(sign_hs256(secret, signed))


def test_the_token_that_the_forgeries_are_made_from_is_good(policy: Policy, key: Signer, claims: Claims) -> None:
    found = identity(policy.identify_jwt(make(key, claims()), NOW))
    assert (found.name, found.expires_at) == ("user-17", NOW.monotonic_seconds + 600)


@pytest.mark.parametrize("none", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_a_signature_is_refused(policy: Policy, key: Signer, claims: Claims, none: str) -> None:
    signed = encode({"alg": none, "kid": "k1"}, claims())
    good = make(key, claims(), alg=none)
    for token in (signed + b".", signed, signed + b".AA", good):
        assert denied(policy.identify_jwt(token, NOW)) == "invalid"


def test_a_public_key_is_never_a_secret(policy: Policy, key: Signer, claims: Claims) -> None:
    secrets = [
        key.pem,
        key.pem.strip(),
        json.dumps(dict(key.jwk)).encode(),
        b"",
        *(v.encode() for v in key.jwk.values()),
    ]
    if key.algorithm == "HS256":
        secrets = [b"", base64url(key.pem).encode()]
    for secret in secrets:
        for name in ("HS256", "HS384", key.algorithm):
            token = signed_with(secret, {"alg": name, "kid": "k1"}, claims())
            assert denied(policy.identify_jwt(token, NOW)) == "invalid"


@pytest.mark.parametrize("kid", ["k2", "", "K1", "k1 ", "../../../dev/null", "k1\0", None, 1, ["k1"]])
def test_an_unknown_key_id_is_refused(policy: Policy, key: Signer, claims: Claims, kid: object) -> None:
    assert denied(policy.identify_jwt(make(key, claims(), kid=kid), NOW)) == "invalid"


@pytest.mark.parametrize("crit", [["exp"], [], ["b64"], None, "exp"])
def test_a_critical_extension_is_refused(policy: Policy, key: Signer, claims: Claims, crit: object) -> None:
    assert denied(policy.identify_jwt(make(key, claims(), crit=crit), NOW)) == "invalid"
    assert denied(policy.identify_jwt(make(key, claims(), b64=False), NOW)) == "invalid"


def test_a_token_cannot_bring_its_own_key(policy: Policy, key: Signer, claims: Claims) -> None:
    other = signer(key.algorithm, 1)
    brought: dict[str, object] = {
        "jwk": {**other.jwk, "kid": "k1"},
        "jku": "http://127.0.0.1:1/",
        "x5c": ["AA"],
        "x5u": "x",
    }
    assert denied(policy.identify_jwt(make(other, claims(), **brought), NOW)) == "invalid"
    identity(policy.identify_jwt(make(key, claims(), **brought), NOW))


def test_another_key_of_the_same_kind_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    found = policy.identify_jwt(make(signer(key.algorithm, 1), claims()), NOW)
    assert isinstance(found, Denied) and found.verified


def test_an_algorithm_that_is_not_the_keys_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    for name in ("HS256", "HS512", "RS256", "RS384", "PS256", "ES256", "ES384", "ES256K", "EdDSA", "Ed25519", "none"):
        if name != key.algorithm:
            assert denied(policy.identify_jwt(make(key, claims(), alg=name), NOW)) == "invalid"


def test_the_end_is_exact_and_the_begin_has_leeway(policy: Policy, key: Signer, claims: Claims) -> None:
    wall = NOW.wall_seconds
    for ends in (wall, wall - 1, wall - 31, 0):
        assert denied(policy.identify_jwt(make(key, claims(exp=ends)), NOW)) == "expired"
    identity(policy.identify_jwt(make(key, claims(exp=wall + 1)), NOW))
    for name in ("nbf", "iat"):
        identity(policy.identify_jwt(make(key, claims(**{name: wall + 30})), NOW))
        assert denied(policy.identify_jwt(make(key, claims(**{name: wall + 31})), NOW)) == "invalid"


BAD_TIMES = ["1900000000", True, [1_900_000_000], {}, -1, 2**80, b"1e400", b"NaN", b"Infinity", b"1e30"]


@pytest.mark.parametrize("when", BAD_TIMES)
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_a_time_that_is_not_a_number_is_refused(
    policy: Policy, key: Signer, claims: Claims, name: str, when: object
) -> None:
    raw = json.dumps(claims(**{name: "MARK"})).encode()
    value = when if isinstance(when, bytes) else json.dumps(when).encode()
    assert denied(policy.identify_jwt(make(key, raw.replace(b'"MARK"', value)), NOW)) == "invalid"


def test_a_token_without_an_end_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    assert denied(policy.identify_jwt(make(key, claims(exp=None)), NOW)) == "invalid"
    null = json.dumps({**claims(), "exp": None}).encode()
    assert denied(policy.identify_jwt(make(key, null), NOW)) == "invalid"


@pytest.mark.parametrize(
    "aud", ["headwater2", "Headwater", "", [], ["a", "b"], [["headwater"]], 1, {"headwater": 1}, None]
)
def test_another_audience_is_refused(policy: Policy, key: Signer, claims: Claims, aud: object) -> None:
    assert denied(policy.identify_jwt(make(key, claims(aud=aud)), NOW)) == "invalid"


def test_one_of_several_audiences_is_enough(policy: Policy, key: Signer, claims: Claims) -> None:
    identity(policy.identify_jwt(make(key, claims(aud=["a", "headwater"])), NOW))


@pytest.mark.parametrize("iss", [ISSUER + "x", ISSUER[:-1], ISSUER.upper(), "", None, 1, [ISSUER], ISSUER + "\0"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_another_issuer_is_refused(tmp_path: Path, name: str, iss: object) -> None:
    policy = with_issuer(tmp_path, {"k1": signer(name)})
    assert denied(policy.identify_jwt(make(signer(name), provided(iss=iss)), NOW)) == "invalid"


@pytest.mark.parametrize("name", ["sub", "jti"])
@pytest.mark.parametrize("value", [17, ["a"], {}, True, ""])
def test_a_subject_or_id_that_is_not_text_is_refused(
    policy: Policy, key: Signer, claims: Claims, name: str, value: object
) -> None:
    assert denied(policy.identify_jwt(make(key, claims(**{name: value})), NOW)) == "invalid"


def test_a_flipped_bit_anywhere_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    head, body, signature = make(key, claims()).split(b".")
    for part in (0, 2):
        raw = decode_base64url((head, body, signature)[part])
        for place in range(len(raw)):
            flipped = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
            parts = [head, body, signature]
            parts[part] = encode_base64url(flipped)
            assert isinstance(policy.identify_jwt(b".".join(parts), NOW), Denied)
    changed = encode_base64url(json.dumps(claims(sub="admin")).encode())
    assert denied(policy.identify_jwt(b".".join([head, changed, signature]), NOW)) == "invalid"


def test_a_signature_has_one_spelling(policy: Policy, key: Signer, claims: Claims) -> None:
    token = make(key, claims())
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    accepted = [one for one in letters if not isinstance(policy.identify_jwt(token[:-1] + bytes([one]), NOW), Denied)]
    assert accepted == [token[-1]]


def test_a_signature_of_another_length_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    signed, _, signature = make(key, claims()).rpartition(b".")
    raw = decode_base64url(signature)
    for bent in (raw[:-1], raw + b"\0", b"\0" + raw, raw + raw, bytes(len(raw)), b"\xff" * len(raw), b"\0"):
        assert denied(policy.identify_jwt(signed + b"." + encode_base64url(bent), NOW)) == "invalid"


def test_what_is_not_three_parts_of_base64url_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    good = make(key, claims())
    head, body, signature = good.split(b".")
    bent = [
        good + b".AA",
        b"AA." + good,
        good + b"=",
        good + b"\n",
        b"\n" + good,
        b" " + good,
        good + b" ",
        good + b"\0",
    ]
    bent += [b"", b".", b"..", b"...", head, head + b".." + signature, b"." + body + b"." + signature, good + b"."]
    bent += [head + b"=." + body + b"." + signature, good.replace(b".", b"\n."), good.replace(b".", b":")]
    bent += [good.decode().encode("utf-16"), good.replace(b"e", b"\xc3\xa9"), b"ey", good[:-2] + b"+/"]
    for token in bent:
        assert denied(policy.identify_jwt(token, NOW)) == "invalid", token


@pytest.mark.parametrize("payload", [b"[]", b"1", b'"x"', b"null", b"{", b"", b"{}x", b"\xff", b'{"a":"\\ud800"}'])
def test_claims_that_are_not_an_object_are_refused(policy: Policy, key: Signer, payload: bytes) -> None:
    assert denied(policy.identify_jwt(make(key, payload or b" "), NOW)) == "invalid"


def test_deep_nesting_is_refused_or_harmless(policy: Policy, key: Signer, claims: Claims) -> None:
    for depth in (100, 1_000, 1_200):
        deep = json.dumps(claims()).encode()[:-1] + b',"x":' + b"[" * depth + b"]" * depth + b"}"
        policy.identify_jwt(make(key, deep), NOW)
    unclosed = make(key, b'{"x":' + b"[" * 2_000)
    assert denied(policy.identify_jwt(unclosed, NOW)) == "invalid"
    header = b'{"alg":"%s","kid":"k1","x":%s}' % (key.algorithm.encode(), b"[" * 2_000 + b"]")
    assert denied(policy.identify_jwt(encode(header, claims()) + b".AAAA", NOW)) == "invalid"


def test_a_large_token_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    large = make(key, claims(x="y" * 5_000))
    assert len(large) > TOKEN_BYTES_MAX and denied(policy.identify_jwt(large, NOW)) == "invalid"


def test_a_type_that_is_not_a_jwt_is_refused(policy: Policy, key: Signer, claims: Claims) -> None:
    for kind in ("JWT", "jwt", "at+jwt", "application/at+jwt"):
        identity(policy.identify_jwt(make(key, claims(), typ=kind), NOW))
    for other in ("dpop+jwt", "logout+jwt", "JWE", "", 1, ["JWT"]):
        assert denied(policy.identify_jwt(make(key, claims(), typ=other), NOW)) == "invalid"


def test_a_key_does_not_show_its_secret() -> None:
    assert "marker" not in repr(HmacKey(b"marker" * 8))
