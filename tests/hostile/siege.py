"""A siege: one server in its own process, one attack on it, and one well-behaved client that must not notice.

A scenario is a test in the file of its theme (`test_readers.py`, ...): a function that attacks a URL in a bounded way,
in a second or two, and `with siege() as besieged: besieged.attack(...)`.

Each round of an attack is measured in three ways.

Memory: the peak of the server's resident memory (`VmHWM`) may grow by what the scenario allows, and says why. After the
rounds, what the server holds besides the streams' own bytes must not grow any more; while it does, there are further
rounds.

Pauses: the longest wait of the prober in a round, without the time for which the machine was busy with other things
(see `prober`). The median round counts, because a stall that the attack causes comes back every time and one of the
machine does not; if it is too long, there are more rounds. It may be 100 ms, or a few times the longest wait in a calm
run just before if that is more.

Answers: the prober gets the right ones all the time, and so does a new client afterwards; the log has no traceback.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headwater.testing import RunningServer, running_server

from ..http.processes import eventually
from ..http.sockets import Wire

MIB = 1024 * 1024
ROUNDS = int(os.environ.get("TESTS_HOSTILE_ROUNDS", "2"))
PAUSE_SECONDS_MAX = 0.1
"""The longest wait of another client on a quiet machine."""
NOISE_FACTOR = 5
"""How many times as long the longest wait may be as in a calm run of the same machine."""
CALM_SECONDS = 1.5
STEADY_BYTES = 24 * MIB
"""How much memory may differ from one round to the next: fragments of the allocator, not the attack's bytes."""
SETTLE_SECONDS = 10.0

Attack = Callable[[str], None]
"""Attacks the server with this URL, in a bounded way, and closes its connections."""


class Outcome(NamedTuple):
    """What one scenario measured, and what it may."""

    scenario: str
    peak_bytes: int
    peak_bytes_max: int
    pause_seconds: float
    pause_seconds_max: float

    def __str__(self) -> str:
        memory = f"{self.peak_bytes / MIB:7.1f} of {self.peak_bytes_max / MIB:5.0f} MiB"
        pause = f"{self.pause_seconds * 1000:7.1f} of {self.pause_seconds_max * 1000:5.0f} ms"
        return f"{self.scenario:60} {memory}   {pause}"


HEADING = f"{'scenario':60} {'peak memory':>20}   {'longest pause':>19}"

outcomes: list[Outcome] = []
"""Of every scenario so far, for the table at the end."""


class Probed(NamedTuple):
    """What the prober saw in a while."""

    probes: int
    longest_seconds: float
    wrong: str


class Siege:
    """A running server with its prober; `attack` carries out a scenario."""

    def __init__(self, server: RunningServer, prober: "subprocess.Popen[str]") -> None:
        self.server, self._prober = server, prober

    def attack(self, scenario: str, attack: Attack, *, memory_mib: int, because: str) -> Outcome:
        """Carry out a scenario that may add `memory_mib` to the server's memory, `because` of what it holds then."""
        self.look()
        time.sleep(CALM_SECONDS)
        calm = self.look()
        base_bytes = memory_bytes(self.server.pid, "VmRSS")
        pause_seconds_max = max(PAUSE_SECONDS_MAX, NOISE_FACTOR * calm.longest_seconds)
        pauses: list[float] = []
        held: list[int] = []
        while len(pauses) < ROUNDS or (
            len(pauses) < 2 * ROUNDS + 1 and (_usual(pauses) > pause_seconds_max or _growth(held) > STEADY_BYTES)
        ):
            attack(self.server.url)
            seen = self.look()
            assert seen.wrong == "", f"{scenario}: another client got a wrong answer: {seen.wrong}"
            pauses.append(seen.longest_seconds)
            held.append(self._settle(held))
        peak_bytes = memory_bytes(self.server.pid, "VmHWM") - base_bytes
        pause_seconds = _usual(pauses)
        outcome = Outcome(scenario, peak_bytes, memory_mib * MIB, pause_seconds, pause_seconds_max)
        outcomes.append(outcome)
        print(HEADING, outcome, sep="\n")
        self._use()
        assert peak_bytes <= outcome.peak_bytes_max, f"{outcome}; {memory_mib} MiB are allowed because {because}"
        assert pause_seconds <= pause_seconds_max, f"{outcome}; pauses by round: {pauses}"
        assert _growth(held) <= STEADY_BYTES, f"memory grows with every round: {held}"
        assert "Traceback" not in self.server.output(), self.server.output()[-3000:]
        return outcome

    def look(self) -> Probed:
        """What the prober has seen since the last look; only when an answer that it waits for has come."""
        assert self._prober.stdin is not None
        assert self._prober.stdout is not None
        self._prober.stdin.write("\n")
        self._prober.stdin.flush()
        line = self._prober.stdout.readline()
        assert line, "the prober has ended"
        return Probed(*json.loads(line))

    def _settle(self, before: list[int]) -> int:
        """Wait until the server holds no more than after the first round, or for a while; returns how much it holds."""
        if before:
            eventually(lambda: self._held_bytes() <= before[0] + STEADY_BYTES // 2, SETTLE_SECONDS)
        else:
            time.sleep(0.5)
        return self._held_bytes()

    def _held_bytes(self) -> int:
        """Resident memory besides the bytes of the streams, which are there to stay."""
        return memory_bytes(self.server.pid, "VmRSS") - int(self.status()["hot_bytes"])

    def status(self) -> dict[str, Any]:
        """What the server says about itself."""
        with Wire(self.server.url) as wire:
            found = json.loads(wire.ask("GET", "/__headwater/status").body)
            assert isinstance(found, dict)
            return found

    def _use(self) -> None:
        """Do what an ordinary client does."""
        path = "/v1/stream/after/the-attack"
        with Wire(self.server.url) as wire:
            assert wire.ask("PUT", path, {"Content-Type": "application/json"}).status == 201
            assert wire.ask("POST", path, {"Content-Type": "application/json"}, b'[{"a":1},2]').status == 204
            assert wire.ask("GET", f"{path}?offset=-1").body == b'[{"a":1},2]'
            assert wire.ask("DELETE", path).status == 204


def memory_bytes(pid: int, field: str) -> int:
    """How much memory a process has (`VmRSS`), or has had at most (`VmHWM`)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"no {field} in /proc/{pid}/status")


def _growth(held: list[int]) -> int:
    """How much more was held after the last round than after the one before; caches fill in the first ones."""
    return held[-1] - held[-2] if len(held) > 1 else 0


def _usual(pauses: list[float]) -> float:
    """The median; the lower one of two."""
    return sorted(pauses)[(len(pauses) - 1) // 2]


@contextmanager
def siege(*flags: str, data: Path | None = None) -> Iterator[Siege]:
    """A server of its own, and its prober, for one scenario."""
    with running_server(*flags, data=data) as server:
        script = Path(__file__).with_name("prober.py")
        command = [sys.executable, str(script), server.url, str(server.pid)]
        prober = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield Siege(server, prober)
        finally:
            prober.kill()
            prober.communicate()
