"""Keys of every algorithm, and tokens signed with them: good ones, and whatever a forger may send."""

import base64
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headwater.access.jws import sign_hs256

ALGORITHMS = ["EdDSA", "ES256", "RS256"]


class Signer(NamedTuple):
    """One key pair: how it signs, its public half for a key set, and the same as PEM."""

    algorithm: str
    sign: Callable[[bytes], bytes]
    jwk: Mapping[str, str]
    pem: bytes


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return base64url(value.to_bytes((value.bit_length() + 7) // 8))


def signer(algorithm: str, which: int = 0) -> Signer:
    """A key pair; another one for each number, and the same one for the same number."""
    return _generate(algorithm, which)


@cache
def _generate(algorithm: str, which: int) -> Signer:
    match algorithm:
        case "EdDSA":
            ed = ed25519.Ed25519PrivateKey.generate()
            raw = ed.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
            return Signer(algorithm, ed.sign, {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}, _pem(ed))
        case "ES256":
            p256 = ec.generate_private_key(ec.SECP256R1())
            point = p256.public_key().public_numbers()
            coordinates = {"x": base64url(point.x.to_bytes(32)), "y": base64url(point.y.to_bytes(32))}

            def sign(signed: bytes) -> bytes:
                r, s = decode_dss_signature(p256.sign(signed, ec.ECDSA(SHA256())))
                return r.to_bytes(32) + s.to_bytes(32)

            return Signer(algorithm, sign, {"kty": "EC", "crv": "P-256", **coordinates}, _pem(p256))
        case "RS256":
            private = rsa.generate_private_key(65537, 2048)
            public = private.public_key().public_numbers()
            return Signer(
                algorithm,
                lambda signed: private.sign(signed, padding.PKCS1v15(), SHA256()),
                {"kty": "RSA", "n": number(public.n), "e": number(public.e)},
                _pem(private),
            )
        case "HS256":
            secret = bytes([which + 1]) * 32
            return Signer(algorithm, lambda signed: sign_hs256(secret, signed), {}, secret)
    raise AssertionError(algorithm)


def _pem(private: Any) -> bytes:
    pem: bytes = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def jwks(keys: Mapping[str, Signer]) -> bytes:
    """A key set with these keys."""
    return json.dumps({"keys": [{**key.jwk, "kid": key_id, "use": "sig"} for key_id, key in keys.items()]}).encode()


def encode(header: object, claims: object) -> bytes:
    """What is signed of a token."""
    parts = (part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims))
    return ".".join(base64url(part) for part in parts).encode()


def make(key: Signer, claims: object, **header: object) -> bytes:
    """A token signed with this key; the header may say anything."""
    signed = encode({"alg": key.algorithm, "kid": "k1", "typ": "JWT", **header}, claims)
    return signed + b"." + base64url(key.sign(signed)).encode()
