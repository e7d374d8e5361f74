"""Tickets: short-lived JWTs that an application's backend signs with a shared key, for its users.

A ticket carries its own grants in the claim `headwater`; the server narrows them to those of the key.
"""

import time
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from headwater.access.grants import GRANTS_MAX, parse_grant
from headwater.access.jws import HS256, TOKEN_BYTES_MAX, Claims, decode_base64url, encode_base64url, sign_hs256

GRANTS_CLAIM = "headwater"
KEY_BYTES_MIN = 32
"""As long as the digest: a shorter key would be the weakest part (RFC 7518, section 3.2)."""


def sign(
    key: bytes,
    grants: Sequence[str],
    *,
    key_id: str,
    seconds: float,
    sub: str | None = None,
    ticket_id: str | None = None,
    audience: str | None = None,
    now_seconds: float | None = None,
) -> str:
    """Return a ticket that is valid from now on for some seconds; the grants are checked first.

    `key` is the decoded key (`parse_key`), `key_id` the id of its `[[key]]` in the access file.

    >>> ticket = sign(bytes(32), ["read chat/room-42"], key_id="app", seconds=600, sub="user-17")
    >>> ticket.count("."), ticket[:2]
    (2, 'ey')
    """
    _check_length(key)
    if not 1 <= len(grants) <= GRANTS_MAX:
        raise ValueError(f"A ticket has 1 to {GRANTS_MAX} grants, not {len(grants)}.")
    if not seconds > 0:
        raise ValueError("A ticket is valid for more than 0 seconds.")
    for grant in grants:
        parse_grant(grant)
    issued_at = int(time.time() if now_seconds is None else now_seconds)
    claims: Claims = {"iat": issued_at, "exp": issued_at + seconds, GRANTS_CLAIM: list(grants)}
    claims |= {
        name: value for name, value in (("sub", sub), ("jti", ticket_id), ("aud", audience)) if value is not None
    }
    header = {"alg": HS256, "kid": key_id, "typ": "JWT"}
    signed = b".".join(encode_base64url(msgspec.json.encode(part)) for part in (header, claims))
    ticket = signed + b"." + encode_base64url(sign_hs256(key, signed))
    if len(ticket) > TOKEN_BYTES_MAX:
        raise ValueError(f"The ticket would be {len(ticket):,} bytes long, and {TOKEN_BYTES_MAX:,} are allowed.")
    return ticket.decode()


def parse_key(text: bytes) -> bytes:
    """Return the key that a key file spells in base64url; padding and a final newline are tolerated.

    >>> parse_key(b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\\n")[:4]
    b'\\x00\\x01\\x02\\x03'
    """
    try:
        key = decode_base64url(text.removesuffix(b"\n").removesuffix(b"\r").rstrip(b"="))
    except ValueError:
        raise ValueError("The key is not base64url; make one with `openssl rand -base64 32 | tr +/ -_`.") from None
    _check_length(key)
    return key


def default_key_id(path: PurePath) -> str:
    """Return the id that a key has if nothing else is said: its file's name without the suffix."""
    return path.stem


def _check_length(key: bytes) -> None:
    if len(key) < KEY_BYTES_MIN:
        raise ValueError(
            f"The key has {len(key)} bytes, and {KEY_BYTES_MIN} random ones are needed; "
            "make one with `openssl rand -base64 32 | tr +/ -_`."
        )
