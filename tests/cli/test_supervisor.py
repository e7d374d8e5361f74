"""The supervisor by itself, with children that do nothing but live and die as a test wants."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TIMEOUT_SECONDS = 30

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from headwater.cli.supervising.supervisor import Link, Report, Role
from headwater.cli.supervising.supervisor import ChildFailed, Supervisor

def note(text):
    # One write, so that lines of several processes do not mix.
    os.write(1, (text + "\\n").encode())

def serve(link, seconds=60.0):
    "Serve until a signal comes or the supervisor is gone."
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    link.report(Report(ready=True, facts=os.getpid()))
    until = time.monotonic() + seconds
    while not link.is_cut and time.monotonic() < until:
        time.sleep(0.01)
    return 0

def once(name):
    "Whether this is called with the name for the first time, in any process."
    try:
        Path(sys.argv[1], name).mkdir()
    except FileExistsError:
        return False
    return True

def supervise(roles, on_ready=lambda ready: note("ready"), stop_seconds=10.0):
    try:
        code = Supervisor(roles, on_ready, stop_seconds=stop_seconds).run()
    except ChildFailed as failure:
        note(f"failed: {failure} {failure.misused}")
        code = 3
    note(f"code {code}")
"""


def run(script: str, folder: Path, *, until: str = "ready", ends: bool = True) -> list[str]:
    """Run a script with a supervisor; when it has said that, stop it. Returns what its processes said."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith(until):
                process.send_signal(signal.SIGTERM if ends else signal.SIGKILL)
        assert process.wait(TIMEOUT_SECONDS) == (0 if ends else -signal.SIGKILL)
    return said


def test_all_children_end_and_the_code_is_0(tmp_path: Path) -> None:
    script = """
    supervise([Role("first", "first", serve, is_first=True), Role("a", "b", serve), Role("c", "b", serve)])
    """
    assert run(script, tmp_path) == ["ready", "code 0"]


def test_the_first_child_starts_first_and_ends_last(tmp_path: Path) -> None:
    script = """
    def first(link):
        time.sleep(0.2)
        note("first begins")
        signal.signal(signal.SIGTERM, lambda *_: (note("first ends"), os._exit(0)))
        link.report(Report(ready=True))
        time.sleep(60)

    def other(link):
        note("other begins")
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), note("other ends"), os._exit(0)))
        link.report(Report(ready=True))
        time.sleep(60)

    supervise([Role("first", "first", first, is_first=True), Role("other", "other", other)])
    """
    assert run(script, tmp_path) == [
        *("first begins", "other begins", "ready", "other ends", "first ends", "code 0"),
    ]


def test_a_child_that_another_reports_as_stuck_is_ended_and_started_anew(tmp_path: Path) -> None:
    script = """
    def stuck(link):
        if once("stuck"):
            Path(sys.argv[1], "pid").write_text(str(os.getpid()))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            link.report(Report(ready=True))
            time.sleep(60)
        note("again")
        return serve(link)

    def first(link):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        link.report(Report(ready=True))
        while not (path := Path(sys.argv[1], "pid")).exists() or not path.read_text():
            time.sleep(0.01)
        link.report(Report(stuck_pid=int(path.read_text())))
        time.sleep(60)

    supervise([Role("first", "first", first, is_first=True), Role("stuck", "stuck", stuck)])
    """
    said = run(script, tmp_path, until="again")
    assert sorted(said) == ["again", "code 0", "ready"]


def test_when_the_first_one_dies_all_are_started_anew(tmp_path: Path) -> None:
    script = """
    def first(link):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        link.report(Report(ready=True))
        time.sleep(0.5 if once("first") else 60)
        os.kill(os.getpid(), signal.SIGKILL)

    def other(link):
        note("other begins")
        if not once("other"):
            note("again")
        return serve(link)

    supervise([Role("first", "first", first, is_first=True), Role("other", "other", other)])
    """
    assert run(script, tmp_path, until="again") == ["other begins", "ready", "other begins", "again", "code 0"]


def test_a_child_that_cannot_start_ends_all_with_its_sentence(tmp_path: Path) -> None:
    script = """
    def failing(link):
        link.report(Report(failed="The disk is on fire.", misused=True))
        return 2

    supervise([Role("first", "first", serve, is_first=True), Role("a", "b", serve), Role("c", "b", failing)])
    """
    assert run(script, tmp_path) == ["failed: The disk is on fire. True", "code 3"]


def test_a_child_that_cannot_start_anew_is_tried_again_while_the_others_serve(tmp_path: Path) -> None:
    script = """
    def failing(link):
        if once("first time"):
            return serve(link, 0.3)
        if once("second time"):
            note("cannot start")
            return 1
        note("again")
        return serve(link)

    supervise([Role("a", "b", serve), Role("c", "b", failing)])
    """
    assert run(script, tmp_path, until="again") == ["ready", "cannot start", "again", "code 0"]


def test_a_child_that_does_not_end_is_killed_and_the_code_says_so(tmp_path: Path) -> None:
    script = """
    def deaf(link):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        link.report(Report(ready=True))
        time.sleep(60)

    supervise([Role("deaf", "deaf", deaf)], stop_seconds=0.3)
    """
    assert run(script, tmp_path) == ["ready", "code 1"]


def test_a_child_that_does_not_end_in_order_is_named(tmp_path: Path) -> None:
    script = """
    import logging
    logging.basicConfig(stream=sys.stdout, format="%(message)s")

    def fails(link):
        signal.signal(signal.SIGTERM, lambda *_: (link.report(Report(failed="The disk is gone.")), os._exit(1)))
        link.report(Report(ready=True))
        time.sleep(60)

    supervise([Role("a", "b", serve), Role("c", "b", fails)])
    """
    assert run(script, tmp_path) == ["ready", "process c ended with exit code 1: The disk is gone.", "code 1"]


def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    script = """
    def other(link):
        code = serve(link)
        note("gone")
        return code

    supervise([Role("a", "b", other), Role("c", "b", other)])
    """
    assert run(script, tmp_path, ends=False) == ["ready", "gone", "gone"]


@pytest.mark.parametrize("kind", ["b", "other"])
def test_a_child_knows_whether_another_of_its_kind_serves(tmp_path: Path, kind: str) -> None:
    script = f"""
    def late(link):
        if once("late"):
            return serve(link, 0.3)
        note(f"others serve: {{link.others_serve}}")
        return serve(link)

    supervise([Role("a", "b", serve), Role("c", "{kind}", late)])
    """
    assert f"others serve: {kind == 'b'}" in run(script, tmp_path, until="others serve")
