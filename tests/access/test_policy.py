"""A good access file is compiled; a bad one is refused with one sentence that says what to write instead."""

import json
import os
import re
from pathlib import Path

import pytest

from headwater.access.grants import Action
from headwater.access.limits import Limits, Quota
from headwater.access.policy import PolicyError, load

from .files import may, write, write_key
from .signing import base64url, jwks, signer

pytestmark = pytest.mark.attack

HEX = "ab" * 32
TOKEN = f'[[token]]\nid = "a"\nsha256 = "{HEX}"\ngrants = ["read a/*"]\n'
ISSUER = (
    '[[issuer]]\nurl = "https://i/"\naudience = "hw"\nalgorithms = ["ES256"]\njwks = "https://i/jwks"\nrules = []\n'
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "access.md"


def test_the_file_of_the_documentation_is_compiled(tmp_path: Path) -> None:
    key = write_key(tmp_path, "app-2026.key")
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "auth.toml").write_text(shown)
    policy = load(tmp_path / "auth.toml")
    assert tuple(policy.files) == (tmp_path / "auth.toml", key)
    assert policy.limits["stranger"] == Limits(50, 1024**2, 8 * 1024**2, 5, 20)
    assert policy.buckets == {"tenant-a": Quota(100_000, 50 * 1024**3), "*": Quota(1_000_000, None)}
    assert may(policy.anonymous, Action.READ, "public/x") and policy.anonymous.limits == "stranger"
    assert list(policy.keys) == ["app-2026"] and list(policy.issuers) == ["https://login.example/"]


def test_a_file_with_nothing_in_it_allows_nothing(tmp_path: Path) -> None:
    policy = load(write(tmp_path, ""))
    assert not any(policy.anonymous.exact) and policy.anonymous.prefixes[: Action.NONE] == ((),) * Action.NONE


def test_every_file_that_matters_is_known(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    write_key(tmp_path / "keys", "app.key")
    (tmp_path / "jwks.json").write_bytes(jwks({"k1": signer("ES256")}))
    text = '[[key]]\nid = "app"\nfile = "keys/app.key"\ngrants = []\n' + ISSUER.replace(
        'jwks = "https://i/jwks"', f'keys = "{tmp_path}/jwks.json"'
    )
    assert {path.name for path in load(write(tmp_path, text)).files} == {"auth.toml", "app.key", "jwks.json"}


BAD = {
    "not toml": ("x = = 1", "is not TOML"),
    "unknown table": ("[tokens]\nx = 1", "unknown field 'tokens'; write one of version, anonymous, token"),
    "unknown field": (TOKEN + 'grant = "x"', "[[token]] 'a' has an unknown field 'grant'; write one of id, sha256"),
    "unknown field of a rule": (
        ISSUER.replace("rules = []", 'rules = [{ grant = ["read a/*"] }]'),
        "[[issuer]] 'https://i/' has an unknown field 'grant' in rules[0]",
    ),
    "missing field": (TOKEN.replace('id = "a"', ""), "[[token]] number 1 has no 'id'; add it"),
    "wrong type": (
        TOKEN.replace('["read a/*"]', '"read a/*"'),
        "[[token]] 'a' has a wrong value for grants; write list",
    ),
    "single table": ("[token]\nid = 1", "write [[token]]"),
    "wrong grant": (
        TOKEN.replace("read a/*", "read tenant-1*"),
        "[[token]] 'a' has a wrong grant: 'read tenant-1*' has no bucket; say",
    ),
    "anonymous grant": ('[anonymous]\ngrants = ["x"]', "[anonymous] has a wrong grant"),
    "placeholder in a token": (
        TOKEN.replace("read a/*", "read a/{sub}/*"),
        "placeholders are for the rules of an issuer",
    ),
    "two tokens of one id": (
        TOKEN + TOKEN.replace("ab", "cd"),
        "[[token]] has two entries with id = 'a'; remove or rename",
    ),
    "one token twice": (TOKEN + TOKEN.replace('"a"', '"b"'), f"two entries with sha256 = '{HEX}'"),
    "token id": (TOKEN.replace('"a"', '"A"'), "[[token]] 'A' has an id that is not valid"),
    "digest": (TOKEN.replace(HEX, "zz"), "is not 64 hex digits"),
    "upper-case digest": (TOKEN.replace(HEX, HEX.upper()), "is not 64 hex digits"),
    "naive date": (TOKEN + "expires = 2027-06-01T00:00:00", "has expires without a time zone; write it like 2027-"),
    "plain date": (TOKEN + "expires = 2027-06-01", "wrong value for expires; write datetime"),
    "unknown limits": (TOKEN + 'limits = "x"', "has limits = 'x', which is not defined; add [limits.x]"),
    "257 grants": (
        TOKEN.replace('["read a/*"]', json.dumps(["read a/*"] * 257)),
        "has 257 grants, and 256 are allowed",
    ),
    "10,001 tokens": (
        "".join(f"[[token]]\nid = 'a{n}'\n" for n in range(10_001)),
        "10,001 entries [[token]], and 10,000",
    ),
    "missing key file": ('[[key]]\nid = "k"\nfile = "no.key"\ngrants = []', "[[key]] 'k' names"),
    "folder as key file": ('[[key]]\nid = "k"\nfile = "."\ngrants = []', "which cannot be read (Is a directory)"),
    "key id": ('[[key]]\nid = "a b"\nfile = "app.key"\ngrants = []', "has an id that is not valid"),
    "seconds_max": ('[[key]]\nid = "k"\nfile = "app.key"\ngrants = []\nseconds_max = 0', "seconds_max below 1"),
    "neither jwks nor keys": (ISSUER.replace('jwks = "https://i/jwks"', ""), "needs either jwks"),
    "both jwks and keys": (ISSUER + 'keys = "x"', "needs either jwks"),
    "http jwks": (ISSUER.replace("https://i/jwks", "http://i/jwks"), "is not https, so an attacker on the network"),
    "file jwks": (ISSUER.replace("https://i/jwks", "file:///etc/passwd"), "write an https URL as jwks"),
    "jwks with a password": (ISSUER.replace("https://i/jwks", "https://a:b@i/jwks"), "is not an https URL"),
    "jwks with a newline": (ISSUER.replace("https://i/jwks", "https://i/\\njwks"), "is not an https URL"),
    "HS256 for an issuer": (ISSUER.replace("ES256", "HS256"), "write some of EdDSA, ES256, RS256"),
    "none for an issuer": (ISSUER.replace("ES256", "none"), "write some of EdDSA, ES256, RS256"),
    "no algorithm": (ISSUER.replace('"ES256"', ""), "write some of EdDSA, ES256, RS256"),
    "no audience": (ISSUER.replace('"hw"', "[]"), "has no audience"),
    "empty audience": (ISSUER.replace('"hw"', '""'), "has an empty audience"),
    "two issuers of one url": (ISSUER + ISSUER, "two entries with url = 'https://i/'"),
    "template": (ISSUER.replace("[]", '[{ grants = ["read {sub}*/*"] }]'), "put a / between the placeholder and the *"),
    "rule": (ISSUER.replace("[]", '[{ grants = ["read x"] }]'), "has a rule whose grant is wrong"),
    "empty claim": (ISSUER + 'claim = ""', "has an empty claim"),
    "certificate wildcard": ('[[certificate]]\nname = "*.x"\ngrants = []', "without a *"),
    "two certificates": ('[[certificate]]\nname = "x"\ngrants = []\n' * 2, "two entries with name = 'x'"),
    "rate": ("[limits.x]\nrequests_per_second = 0", "[limits.x] has requests_per_second = 0"),
    "infinite rate": ("[limits.x]\nrequests_per_second = inf", "write a number above 0"),
    "size": ('[limits.x]\nread_bytes_per_second = "1 mile"', "write bytes as in 1048576 or '1 MiB'"),
    "count": ("[limits.x]\nlive_reads = -1", "write 0 or more"),
    "unknown limit": ("[limits.x]\nreads = 1", "[limits.'x'] has an unknown field 'reads'"),
    "bucket": ('[bucket."a/b"]\nstreams = 1', "is not a bucket"),
    "bucket value": ('[bucket.ab]\nstreams = "many"', "[bucket.'ab'] has a wrong value for streams; write int"),
    "limits as a number": ("limits = 5", "write [limits.NAME]"),
    "revoked subject": ("[revoked]\nsubjects = [{ sub = 'x' }]", "[revoked] has no 'before' in subjects[0]; add it"),
    "revoked issuer": (
        "[revoked]\nsubjects = [{ sub = 'x', before = 2027-01-01T00:00:00Z, issuer = 'y' }]",
        "names the issuer 'y', which is not in the file",
    ),
    "revoked issuer and key": (
        "[revoked]\nsubjects = [{ sub = 'x', before = 2027-01-01T00:00:00Z, issuer = 'y', key = 'z' }]",
        "write one of them",
    ),
}


def refusal(path: Path) -> str:
    """The one sentence that says why a file is refused."""
    with pytest.raises(PolicyError) as refused:
        load(path)
    text = str(refused.value)
    assert text.endswith(".") and "\n" not in text
    assert not re.search(r"[.!?]\s+[A-Z]", text), f"more than one sentence: {text}"
    assert path.name in text
    return text


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_one_sentence(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    assert expected in refusal(write(tmp_path, text))


def test_a_file_must_exist_and_say_its_version(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    assert "cannot be read (No such file or directory)" in refusal(path)
    for text in ("", "version = 2", "version = true", 'version = "1"'):
        path.write_text(text)
        assert "write version = 1 as its first line" in refusal(path)
    path.write_bytes(b"version = 1\n# \xff")
    assert "is not UTF-8" in refusal(path)
    path.write_bytes(b"version = 1\n#" + b"x" * 4 * 1024 * 1024)
    assert "larger than 4,194,304 bytes" in refusal(path)
    path.write_text("version = 1\nx = " + "[" * 100_000)
    assert "is not TOML" in refusal(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o777])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    write_key(tmp_path, mode=mode)
    text = refusal(write(tmp_path, '[[key]]\nid = "k"\nfile = "app.key"\ngrants = []'))
    assert f"(mode {mode:04o}); run `chmod 600 " in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (base64url(bytes(31)), "has 31 bytes, and 32 random ones are needed"),
        ("", "has 0 bytes"),
        ("not base64!" * 10, "is not base64url"),
        ("A" * 44 + "\n\n", "is not base64url"),
        ("A" * 5000, "larger than 4,096 bytes"),
        ("secret-marker", "base64url"),
    ],
)
def test_a_key_file_without_a_good_key_is_refused_without_showing_it(
    tmp_path: Path, content: str, expected: str
) -> None:
    path = write_key(tmp_path)
    path.write_text(content)
    text = refusal(write(tmp_path, '[[key]]\nid = "k"\nfile = "app.key"\ngrants = []'))
    assert expected in text and "marker" not in text


@pytest.mark.parametrize("end", ["", "\n", "=", "=\n", "\r\n"])
def test_padding_and_a_final_newline_are_tolerated(tmp_path: Path, end: str) -> None:
    write_key(tmp_path).write_text(base64url(bytes(32)) + end)
    policy = load(write(tmp_path, '[[key]]\nid = "k"\nfile = "app.key"\ngrants = []'))
    assert policy.keys["k"].key.secret == bytes(32)


def test_a_named_pipe_does_not_stop_the_server(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "app.key", 0o600)
    assert "which is not a file" in refusal(write(tmp_path, '[[key]]\nid = "k"\nfile = "app.key"\ngrants = []'))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"nonsense", "it is not JSON"),
        (b"[" * 5000, "it is not JSON"),
        (b"{}", "it has no list of keys"),
        (b'{"keys": {}}', "it has no list of keys"),
        (b'{"keys": []}', "has no usable key"),
        (b"x" * 300_000, "larger than 262,144 bytes"),
    ],
)
def test_a_file_without_keys_is_refused(tmp_path: Path, document: bytes, expected: str) -> None:
    (tmp_path / "jwks.json").write_bytes(document)
    text = ISSUER.replace('jwks = "https://i/jwks"', 'keys = "jwks.json"')
    assert expected in refusal(write(tmp_path, text))
