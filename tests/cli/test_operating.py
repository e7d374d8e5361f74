"""`headwater status` and `headwater flush`, and the tree of commands."""

import json
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from headwater.cli.tree import COMMANDS, SECTIONS, main
from headwater.testing import running_server

from .commands import Shell, commands_in, sentence

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_server(data=tmp_path_factory.mktemp("data")) as server:
        yield Shell(server.url)


def test_status_prints_lines_to_a_person_and_json_to_a_program(shell: Shell) -> None:
    found = json.loads(shell.ok("status", "--json").out)
    assert found["state"] == "ready"
    lines = shell.ok("status").text.splitlines()
    assert re.fullmatch(r"url +http://127\.0\.0\.1:\d+", lines[0])
    assert any(re.fullmatch(r"state +ready", line) for line in lines)
    assert any(re.fullmatch(rf"pid +{found['pid']}", line) for line in lines)
    assert any(re.fullmatch(r"connections +\d+ of [\d,]+", line) for line in lines)
    assert any(re.fullmatch(r"hot size +[\d.]+ (B|KiB) of 512\.0 MiB", line) for line in lines)
    assert any(re.fullmatch(r"lake url +file:///.*", line) for line in lines)
    assert any(re.fullmatch(rf"compiled +{'yes' if found['compiled'] else 'no'}", line) for line in lines)
    assert any(re.fullmatch(r"memory +no", line) for line in lines)
    names = [line.partition("  ")[0] for line in lines]
    assert len(set(names)) == len(names)


def test_flush_puts_everything_into_the_lake(shell: Shell) -> None:
    shell.ok("create", "flushed", "x" * 100, "--type", "text/plain")
    flushed = json.loads(shell.ok("flush", "--json").out)["positions"]["0"]
    assert json.loads(shell.ok("status", "--json").out)["lake"]["flushed_position"] == flushed
    assert shell.ok("flush").out == b""


def test_a_server_without_a_lake_says_so() -> None:
    with running_server() as server:
        shell = Shell(server.url)
        status = shell.ok("status").text
        assert re.search(r"^lake +none$", status, re.MULTILINE)
        assert re.search(r"^memory +yes, nothing is kept$", status, re.MULTILINE)
        sentence(shell("flush"))


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run something else than a Headwater server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopping = threading.Event()
        listener.settimeout(0.05)
        received: list[bytes] = []

        def serve() -> None:
            while not stopping.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    received.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
        finally:
            stopping.set()
            thread.join()


def test_another_web_server_is_not_taken_for_headwater() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"
    with answering(page) as (url, _):
        shell = Shell(url)
        for verb in (["status"], ["flush"], ["show", "x"], ["read", "x"], ["ls"], ["close", "x"]):
            assert "--url" in sentence(shell(*verb)), verb


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_is_sent_with_a_header(status: int) -> None:
    answer = b"HTTP/1.1 %d No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope" % status
    with answering(answer) as (url, received):
        advice = {401: f"run `headwater login {url}`", 403: "ask its operator for the right"}
        assert advice[status] in sentence(Shell(url)("read", "x"))
        for verb in (["read", "x"], ["status"], ["ls"], ["bench", "append", "--streams", "1"]):
            received.clear()
            assert Shell(url)(*verb, "--header", "Authorization: Bearer mine").code == 1
            assert b"authorization: bearer mine\r\n" in received[0].lower(), verb


# -- The tree ----------------------------------------------------------------------------------------------------------


def test_every_command_has_help_and_is_listed_with_it(shell: Shell) -> None:
    listed = re.findall(r"^  ([a-z]+)  +(\S.*)", shell.ok("--help").text, re.MULTILINE)
    assert [name for name, _ in listed] == list(COMMANDS)
    assert [name for name, help in listed if help.endswith("...")] in ([], ["spark"])
    for name in COMMANDS:
        text = shell.ok(name, "--help").text
        assert text.startswith("Usage: ")
        assert not re.search(r"\.\.\.$", text.partition("Commands:")[2], re.MULTILINE), name


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be run, with its full name."""
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for verb in command.list_commands(context):
                found = command.get_command(context, verb)
                assert found is not None
                yield f"{name} {verb}", found
        else:
            yield name, command


def test_every_command_shows_examples_that_it_understands() -> None:
    for name, command in commands():
        # The verbs of Spark have their examples in the guides.
        if name.startswith("spark "):
            continue
        shown = commands_in(command)
        assert shown, name
        for line in shown:
            words = re.sub(r" [<>|] .*$", "", line[line.index("headwater ") :])
            assert words.startswith(f"headwater {name}"), line
            command.make_context(name, shlex.split(words.removeprefix(f"headwater {name}")))


def test_every_option_explains_itself() -> None:
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not name.startswith("spark "):
                assert parameter.help or parameter.hidden, (name, parameter.name)


def test_an_unlike_option_is_not_suggested(shell: Shell) -> None:
    done = shell("serve", "--token", "x")
    assert (done.code, "--lake" in done.err) == (2, False)
    assert "--offset" in shell("read", "x", "--ofset", "1").err


def test_every_verb_that_answers_can_answer_in_json(shell: Shell) -> None:
    for name in COMMANDS:
        text = shell.ok(name, "--help").text
        verbs = re.findall(r"^  ([a-z]+)  ", text.partition("Commands:")[2], re.MULTILINE)
        for verb in verbs or [""]:
            if name != "serve":
                assert "--json" in shell.ok(*f"{name} {verb}".split(), "--help").text, (name, verb)


def test_an_unknown_command_is_wrong_usage(shell: Shell) -> None:
    assert sentence(shell("xyz"), code=2).endswith(" --help` lists all.")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("reed x", "read"),
        ("list", "ls"),
        ("delete x", "rm"),
        ("bucket list", "ls"),
        ("token lst", "ls"),
        ("get x", "read"),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest_one(shell: Shell, typed: str, meant: str) -> None:
    assert sentence(shell(*typed.split()), code=2).endswith(f"; the nearest one is {meant}.")


def test_commands_that_need_no_lake_do_not_load_what_reads_lakes(shell: Shell) -> None:
    done = shell.bash("PYTHONPROFILEIMPORTTIME=1 headwater status --json")
    assert done.code == 0
    assert "headwater.client" in done.err
    assert "pyarrow" not in done.err


def test_the_reference_has_an_example_of_every_command(shell: Shell) -> None:
    examples = "\n".join(re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    for name in COMMANDS:
        verbs = re.findall(r"^  ([a-z]+)  ", shell.ok(name, "--help").text.partition("Commands:")[2], re.MULTILINE)
        for verb in verbs or [""]:
            assert f"headwater {name} {verb}".strip() in examples or name in ("serve", "lake"), (name, verb)


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ("head", "show"),
        ("bucket make", "bucket create"),
        ("snapshot put", "snapshot create"),
        ("snapshot get", "snapshot show"),
        ("lake stat", "lake show"),
        ("token make", "token create"),
        ("token list", "token ls"),
        ("token revoke", "token rm"),
    ],
)
def test_an_earlier_name_of_a_command_works_and_is_not_listed(shell: Shell, earlier: str, now: str) -> None:
    assert shell.ok(*earlier.split(), "--help").text == shell.ok(*now.split(), "--help").text
    *group, verb = earlier.split()
    assert not re.search(rf"^  {verb} ", shell.ok(*group, "--help").text, re.MULTILINE)


def test_the_help_has_sections(shell: Shell) -> None:
    assert re.findall(r"^(\w+):$", shell.ok("--help").text, re.MULTILINE) == ["Options", *SECTIONS]
