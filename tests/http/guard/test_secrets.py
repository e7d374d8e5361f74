"""Tokens, tickets and keys are in nothing that the server writes, answers or prints, whatever happens to a request."""

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from traceback import format_exception

import pytest
from click.testing import CliRunner

from headwater.access.identities import Identity, Moment
from headwater.access.policy import load
from headwater.cli.serve import serve
from headwater.client import Client, ClientError
from headwater.client.settings import ClientSettings
from headwater.http.guard.gates import Guard
from headwater.settings import Settings

from ..guarded import Guarded, guarded
from ..processes import eventually
from ..sockets import request

pytestmark = pytest.mark.attack

TEXT = {"Content-Type": "text/plain"}
ONE, SNAPSHOT = "/v1/stream/mine/one", "/mine/folded/snapshot/9"
TARGETS = [
    ONE,
    f"{ONE}?offset=bad",
    "/v1/stream/theirs/one",
    "/v1/stream/none",
    "/mine/none/snapshot",
    SNAPSHOT,
    "/__headwater/tail?s=theirs/one@-1",
    "/__headwater/streams?prefix=t",
    "/__headwater/none",
    "/healthz",
]


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server that logs all it can, and whose snapshot cannot be opened."""
    folder = tmp_path_factory.mktemp("secrets")
    flags = ("--audit", str(folder / "audit.log"), "--access-log", "--log-level", "debug")
    with guarded(folder, {"reader": ["read mine/*"]}, *flags, data=folder / "data") as found:
        with found.wire() as wire:
            root = found.bearer("root")
            assert wire.ask("PUT", "/mine", root).status == 201
            for path in ("/mine/one", "/mine/folded"):
                assert wire.ask("PUT", path, {**TEXT, **root}, b"some text").status == 201
            assert wire.ask("PUT", SNAPSHOT, {**TEXT, **root}, b"folded").status == 204
        (blob,) = (folder / "data" / "snapshots").iterdir()
        blob.unlink()
        blob.mkdir()
        yield found


@pytest.fixture(scope="module")
def credentials(guard: Guarded) -> dict[str, str]:
    """Good ones and bad ones."""
    token, ticket = guard.tokens["reader"], guard.ticket("read mine/*")
    found = {"token": token, "cut": token[:-1], "longer": f"{token}x", "ticket": ticket}
    found |= {"ended": guard.ticket("read mine/*", seconds=0.001), "of others": guard.ticket("read theirs/*")}
    # Last, because after some wrong signatures no ticket of this address is looked at for a second.
    return found | {"forged": f"{ticket}x"}


@pytest.fixture(scope="module")
def secrets(guard: Guarded, credentials: dict[str, str]) -> dict[str, str]:
    """What may be nowhere: of a ticket it is the signature, without which the rest is worth nothing."""
    return guard.secrets() | {kind: text.rpartition(".")[2][:30] for kind, text in credentials.items()}


def leaks(secrets: dict[str, str], text: str | bytes) -> list[str]:
    text = text if isinstance(text, str) else text.decode("latin-1")
    return [what for what, secret in secrets.items() if secret in text]


def requests(credential: str, target: str) -> Iterator[bytes]:
    """Requests with a credential in every place where one may be, or might be by mistake."""
    query = f"{target}{'&' if '?' in target else '?'}access_token={credential}"
    bearer = {"Authorization": f"Bearer {credential}"}
    yield request("GET", target, bearer)
    yield request("POST", target, {**TEXT, **bearer}, b"x")
    yield request("GET", target, {"Authorization": f"Basic {credential}"})
    yield request("GET", query)
    yield request("POST", query, TEXT, b"x")
    yield request("GET", query, bearer)
    yield request("GET", query, {**bearer, "Content-Length": "x"})
    yield request("GET", query, {**bearer, "X-Long": "x" * 40_000})


def test_no_answer_and_no_log_has_a_part_of_a_credential(
    guard: Guarded, credentials: dict[str, str], secrets: dict[str, str]
) -> None:
    statuses = set()
    for credential, target in product(credentials.values(), TARGETS):
        for data in requests(credential, target):
            with guard.wire() as wire:
                wire.send(data)
                response = wire.receive()
                statuses.add(response.status)
                assert not leaks(secrets, response.head + response.body), (data[:300], response)
    # Every kind of answer was there, and the traceback of the snapshot that cannot be opened.
    assert statuses >= {200, 400, 401, 403, 404, 431, 500}
    assert eventually(lambda: "IsADirectoryError" in guard.server.output())
    assert "Traceback" in guard.server.output()
    assert f"GET {ONE} 200" in guard.server.output()
    assert not leaks(secrets, guard.server.output())
    audit = guard.file.parent / "audit.log"
    assert eventually(lambda: '"denied"' in audit.read_text())
    assert not leaks(secrets, audit.read_text())


@pytest.mark.parametrize("path", ["/metrics", "/__headwater/usage", "/__headwater/status", "/__headwater/whoami"])
def test_what_the_server_says_about_itself_has_no_secret(guard: Guarded, secrets: dict[str, str], path: str) -> None:
    with guard.wire() as wire:
        for data in requests(guard.tokens["reader"], ONE):
            with guard.wire() as other:
                other.send(data)
                other.receive()
        response = wire.ask("GET", path, guard.bearer("root"))
        assert response.status == 200
        assert not leaks(secrets, response.head + response.body)


def test_what_is_printed_of_rules_and_identities_has_no_secret(guard: Guarded, secrets: dict[str, str]) -> None:
    policy, now = load(guard.file), Moment(time.time(), time.monotonic())
    ticket, token = guard.ticket("read mine/*").encode(), guard.tokens["reader"].encode()
    judge = Guard(policy)
    identities = [policy.identify_bearer(credential, now) for credential in (ticket, token)]
    assert all(isinstance(found, Identity) for found in identities)
    denied = [policy.identify_bearer(credential + b"x", now) for credential in (ticket, token)]
    assert not any(isinstance(found, Identity) for found in denied)
    signature = {"this ticket": ticket.decode().rpartition(".")[2][:30]}
    settings = Settings(auth=str(guard.file))
    for thing in (policy, judge, settings, *policy.keys.values(), *policy.tokens.values(), *identities, *denied):
        assert not leaks(secrets | signature, f"{thing!r} {thing}"), type(thing)


def test_what_is_printed_of_a_client_and_its_errors_has_no_secret(guard: Guarded, secrets: dict[str, str]) -> None:
    token, url = guard.tokens["reader"], guard.server.url
    bearer = {"Authorization": f"Bearer {token}"}
    with_password = url.replace("//", f"//reader:{token}@")
    for settings in (
        ClientSettings(url, token=token),
        ClientSettings(url, headers=bearer),
        ClientSettings(url, params={"access_token": token}),
        ClientSettings(with_password),
    ):
        assert not leaks(secrets, f"{settings!r} {settings}")
    with Client(url, token=token) as client:
        assert not leaks(secrets, f"{client!r} {client.stream('theirs/one')!r}")
        with pytest.raises(ClientError) as raised:
            client.stream("theirs/one").read()
        assert not leaks(secrets, "".join(format_exception(raised.value)) + repr(raised.value))


MISTAKES = {
    "a token instead of its digest": ('sha256 = "', 'sha256 = "{token}'),
    "a key in another field": ('file = "app.key"', 'file = "app.key"\nsecret = "{key}"'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_secret_in_the_wrong_place_of_the_access_file_is_not_repeated(tmp_path: Path, mistake: str) -> None:
    wrong = Guarded(tmp_path)
    wrong.write({"reader": ["read mine/*"]})
    before, after = MISTAKES[mistake]
    key = (tmp_path / "app.key").read_text()
    text = wrong.file.read_text()
    assert before in text
    wrong.file.write_text(text.replace(before, after.format(token=wrong.tokens["reader"], key=key)))
    done = CliRunner().invoke(serve, ["--memory", "--port", "0", "--auth", str(wrong.file)])
    assert done.exit_code == 2
    assert not leaks(wrong.secrets(), done.output), done.output


def test_a_key_that_cannot_be_used_is_not_repeated(tmp_path: Path) -> None:
    wrong = Guarded(tmp_path)
    wrong.write({})
    for text in ("marker-of-a-short-key", "marker/of*a key in no encoding" * 3, "marker\nin\nlines"):
        (tmp_path / "app.key").write_text(text)
        done = CliRunner().invoke(serve, ["--memory", "--port", "0", "--auth", str(wrong.file)])
        assert done.exit_code == 2
        assert "marker" not in done.output
