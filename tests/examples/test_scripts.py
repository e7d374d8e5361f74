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
    # Long-polls and SSE connections end soon, so that readers have to come again.
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


def test_a_reader_that_leaves_and_comes_back_sees_every_token_once(url: str, client: Client) -> None:
    done = run(url, *TOKENS, "demo", "demo-run", "--pause", "0.02")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if not line.startswith("--")]
    assert ANSWER.fullmatch("".join(told)), done.stdout
    assert "-- the reader is gone" in done.stdout
    assert text_of(client.stream("demo-run")) == "".join(told)


def test_an_agent_that_is_killed_goes_on_behind_its_last_token(url: str, client: Client) -> None:
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


def test_a_watcher_goes_on_at_an_offset(url: str, client: Client) -> None:
    stream = client.stream("watched-run")
    stream.create("application/json")
    kept = stream.append_json({"token": "not shown "}).next_offset
    stream.append_json({"token": "shown"})
    stream.close_stream()
    done = run(url, *TOKENS, "watch", "watched-run", "--offset", kept)
    assert done.stdout.strip() == "shown"
    assert stream.head().next_offset in done.stderr


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
    assert again.returncode != 0
    assert "409" in again.stderr
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "name"], ["walk", "name"]])
def test_wrong_usage_shows_how_it_is_right(url: str, arguments: list[str]) -> None:
    done = run(url, JOB, *arguments)
    assert done.returncode == 2
    assert "job_output.sh run" in done.stderr
