"""`headwater token`: create an access file; create, list, revoke and check tokens; sign tickets.

Needs none of the server's packages, except to check the token of an identity provider. No argument or option takes a
secret: other users of the machine can see the arguments of a process.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from headwater.access import tickets, tokens
from headwater.access.document import PolicyError, TokenTable, parse_document, read_document, read_key_file
from headwater.access.grants import parse_grant
from headwater.access.identities import Denied
from headwater.access.jws import TOKEN_BYTES_MAX
from headwater.cli.commands import JSON, Verbs, as_seconds
from headwater.cli.failures import fail
from headwater.cli.printing import answer, listing, note, printable
from headwater.cli.tokens.checking import Question, Verdict, check_credential, check_id, parse_question
from headwater.cli.tokens.editing import FIRST_LINES, add_token, expiry, locked, remove_token, replace_file

FILE = click.Path(path_type=Path, dir_okay=False)
AUTH = click.option("--auth", type=FILE, envvar="HEADWATER_AUTH", help="Access file; or HEADWATER_AUTH.")
ADMIN_ID = "admin"
HEADS = ("ID", "EXPIRES", "LIMITS", "GRANTS", "NOTE")


@click.group(cls=Verbs, aliases={"make": "create", "list": "ls", "revoke": "rm"})
def token() -> None:
    """Create, list, revoke and check access tokens; sign tickets."""


@token.verb("headwater token init auth.toml")
@click.argument("path", metavar="FILE", type=FILE)
@JSON
def init(path: Path, as_json: bool) -> None:
    """Create an access file with an administrator's token.

    The token may do everything, and is printed once.
    """
    with _working():
        if path.exists():
            fail(f"{path} exists already; add a token to it with `headwater token create`.")
        made, entry = _new_token(ADMIN_ID, ("* *",))
        text = add_token(FIRST_LINES.format(name=path.name), entry, path)
        replace_file(path, text, is_new=True)
    _show(made, entry, as_json)


@token.verb(
    "headwater token create ingest 'append,create agents/*' --auth auth.toml",
    "headwater token create dashboard 'read public/*' 'observe *' --expires 90d > dashboard.token",
)
@click.argument("token_id", metavar="ID")
@click.argument("grants", metavar="GRANT...", nargs=-1, required=True)
@AUTH
@click.option("--expires", callback=as_seconds, help="Lifetime, such as 90d. Default: never expires.")
@click.option("--limits", help="Limits of the token: the NAME of a [limits.NAME] table in the file.")
@click.option("--note", "remark", default="", help="Remark to store with the token in the file.")
@JSON
def create(
    *,
    token_id: str,
    grants: tuple[str, ...],
    auth: Path | None,
    expires: float | None,
    limits: str | None,
    remark: str,
    as_json: bool,
) -> None:
    """Add a token to the access file, and print it once."""
    path = _path(auth)
    with _working(), locked(path):
        text = _read(path)
        document = parse_document(text.encode(), path)
        if any(one.id == token_id for one in document.token):
            fail(f"{path} has a token {token_id!r} already; choose another id, or revoke that one first.")
        if limits is not None and limits not in document.limits:
            fail(f"{path} does not define the limits {limits!r}; add [limits.{limits}] to it.")
        made, entry = _new_token(token_id, grants, expires, limits, remark)
        replace_file(path, add_token(text, entry, path))
    _show(made, entry, as_json)


@token.verb("headwater token ls --auth auth.toml", "headwater token ls --json")
@AUTH
@JSON
def ls(auth: Path | None, as_json: bool) -> None:
    """List the tokens in the access file, without their secrets."""
    with _working():
        found = read_document(_path(auth)).token
    listing(as_json, found, _facts, _row, heads=HEADS, right=(False,) * len(HEADS))


def _row(entry: TokenTable) -> list[str]:
    ends, grants = _moment(entry) or "never", "; ".join(entry.grants)
    return [entry.id, ends, entry.limits or "-", printable(grants), printable(entry.note)]


@token.verb("headwater token rm ingest --auth auth.toml")
@click.argument("token_id", metavar="ID")
@AUTH
@JSON
def rm(token_id: str, auth: Path | None, as_json: bool) -> None:
    """Revoke a token by removing it from the access file.

    A running server notices within seconds.
    """
    path = _path(auth)
    _refuse_secret(token_id)
    with _working(), locked(path):
        text = remove_token(_read(path), token_id, path)
        if text is None:
            fail(f"{path} has no token {token_id!r}; list them with `headwater token ls`.")
        replace_file(path, text)
    answer(as_json, {"id": token_id, "revoked": True}, f"Revoked token {token_id}.")


@token.verb(
    "headwater token sign --key app-2026.key --for 10m 'read chat/room-42'",
    "headwater token sign --key app.key --kid app-2026 --for 1h --sub user-17 'read,append chat/*'",
)
@click.argument("grants", metavar="GRANT...", nargs=-1, required=True)
@click.option("--key", type=FILE, required=True, help="Key file that a [[key]] in the access file names.")
@click.option("--kid", help="Id of that [[key]]. Default: the file's name without its suffix.")
@click.option("--for", "seconds", callback=as_seconds, required=True, help="Lifetime, such as 10m.")
@click.option("--sub", help="User that the ticket is for; used for logs, limits and revocation.")
@click.option("--jti", help="Id by which the ticket can be revoked.")
@click.option("--audience", help="Server that the ticket is for, if the [[key]] has an audience.")
@JSON
def sign(
    *,
    grants: tuple[str, ...],
    key: Path,
    kid: str | None,
    seconds: float,
    sub: str | None,
    jti: str | None,
    audience: str | None,
    as_json: bool,
) -> None:
    """Print a ticket: a short-lived signed token for one user."""
    with _working():
        secret = read_key_file(key, "--key")
        key_id = kid or tickets.default_key_id(key)
        ticket = tickets.sign(secret, grants, key_id=key_id, seconds=seconds, sub=sub, ticket_id=jti, audience=audience)
    click.echo(json.dumps({"ticket": ticket, "kid": key_id, "seconds": seconds}) if as_json else ticket)


@token.verb(
    "headwater token check ingest 'append agents/run-1' --auth auth.toml",
    "headwater token check 'read chat/*' --auth auth.toml < token.txt",
)
@click.argument("words", metavar="[ID] 'ACTION NAME'", nargs=-1, required=True)
@AUTH
@JSON
def check(words: tuple[str, ...], auth: Path | None, as_json: bool) -> None:
    """Check whether a token allows an action, and by which grant.

    The token is named by its ID, or read from HEADWATER_TOKEN or standard input. A NAME that ends with * stands
    for every name with that prefix, as in a listing.
    """
    path = _path(auth)
    if len(words) > 2:
        raise click.UsageError("Give an action and a name as one argument, as in 'append chat/room-42'.")
    for word in words:
        _refuse_secret(word)
    with _working():
        question = parse_question(words[-1])
        found = _check(path, words[0] if len(words) == 2 else None, question)
    _print_verdict(found, question, as_json)


def _check(path: Path, token_id: str | None, question: Question) -> Verdict:
    if token_id is not None:
        verdict = check_id(read_document(path), token_id, question)
        if verdict is None:
            fail(f"{path} has no token {token_id!r}; list them with `headwater token ls`.")
        return verdict
    credential = _credential()
    if credential.startswith(tokens.PREFIX) and tokens.id_of(credential.decode(errors="replace")) is None:
        fail("The token is incomplete or was changed, since its checksum does not fit; copy it again.")
    found = check_credential(path, credential, question)
    if isinstance(found, Denied):
        fail(f"The server would not accept this: {found.detail}", f"token_{found.reason.value}")
    return found


def _print_verdict(found: Verdict, question: Question, as_json: bool) -> None:
    asked = f"{question.action.word} {question.name}{'*' if question.is_prefix else ''}"
    if as_json:
        click.echo(json.dumps({"who": found.who, "asked": asked, "allowed": found.is_allowed, "why": found.why}))
    else:
        may = "may" if found.is_allowed else "may not"
        click.echo(f"{printable(found.who)} {may} {printable(asked)}: {printable(found.why)}.")
    if not found.is_allowed:
        sys.exit(1)


def _credential() -> bytes:
    """Return the token from the environment or standard input."""
    text = os.environ.get("HEADWATER_TOKEN", "").encode() or sys.stdin.buffer.read(TOKEN_BYTES_MAX + 2)
    if not text.strip():
        raise click.UsageError("Name a token by its ID, or give one by HEADWATER_TOKEN or standard input.")
    return text.strip()


def _refuse_secret(word: str) -> None:
    """Refuse a token among the arguments, where others can see it."""
    if tokens.id_of(word) is not None or word.startswith("eyJ"):
        raise click.UsageError("Do not give a token as an argument, which others can see; use standard input.")


def _new_token(
    token_id: str,
    grants: tuple[str, ...],
    seconds: float | None = None,
    limits: str | None = None,
    remark: str = "",
) -> tuple[str, TokenTable]:
    for grant in grants:
        parse_grant(grant)
    made = tokens.make(token_id)
    digest = tokens.digest(made.encode()).hex()
    ends = expiry(seconds)
    return made, TokenTable(id=token_id, sha256=digest, grants=list(grants), limits=limits, expires=ends, note=remark)


def _show(made: str, entry: TokenTable, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"token": made, **_facts(entry)}, ensure_ascii=False))
        return
    click.echo(made)
    if sys.stdout.isatty():
        note("Save the token now: the file stores only its digest, so it cannot be shown again.")


def _facts(entry: TokenTable) -> dict[str, object]:
    return {
        "id": entry.id,
        "grants": entry.grants,
        "expires": _moment(entry),
        "limits": entry.limits,
        "note": entry.note,
    }


def _moment(entry: TokenTable) -> str | None:
    return None if entry.expires is None else entry.expires.isoformat().replace("+00:00", "Z")


def _path(auth: Path | None) -> Path:
    if auth is None:
        raise click.UsageError("Name the access file with --auth or HEADWATER_AUTH.")
    return auth


def _read(path: Path) -> str:
    read_document(path)  # For its sentence, if the file is not usable.
    return path.read_bytes().decode()


@contextmanager
def _working() -> Iterator[None]:
    """Turn failures into an error message of one sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        fail(f"This needs the package {error.name}, which is not installed; run `pip install 'headwater[server]'`.")
    except PolicyError as error:
        fail(str(error))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        fail(f"{error.filename or 'The file'} cannot be read or written ({error.strerror}); check its path.")
