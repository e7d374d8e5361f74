"""Tickets, provider tokens and certificates become identities with the rights that the file gives them."""

from pathlib import Path

import pytest

from headwater.access import tickets
from headwater.access.grants import GRANTABLE, SERVER_NAME, Action
from headwater.access.identities import Identity, Moment
from headwater.access.policy import load

from .files import ISSUER, NOW, denied, identity, may, provided, ticketed, with_issuer, with_key, write, write_key
from .signing import ALGORITHMS, jwks, make, signer

pytestmark = pytest.mark.attack

TICKET_KEY = signer("HS256")


def test_a_ticket_gives_what_it_says_narrowed_to_what_its_key_has(tmp_path: Path) -> None:
    policy = with_key(tmp_path)
    grants = ["read,append,delete chat/room-42", "read other/*", "observe *", "* *"]
    found = identity(policy.identify_jwt(make(TICKET_KEY, ticketed(headwater=grants)), NOW))
    for action in GRANTABLE:
        assert may(found, action, "chat/room-42") == (action in (Action.READ, Action.APPEND))
        assert not may(found, action, "other/x") and not may(found, action, SERVER_NAME)
    narrow = identity(policy.identify_jwt(make(TICKET_KEY, ticketed()), NOW))
    assert may(narrow, Action.READ, "chat/room-42") and not may(narrow, Action.READ, "chat/room-421")
    assert not may(narrow, Action.APPEND, "chat/room-42")
    assert (narrow.kind, narrow.entry, narrow.principal) == ("ticket", "k1", "ticket k1 user-17")


def test_a_ticket_without_a_subject_is_named_after_its_key(tmp_path: Path) -> None:
    found = identity(with_key(tmp_path).identify_jwt(make(TICKET_KEY, ticketed(sub=None)), NOW))
    assert (found.name, found.subject, found.principal) == ("k1", None, "ticket k1")


def test_a_ticket_for_longer_than_its_key_allows_is_refused(tmp_path: Path) -> None:
    policy = with_key(tmp_path, more="seconds_max = 600")
    identity(policy.identify_jwt(make(TICKET_KEY, ticketed(exp=NOW.wall_seconds + 600)), NOW))
    assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed(exp=NOW.wall_seconds + 601)), NOW)) == "invalid"
    day = with_key(tmp_path)
    assert denied(day.identify_jwt(make(TICKET_KEY, ticketed(exp=NOW.wall_seconds + 86_401)), NOW)) == "invalid"


@pytest.mark.parametrize(
    "grants",
    [
        None,
        "read chat/*",
        {"read": "chat/*"},
        [1],
        ["read chat"],
        ["read chat/{sub}"],
        ["read tenant-1*"],
        [["read a/*"]],
    ],
)
def test_a_ticket_with_a_malformed_grant_is_refused(tmp_path: Path, grants: object) -> None:
    policy = with_key(tmp_path, '["* *"]')
    assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed(headwater=grants)), NOW)) == "invalid"


def test_a_ticket_for_an_audience_needs_a_key_with_that_audience(tmp_path: Path) -> None:
    assert denied(with_key(tmp_path).identify_jwt(make(TICKET_KEY, ticketed(aud="x")), NOW)) == "invalid"
    policy = with_key(tmp_path, more='audience = ["x", "y"]')
    identity(policy.identify_jwt(make(TICKET_KEY, ticketed(aud="y")), NOW))
    others: list[object] = [None, "z", []]
    for wrong in others:
        assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed(aud=wrong)), NOW)) == "invalid"


def test_tickets_that_we_sign_are_accepted(tmp_path: Path) -> None:
    policy = with_key(tmp_path)
    now = NOW.wall_seconds
    ticket = tickets.sign(
        TICKET_KEY.pem, ["read chat/x"], key_id="k1", seconds=60, sub="ann", ticket_id="t", now_seconds=now
    )
    found = identity(policy.identify_bearer(ticket.encode(), NOW))
    assert (found.name, found.ticket_id, found.issued_at, found.expires_at) == (
        "ann",
        "t",
        now,
        NOW.monotonic_seconds + 60,
    )


def test_signing_refuses_what_no_server_would_accept() -> None:
    for grants, seconds, key in ([], 60, bytes(32)), (["read x"], 60, bytes(32)), (["* *"], 0, bytes(32)):
        with pytest.raises(ValueError, match=r"\.$"):
            tickets.sign(key, grants, key_id="k", seconds=seconds)
    with pytest.raises(ValueError, match="31 bytes"):
        tickets.sign(bytes(31), ["* *"], key_id="k", seconds=60)
    with pytest.raises(ValueError, match="4,096"):
        tickets.sign(bytes(32), ["read a/" + "x" * 100] * 40, key_id="k", seconds=60)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_provider_token_gives_what_the_rules_say(tmp_path: Path, algorithm: str) -> None:
    rules = """[
        { grants = ["read,append users/{sub}/*"] },
        { when = { scope = "streams:read" }, grants = ["read *"] },
        { when = { roles = "operator", mfa = true }, grants = ["observe *"] },
        { when = { level = 1 }, grants = ["delete a/*"] },
    ]"""
    key = signer(algorithm)
    policy = with_issuer(tmp_path, {"k1": key}, rules, more='limits = "user"\n[limits.user]\nlive_reads = 2\n')
    plain = identity(policy.identify_jwt(make(key, provided()), NOW))
    assert may(plain, Action.APPEND, "users/user-17/x") and not may(plain, Action.APPEND, "users/user-170/x")
    assert not may(plain, Action.READ, "other/x") and not may(plain, Action.OBSERVE, SERVER_NAME)
    assert (plain.kind, plain.principal, plain.limits) == ("provider", f"provider {ISSUER} user-17", "user")
    scoped = identity(policy.identify_jwt(make(key, provided(scope="openid streams:read")), NOW))
    assert may(scoped, Action.READ, "other/x") and not may(scoped, Action.APPEND, "other/x")
    for scope in ("openid streams:reader", "xstreams:read", ["x"], 1):
        assert not may(policy.identify_jwt(make(key, provided(scope=scope)), NOW), Action.READ, "other/x")
    operator = provided(roles=["x", "operator"], mfa=True)
    assert may(policy.identify_jwt(make(key, operator), NOW), Action.OBSERVE, SERVER_NAME)
    for half in (provided(roles="operator"), provided(roles="operator", mfa=1), provided(roles="operator x", mfa=True)):
        assert not may(policy.identify_jwt(make(key, half), NOW), Action.OBSERVE, SERVER_NAME)
    assert may(policy.identify_jwt(make(key, provided(level=1)), NOW), Action.DELETE, "a/x")
    for level in (True, "1", 1.5):
        assert not may(policy.identify_jwt(make(key, provided(level=level)), NOW), Action.DELETE, "a/x")


@pytest.mark.parametrize("sub", ["a/b", "*", "..", ".", "a\0", "x" * 65, "__headwater", "é", "a b"])
def test_a_subject_that_cannot_be_filled_in_leaves_the_grant_out(tmp_path: Path, sub: str) -> None:
    rules = '[{ grants = ["read {sub}/*", "read public/*"] }]'
    policy = with_issuer(tmp_path, {"k1": signer("ES256")}, rules)
    found = identity(policy.identify_jwt(make(signer("ES256"), provided(sub=sub)), NOW))
    assert found.left_out == ("read {sub}/*",)
    assert found.prefixes[Action.READ] == ("public/",) and not any(found.exact)


@pytest.mark.parametrize("team", [17, ["a"], None, True])
def test_a_claim_that_is_not_text_leaves_the_grant_out(tmp_path: Path, team: object) -> None:
    policy = with_issuer(tmp_path, {"k1": signer("ES256")}, '[{ grants = ["read {team}/*"] }]')
    found = identity(policy.identify_jwt(make(signer("ES256"), provided(team=team)), NOW))
    assert found.left_out == ("read {team}/*",) and not any(found.prefixes[:-1])


def test_a_claim_with_grants_only_narrows_the_rules(tmp_path: Path) -> None:
    key = signer("EdDSA")
    policy = with_issuer(tmp_path, {"k1": key}, '[{ grants = ["read,append a/*"] }]', more='claim = "streams"\n')
    assert may(policy.identify_jwt(make(key, provided()), NOW), Action.APPEND, "a/x")
    narrowed = policy.identify_jwt(make(key, provided(streams=["read a/x", "read,delete b/*"])), NOW)
    assert may(narrowed, Action.READ, "a/x")
    assert not any(may(narrowed, action, name) for action in GRANTABLE for name in ("a/y", "b/x"))
    assert not may(policy.identify_jwt(make(key, provided(streams=[])), NOW), Action.READ, "a/x")
    malformed: list[object] = ["read a/x", ["nonsense"], {}, 1]
    for wrong in malformed:
        assert denied(policy.identify_jwt(make(key, provided(streams=wrong)), NOW)) == "invalid"


def test_what_everybody_may_do_belongs_to_every_identity(tmp_path: Path) -> None:
    policy = with_key(tmp_path, more='[anonymous]\ngrants = ["read public/*"]\n')
    assert may(policy.anonymous, Action.READ, "public/x") and not may(policy.anonymous, Action.READ, "chat/x")
    assert may(policy.identify_jwt(make(TICKET_KEY, ticketed()), NOW), Action.READ, "public/x")


def test_a_key_id_is_only_searched_where_it_belongs(tmp_path: Path) -> None:
    """A ticket's key and two issuers, all with the same key id."""
    first, second = signer("ES256"), signer("ES256", 1)
    write_key(tmp_path, secret=TICKET_KEY.pem)
    text = '[[key]]\nid = "k1"\nfile = "app.key"\ngrants = ["* *"]\n'
    for number, key in enumerate((first, second), 1):
        (tmp_path / f"{number}.json").write_bytes(jwks({"k1": key}))
        text += (
            f'[[issuer]]\nurl = "https://{number}/"\naudience = "headwater"\nkeys = "{number}.json"\n'
            f'algorithms = ["ES256"]\nrules = [{{ grants = ["read i{number}/*"] }}]\n'
        )
    policy = load(write(tmp_path, text))
    for number, key, other in (1, first, second), (2, second, first):
        own = provided(iss=f"https://{number}/", headwater=["* *"])
        assert may(policy.identify_jwt(make(key, own), NOW), Action.READ, f"i{number}/x")
        assert denied(policy.identify_jwt(make(other, own), NOW)) == "invalid"
        assert denied(policy.identify_jwt(make(TICKET_KEY, own, alg="ES256"), NOW)) == "invalid"
        assert denied(policy.identify_jwt(make(key, own, alg="HS256"), NOW)) == "invalid"
    identity(policy.identify_jwt(make(TICKET_KEY, ticketed(iss="https://1/")), NOW))


def test_a_certificate_is_known_by_its_uri_and_else_by_its_dns_name(tmp_path: Path) -> None:
    entries = {
        "spiffe://prod/spark": "read a/*",
        "spiffe://prod/other": "read b/*",
        "spark.example": "read c/*",
        "x.example": "read d/*",
    }
    tables = (f'[[certificate]]\nname = "{name}"\ngrants = ["{grant}"]\n' for name, grant in entries.items())
    policy = load(write(tmp_path, '[anonymous]\ngrants = ["read public/*"]\n' + "".join(tables)))
    spark, other = ("URI", "spiffe://prod/spark"), ("URI", "spiffe://prod/other")
    found = identity(policy.identify_certificate([("DNS", "spark.example"), spark]))
    assert (found.kind, found.name) == ("certificate", "spiffe://prod/spark") and may(found, Action.READ, "a/x")
    by_dns = identity(policy.identify_certificate([("URI", "spiffe://prod/unknown"), ("DNS", "spark.example")]))
    assert by_dns.name == "spark.example" and may(by_dns, Action.READ, "public/x")
    for two in ([spark, other], [("DNS", "spark.example"), ("DNS", "x.example")]):
        both = identity(policy.identify_certificate(two))
        assert not any(may(both, action, name) for action in GRANTABLE for name in ("a/x", "b/x", "public/x"))
    for none in ([], [("DNS", "spiffe://prod/spark")], [("URI", "spiffe://prod/spark/")], [("email", "spark.example")]):
        assert denied(policy.identify_certificate(none)) == "missing"


def test_a_ticket_is_revoked_by_its_id_and_by_its_subject(tmp_path: Path) -> None:
    revoked = '[revoked]\nids = ["t-1"]\nsubjects = [{ sub = "user-17", before = 2027-01-15T07:59:00Z }]\n'
    policy = with_key(tmp_path, more=revoked)
    before = NOW.wall_seconds - 60
    assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed(sub="x", jti="t-1")), NOW)) == "revoked"
    identity(policy.identify_jwt(make(TICKET_KEY, ticketed(sub="x", jti="t-2")), NOW))
    assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed(iat=before - 1)), NOW)) == "revoked"
    assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed()), NOW)) == "revoked"
    identity(policy.identify_jwt(make(TICKET_KEY, ticketed(iat=before)), NOW))
    identity(policy.identify_jwt(make(TICKET_KEY, ticketed(sub=None)), NOW))
    # Whoever cannot sign learns nothing about what is revoked.
    assert denied(policy.identify_jwt(make(signer("HS256", 1), ticketed(jti="t-1")), NOW)) == "invalid"


def test_a_revocation_may_be_for_one_issuer_or_key_only(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_bytes(jwks({"k1": signer("ES256")}))
    write_key(tmp_path, secret=TICKET_KEY.pem)
    for named, gone in (f'issuer = "{ISSUER}"', "provider"), ('key = "k1"', "ticket"):
        policy = load(
            write(
                tmp_path,
                '[[key]]\nid = "k1"\nfile = "app.key"\ngrants = ["read chat/*"]\n'
                f'[[issuer]]\nurl = "{ISSUER}"\naudience = "headwater"\nkeys = "jwks.json"\nalgorithms = ["ES256"]\n'
                'rules = [{ grants = ["read a/*"] }]\n'
                f'[revoked]\nsubjects = [{{ sub = "user-17", before = 2030-01-01T00:00:00Z, {named} }}]\n',
            )
        )
        found = {
            "ticket": policy.identify_jwt(make(TICKET_KEY, ticketed()), NOW),
            "provider": policy.identify_jwt(make(signer("ES256"), provided()), NOW),
        }
        assert denied(found.pop(gone)) == "revoked"
        assert all(isinstance(one, Identity) for one in found.values())


def test_a_clock_that_is_stepped_moves_no_end(tmp_path: Path) -> None:
    policy = with_key(tmp_path)
    found = identity(policy.identify_jwt(make(TICKET_KEY, ticketed(exp=NOW.wall_seconds + 60)), NOW))
    assert found.expires_at == NOW.monotonic_seconds + 60
    later = Moment(NOW.wall_seconds + 3600, NOW.monotonic_seconds + 1)
    assert denied(policy.identify_jwt(make(TICKET_KEY, ticketed(exp=NOW.wall_seconds + 60)), later)) == "expired"
    assert found.expires_at == NOW.monotonic_seconds + 60
