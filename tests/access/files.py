"""Access files and the files that they name."""

import json
from collections.abc import Mapping
from pathlib import Path

from headwater.access.identities import Denied, Identity, Moment
from headwater.access.policy import Policy, load

from .signing import Signer, base64url, jwks, signer

NOW = Moment(1_800_000_000.0, 5_000.0)
ISSUER = "https://login.example/"
RULES = '[{ grants = ["read,append users/{sub}/*"] }]'


def write(folder: Path, text: str) -> Path:
    """An access file with this text after its version."""
    path = folder / "auth.toml"
    path.write_text(f"version = 1\n{text}")
    return path


def write_key(folder: Path, name: str = "app.key", secret: bytes = bytes([1]) * 32, mode: int = 0o600) -> Path:
    """A key file."""
    path = folder / name
    path.write_text(base64url(secret) + "\n")
    path.chmod(mode)
    return path


def with_issuer(
    folder: Path, keys: Mapping[str, Signer], rules: str = RULES, *, algorithms: str = "", more: str = ""
) -> Policy:
    """A policy with one issuer, whose keys are in a file."""
    (folder / "jwks.json").write_bytes(jwks(keys))
    listed = algorithms or json.dumps(sorted({key.algorithm for key in keys.values()}))
    issuer = f'url = "{ISSUER}"\naudience = "headwater"\nkeys = "jwks.json"\nalgorithms = {listed}\nrules = {rules}\n'
    return load(write(folder, f"[[issuer]]\n{issuer}{more}"))


def with_key(folder: Path, grants: str = '["read,append chat/*"]', more: str = "") -> Policy:
    """A policy with one key for tickets, which is `signer("HS256")`."""
    write_key(folder, secret=signer("HS256").pem)
    return load(write(folder, f'[[key]]\nid = "k1"\nfile = "app.key"\ngrants = {grants}\n{more}'))


def provided(**claims: object) -> dict[str, object]:
    """Good claims of a provider's token, some of them replaced; None removes one."""
    good = {"iss": ISSUER, "aud": "headwater", "sub": "user-17", "exp": NOW.wall_seconds + 600}
    return {name: value for name, value in {**good, **claims}.items() if value is not None}


def ticketed(**claims: object) -> dict[str, object]:
    """Good claims of a ticket, some of them replaced; None removes one."""
    good = {"headwater": ["read chat/room-42"], "sub": "user-17", "exp": NOW.wall_seconds + 600}
    return {name: value for name, value in {**good, **claims}.items() if value is not None}


def identity(found: Identity | Denied) -> Identity:
    assert isinstance(found, Identity), found
    return found


def denied(found: Identity | Denied) -> str:
    assert isinstance(found, Denied), found
    assert found.detail.endswith(".")
    return found.reason.value


def may(found: Identity | Denied, action: int, name: str) -> bool:
    """The judgement, as a server makes it."""
    one = identity(found)
    return name in one.exact[action] or name.startswith(one.prefixes[action])
