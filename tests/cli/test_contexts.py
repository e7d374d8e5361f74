"""Contexts and tokens: which server a command talks to, what it sends, and what it says when it is refused."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.contexts.choosing import Destination, choose
from headwater.cli.contexts.store import Context, Contexts, contexts_path, load_contexts, save_contexts
from headwater.client import Client
from headwater.testing import RunningServer, running_server

from ..client.guarding import (
    EXPIRED,
    FORBIDDEN,
    HOST_REFUSED,
    PRODUCER_FORBIDDEN,
    QUOTA_EXCEEDED,
    RATE_LIMITED,
    UNAUTHORIZED,
    Guard,
    Refusal,
)
from .commands import Done, Shell, in_terminal, running, sentence

SECRET = "hw_ci_not-a-real-secret"


class Home(Shell):
    """Commands of a person with their own folder for settings, and no variables that name a server or token."""

    def __init__(self, folder: Path) -> None:
        super().__init__("")
        self.variables = {"XDG_CONFIG_HOME": str(folder)}
        self.path = contexts_path(self.variables)

    def env(self, more: object = None) -> dict[str, str]:
        names = ("HEADWATER_URL", "HEADWATER_TOKEN", "HEADWATER_TOKEN_FILE", "HEADWATER_CONTEXT", "STREAM_AUTH")
        kept = {name: value for name, value in super().env().items() if name not in names}
        return {**kept, **self.variables}

    def with_variables(self, **variables: str) -> "Home":
        found = Home(self.path.parents[1])
        found.variables |= variables
        return found

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        return self.process(*arguments, stdin=stdin)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def guard(server: RunningServer) -> Iterator[Guard]:
    with Guard(server.url, SECRET).running() as guard:
        yield guard


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "config")


# -- Logging in --------------------------------------------------------------------------------------------------------


def test_a_token_from_a_pipe_is_checked_and_kept_for_its_owner_only(home: Home, guard: Guard) -> None:
    done = home.ok("login", guard.url, "--name", "prod", "--json", stdin=f"{SECRET}\n".encode())
    assert json.loads(done.out) == {
        "context": "prod",
        "url": guard.url,
        "checked": True,
        "name": SECRET,
        "kind": "token",
        "mode": "guarded",
    }
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.path.parent.stat().st_mode) == 0o700
    assert list(home.path.parent.iterdir()) == [home.path]
    assert load_contexts(home.path) == Contexts("prod", {"prod": Context(guard.url, SECRET)})
    home.ok("create", "kept", "--type", "text/plain")
    assert {seen.authorization for seen in guard.seen} == {f"Bearer {SECRET}"}


def test_a_terminal_does_not_show_the_token(home: Home, guard: Guard) -> None:
    with in_terminal(home, "login", guard.url) as login:
        login.wait_for(b"Token: ")
        login.type(f"{SECRET}\n".encode())
        assert login.end() == 0
    assert f"Logged in to {guard.url} as ".encode() in login.printed
    # The guard calls a token by its value; the input itself was not echoed.
    assert login.printed.count(SECRET.encode()) == 1
    (name,) = load_contexts(home.path).context
    assert name == guard.url.removeprefix("http://").replace(":", "-")


def test_a_token_that_is_refused_is_not_kept(home: Home, guard: Guard) -> None:
    said = sentence(home("login", guard.url, stdin=b"wrong"))
    assert "needs a valid token" in said and "wrong" not in said
    assert not home.path.exists()


def test_a_token_is_kept_if_the_server_cannot_check_it(home: Home, guard: Guard) -> None:
    guard.has_whoami = False
    guard.planned = [Refusal(404, "not_found")]
    done = home("login", guard.url, stdin=SECRET.encode())
    assert done.code == 0 and "stored without a check" in done.err
    assert load_contexts(home.path).current is not None


def test_a_token_file_is_remembered_by_its_path_and_read_for_each_command(
    home: Home, guard: Guard, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    home.ok("login", guard.url, "--token-file", str(file))
    assert SECRET not in home.path.read_text()
    guard.valid.add("second")
    file.write_text("second")
    home.ok("status", "--json")
    assert guard.seen[-1].authorization == "Bearer second"
    file.unlink()
    assert "The file of the token does not exist" in sentence(home("status"))


@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        (("nothing",), SECRET, 2),
        (("http://ada:secret@h",), SECRET, 2),
        (("http://h", "--name", "a b"), SECRET, 2),
        (("http://h",), "", 1),
        (("http://h",), "Bearer x", 1),
    ],
)
def test_login_refuses_what_cannot_work(home: Home, arguments: tuple[str, ...], stdin: str, code: int) -> None:
    done = home("login", *arguments, stdin=stdin.encode())
    sentence(done, code)
    assert "secret" not in done.err and not home.path.exists()


def test_contexts_are_listed_chosen_and_forgotten_without_showing_a_token(home: Home, guard: Guard) -> None:
    for name in ("one", "two"):
        home.ok("login", guard.url, "--name", name, stdin=SECRET.encode())
    shown = home.ok("context").text
    assert SECRET not in shown
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["one", guard.url, "kept", "here"],
        ["*", "two", guard.url, "kept", "here"],
    ]
    home.ok("context", "use", "one")
    listed = json.loads(home.ok("context", "--json").out)
    assert [one["context"] for one in listed if one["current"]] == ["one"]
    home.ok("context", "rm", "one")
    assert load_contexts(home.path) == Contexts(None, {"two": Context(guard.url, SECRET)})
    assert "There is no context 'one' (there are: two)" in sentence(home("context", "use", "one"), 2)


def test_a_broken_file_is_named(home: Home) -> None:
    home.path.parent.mkdir(parents=True)
    for text in ("current = ", "[context.a]\nurl = 1", "[context.a]\nurl = 'x'", "unknown = 1", "\udcff"):
        home.path.write_bytes(text.encode(errors="surrogateescape"))
        assert str(home.path) in sentence(home("context"))


def test_a_file_of_contexts_survives_names_and_values_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "new" / "contexts.toml"
    contexts = Contexts(
        'a"b.c', {'a"b.c': Context("http://h", 'q"\\\x7f\té'), "d": Context("http://h", None, "/f", "/c")}
    )
    save_contexts(path, contexts)
    assert load_contexts(path) == contexts
    assert "q" not in repr(contexts.context)


# -- Which server, which token -----------------------------------------------------------------------------------------


def at(home: Home, url: str | None = None, context: str | None = None, **options: object) -> Destination:
    file, headers = options.get("token_file"), options.get("headers")
    assert file is None or isinstance(file, Path)
    assert headers is None or isinstance(headers, dict)
    return choose(url, context, file, headers or {}, home.variables)


@pytest.fixture
def two(home: Home) -> Home:
    save_contexts(
        home.path, Contexts("dev", {"dev": Context("http://dev:1", "d"), "prod": Context("https://prod", "p")})
    )
    return home


def test_the_server_is_the_one_that_is_named_or_the_contexts_or_this_machine(two: Home, tmp_path: Path) -> None:
    assert at(two, "http://other", "prod").url == "http://other"
    assert at(two, None, "prod").url == "https://prod"
    assert at(two).url == "http://dev:1"
    nobody = Home(tmp_path / "nobody")
    assert (at(nobody).url, at(nobody).named, at(two).named) == ("http://127.0.0.1:4437", False, True)


def test_a_contexts_token_is_sent_to_its_own_server_only(two: Home) -> None:
    assert at(two).token == "d"
    assert at(two, "http://dev:1/v1/stream").token == "d"
    assert at(two, "https://PROD:443/", "prod").token == "p"
    for url in ("http://dev:2", "https://dev:1", "http://dev.evil:1", "http://dev:1/other", "https://prod", "http://x"):
        assert at(two, url).token is None, url
    for url in ("http://prod", "https://prod:1", "https://prod.evil", "http://dev:1"):
        assert at(two, url, "prod").token is None, url


def test_the_token_is_the_first_that_is_given(two: Home, tmp_path: Path) -> None:
    file, flag = tmp_path / "file", tmp_path / "flag"
    file.write_text("from-file\n")
    flag.write_text("from-flag")
    whole = two.with_variables(STREAM_AUTH="Bearer official")
    assert at(whole).request_headers() == {"Authorization": "Bearer d"}
    assert at(whole, "http://x").request_headers() == {"Authorization": "Bearer official"}
    by_file = whole.with_variables(**whole.variables, HEADWATER_TOKEN_FILE=str(file))
    assert at(by_file).request_headers() == {"Authorization": "Bearer from-file"}
    by_value = by_file.with_variables(**by_file.variables, HEADWATER_TOKEN="from-value")
    assert at(by_value).request_headers() == {"Authorization": "Bearer from-value"}
    assert at(by_value, token_file=flag).request_headers() == {"Authorization": "Bearer from-flag"}
    given = {"authorization": "Basic x"}
    assert at(by_value, headers=given).request_headers() == given
    assert at(by_value, "http://ada:pw@x").request_headers() == {"Authorization": "Basic YWRhOnB3"}


def test_no_token_is_shown(two: Home) -> None:
    assert "'d'" not in repr(at(two)) and "secret" not in repr(at(two, headers={"X-Key": "secret"}))


def test_a_stream_at_a_url_of_another_server_gets_no_token(home: Home, guard: Guard, server: RunningServer) -> None:
    """Names of streams may be URLs; the guard stands for the other server here."""
    save_contexts(home.path, Contexts("mine", {"mine": Context(server.url, SECRET)}))
    with Client(server.url) as client:
        client.stream("numbered").create("application/json", body="[1]")
    for variables in ({}, {"STREAM_AUTH": f"Bearer {SECRET}"}):
        other = home.with_variables(**home.variables, **variables)
        sentence(other("read", f"{guard.url}/v1/stream/x"))
        assert b"1" in other.ok("read", "numbered", "--records").out
        sentence(other("read", f"{guard.url}/v1/stream/x", "--records"))
    assert {seen.authorization for seen in guard.seen} == {None}


def test_a_context_that_is_overruled_is_mentioned(home: Home, guard: Guard, server: RunningServer) -> None:
    save_contexts(home.path, Contexts(None, {"prod": Context(guard.url, SECRET)}))
    done = home("status", "--url", server.url, "--context", "prod", "--json")
    assert (
        done.code == 0 and done.err == f"Context prod is not used, because --url or HEADWATER_URL names {server.url}.\n"
    )
    assert not guard.seen


@pytest.mark.parametrize("variable", ["HEADWATER_TOKEN", "HEADWATER_TOKEN_FILE", "STREAM_AUTH"])
def test_an_invalid_token_is_refused_without_repeating_it(home: Home, tmp_path: Path, variable: str) -> None:
    bad = "not one\tword"
    file = tmp_path / "token"
    file.write_text(bad)
    home.variables[variable] = str(file) if variable.endswith("FILE") else bad
    done = home("status")
    assert done.code in (1, 2) and "not one\t" not in done.err and "Traceback" not in done.err


# -- Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (UNAUTHORIZED, "run `headwater login {url}`"),
        (EXPIRED, "has expired; get a new one, and run `headwater login {url}`"),
        (FORBIDDEN, "'reader' may not delete 'chat/room-42'; ask its operator for the right"),
        (PRODUCER_FORBIDDEN, "'reader' may not append to 'chat/x'; ask its operator for the right"),
        (HOST_REFUSED, "start it with --hosts"),
        (RATE_LIMITED, "try again in 1 s, or raise --retry-seconds"),
        (QUOTA_EXCEEDED, "Bucket 'chat' may hold no more than 10 streams; delete streams"),
    ],
    ids=lambda one: one.code if isinstance(one, Refusal) else "",
)
def test_each_refusal_is_a_sentence_with_the_next_step(home: Home, guard: Guard, refusal: Refusal, words: str) -> None:
    home.variables["HEADWATER_TOKEN"] = SECRET
    for arguments in (("create", "x", "--type", "text/plain"), ("ls",), ("status",)):
        guard.planned = [refusal]
        done = home(*arguments, "--url", guard.url, "--retry-seconds", "0")
        assert words.format(url=guard.url) in sentence(done)
        assert SECRET not in done.err


@pytest.mark.parametrize(
    ("refusal", "code"), [(UNAUTHORIZED, "unauthorized"), (EXPIRED, "token_expired"), (FORBIDDEN, "forbidden")]
)
def test_the_refusal_of_a_head_says_as_much_as_its_headers_do(
    home: Home, guard: Guard, refusal: Refusal, code: str
) -> None:
    home.variables["HEADWATER_TOKEN"] = SECRET
    guard.planned = [refusal]
    done = home("show", "x", "--url", guard.url, "--json")
    assert json.loads(done.err)["error"] == code


# -- Following ---------------------------------------------------------------------------------------------------------


def test_tail_goes_on_when_its_token_file_is_renewed_and_ends_when_it_is_not(
    home: Home, guard: Guard, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    at = ("--url", guard.url, "--token-file", str(file))
    home.ok("create", "followed", "one\n", "--type", "text/plain", *at)
    with running(home, "tail", "followed", "--offset", "-1", *at) as tail:
        tail.wait_for(b"one")
        guard.valid.add("second")
        file.write_text("second")
        guard.expire(SECRET)
        home.ok("append", "followed", "two\n", *at)
        tail.wait_for(b"two")
        guard.expire("second")
        assert tail.end() == 1
    assert tail.printed.startswith(b"one\ntwo\n") and b"has expired; get a new one" in tail.printed
