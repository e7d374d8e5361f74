"""The examples that run at a terminal: what they print, and what is left in the stream."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import Client, Stream
from headwater.testing import running_server

EXAMPLES = Path(__file__).parents[2] / "examples"
ANSWER = re.compile(r"A stream is a list .* already seen\. ")
SECONDS_MAX = 60


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    # Long-polls and SSE connections are short, so that readers have to reconnect.
    with running_server("--sse-seconds", "1", "--long-poll-seconds", "0.5") as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(f"{url}/v1/stream") as client:
        yield client


def run(url: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, "HEADWATER_URL": url},
    )


# -- LLM tokens --------------------------------------------------------------------------------------------------------

TOKENS = (sys.executable, "-W", "error", str(EXAMPLES / "llm_tokens.py"))


def text_of(stream: Stream) -> str:
    return "".join(message["token"] for message in stream.read_json())


def test_a_reader_that_disconnects_and_resumes_sees_every_token_once(url: str, client: Client) -> None:
    done = run(url, *TOKENS, "demo", "demo-run", "--pause", "0.02")
    assert done.returncode == 0, done.stderr
    tokens = [line for line in done.stdout.splitlines() if not line.startswith("--")]
    assert ANSWER.fullmatch("".join(tokens)), done.stdout
    assert "-- the reader disconnects" in done.stdout
    assert text_of(client.stream("demo-run")) == "".join(tokens)


def test_a_killed_agent_continues_after_its_last_token(url: str, client: Client) -> None:
    stream = client.stream("killed-run")
    stream.create("application/json", ttl_seconds=24 * 60 * 60)
    with subprocess.Popen([*TOKENS, "agent", "killed-run", "--url", url, "--pause", "0.02"]) as agent:
        with stream.follow() as follower:
            next(follower.messages())
        agent.send_signal(signal.SIGKILL)
    assert not stream.head().closed
    assert run(url, *TOKENS, "agent", "killed-run", "--pause", "0").returncode == 0
    assert ANSWER.fullmatch(text_of(stream))
    assert stream.head().closed


def test_a_watcher_resumes_at_an_offset(url: str, client: Client) -> None:
    stream = client.stream("watched-run")
    stream.create("application/json")
    kept = stream.append_json({"token": "not shown "}).next_offset
    stream.append_json({"token": "shown"})
    stream.close_stream()
    done = run(url, *TOKENS, "watch", "watched-run", "--offset", kept)
    assert done.stdout.strip() == "shown"
    assert stream.head().next_offset in done.stderr


def test_the_demo_runs_again_and_again(url: str) -> None:
    for _ in range(2):
        done = run(url, *TOKENS, "demo", "--pause", "0")
        assert (done.returncode, done.stderr) == (0, "")
        assert "-- the stream is closed" in done.stdout


def test_a_finished_answer_is_not_written_again(url: str) -> None:
    assert run(url, *TOKENS, "agent", "finished", "--pause", "0").returncode == 0
    again = run(url, *TOKENS, "agent", "finished", "--pause", "0")
    assert again.returncode == 1
    assert again.stderr == "Error: finished already holds a complete answer; choose another name, or watch it.\n"


def test_a_missing_package_is_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    """As with a Python without any packages."""
    command = [sys.executable, "-I", "-S", str(EXAMPLES / "llm_tokens.py"), "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: headwater is not installed for ")
    assert ".venv/bin/python" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_server_is_one_sentence() -> None:
    done = run("http://127.0.0.1:1", *TOKENS, "watch", "x")
    assert (done.returncode, "Traceback" in done.stderr, done.stderr.count("\n")) == (1, False, 1)


# -- The output of a job -----------------------------------------------------------------------------------------------

JOB = str(EXAMPLES / "job_output.sh")


def test_the_lines_of_a_job_and_its_exit_code_are_in_the_stream(url: str, client: Client) -> None:
    script = r"""printf 'one\n@two %%s \\n\n\n'; echo three >&2; printf 'no line end'; exit 3"""
    assert run(url, JOB, "run", "lines", "sh", "-c", script).returncode == 3
    stream = client.stream("jobs/lines")
    assert stream.read_text() == "one\n@two %s \\n\n\nthree\nno line end\nexit 3\n"
    assert stream.head().closed
    assert stream.head().ttl_seconds == 3600


def test_a_tail_that_begins_before_the_job_has_ended_prints_all_of_it(url: str, client: Client) -> None:
    stream = client.stream("jobs/tailed")
    stream.create("text/plain", ttl_seconds=3600)
    environment = {**os.environ, "HEADWATER_URL": url}
    with subprocess.Popen([JOB, "tail", "tailed"], stdout=subprocess.PIPE, text=True, env=environment) as tail:
        job = run(url, JOB, "run", "tailed", "sh", "-c", "for line in 1 2 3 4 5; do echo line $line; sleep 0.2; done")
        assert job.returncode == 0, job.stderr
        printed, _ = tail.communicate(timeout=SECONDS_MAX)
    assert printed == "line 1\nline 2\nline 3\nline 4\nline 5\nexit 0\n"
    assert tail.returncode == 0


def test_a_job_whose_stream_is_closed_is_not_run(url: str, tmp_path: Path) -> None:
    assert run(url, JOB, "run", "twice", "true").returncode == 0
    again = run(url, JOB, "run", "twice", "touch", str(tmp_path / "was-run"))
    assert again.returncode == 1
    assert again.stderr == (
        f"Error: job twice has run already; read it with '{JOB} tail twice', or choose another name.\n"
    )
    assert not (tmp_path / "was-run").exists()


def test_a_job_without_a_server_is_not_run(tmp_path: Path) -> None:
    done = run("http://127.0.0.1:1", JOB, "run", "alone", "touch", str(tmp_path / "was-run"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is a server running?" in done.stderr
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "name"], ["walk", "name"]])
def test_wrong_usage_shows_the_usage(url: str, arguments: list[str]) -> None:
    done = run(url, JOB, *arguments)
    assert done.returncode == 2
    assert "job_output.sh run" in done.stderr
