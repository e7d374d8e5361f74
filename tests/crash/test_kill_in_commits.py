"""A server is killed before and after each change that it makes to its store: flush, commit, compaction, sweep.

Whatever step it was, another engine then finds a whole snapshot by the files alone, and the next server has everything
that was acknowledged, in the streams and in the tables. TESTS_COMMIT_KILLS sets how many of the steps are tried.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import NamedTuple, TypeAlias

import pytest
from pyiceberg.table import StaticTable

import headwater
from headwater.client import Admin, Client, ClientError, RetryPolicy
from headwater.testing import ServerNotStarted, running_server

pytestmark = pytest.mark.crash

KILLING = """
import os, signal
from headwater.node.lake.parts import LakeIntervals, LakeLimits
from headwater.storage.folder import FolderStore

often = LakeIntervals(catalog_check_seconds=0.2, compact_check_seconds=0.2, sweep_check_seconds=0.2)
limits_of = LakeLimits.of
LakeLimits.of = lambda settings: limits_of(settings)._replace(intervals=often)
left = int(os.environ["KILL_AT"])

def counted(change):
    def changing(self, key, *rest):
        global left
        left -= 1
        if left == 0 and os.environ["KILL"] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        change(self, key, *rest)
        with open(os.environ["STEPS"], "a") as steps:
            print(change.__name__, key, file=steps)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return changing

for change in (FolderStore.create, FolderStore.replace, FolderStore.delete):
    setattr(FolderStore, change.__name__, counted(change))
"""
"""Runs in the server before its own code, as `sitecustomize`."""

KILLS = int(os.environ.get("TESTS_COMMIT_KILLS", "8"))
SEED = int(os.environ.get("TESTS_CRASH_SEED", SystemRandom().randrange(1 << 32)))
KINDS = {"segments", "-data.avro", "-deletes.avro", "-list.avro", ".metadata.json", "hint", "deletion"}
CHORES_SECONDS = 3.0
SOURCES = Path(headwater.__file__).parents[1]
FLAGS = ("--flush-segment-bytes", "500", "--lake-history-seconds", "0.5")
IMPATIENT = RetryPolicy(attempts_max=1, connect_attempts_max=1)

Streams: TypeAlias = dict[str, list[bytes]]
"""The messages of each stream, without those that a fork inherits."""


class Change(NamedTuple):
    """What a client asks for, and what it changes."""

    ask: Callable[[Client], object]
    apply: Callable[[Streams], object]


def appending(name: str, message: bytes) -> Change:
    return Change(lambda client: client.stream(name).append(message), lambda streams: streams[name].append(message))


def creating(name: str, message: bytes) -> Change:
    return Change(
        lambda client: client.stream(name).create("text/plain", body=message),
        lambda streams: streams.update({name: [message]}),
    )


def deleting(name: str) -> Change:
    return Change(lambda client: client.stream(name).delete(), lambda streams: streams.pop(name))


BEFORE = [
    *(creating(f"shop/{name}", f"{name} 0;".encode()) for name in ("kept", "doomed", "gone")),
    *(appending(f"shop/{name}", f"{name} {number};".encode() * 9) for number in (1, 2) for name in ("kept", "doomed")),
]
CHANGES = [
    deleting("shop/doomed"),
    creating("shop/new", b"new 0;" * 30),
    appending("shop/kept", b"kept 3;" * 30),
    appending("shop/new", b"new 1;" * 30),
    deleting("shop/gone"),
]


def after(changes: list[Change]) -> Streams:
    streams: Streams = {}
    for change in changes:
        change.apply(streams)
    return streams


def test_the_tables_and_the_streams_survive_a_kill_at_any_step(tmp_path: Path) -> None:
    prepared, data = tmp_path / "prepared", tmp_path / "data"
    with running_server(*FLAGS, data=data) as server, Client(server.url) as client, Admin(server.url) as admin:
        for change in BEFORE:
            change.ask(client)
            admin.flush()
    data.rename(prepared)  # And back for each run: tables name their files by absolute paths.
    (tmp_path / "sitecustomize.py").write_text(KILLING)

    def run(step: int, when: str) -> list[str]:
        steps = tmp_path / "steps"
        shutil.copytree(prepared, data)
        steps.write_text("")
        path = f"{tmp_path}:{SOURCES}"
        done = until_killed(data, {"KILL_AT": str(step), "KILL": when, "STEPS": str(steps), "PYTHONPATH": path})
        check_files(data)
        check_after_a_restart(data, [after(BEFORE + CHANGES[:count]) for count in (done, done + 1)])
        shutil.rmtree(data)
        return steps.read_text().splitlines()

    undisturbed = run(0, "never")
    blind = KINDS - {kind_of(line) for line in undisturbed}
    assert not blind, f"these never occurred: {blind}"
    cases = [(step, when) for step in range(1, len(undisturbed) + 1) for when in ("before", "after")]
    for step, when in Random(SEED).sample(cases, min(KILLS, len(cases))):
        print(f"step {step}, {when}; TESTS_CRASH_SEED={SEED}")
        run(step, when)


def until_killed(data: Path, killing: dict[str, str]) -> int:
    """Make the changes until the server is killed; how many it acknowledged."""
    done = 0
    with suppress(ServerNotStarted), running_server(*FLAGS, data=data, env=killing) as server:
        with (
            suppress(ClientError),
            Client(server.url, retry=IMPATIENT) as client,
            Admin(server.url, retry=IMPATIENT) as admin,
        ):
            for change in CHANGES:
                change.ask(client)
                done += 1
                admin.flush()
        # Compaction and the sweeper need some time.
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(CHORES_SECONDS)
    return done


def check_files(data: Path) -> None:
    """Without any server, the newest snapshot is whole: every stream has a beginning of its messages, each one once."""
    everything = after(BEFORE + [change for change in CHANGES if change not in (CHANGES[0], CHANGES[4])])
    for name, found in in_the_table(data).items():
        assert found == everything[name][: len(found)], name
    verified = subprocess.run(
        [sys.executable, "-m", "headwater", "lake", "verify", "--data", data],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def check_after_a_restart(data: Path, possible: list[Streams]) -> None:
    """The next server has what was acknowledged, and perhaps what was being asked for."""
    with running_server(*FLAGS, data=data) as server, Client(server.url) as client, Admin(server.url) as admin:
        served = {listed.name: client.stream(listed.name).read() for listed in admin.streams()}
        assert served in [{name: b"".join(messages) for name, messages in streams.items()} for streams in possible]
        admin.flush()
    # Only now: a server that keeps no history removes the files of a snapshot while somebody reads it.
    assert {name: b"".join(messages) for name, messages in in_the_table(data).items()} == served


def in_the_table(data: Path) -> Streams:
    rows = StaticTable.from_metadata(f"{data}/lake/messages").scan().to_arrow().sort_by([("offset", "ascending")])
    found: Streams = {}
    for row in rows.to_pylist():
        found.setdefault(f"{row['bucket']}/{row['stream']}", []).append(row["payload"])
    return found


def kind_of(line: str) -> str:
    verb, key = line.split()
    if verb == "delete":
        return "deletion"
    if key.startswith("segments"):
        return "segments"
    return "hint" if verb == "replace" else key[key.rindex("-") :] if key.endswith(".avro") else key[-14:]
