"""What only a terminal gets: remarks, colours, progress, questions; and what Ctrl-C does."""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from ..http.guarded import guarded
from .commands import Shell, in_terminal

ESCAPE = b"\x1b["


@pytest.fixture
def name(shell: Shell) -> str:
    name = f"demo/{secrets.token_hex(6)}"
    shell.ok("create", name, "hello", "--type", "text/plain")
    return name


def shown(shell: Shell, *arguments: str, env: dict[str, str] | None = None) -> bytes:
    """Return what a terminal shows of a command that succeeds."""
    with in_terminal(shell, *arguments, env=env) as started:
        assert started.end() == 0, started.printed
        return started.printed


def test_ctrl_c_ends_a_tail_with_success(shell: Shell, name: str) -> None:
    with in_terminal(shell, "tail", name, "--offset", "-1") as tail:
        tail.wait_for(b"hello")
        tail.type(b"\x03")
        assert tail.end() == 0
        assert b"Traceback" not in tail.printed
        assert b"Aborted" not in tail.printed


def test_a_command_says_on_a_terminal_what_it_did(shell: Shell, name: str) -> None:
    assert f"Appended 1 message to {name}".encode() in shown(shell, "append", name, "more")
    assert f"Closed {name}".encode() in shown(shell, "close", name)
    assert f"Deleted {name}".encode() in shown(shell, "rm", name)
    assert f"Created {name}".encode() in shown(shell, "create", name)
    assert b"exists already" in shown(shell, "create", name)


def test_a_listing_has_headings_on_a_terminal(shell: Shell, name: str) -> None:
    assert shown(shell, "ls", "demo").startswith(b"STREAM ")


def test_text_ends_with_a_line_end_on_a_terminal_only(shell: Shell, name: str) -> None:
    assert shown(shell, "read", name) == b"hello\r\n"
    assert shell.process("read", name).out == b"hello"


def test_binary_data_is_not_written_to_a_terminal(shell: Shell) -> None:
    name = f"demo/{secrets.token_hex(6)}"
    shell.ok("create", name, "-", stdin=b"\x00\x1b[31m")
    with in_terminal(shell, "read", name) as started:
        assert started.end() == 1
        assert b"--output FILE" in started.printed
        assert b"\x1b[31m" not in started.printed


def test_colours_are_only_for_terminals_without_no_color(shell: Shell) -> None:
    for verb in ("status", "doctor"):
        assert ESCAPE + b"32m" in shown(shell, verb)
        assert ESCAPE not in shown(shell, verb, env={"NO_COLOR": "1"})
        assert ESCAPE not in shell.process(verb).out


def test_a_benchmark_shows_progress_on_a_terminal_only(shell: Shell) -> None:
    run = ("bench", "append", "--streams", "3", "--connections", "3", "--seconds", "1")
    printed = shown(shell, *run)
    assert b" appends, " in printed
    assert b"none lost, doubled or changed" in printed
    done = shell.process(*run)
    assert (done.code, done.err) == (0, "")
    assert b" appends, " not in done.out


def test_typed_lines_are_appended(shell: Shell, name: str) -> None:
    with in_terminal(shell, "append", name, "--lines") as append:
        append.wait_for(b"Ctrl-D")
        append.type(b" world\n")
        append.wait_for(b" world")
        append.type(b"\x04")
        assert append.end() == 0
    assert shell.ok("read", name).out == b"hello world\n"


def test_deleting_by_prefix_asks_first(shell: Shell) -> None:
    bucket = f"asks{secrets.token_hex(4)}"
    shell.ok("bucket", "create", bucket)
    for number in range(3):
        shell.ok("create", f"{bucket}/{number}", "--type", "text/plain")
    for answer, code, left in ((b"n\n", 1, 3), (b"y\n", 0, 0)):
        with in_terminal(shell, "rm", "--prefix", f"{bucket}/") as started:
            started.wait_for(f"Delete 3 streams whose names begin with {bucket}/ at {shell.url}? [y/N]:".encode())
            started.type(answer)
            assert started.end() == code, started.printed
        assert len(shell.ok("ls", bucket).out.splitlines()) == left


def completed(shell: Shell, *words: str) -> list[str]:
    """Return what bash offers for the last word of a command line."""
    env = {
        "_HEADWATER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("headwater", *words)),
        "COMP_CWORD": str(len(words)),
    }
    script = "from headwater.cli import main; main(prog_name='headwater')"
    done = subprocess.run(
        [sys.executable, "-c", script], env=shell.env(env), capture_output=True, timeout=60, check=True
    )
    assert done.stderr == b""
    return [line.partition(",")[2] for line in done.stdout.decode().split()]


def test_a_shell_completes_verbs_options_and_names(shell: Shell, name: str) -> None:
    assert completed(shell, "re") == ["read"]
    assert completed(shell, "append", "x", "--li") == ["--lines"]
    assert completed(shell, "read", name[:-3]) == [name]
    shell.ok("create", "unnamed-bucket")
    assert completed(shell, "tail", "unn") == ["unnamed-bucket"]


def test_a_shell_completes_names_with_a_token_and_never_shows_it(tmp_path: Path) -> None:
    with guarded(tmp_path, {"reader": ["read demo/*"]}) as guard, guard.wire() as wire:
        put = {"Content-Type": "text/plain", **guard.bearer("root")}
        assert wire.ask("PUT", "/v1/stream/demo/one", put).status == 201
        token = guard.tokens["reader"]
        for shown, given in ((["demo/one"], token), ([], f"{token[:-1]}x"), ([], "two words")):
            shell = Shell(guard.server.url, {"HEADWATER_TOKEN": given})
            assert completed(shell, "read", "demo/") == shown
            assert not [word for word in completed(shell, "read", "--") if token[-20:-1] in word]
        file = tmp_path / "token"
        file.write_text(token)
        assert completed(Shell(guard.server.url), "read", "--token-file", str(file), "demo/") == ["demo/one"]
        assert completed(Shell(guard.server.url), "read", "--token-file", token, "demo/") == []


def test_a_shell_completes_nothing_and_says_nothing_without_a_server() -> None:
    assert completed(Shell("http://127.0.0.1:1"), "read", "demo/") == []
