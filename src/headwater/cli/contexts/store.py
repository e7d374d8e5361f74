"""The file of contexts: a name for each server, with the token for it. Only its owner can read it.

current = "prod"

[context.prod]
url = "https://streams.example"     # several nodes: "https://n1.example,https://n2.example"
token = "hw_..."                    # or token_file = "/run/secrets/headwater"
tls_ca = "/etc/ssl/our-ca.pem"      # optional
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from headwater.client.settings import ClientSettings
from headwater.client.urls import checked_urls, origin

DEFAULT_URL = "http://127.0.0.1:4437"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
FILE_MODE, FOLDER_MODE = 0o600, 0o700


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A server and its credential."""

    url: str
    token: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None

    def __repr__(self) -> str:
        return f"Context({self.url!r})"

    def is_for(self, url: str) -> bool:
        """Whether a URL belongs to this server or its nodes, so that the token may be sent there.

        >>> context = Context("https://h/v1/stream")
        >>> [context.is_for(url) for url in ("https://H:443", "https://h/v1/stream", "http://h", "https://h/other")]
        [True, True, False, False]
        >>> [Context("http://a,http://b").is_for(url) for url in ("http://b", "http://b,http://a", "http://a,http://c")]
        [True, True, False]
        """
        return _roots(url) <= _roots(self.url)


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    """All contexts, and which one is used if a command names no server."""

    current: str | None = None
    context: dict[str, Context] = {}


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file.

    >>> str(contexts_path({"XDG_CONFIG_HOME": "/home/ada/.config"}))
    '/home/ada/.config/headwater/contexts.toml'
    """
    folder = environment.get("XDG_CONFIG_HOME", "")
    # A relative path counts as none, as the XDG specification says.
    base = Path(folder) if folder.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".config"
    return base / "headwater" / "contexts.toml"


def load_contexts(path: Path) -> Contexts:
    """Read the file; ClickException if it is invalid. A missing file is an empty one."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {_reason(error)}.") from error
    try:
        contexts = msgspec.convert(tomllib.loads(text), Contexts)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise click.ClickException(f"{path} is not a valid file of contexts: {error}; correct or remove it.") from error
    for name, context in contexts.context.items():
        if problem_of(context.url):
            raise click.ClickException(f"The URL of context {name} is not valid; correct {path}.")
    return contexts


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file atomically, so that a concurrent command reads the old file or the new one."""
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        path.parent.chmod(FOLDER_MODE)
        # The temporary file can be read by its owner only, from the moment it exists.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(_render(contexts))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(FILE_MODE)
            Path(temporary).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {_reason(error)}.") from error


def problem_of(url: str) -> str | None:
    """Return what is wrong with the URL of a server, or the URLs of a cluster; None if nothing is.

    >>> [problem_of(url) for url in ("http://127.0.0.1:4437", "https://h/v1/stream", "http://a,http://b")]
    [None, None, None]
    >>> problem_of("h:1")
    "'h:1' is not the URL of a server; write it like http://host:4437"
    """
    try:
        checked_urls(url, {})
    except ValueError as error:
        return str(error).rstrip(".")
    if not url.isascii() or not url.isprintable():
        return f"{url!r} is not the URL of a server; write it like {DEFAULT_URL}"
    return None


def _render(contexts: Contexts) -> str:
    lines = [] if contexts.current is None else [f"current = {_quoted(contexts.current)}"]
    for name, context in sorted(contexts.context.items()):
        lines += ["", f"[context.{_quoted(name)}]"]
        lines += [f"{key} = {_quoted(value)}" for key, value in msgspec.to_builtins(context).items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A string of JSON is one of TOML too, but for the character DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _roots(url: str) -> set[tuple[object, str]]:
    return {(origin(root), root.partition("://")[2].partition("/")[2]) for root in ClientSettings(url).root_urls}


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
