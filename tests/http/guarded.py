"""A server with an access file, for tests of what it lets whom do."""

import base64
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater.access import tickets, tokens
from headwater.testing import RunningServer, running_server

from .sockets import Wire

KEY_ID = "app"


class Guarded:
    """A running server, its access file, and credentials for it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "auth.toml"
        self._key = secrets.token_bytes(32)
        self._key_file = folder / "app.key"
        self._key_file.write_text(base64.urlsafe_b64encode(self._key).decode())
        self._key_file.chmod(0o600)
        self.tokens: dict[str, str] = {}
        self.server: RunningServer

    def write(self, entries: Mapping[str, Sequence[str]], more: str = "", *, anonymous: Sequence[str] = ()) -> None:
        """Write the file: a token for each id, with its grants."""
        text = f"version = 1\n[anonymous]\ngrants = {list(anonymous)!r}\n"
        for name, grants in entries.items():
            token = self.tokens.setdefault(name, tokens.make(name))
            digest = tokens.digest(token.encode()).hex()
            text += f'[[token]]\nid = "{name}"\nsha256 = "{digest}"\ngrants = {list(grants)!r}\n'
        text += f'[[key]]\nid = "{KEY_ID}"\nfile = "app.key"\ngrants = ["* *"]\n{more}'
        self.file.write_text(text)

    def bearer(self, name: str) -> dict[str, str]:
        """The header of a token."""
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def ticket(self, *grants: str, sub: str = "user-1", seconds: float = 60) -> str:
        """A ticket as a backend would sign it."""
        return tickets.sign(self._key, list(grants), key_id=KEY_ID, sub=sub, seconds=seconds)

    def secrets(self) -> dict[str, str]:
        """What nobody else may learn, by what it is: the random part of each token, and the key in several forms."""
        found = {f"token {name}": token.rpartition(f"{name}_")[2][:20] for name, token in self.tokens.items()}
        encoded = base64.urlsafe_b64encode(self._key).decode().rstrip("=")
        return found | {"key": encoded, "key in hex": self._key.hex(), "key as bytes": repr(self._key)[2:-1]}

    def wire(self) -> Wire:
        return Wire(self.server.url)

    def reload(self) -> None:
        """Put a new file into force at once."""
        with self.wire() as wire:
            response = wire.ask("POST", "/__headwater/reload", self.bearer("root"))
            assert response.status == 200, response.body


@contextmanager
def guarded(
    folder: Path,
    entries: Mapping[str, Sequence[str]],
    *flags: str,
    anonymous: Sequence[str] = (),
    more: str = "",
    data: Path | None = None,
) -> Iterator[Guarded]:
    """Run a server whose file has these tokens, and one, `root`, that may do everything."""
    found = Guarded(folder)
    found.write({"root": ["* *"], **entries}, more, anonymous=anonymous)
    with running_server("--auth", str(found.file), *flags, data=data) as found.server:
        yield found
