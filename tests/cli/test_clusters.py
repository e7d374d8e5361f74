"""Commands with the URLs of several nodes, some of which are dead."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli import failures
from headwater.cli.contexts.choosing import choose
from headwater.cli.contexts.store import Context, Contexts, contexts_path, load_contexts, save_contexts
from headwater.client import OutcomeUnknown, RetryPolicy
from headwater.client.retrying import attempt
from headwater.client.wire import Request, Response
from headwater.testing import RunningServer, running_server

from ..client.fronts import Front, fronts_of
from ..client.script import Script
from .commands import Shell, sentence

A, B, C = "http://a:1", "http://b:1", "http://c:1"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def fronts(server: RunningServer) -> Iterator[list[Front]]:
    with fronts_of(server.url) as fronts:
        yield fronts


def shell_of(fronts: list[Front]) -> Shell:
    """Commands that find the URLs in HEADWATER_URL."""
    return Shell(",".join(front.url for front in fronts))


@pytest.mark.parametrize("dead", [0, 1])
def test_commands_use_the_next_node(fronts: list[Front], dead: int) -> None:
    shell, name = shell_of(fronts), f"next-{dead}"
    fronts[dead].kill()
    shell.ok("create", name, "--type", "application/json")
    shell.ok("append", name, stdin=b'{"n": 1}\n')
    assert b'{"n": 1}' in shell.ok("read", name).out
    assert shell.ok("read", name, "--records").out
    assert name in shell.ok("ls").text
    assert shell.ok("status", "--json").out
    urls = ",".join(front.url for front in fronts)
    assert Shell("http://127.0.0.1:9").ok("show", name, "--url", urls).out


def test_a_command_says_that_no_node_answers(fronts: list[Front]) -> None:
    shell = shell_of(fronts)
    for front in fronts:
        front.kill()
    done = shell("show", "s", "--retry-seconds", "0")
    urls = ", ".join(front.url for front in fronts)
    assert done.code == 1
    assert sentence(done).startswith(f"None of 3 servers answers ({urls}); start one with `headwater serve`")


def test_a_command_says_that_the_outcome_of_a_write_is_unknown() -> None:
    request, answer = Request("POST", f"{A}/s"), Response(503, body=b'{"code": "outcome_unknown"}')
    with pytest.raises(OutcomeUnknown) as caught:
        Script([answer]).run(attempt(request, RetryPolicy(), repeatable=False))
    said = failures.sentence(caught.value, f"{A},{B}", "s")
    assert said.startswith(
        f"The server at {A},{B} does not know what became of the write, so part of the data may have"
    )


def test_doctor_checks_each_node(fronts: list[Front]) -> None:
    shell = shell_of(fronts)
    fronts[1].kill()
    done = shell("doctor", "--json")
    found = [(one["verdict"], one["detail"]) for one in json.loads(done.out) if one["check"] == "server"]
    assert [verdict for verdict, _ in found] == ["ok", "problem", "ok"]
    assert all(front.url in detail for front, (_, detail) in zip(fronts, found, strict=True))


def test_bench_measures_one_node(fronts: list[Front]) -> None:
    done = shell_of(fronts)("bench", "append")
    assert (done.code, "give the URL of one node" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"{A},{A}/", "http://a:1/ is given twice; name each node once."),
        (f"{A},https://b:1", "have different schemes"),
        (f"{A},{B}/ds", "have different paths"),
        (f"{A},b:1", "'http://a:1,b:1' is not the URL of a server"),
        (f"{A},", "'http://a:1,' is not the URL of a server"),
    ],
)
def test_urls_that_are_not_those_of_one_cluster_are_wrong_usage(url: str, said: str) -> None:
    for arguments in (("show", "s", "--url", url), ("login", url)):
        done = Shell(A)(*arguments)
        assert done.code == 2 and said in " ".join(done.err.split())


def test_the_token_of_a_context_is_for_its_nodes_only(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    cluster = Context(f"{A},{B}", token="t")
    save_contexts(contexts_path(environment), Contexts("cluster", {"cluster": cluster}))

    def token(url: str | None) -> str | None:
        return choose(url, None, None, {}, environment).token

    assert choose(None, None, None, {}, environment).url == f"{A},{B}"
    assert [token(url) for url in (None, A, f"{B}/", f"{B},{A}")] == ["t"] * 4
    assert [token(url) for url in (C, f"{A},{C}", "https://a:1")] == [None] * 3


def test_a_password_in_one_url_is_sent_to_all_and_not_shown(tmp_path: Path) -> None:
    found = choose("http://ada:secret@a:1/,http://b:1", None, None, {}, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert found.url == f"{A},{B}" and found.headers == {"Authorization": "Basic YWRhOnNlY3JldA=="}
    assert "secret" not in repr(found)


def test_login_keeps_all_urls(fronts: list[Front], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fronts[0].kill()
    urls = ",".join(front.url for front in fronts)
    done = Shell(A)("login", f"{urls}/", "--name", "cluster", stdin=b"token")
    assert done.code == 0, done
    kept = load_contexts(contexts_path({"XDG_CONFIG_HOME": str(tmp_path)}))
    assert kept.context["cluster"].url == urls and kept.current == "cluster"
