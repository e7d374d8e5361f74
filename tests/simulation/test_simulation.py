"""Clusters on virtual time: nothing is wrong in many schedules, and planted bugs are found in a few."""

import os
import subprocess
from pathlib import Path

import pytest

from .bugs import BUGS

ROOT = Path(__file__).parent.parent.parent
SCHEDULES = int(os.environ.get("TESTS_SIMULATION_SCHEDULES", "200"))
SEED = int(os.environ.get("TESTS_SIMULATION_SEED", "5000"))
"""The test command always runs the same schedules; `scripts/simulate` runs others."""
SCHEDULES_UNTIL_FOUND_MAX = 400


def simulate(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: there the seed decides everything, the order of sets included."""
    command = [str(ROOT / "scripts" / "simulate"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_schedule_ends_well() -> None:
    ran = simulate(SCHEDULES, "--seed", SEED)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_decides_everything() -> None:
    first, second = (simulate(3, "--seed", 11).stdout.splitlines()[-1] for _ in range(2))
    assert first.startswith("digest ")
    assert first == second


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    ran = simulate(SCHEDULES_UNTIL_FOUND_MAX, "--plant", bug)
    assert ran.returncode == 1, f"{bug} was not found: {ran.stdout}{ran.stderr}"
    assert " is wrong: " in ran.stdout, ran.stderr
