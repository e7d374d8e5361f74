"""`headwater login` and `headwater context`: keep tokens for servers, and choose the server that commands use."""

import ipaddress
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx2

from headwater.cli.commands import JSON, Verbs, epilog, verb
from headwater.cli.connecting import retry_policy
from headwater.cli.contexts.choosing import Destination, find, read_token
from headwater.cli.contexts.store import NAME, Context, contexts_path, load_contexts, problem_of, save_contexts
from headwater.cli.failures import fail, fail_request
from headwater.cli.printing import answer, columns, json_list, note, say
from headwater.client import Admin, ClientError, NotFound, ProtocolViolation
from headwater.client.settings import bearer
from headwater.client.urls import join_urls, split_urls

TOKEN_BYTES_MAX = 64 * 1024


@verb(
    "headwater login https://streams.example --name prod",
    "cat token.txt | headwater login http://127.0.0.1:4437",
    "headwater login https://streams.example --token-file /run/secrets/headwater",
    "headwater login https://n1.example,https://n2.example --name cluster",
)
@click.argument("url")
@click.option("--name", help="The name of the context.  [default: the host]")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Store the path of this file, not the token; the file is read for each request.",
)
@click.option(
    "--tls-ca",
    type=click.Path(path_type=Path),
    help="Certificates to trust, for a server with a private certificate authority.",
)
@JSON
def login(url: str, name: str | None, token_file: Path | None, tls_ca: Path | None, as_json: bool) -> None:
    """Check a token and keep it for the server at URL.

    For a cluster, give the URLs of its nodes, separated by commas. The command prompts for the token, or reads it
    from standard input. It keeps the token in a file that only you can read, and sends it to this server only.
    """
    _check(url, name)
    chosen = name or default_name(url)
    contexts = load_contexts(contexts_path())
    token = None if token_file is not None else _ask()
    file = None if token_file is None else token_file.absolute()
    ca = None if tls_ca is None else str(tls_ca.absolute())
    urls = [one.rstrip("/") for one in split_urls(url)]
    destination = Destination(join_urls(urls), {}, token, file, ca)
    if file is not None:
        read_token(file)
    who = _whoami(destination)
    if urlsplit(url).scheme == "http" and not all(map(is_local, urls)):
        note(f"The token is sent to {url} unencrypted; use https:// if you can.")
    contexts.context[chosen] = Context(destination.url, token, None if file is None else str(file), ca)
    contexts.current = chosen
    save_contexts(contexts_path(), contexts)
    _report(chosen, destination.url, who, as_json)


def _check(url: str, name: str | None) -> None:
    if problem := problem_of(url):
        raise click.UsageError(f"{problem}.")
    if any("@" in urlsplit(one).netloc for one in split_urls(url)):
        raise click.UsageError("The URL contains a password; leave it out, and give a token when you are asked.")
    if name is not None and not NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is not a valid name: use letters, digits, '_', '.' and '-'.")


def _ask() -> str:
    if sys.stdin.isatty():
        given: str = click.prompt("Token", hide_input=True, err=True)
    else:
        given = sys.stdin.read(TOKEN_BYTES_MAX)
    try:
        bearer(given)
    except ValueError:
        fail("That is not a token: it is empty or not one word of printable ASCII.", "usage")
    return given.strip()


def _whoami(destination: Destination) -> dict[str, Any] | None:
    """Ask the server to identify the token; None if it cannot. A refused token ends the command."""
    url = destination.url
    try:
        with (
            httpx2.Client(verify=destination.verification) as http,
            Admin(url, token=destination.credential, retry=retry_policy(1.0), http=http) as admin,
        ):
            found = admin.whoami()
    except (NotFound, ProtocolViolation):
        return None
    except ClientError as error:
        fail_request(error, url, "")
    if found.get("mode") == "guarded" and found.get("kind") == "anonymous":
        fail(f"{url} does not know this token; check it, and run `headwater login {url}` again.", "unauthorized")
    return found


def _report(name: str, url: str, who: dict[str, Any] | None, as_json: bool) -> None:
    if as_json:
        known = {key: (who or {}).get(key) for key in ("name", "kind", "mode")}
        click.echo(json.dumps({"context": name, "url": url, "checked": who is not None, **known}))
    if who is None:
        note(f"{url} cannot identify the token, so it was stored without a check.")
    elif who.get("mode") in ("local", "open"):
        note(f"{url} does not require tokens; yours was stored without a check.")
    if not as_json:
        identity = "" if who is None or who.get("mode") != "guarded" else f" as {who.get('name')}"
        say(f"Logged in to {url}{identity}; commands now use context {name}.")


def default_name(url: str) -> str:
    """Return a name for the server at a URL.

    >>> [default_name(url) for url in ("https://streams.example/v1/stream", "http://127.0.0.1:4437", "http://[::1]:1")]
    ['streams.example', '127.0.0.1-4437', '1-1']
    """
    parts = urlsplit(split_urls(url)[0])
    host = re.sub(r"[^A-Za-z0-9_.-]+", "-", parts.hostname or "").strip("-._") or "server"
    return (host if parts.port is None else f"{host[:58]}-{parts.port}")[:64]


def is_local(url: str) -> bool:
    """Return whether a URL points to this machine.

    >>> [is_local(url) for url in ("http://localhost:1", "http://127.0.0.2", "http://[::1]", "http://localhost.evil")]
    [True, True, True, False]
    """
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@click.group(
    cls=Verbs, invoke_without_command=True, epilog=epilog("headwater context ls", "headwater context use prod")
)
@JSON
@click.pass_context
def context(context: click.Context, as_json: bool) -> None:
    """List the servers that you have logged in to, or choose one."""
    if context.invoked_subcommand is None:
        _list(as_json)


@context.verb("headwater context ls", "headwater context ls --json")
@JSON
def ls(as_json: bool) -> None:
    """List the servers that you have logged in to."""
    _list(as_json)


def _list(as_json: bool) -> None:
    contexts = load_contexts(contexts_path())
    found = sorted(contexts.context.items())
    if as_json:
        json_list(
            {"context": name, "url": one.url, "token": _where(one), "current": name == contexts.current}
            for name, one in found
        )
        return
    rows = [("*" if name == contexts.current else "", name, one.url, _where(one)) for name, one in found]
    columns(("", "CONTEXT", "URL", "TOKEN"), rows, (False,) * 4, head=bool(rows))
    if not rows:
        say("You have not logged in anywhere; use `headwater login URL`.")


@context.verb("headwater context use prod")
@click.argument("name")
@JSON
def use(name: str, as_json: bool) -> None:
    """Use this server from now on."""
    contexts = load_contexts(contexts_path())
    url = find(contexts, name).url
    contexts.current = name
    save_contexts(contexts_path(), contexts)
    answer(as_json, {"context": name, "url": url}, f"Commands now use {url}.")


@context.verb("headwater context rm prod")
@click.argument("name")
@JSON
def rm(name: str, as_json: bool) -> None:
    """Forget a server and its token."""
    contexts = load_contexts(contexts_path())
    find(contexts, name)
    del contexts.context[name]
    if contexts.current == name:
        contexts.current = None
    save_contexts(contexts_path(), contexts)
    answer(
        as_json,
        {"context": name, "removed": True},
        f"Forgot {name}; the token is valid until it is revoked at the server.",
    )


def _where(context: Context) -> str:
    """Say where the token is, never what it is."""
    if context.token_file is not None:
        return context.token_file
    return "none" if context.token is None else "kept here"
