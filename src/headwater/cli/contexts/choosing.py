"""Choose the server that a command talks to, and the token.

    server   --url, HEADWATER_URL, --context, HEADWATER_CONTEXT, the current context, this machine
    token    --header 'Authorization: ...' or a password in the URL, --token-file, HEADWATER_TOKEN,
             HEADWATER_TOKEN_FILE, the context's if the server is the context's, STREAM_AUTH (the whole header)

The first one given counts. A context's token is never sent to another server than the context's. A server may be a
cluster: several URLs with commas between them, which have one token.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from headwater.cli.contexts.store import DEFAULT_URL, Context, Contexts, contexts_path, load_contexts
from headwater.client.settings import bearer
from headwater.client.urls import checked_urls, join_urls
from headwater.protocol.headers import AUTHORIZATION
from headwater.secret_files import may_be_secret


@dataclass(frozen=True, slots=True)
class Destination:
    """A server and what is sent to it; at most one of `token`, `token_file` and an Authorization header."""

    url: str
    """Several have commas between them."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    tls_ca: str | None = None
    named: bool = False
    """Whether the user named the server, here or as the current context."""

    @property
    def credential(self) -> str | Callable[[], str] | None:
        """The token in the form that the client takes; a file is read for each request, so that it can be renewed."""
        path = self.token_file
        return self.token if path is None else lambda: read_token(path)

    def request_headers(self) -> dict[str, str]:
        """Return the headers to send now, with a token that is read now."""
        token = self.token if self.token_file is None else read_token(self.token_file)
        return self.headers if token is None else {**self.headers, AUTHORIZATION.name: bearer(token)}

    @property
    def verification(self) -> ssl.SSLContext | bool:
        """The certificates to trust."""
        if self.tls_ca is None or not self.url.startswith("https://"):
            return True
        try:
            return ssl.create_default_context(cafile=self.tls_ca)
        except OSError as error:
            raise click.ClickException(
                f"The certificates in {self.tls_ca} cannot be read ({error.strerror}); correct tls_ca of the context."
            ) from error


def choose(
    url: str | None,
    context_name: str | None,
    token_file: Path | None,
    headers: dict[str, str],
    environment: Mapping[str, str] = os.environ,
) -> Destination:
    """Return the server to use, or UsageError; `url` and `context_name` include their environment variables."""
    context = _context(context_name, environment)
    if url is None:
        chosen = DEFAULT_URL if context is None else context.url
    else:
        chosen = url
        if context_name is not None and context is not None and not context.is_for(url):
            click.echo(f"Context {context_name} is not used, because --url or HEADWATER_URL names {url}.", err=True)
    ours = context if context is not None and context.is_for(chosen) else None
    named = url is not None or context is not None
    tls_ca = None if ours is None else ours.tls_ca
    try:
        urls, sent = checked_urls(chosen, headers)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    chosen = join_urls([one.rstrip("/") for one in urls])
    if AUTHORIZATION.lower in map(str.lower, sent):
        if token_file is not None:
            raise click.UsageError("--token-file and another credential exclude each other; give one of them.")
        return Destination(chosen, sent, tls_ca=tls_ca, named=named)
    token, file = _token(ours, token_file, environment)
    if token is None and file is None and (whole := environment.get("STREAM_AUTH")):
        if not whole.isascii() or not whole.isprintable():
            raise click.UsageError("STREAM_AUTH is not a valid header; set it to 'Bearer' and the token.")
        scheme, _, bare = whole.partition(" ")
        if scheme.lower() == "bearer":
            return Destination(chosen, sent, _checked(bare, "STREAM_AUTH"), None, tls_ca, named)
        sent = {**sent, AUTHORIZATION.name: whole}
    return Destination(chosen, sent, token, file, tls_ca, named)


def _token(
    context: Context | None, flag: Path | None, environment: Mapping[str, str]
) -> tuple[str | None, Path | None]:
    if flag is not None:
        return None, _readable(flag)
    if token := environment.get("HEADWATER_TOKEN"):
        return _checked(token, "HEADWATER_TOKEN"), None
    if name := environment.get("HEADWATER_TOKEN_FILE"):
        return None, _readable(Path(name))
    if context is None:
        return None, None
    if context.token_file is not None:
        return None, _readable(Path(context.token_file))
    return (None, None) if context.token is None else (_checked(context.token, "the context"), None)


def read_token(path: Path) -> str:
    """Return the token in a file; ClickException if there is none."""
    try:
        return _checked(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        if may_be_secret(path):
            raise click.ClickException(
                "The file of the token does not exist; give its path, not the token itself."
            ) from None
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise click.ClickException(f"The token in {path} cannot be read: {reason}.") from None


def _readable(path: Path) -> Path:
    read_token(path)
    return path.absolute()


def _checked(token: str, where: str) -> str:
    try:
        bearer(token)
    except ValueError:
        raise click.ClickException(
            f"The token in {where} is empty or not one word of printable ASCII; write it there alone."
        ) from None
    return token.strip()


def _context(name: str | None, environment: Mapping[str, str]) -> Context | None:
    contexts = load_contexts(contexts_path(environment))
    if name is None:
        return None if contexts.current is None else contexts.context.get(contexts.current)
    return find(contexts, name)


def find(contexts: Contexts, name: str) -> Context:
    """Return the context of this name, or UsageError."""
    if name not in contexts.context:
        known = ", ".join(sorted(contexts.context))
        there = f" (there are: {known})" if known else ""
        raise click.UsageError(
            f"There is no context {name!r}{there}; create one with `headwater login URL --name {name}`."
        )
    return contexts.context[name]
