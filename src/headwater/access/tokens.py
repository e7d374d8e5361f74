"""Tokens of the access file: `hw_` + id + `_` + 43 characters for 32 random bytes + 6 characters of checksum.

The prefix lets scanners find a leaked token, the checksum lets them be sure that it is one, and the id names it in
logs. The file has only the SHA-256 of the whole token. That is enough: 256 random bits cannot be guessed from their
digest, so a slow password hash would only give attackers a way to keep the server busy. A token is found by its
digest in a dict, and how long that takes tells nothing about any token.
"""

import base64
import hashlib
import re
import secrets
import zlib

ID = re.compile(r"[a-z0-9-]{1,32}")
PREFIX = b"hw_"
_TOKEN = re.compile(r"hw_([a-z0-9-]{1,32})_[A-Za-z0-9_-]{43}[0-9A-Za-z]{6}")
_SECRET_BYTES = 32
_CHECKSUM_LENGTH = 6
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def make(token_id: str) -> str:
    """Return a new random token.

    >>> token = make("ingest")
    >>> id_of(token), len(token), id_of(token[:-1] + "!")
    ('ingest', 59, None)
    """
    if not ID.fullmatch(token_id):
        raise ValueError(f"{token_id!r} is not the id of a token; use 1 to 32 characters from a-z, 0-9 and '-'.")
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    unchecked = f"hw_{token_id}_{secret}"
    return unchecked + checksum(unchecked)


def id_of(token: str) -> str | None:
    """Return the id in a token; None if it is not a token or was damaged. Only its digest says whether it is valid."""
    found = _TOKEN.fullmatch(token)
    if found is None or checksum(token[:-_CHECKSUM_LENGTH]) != token[-_CHECKSUM_LENGTH:]:
        return None
    return found[1]


def digest(token: bytes) -> bytes:
    """Return what is stored instead of the token."""
    return hashlib.sha256(token).digest()


def checksum(text: str) -> str:
    """Return the CRC-32 of a text in base 62, with leading zeros.

    >>> checksum("hw_demo_"), checksum("")
    ('2Yk2JG', '000000')
    """
    number = zlib.crc32(text.encode())
    letters = ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, 62)
        letters = _BASE62[digit] + letters
    return letters
