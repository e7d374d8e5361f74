"""Ways to run the command: in this process where possible, in its own process, and in a terminal."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import click
from click.testing import CliRunner

from headwater.cli import main

from ..http.processes import eventually

TIMEOUT_SECONDS = 60.0
COMMAND = [sys.executable, "-m", "headwater"]
# A background process of a shell starts with Ctrl-C ignored, and its children inherit that.
IN_TERMINAL = (
    "import os, pty, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
)


class Done(NamedTuple):
    """A command's exit code and output."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


class Shell:
    """Runs commands against one server."""

    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        self.url, self._environment = url, dict(environment or {})

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Run a command in this process."""
        result = CliRunner().invoke(main, arguments, input=stdin, env=self.env())
        error = result.exception
        assert error is None or isinstance(error, SystemExit), result.exc_info
        return Done(result.exit_code, result.stdout_bytes, result.stderr)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Run a command that must succeed without a word on standard error."""
        done = self(*arguments, stdin=stdin)
        assert (done.code, done.err) == (0, ""), done
        return done

    def process(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        """Run a command in its own process."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            env=self.env(env),
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def bash(self, script: str) -> Done:
        """Run a shell script, in which `headwater` is the code under test and any failure ends it."""
        function = f'headwater() {{ "{sys.executable}" -m headwater "$@"; }}'
        command = ["bash", "-euo", "pipefail", "-c", f"{function}\n{script}"]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, env=self.env(), check=False)
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        return {**kept, "HEADWATER_URL": self.url, "TERM": "xterm", **self._environment, **(more or {})}


def sentence(done: Done, code: int = 1) -> str:
    """Return the one sentence that says why a command failed."""
    assert done.code == code, done
    assert "Traceback" not in done.err, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, done.err
    text = errors[0].removeprefix("Error: ")
    assert text.endswith("."), text
    assert not re.search(r"[.!?]\s+[A-Z]", text), f"more than one sentence: {text}"
    return text


class Running:
    """A command in the background, and its output so far."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.printed = b""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 4096):
            self.printed += data

    def wait_for(self, text: bytes) -> None:
        assert eventually(lambda: text in self.printed, TIMEOUT_SECONDS), self.printed

    def type(self, keys: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(keys)
        self.process.stdin.flush()

    def end(self) -> int:
        """Wait until it ends by itself."""
        code = self.process.wait(TIMEOUT_SECONDS)
        self._thread.join(TIMEOUT_SECONDS)
        return code


@contextmanager
def running(shell: Shell, *arguments: str) -> Iterator[Running]:
    """Run a command whose output goes to a pipe."""
    with _started([*COMMAND, *arguments], shell.env()) as started:
        yield started


@contextmanager
def in_terminal(shell: Shell, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run a command in a terminal; the output is what the terminal shows."""
    with _started([sys.executable, "-c", IN_TERMINAL, *COMMAND, *arguments], shell.env(env)) as started:
        yield started


@contextmanager
def _started(command: list[str], env: dict[str, str]) -> Iterator[Running]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    ) as process:
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.kill()


def commands_in(command: click.Command) -> list[str]:
    """Return the example commands of a command's help."""
    return [line.strip() for line in (command.epilog or "").splitlines()[2:]]
