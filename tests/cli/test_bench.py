"""`headwater bench`: it measures, checks what it reads back, and says so when that is not what it wrote."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.bench.loads import message
from headwater.cli.bench.results import Check
from headwater.testing import running_server

from ..http.processes import eventually
from .commands import Done, Shell, running, sentence

SHORT = ("--seconds", "0.3")
LOADS = {
    "append": ("--streams", "5", "--connections", "2"),
    "fanout": ("--readers", "4"),
    "replay": ("--clients", "3", "--messages", "5000"),
}


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with running_server() as server:
        yield Shell(server.url)


@pytest.mark.parametrize("load", LOADS)
def test_a_load_is_measured_and_every_message_checked(shell: Shell, load: str) -> None:
    told = json.loads(shell.ok("bench", load, *LOADS[load], *SHORT, "--json").out)
    assert told["workload"] == load
    assert told["check"].pop("messages") > 0
    assert told["check"] == {"lost": 0, "doubled": 0, "changed": 0}
    assert all(value > 0 for value in told["figures"].values()), told["figures"]
    quantiles = [told["figures"][name] for name in ("p50_ms", "p90_ms", "p99_ms", "p99_9_ms")]
    assert quantiles == sorted(quantiles)
    assert "Python" in told["generator"]


def test_readers_whose_connections_are_turned_over_miss_nothing() -> None:
    with running_server("--sse-seconds", "0.5") as server:
        told = json.loads(Shell(server.url).ok("bench", "fanout", "--readers", "5", "--seconds", "2", "--json").out)
    assert told["check"] == {"messages": 100 + 5 * 100, "lost": 0, "doubled": 0, "changed": 0}


@pytest.mark.parametrize("load", LOADS)
def test_a_server_that_ends_in_the_middle_is_told(load: str) -> None:
    with running_server() as server:
        shell = Shell(server.url)
        with running(shell, "bench", load, "--seconds", "60") as bench:
            assert eventually(lambda: json.loads(shell.ok("status", "--json").out)["positions"]["0"] > 2, 60.0)
            server.kill()
            sentence(Done(bench.end(), b"", bench.printed.decode()))
            assert bench.printed.count(b"\n") == 1, bench.printed


def test_a_person_is_told_what_made_the_load_and_how_it_compares(shell: Shell, tmp_path: Path) -> None:
    run = ("bench", "append", *LOADS["append"], *SHORT)
    (tmp_path / "old.json").write_bytes(shell.ok(*run, "--json").out)
    text = shell.ok(*run, "--compare", str(tmp_path / "old.json")).text
    for word in ("Python", "appends/s", "MB/s", "p99.9 ms", "BEFORE", "RATIO", "none lost, doubled or changed"):
        assert word in text
    sentence(shell("bench", "replay", "--compare", str(tmp_path / "old.json")), code=2)
    sentence(shell("bench", "append", "--compare", str(tmp_path / "none.json")), code=2)


def test_streams_are_deleted_in_the_end_unless_they_are_to_be_kept(shell: Shell) -> None:
    def left() -> int:
        return sum(one["name"].startswith("bench-") for one in json.loads(shell.ok("ls", "--json").out))

    before = left()
    shell.ok("bench", "append", *LOADS["append"], *SHORT)
    assert left() == before
    shell.ok("bench", "append", *LOADS["append"], *SHORT, "--keep")
    assert left() == before + 5


def test_any_url_with_streams_below_it_can_be_measured(shell: Shell) -> None:
    shell.ok("bench", "append", "--url", f"{shell.url}/v1/stream/elsewhere", *LOADS["append"], *SHORT)


def test_a_server_that_is_not_there_is_told() -> None:
    for load, options in LOADS.items():
        assert "headwater serve" in sentence(Shell("http://127.0.0.1:1")("bench", load, *options, *SHORT))


@pytest.mark.parametrize("options", [["--bytes", "8"], ["--seconds", "0"], ["--streams", "0"]])
def test_numbers_that_make_no_sense_are_wrong_usage(shell: Shell, options: list[str]) -> None:
    sentence(shell("bench", "append", *options), code=2)
    assert shell("bench", "append", "--readers", "3").code == 2


# -- The check ---------------------------------------------------------------------------------------------------------

WRITTEN = [message(0, number, 64) for number in range(10)]


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (WRITTEN[:4] + WRITTEN[5:], (1, 0, 0)),
        (WRITTEN + WRITTEN[3:5], (0, 2, 0)),
        ([*WRITTEN[:9], b"?" * 64], (0, 0, 1)),
        ([WRITTEN[1], WRITTEN[0], *WRITTEN[2:]], (0, 0, 1)),
        ([], (10, 0, 0)),
        (WRITTEN[:3] + WRITTEN[:3], (7, 3, 0)),
    ],
)
def test_what_is_lost_doubled_or_changed_is_counted(read: list[bytes], found: tuple[int, int, int]) -> None:
    check = Check()
    check.explain(b"".join(read), 10, WRITTEN.__getitem__)
    assert (check.lost, check.doubled, check.changed) == found
    assert not check.ok


def test_a_server_that_forgets_fails_the_command(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    """What was acknowledged is made to look like more than there is."""

    def forgetful(stream: int, number: int, size: int, at_ns: int = 0) -> bytes:
        asked.append(number)
        return message(stream, number + (len(asked) % 7 == 0) * 1_000_000, size, at_ns)

    asked: list[int] = []
    monkeypatch.setattr("headwater.cli.bench.loads.message", forgetful)
    done = shell("bench", "append", *LOADS["append"], *SHORT)
    assert "not what was acknowledged" in sentence(done)
    assert "WRONG" in done.text
