"""`headwater context`: the servers that you have logged in to, and which one commands use."""

import json
import os

import click

from headwater.cli.commands import JSON, Verbs, epilog
from headwater.cli.contexts.choosing import find, load_or_fail
from headwater.cli.contexts.store import Context, Contexts, ContextsInvalid, contexts_path, save_contexts
from headwater.cli.failures import fail
from headwater.cli.printing import columns, json_list, say


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
    contexts = load_or_fail()
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
    contexts = load_or_fail()
    url = find(contexts, name).url
    contexts.current = name
    _save(contexts)
    if as_json:
        click.echo(json.dumps({"context": name, "url": url}))
    else:
        say(f"Commands now use {url}.")


@context.verb("headwater context rm prod")
@click.argument("name")
@JSON
def rm(name: str, as_json: bool) -> None:
    """Forget a server and its token."""
    contexts = load_or_fail()
    find(contexts, name)
    del contexts.context[name]
    if contexts.current == name:
        contexts.current = None
    _save(contexts)
    if as_json:
        click.echo(json.dumps({"context": name, "removed": True}))
    else:
        say(f"Forgot {name}; the token is valid until it is revoked at the server.")


def _where(context: Context) -> str:
    """Say where the token is, never what it is."""
    if context.token_file is not None:
        return context.token_file
    return "none" if context.token is None else "kept here"


def _save(contexts: Contexts) -> None:
    try:
        save_contexts(contexts_path(os.environ), contexts)
    except ContextsInvalid as error:
        fail(str(error))
