"""Keys of an issuer, fetched from a real server: rotation, redirects, large documents, and a server that is down."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headwater.access.identities import Denied, Identity, Moment
from headwater.access.jwks import FetchedKeys, JwksError, KeysUnavailable, check_url, fetch_document, parse_jwks
from headwater.access.jws import PUBLIC_KEY_ALGORITHMS
from headwater.access.policy import Policy, load

from .files import ISSUER, NOW, denied, identity, provided, write
from .signing import ALGORITHMS, Signer, jwks, make, number, signer

pytestmark = pytest.mark.attack

WAIT_SECONDS = 30.0
KEY, NEXT = signer("ES256"), signer("ES256", 1)
Answer = Callable[[BaseHTTPRequestHandler], None]


class Provider:
    """An identity provider on loopback, which answers as it is told and counts what it is asked."""

    def __init__(self) -> None:
        self.requests = 0
        self.answer: Answer = answering(jwks({"k1": KEY}))
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests += 1
                try:
                    provider.answer(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/jwks.json"

    def secure(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")

    @contextmanager
    def running(self) -> Iterator["Provider"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(WAIT_SECONDS)


def answering(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider().running() as provider:
        yield provider


def policy_for(folder: Path, url: str, previous: Policy | None = None) -> Policy:
    text = (
        f'[[issuer]]\nurl = "{ISSUER}"\naudience = "headwater"\njwks = "{url}"\nalgorithms = ["ES256"]\n'
        'rules = [{ grants = ["read users/{sub}/*"] }]\n'
    )
    return load(write(folder, text), previous)


def after(seconds: float) -> Moment:
    return Moment(NOW.wall_seconds + seconds, NOW.monotonic_seconds + seconds)


def settle(policy: Policy, moment: Moment) -> None:
    """Let the policy fetch what is due, and wait for it."""
    policy.refresh(moment)
    keys_of(policy).wait(WAIT_SECONDS)


def keys_of(policy: Policy) -> FetchedKeys:
    keys = policy.issuers[ISSUER].keys
    assert isinstance(keys, FetchedKeys)
    return keys


def token(key: Signer = KEY, kid: str = "k1") -> bytes:
    return make(key, provided(exp=NOW.wall_seconds + 10**6), kid=kid)


def test_keys_are_fetched_in_the_background(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    assert denied(policy.identify_jwt(token(), NOW)) == "unavailable"
    settle(policy, NOW)
    assert identity(policy.identify_jwt(token(), NOW)).name == "user-17"
    assert keys_of(policy).problem is None and provider.requests == 1


def test_keys_are_fetched_again_every_ten_minutes(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    for seconds, requests in (0, 1), (1, 1), (599, 1), (600, 2), (1199, 2), (1200, 3):
        settle(policy, after(seconds))
        assert provider.requests == requests


def test_a_new_key_is_found_by_the_first_token_that_names_it(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    provider.answer = answering(jwks({"k1": KEY, "k2": NEXT}))
    assert denied(policy.identify_jwt(token(NEXT, "k2"), after(40))) == "unavailable"
    keys_of(policy).wait(WAIT_SECONDS)
    identity(policy.identify_jwt(token(NEXT, "k2"), after(40)))
    identity(policy.identify_jwt(token(), after(40)))


def test_a_key_that_the_issuer_withdraws_is_void(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    provider.answer = answering(jwks({"k2": NEXT}))
    settle(policy, after(600))
    assert denied(policy.identify_jwt(token(), after(600))) == "invalid"


def test_unknown_key_ids_fetch_once_in_thirty_seconds(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    for second in range(90):
        for attempt in range(20):
            found = policy.identify_jwt(token(kid=f"{second}-{attempt}"), after(second))
            assert denied(found) in ("invalid", "unavailable")
            keys_of(policy).wait(WAIT_SECONDS)
    assert provider.requests == 3
    identity(policy.identify_jwt(token(), after(90)))


def test_many_threads_with_an_unknown_key_fetch_once(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    threads = [threading.Thread(target=policy.identify_jwt, args=(token(kid="k9"), after(40))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    keys_of(policy).wait(WAIT_SECONDS)
    assert provider.requests == 2


def test_an_expired_token_fetches_nothing(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    old = make(KEY, provided(exp=NOW.wall_seconds - 1), kid="gone")
    assert denied(policy.identify_jwt(old, after(40))) == "expired"
    keys_of(policy).wait(WAIT_SECONDS)
    assert provider.requests == 1


def test_a_provider_that_is_down_at_the_start_is_tried_again(tmp_path: Path) -> None:
    gone = Provider()
    gone._server.server_close()
    policy = policy_for(tmp_path, gone.url)
    settle(policy, NOW)
    assert keys_of(policy).problem and denied(policy.identify_jwt(token(), NOW)) == "unavailable"
    with Provider().running() as provider:
        keys_of(policy).url = provider.url
        settle(policy, after(29))
        assert provider.requests == 0
        settle(policy, after(30))
        identity(policy.identify_jwt(token(), after(30)))


def test_a_provider_that_is_down_later_costs_nothing_for_a_day(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    provider.answer = answering(b"", 503)
    day = 24 * 3600
    for seconds in (600, 3600, day - 1):
        settle(policy, after(seconds))
        assert keys_of(policy).problem == "the answer is 503, not 200"
        identity(policy.identify_jwt(token(), after(seconds)))
    assert denied(policy.identify_jwt(token(), after(day))) == "unavailable"
    provider.answer = answering(jwks({"k1": KEY}))
    settle(policy, after(day + 30))
    identity(policy.identify_jwt(token(), after(day + 30)))


def test_a_reload_keeps_the_keys_of_the_same_url_only(provider: Provider, tmp_path: Path) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    identity(policy_for(tmp_path, provider.url, policy).identify_jwt(token(), NOW))
    moved = policy_for(tmp_path, provider.url + "?2", policy)
    assert denied(moved.identify_jwt(token(), NOW)) == "unavailable"


BAD_ANSWERS = {
    "redirect": (answering(b"", 302, {"Location": "/elsewhere"}), "the answer is 302"),
    "missing": (answering(jwks({"k1": KEY}), 404), "the answer is 404"),
    "large": (answering(b'{"keys":[' + b" " * 10_000_000 + b"]}"), "larger than 262,144 bytes"),
    "page": (answering(b"<html>Log in</html>"), "it is not JSON"),
    "no keys": (answering(b"{}"), "it has no list of keys"),
    "compressed": (answering(b"\x1f\x8b\x08", 200, {"Content-Encoding": "gzip"}), "it is not JSON"),
    "nonsense": (lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n\r\n") and None, ""),
    "cut": (answering(jwks({"k1": KEY})[:-20], 200), "it is not JSON"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_bad_answer_keeps_the_old_keys(provider: Provider, tmp_path: Path, case: str) -> None:
    policy = policy_for(tmp_path, provider.url)
    settle(policy, NOW)
    provider.answer, expected = BAD_ANSWERS[case]
    settle(policy, after(600))
    problem = keys_of(policy).problem
    assert problem and expected in problem and provider.requests == 2
    identity(policy.identify_jwt(token(), after(600)))


def test_an_answer_that_drips_is_cut_as_a_whole(provider: Provider) -> None:
    stopped = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(600):
            if stopped.wait(0.1):
                return
            handler.wfile.write(b" ")

    provider.answer = drip
    began = time.monotonic()
    try:
        with pytest.raises((JwksError, OSError, ValueError)):
            parse_jwks(fetch_document(provider.url, seconds_max=0.5), ["ES256"])
        assert time.monotonic() - began < WAIT_SECONDS
    finally:
        stopped.set()


@pytest.mark.parametrize(
    "url", ["https://login.example/jwks", "http://127.0.0.1:1/", "http://localhost/", "http://[::1]/x"]
)
def test_a_url_of_https_or_of_this_machine_is_accepted(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example/jwks",
        "http://localhost.evil.com/",
        "http://127.0.0.1.nip.io/",
        "http://127.0.0.1@evil.com/",
        "https://user@login.example/",
        "https://login.example/#x",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "//127.0.0.1/",
        "https://",
        "https://[::1",
        "https://a:b/",
        "https://a b/",
        "https://a/\r\nX: y",
        "",
    ],
)
def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(JwksError):
        check_url(url)


def test_https_needs_a_certificate_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, context = self_signed(tmp_path)
    server = Provider()
    server.secure(context)
    with server.running():
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch_document(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert list(parse_jwks(fetch_document(server.url), ["ES256"])) == ["k1"]
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch_document(server.url.replace("127.0.0.1", "localhost"))


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 alone."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(private, SHA256())
    )
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(built.public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def test_only_usable_keys_are_taken_from_a_set() -> None:
    good = {f"good-{name}": {**signer(name).jwk, "kid": f"good-{name}"} for name in ALGORITHMS}
    ed, p256, rsa = (dict(signer(name).jwk) for name in ALGORITHMS)
    passed_over: list[object] = [
        p256,
        {**p256, "kid": 1},
        {**p256, "kid": "enc", "use": "enc"},
        {**p256, "kid": "ops", "key_ops": ["sign"]},
        {**p256, "kid": "alg", "alg": "ES384"},
        {**p256, "kid": "curve", "crv": "P-384"},
        {**p256, "kid": "point", "y": p256["x"]},
        {**p256, "kid": "no y", "y": None},
        {**rsa, "kid": "pss", "alg": "PS256"},
        {**rsa, "kid": "small", "n": number(2**1023 + 1)},
        {**rsa, "kid": "large", "n": number(2**16_000 + 1)},
        {**rsa, "kid": "slow", "e": rsa["n"]},
        {**rsa, "kid": "padded", "n": rsa["n"] + "="},
        {**ed, "kid": "short", "x": ed["x"][:-2]},
        {**ed, "kid": "x448", "crv": "Ed448"},
        {"kty": "oct", "k": "AAAA", "kid": "secret", "alg": "HS256"},
        {"kid": "nothing"},
        [],
        None,
        "text",
    ]
    document = json.dumps({"keys": [*passed_over, *good.values()]}).encode()
    assert parse_jwks(document, PUBLIC_KEY_ALGORITHMS).keys() == good.keys()
    assert parse_jwks(document, ["RS256"]).keys() == {"good-RS256"}


def test_of_two_keys_with_one_id_the_first_counts() -> None:
    keys = [{**signer("ES256", which).jwk, "kid": "k"} for which in (0, 1)]
    first = parse_jwks(json.dumps({"keys": keys}).encode(), ["ES256"])["k"]
    assert first.verify(KEY.sign(b"x"), b"x") and not first.verify(NEXT.sign(b"x"), b"x")


def test_a_fetch_that_breaks_in_an_unforeseen_way_is_tried_again() -> None:
    answers: list[Callable[[], bytes]] = [lambda: jwks({"k1": KEY})]

    def fetch(url: str) -> bytes:
        if not answers:
            raise ValueError("a proxy said something odd")
        return answers.pop()()

    keys = FetchedKeys("https://login.example/", ["ES256"], fetch)
    keys.refresh(0.0)
    keys.wait(WAIT_SECONDS)
    assert keys.find("k1", 0.0) is not None
    keys.refresh(600.0)
    keys.wait(WAIT_SECONDS)
    assert keys.problem == "a proxy said something odd" and keys.find("k1", 600.0) is not None
    with pytest.raises(KeysUnavailable):
        keys.find("k1", 24 * 3600.0)


def test_identities_are_the_same_from_fetched_keys_of_every_algorithm(provider: Provider, tmp_path: Path) -> None:
    provider.answer = answering(jwks({name: signer(name) for name in ALGORITHMS}))
    text = (
        f'[[issuer]]\nurl = "{ISSUER}"\naudience = "headwater"\njwks = "{provider.url}"\n'
        f"algorithms = {json.dumps(ALGORITHMS)}\nrules = []\n"
    )
    policy = load(write(tmp_path, text))
    settle(policy, NOW)
    for name in ALGORITHMS:
        assert isinstance(policy.identify_jwt(token(signer(name), name), NOW), Identity)
        other = ALGORITHMS[ALGORITHMS.index(name) - 1]
        assert isinstance(policy.identify_jwt(token(signer(name), other), NOW), Denied)
