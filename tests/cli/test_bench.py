"""`headwater bench`: it measures, and checks that what it reads is what it wrote."""

import json
import shutil
from pathlib import Path

import pytest

from headwater.cli.bench.workloads import Check, judge_fanout
from headwater.load.events import Tracker
from headwater.load.loads import Latencies
from headwater.load.readers import Receipt
from headwater.load.sources import Broadcast
from headwater.load.targets import Target
from headwater.testing import running_server

from ..http.processes import eventually
from ..load.relays import certificate, relay
from .commands import Done, Shell, running, sentence

SHORT = ("--seconds", "0.3")
LOADS = {
    "append": ("--streams", "5", "--connections", "2"),
    "fanout": ("--readers", "4"),
    "replay": ("--clients", "3", "--messages", "5000"),
}


@pytest.mark.parametrize("load", LOADS)
def test_a_load_is_measured_and_every_message_checked(shell: Shell, load: str) -> None:
    result = json.loads(shell.ok("bench", load, *LOADS[load], *SHORT, "--json").out)
    assert result["workload"] == load
    assert result["check"].pop("messages") > 0
    assert result["check"] == {"lost": 0, "doubled": 0, "changed": 0}
    assert all(value > 0 for value in result["figures"].values()), result["figures"]
    quantiles = [result["figures"][name] for name in ("p50_ms", "p90_ms", "p99_ms", "p99_9_ms")]
    assert quantiles == sorted(quantiles)
    assert "Python" in result["generator"]


def test_readers_that_have_to_reconnect_miss_nothing() -> None:
    with running_server("--sse-seconds", "0.5") as server:
        result = json.loads(Shell(server.url).ok("bench", "fanout", "--readers", "5", "--seconds", "2", "--json").out)
    assert result["check"] == {"messages": 100 + 5 * 100, "lost": 0, "doubled": 0, "changed": 0}


@pytest.mark.parametrize("load", LOADS)
def test_a_server_that_dies_during_the_measurement_is_reported(load: str) -> None:
    with running_server() as server:
        shell = Shell(server.url)
        with running(shell, "bench", load, "--seconds", "60") as bench:
            assert eventually(lambda: json.loads(shell.ok("status", "--json").out)["positions"]["0"] > 2, 60.0)
            server.kill()
            sentence(Done(bench.end(), b"", bench.printed.decode()))
            assert bench.printed.count(b"\n") == 1, bench.printed


def test_a_person_sees_the_source_of_the_load_and_the_comparison(shell: Shell, tmp_path: Path) -> None:
    run = ("bench", "append", *LOADS["append"], *SHORT)
    (tmp_path / "old.json").write_bytes(shell.ok(*run, "--json").out)
    text = shell.ok(*run, "--compare", str(tmp_path / "old.json")).text
    for word in ("Python", "appends/s", "MB/s", "p99.9 ms", "BEFORE", "RATIO", "none lost, doubled or changed"):
        assert word in text
    sentence(shell("bench", "replay", "--compare", str(tmp_path / "old.json")), code=2)
    sentence(shell("bench", "append", "--compare", str(tmp_path / "none.json")), code=2)


def test_streams_are_deleted_at_the_end_unless_they_are_kept(shell: Shell) -> None:
    def left() -> int:
        return sum(one["name"].startswith("bench-") for one in json.loads(shell.ok("ls", "--json").out))

    before = left()
    shell.ok("bench", "append", *LOADS["append"], *SHORT)
    assert left() == before
    shell.ok("bench", "append", *LOADS["append"], *SHORT, "--keep")
    assert left() == before + 5


def test_any_url_with_streams_below_it_can_be_measured(shell: Shell) -> None:
    shell.ok("bench", "append", "--url", f"{shell.url}/v1/stream/elsewhere", *LOADS["append"], *SHORT)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is needed to make a certificate.")
@pytest.mark.parametrize("load", LOADS)
def test_a_server_behind_tls_can_be_measured(shell: Shell, tmp_path: Path, load: str) -> None:
    path, context = certificate(tmp_path)
    with relay(shell.url, tls=context) as url:
        done = Shell(url).process("bench", load, *LOADS[load], *SHORT, env={"SSL_CERT_FILE": str(path)})
        assert (done.code, done.err) == (0, ""), done
        assert "none lost, doubled or changed" in done.text
        assert f"The certificate of {url} is not trusted" in sentence(Shell(url)("bench", load, *LOADS[load], *SHORT))


def test_a_missing_server_is_reported() -> None:
    for load, options in LOADS.items():
        assert "headwater serve" in sentence(Shell("http://127.0.0.1:1")("bench", load, *options, *SHORT))


@pytest.mark.parametrize("options", [["--bytes", "8"], ["--seconds", "0"], ["--streams", "0"]])
def test_numbers_out_of_range_are_wrong_usage(shell: Shell, options: list[str]) -> None:
    sentence(shell("bench", "append", *options), code=2)
    assert shell("bench", "append", "--readers", "3").code == 2


# -- The check ---------------------------------------------------------------------------------------------------------


def judged(receipt: Receipt) -> Check:
    """What is found if a reader of ten events reports this."""
    source = Broadcast(Target("127.0.0.1", 80), "/x", 10, 40)
    stored = Tracker(Latencies(), 40)
    for request in iter(source.next, b""):
        stored.take(request.partition(b"\r\n\r\n")[2], 0)
    check = Check()
    judge_fanout(check, source, [receipt], stored)
    return check


def test_what_a_reader_misses_receives_twice_or_finds_changed_is_counted() -> None:
    receipt = Receipt(delivered=11, skipped=1, repeated=2, changed=3, missing=4)
    assert judged(receipt) == Check(messages=21, lost=5, doubled=2, changed=3)
    assert judged(Receipt(delivered=10, checksums=[1])) == Check(messages=20, changed=1)


@pytest.mark.parametrize("load", LOADS)
def test_a_server_that_corrupts_data_fails_the_command(load: str) -> None:
    def corrupt(data: bytes) -> bytes:
        return data.replace(b"000-0000000003-", b"000-0000000004-").replace(b"#00000003:", b"#00000004:")

    with running_server() as server, relay(server.url, corrupt) as url:
        done = Shell(url)("bench", load, *LOADS[load], *SHORT)
    assert "not what was acknowledged" in sentence(done)
    assert "WRONG" in done.text
