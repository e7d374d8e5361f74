"""The public keys of an identity provider: a JSON Web Key Set (RFC 7517), from a file or fetched."""

import http.client
import ipaddress
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Protocol, TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec

from headwater.access.jws import ES256, Ed25519Key, P256Key, PublicKey, RsaKey, decode_base64url

DOCUMENT_BYTES_MAX = 256 * 1024
FETCH_SECONDS_MAX = 5.0
REFRESH_SECONDS = 600.0
RETRY_SECONDS = 30.0
"""Between two fetches, whether the last one failed or a token named an unknown key."""
KEEP_SECONDS = 24 * 3600.0
"""How long keys are used after the last successful fetch."""
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 8_192
RSA_EXPONENT_MAX = 2**32
"""Verifying takes time with the size of both numbers; real exponents are 65537."""

# Not a child of the logger `headwater.access`, which is the log of requests.
log = logging.getLogger("headwater.issuers")

_VISIBLE = re.compile(r"[!-~]+")

Keys: TypeAlias = dict[str, PublicKey]


class JwksError(ValueError):
    """A document is not a key set, or could not be fetched; the message is a clause without a full stop."""


class Keyring(Protocol):
    """The keys of one issuer."""

    def find(self, key_id: str, now_seconds: float) -> PublicKey | None:
        """Return a key; None if the issuer has no such key. Raise `KeysUnavailable` if that is not known now."""


class KeysUnavailable(Exception):
    """The keys of an issuer have not been fetched yet, or not for too long, or are being fetched again."""


class FixedKeys:
    """Keys from a file."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def find(self, key_id: str, now_seconds: float) -> PublicKey | None:
        """Return the key with this id."""
        return self._keys.get(key_id)


class FetchedKeys:
    """Keys behind a URL. `find` never waits; `refresh` starts a fetch in a thread if one is due.

    Call `refresh` regularly. A token with an unknown key id makes a fetch due, but at most once in 30 seconds, so that
    attackers cannot make this server flood the issuer. Times are monotonic seconds.
    """

    def __init__(self, url: str, algorithms: Collection[str], fetch: Callable[[str], bytes] | None = None) -> None:
        self.url = url
        self.algorithms = frozenset(algorithms)
        self.problem: str | None = None
        """Why the last fetch failed; None if it succeeded."""
        self._fetch = fetch or fetch_document
        self._lock = threading.Lock()
        self._keys: Keys = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._is_wanted = False
        self._thread: threading.Thread | None = None

    def find(self, key_id: str, now_seconds: float) -> PublicKey | None:
        """Return the key with this id."""
        with self._lock:
            if self._fetched_at is None or now_seconds - self._fetched_at >= KEEP_SECONDS:
                raise KeysUnavailable
            found = self._keys.get(key_id)
            if found is not None:
                return found
            # If the issuer has just begun to sign with a new key, the next fetch will show it.
            if self._thread is None and not self._may_try(now_seconds):
                return None
            self._is_wanted = True
        self.refresh(now_seconds)
        raise KeysUnavailable

    def refresh(self, now_seconds: float) -> None:
        """Start a fetch in the background if one is due and none is running."""
        with self._lock:
            if self._thread is not None or not self._is_due(now_seconds):
                return
            self._tried_at, self._is_wanted = now_seconds, False
            thread = threading.Thread(target=self._run, args=(now_seconds,), name="headwater-jwks", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The process may not have another thread now.
                self.problem = str(error)
            else:
                self._thread = thread

    def wait(self, timeout_seconds: float) -> None:
        """Wait for the fetch that is running, if any."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_seconds)

    def _may_try(self, now_seconds: float) -> bool:
        return self._tried_at is None or now_seconds - self._tried_at >= RETRY_SECONDS

    def _is_due(self, now_seconds: float) -> bool:
        if self._tried_at is None or now_seconds - self._tried_at >= REFRESH_SECONDS:
            return True
        return (self._is_wanted or self.problem is not None) and self._may_try(now_seconds)

    def _run(self, began_at: float) -> None:
        keys: Keys | None = None
        problem: str | None = "the fetch ended unexpectedly"
        try:
            keys, problem = self._try()
        finally:
            with self._lock:
                if keys is not None:
                    self._keys, self._fetched_at = keys, began_at
                self._thread, self.problem = None, problem

    def _try(self) -> tuple[Keys | None, str | None]:
        """Fetch once. After any failure the old keys stay, and the next attempt is due later."""
        try:
            return parse_jwks(self._fetch(self.url), self.algorithms), None
        except (JwksError, OSError, http.client.HTTPException, ValueError) as error:
            problem = str(error) or type(error).__name__
            log.warning("Could not fetch the keys of an issuer from %s: %s", self.url, problem)
            return None, problem


def parse_jwks(document: bytes, algorithms: Collection[str]) -> Keys:
    """Return the usable keys of a key set by their ids; `JwksError` if it is not a key set.

    Keys without an id, of other kinds, for another use and for algorithms that are not wanted are passed over: issuers
    publish them beside the others. Symmetric keys are passed over too, since a published key is no secret.
    """
    try:
        found = msgspec.json.decode(document, type=dict[str, Any]).get("keys")
    except (ValueError, RecursionError):
        raise JwksError("it is not JSON") from None
    if not isinstance(found, list):
        raise JwksError("it has no list of keys")
    usable: Keys = {}
    for jwk in found:
        if isinstance(jwk, dict) and isinstance(key_id := jwk.get("kid"), str) and key_id not in usable:
            key = _parse_jwk(jwk)
            if key is not None and key.algorithm in algorithms:
                usable[key_id] = key
    return usable


def _parse_jwk(jwk: dict[str, Any]) -> PublicKey | None:
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    parse = _PARSERS.get((jwk.get("kty"), jwk.get("crv")))
    try:
        key = None if parse is None else parse(jwk)
    except (ValueError, TypeError, KeyError, AttributeError):  # A member is missing, or not text, or no key.
        return None
    return key if key is not None and jwk.get("alg", key.algorithm) == key.algorithm else None


def _parse_ed25519(jwk: dict[str, Any]) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    return Ed25519Key(Ed25519PublicKey.from_public_bytes(decode_base64url(jwk["x"].encode())))


def _parse_p256(jwk: dict[str, Any]) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicNumbers  # noqa: PLC0415

    return P256Key(EllipticCurvePublicNumbers(_number(jwk["x"]), _number(jwk["y"]), SECP256R1()).public_key(), ES256)


def _parse_rsa(jwk: dict[str, Any]) -> PublicKey | None:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers  # noqa: PLC0415

    modulus, exponent = _number(jwk["n"]), _number(jwk["e"])
    if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX or exponent > RSA_EXPONENT_MAX:
        return None
    return RsaKey(RSAPublicNumbers(exponent, modulus).public_key())


def _number(text: str) -> int:
    return int.from_bytes(decode_base64url(text.encode()))


_PARSERS: dict[tuple[object, object], Callable[[dict[str, Any]], PublicKey | None]] = {
    ("OKP", "Ed25519"): _parse_ed25519,
    ("EC", "P-256"): _parse_p256,
    ("RSA", None): _parse_rsa,
}


def check_url(url: str) -> SplitResult:
    """Return the parts of a URL from which keys may be fetched; `JwksError` with what is wrong otherwise."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or parts.username is not None or parts.fragment or not _VISIBLE.fullmatch(url):
        raise JwksError(f"{url!r} is not an https URL")
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise JwksError(f"{url!r} is not https, so an attacker on the network could replace the keys")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def fetch_document(url: str, seconds_max: float = FETCH_SECONDS_MAX) -> bytes:
    """Return the body of a URL. Redirects are failures, and proxies of the environment are not used."""
    parts = check_url(url)
    deadline = time.monotonic() + seconds_max
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=seconds_max, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=seconds_max)
    )
    try:
        connection.connect()
        # A time-out of a socket is about one operation; a server that sends a byte a second would never exceed it.
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, [connection.sock])
        cut.daemon = True
        cut.start()
        try:
            return _read(connection, parts)
        finally:
            cut.cancel()
    finally:
        connection.close()


def _read(connection: http.client.HTTPConnection, parts: SplitResult) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", target, headers={"Accept": "application/json", "User-Agent": "headwater"})
    with connection.getresponse() as response:
        if response.status != http.client.OK:
            raise JwksError(f"the answer is {response.status}, not 200")
        body = response.read(DOCUMENT_BYTES_MAX + 1)
        if len(body) > DOCUMENT_BYTES_MAX:
            raise JwksError(f"the document is larger than {DOCUMENT_BYTES_MAX:,} bytes")
        return body


def _cut(connected: socket.socket) -> None:
    """End a connection under its reader, who finds the end of the input; not TLS's own shutdown, which would wait."""
    with suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
