"""Compact JSON Web Signatures (RFC 7515): HS256, EdDSA with Ed25519, ES256 and RS256, and nothing else.

The rules, in the order in which a token meets them:

1. At most 4,096 bytes: three parts of base64url without padding, each the only spelling of its bytes.
2. The header names the algorithm and the key's id. `crit` and `b64` change what a signature means and are refused;
   `jku`, `x5u`, `jwk` and `x5c`, by which a token would bring its own key, are never looked at.
3. The caller chooses the key by the id among the keys it trusts. **The algorithm is the key's**, and the header must
   agree: a public key is never used as a secret, and `none` belongs to no key.
4. The caller judges the claims (`claims`), because that is cheap, and then calls `verify`: an expired token costs
   microseconds, not a signature check.
5. Only then may anything that the claims say be believed.
"""

import binascii
import hmac
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

TOKEN_BYTES_MAX = 4_096
HS256, EDDSA, ES256, RS256 = "HS256", "EdDSA", "ES256", "RS256"
PUBLIC_KEY_ALGORITHMS = (EDDSA, ES256, RS256)

_PARTS = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_P256_NUMBER_BYTES = 32

Claims: TypeAlias = dict[str, Any]


class Header(msgspec.Struct):
    """What is read of a token's header; other members are ignored."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Jws(NamedTuple):
    """A token that was taken apart. Nothing in it is verified."""

    algorithm: str
    key_id: str
    claims: Claims
    signed: bytes
    signature: bytes


class HmacKey(NamedTuple):
    """A secret that is shared with those who sign tickets."""

    secret: bytes
    algorithm: str = HS256

    def verify(self, signature: bytes, signed: bytes) -> bool:
        """Whether the signature is this key's."""
        return hmac.compare_digest(sign_hs256(self.secret, signed), signature)

    def __repr__(self) -> str:
        return "HmacKey(...)"


class Ed25519Key(NamedTuple):
    """A public key on Curve25519."""

    key: "Ed25519PublicKey"
    algorithm: str = EDDSA

    def verify(self, signature: bytes, signed: bytes) -> bool:
        """Whether the signature is this key's."""
        return _is_valid(self.key.verify, signature, signed)


class P256Key(NamedTuple):
    """A public key on the curve P-256."""

    key: "EllipticCurvePublicKey"
    algorithm: str = ES256

    def verify(self, signature: bytes, signed: bytes) -> bool:
        """Whether the signature, two numbers side by side, is this key's."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

        if len(signature) != 2 * _P256_NUMBER_BYTES:
            return False
        r, s = signature[:_P256_NUMBER_BYTES], signature[_P256_NUMBER_BYTES:]
        der = encode_dss_signature(int.from_bytes(r), int.from_bytes(s))
        return _is_valid(self.key.verify, der, signed, ECDSA(SHA256()))


class RsaKey(NamedTuple):
    """An RSA public key, for signatures with PKCS #1 v1.5 padding."""

    key: "RSAPublicKey"
    algorithm: str = RS256

    def verify(self, signature: bytes, signed: bytes) -> bool:
        """Whether the signature is this key's."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

        return _is_valid(self.key.verify, signature, signed, PKCS1v15(), SHA256())


def _is_valid(verify: Callable[..., None], *what: object) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        verify(*what)
    except InvalidSignature:
        return False
    return True


PublicKey: TypeAlias = Ed25519Key | P256Key | RsaKey
Key: TypeAlias = HmacKey | PublicKey


def parse(token: bytes) -> Jws | None:
    """Take a token apart; None if it is not one that this server could ever accept."""
    if len(token) > TOKEN_BYTES_MAX:
        return None
    parts = _PARTS.fullmatch(token)
    if parts is None:
        return None
    try:
        header = _HEADERS.decode(decode_base64url(parts[1]))
        claims = _CLAIMS.decode(decode_base64url(parts[2]))
        signature = decode_base64url(parts[3])
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; deep nesting is not.
        return None
    if header.crit is not msgspec.UNSET or header.b64 is not msgspec.UNSET or header.kid is None:
        return None
    if header.typ is not None and header.typ.lower() not in _TYPES:
        return None
    return Jws(header.alg, header.kid, claims, token[: parts.end(2)], signature)


def verify(jws: Jws, key: Key) -> bool:
    """Whether the token was signed with this key, by the algorithm of this key."""
    return jws.algorithm == key.algorithm and key.verify(jws.signature, jws.signed)


def sign_hs256(secret: bytes, signed: bytes) -> bytes:
    """Return the HMAC with SHA-256."""
    return hmac.digest(secret, signed, "sha256")


def decode_base64url(text: bytes) -> bytes:
    """Return what base64url without padding spells; `ValueError` if it is not, or not as an encoder spells it.

    The last character may have bits that mean nothing; those must be zero, or one token would have several spellings.

    >>> decode_base64url(b"AQI"), encode_base64url(bytes([1, 2]))
    (b'\\x01\\x02', b'AQI')
    >>> decode_base64url(b"AQJ")
    Traceback (most recent call last):
    ValueError: This is not base64url without padding.
    """
    standard = text.translate(_TO_STANDARD)
    try:
        decoded = binascii.a2b_base64(standard + b"=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error:
        decoded = b""
    if encode_base64url(decoded) != text:
        raise ValueError("This is not base64url without padding.")
    return decoded


def encode_base64url(data: bytes) -> bytes:
    """Return base64url without padding."""
    return binascii.b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL)


_HEADERS = msgspec.json.Decoder(Header)
_CLAIMS = msgspec.json.Decoder(dict[str, Any])
_TO_URL = bytes.maketrans(b"+/", b"-_")
_TO_STANDARD = bytes.maketrans(b"-_+/", b"+/!!")
