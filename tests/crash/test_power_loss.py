"""Whenever the power goes, what was acknowledged is there, once, and nothing torn is visible."""

from collections import Counter

import pytest

from headwater.node import directory
from headwater.streams import images as stream_images

from .machine import Machine, SteppedJournal
from .seeds import all_seeds_run, for_each_seed

LIVES = 6
SCENES = [
    "at a write of N.journal",
    "at a sync of N.journal",
    "at a unlink of N.journal",
    "at a sync directory of journal",
    "at a rename of spare",
    "while a spare is made",
    "at a write of N.tmp",
    "at a sync of N.tmp",
    "at a rename of N.tmp",
    "at a unlink of N.image",
    "at a sync directory of images",
    "at a write of N-N.torn",
]
"""Where the machine must have halted at least once, or these tests are blind there."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images in many pieces, so that much happens between the first and the last."""
    monkeypatch.setattr(stream_images, "PIECE_BYTES", 700)
    monkeypatch.setattr(stream_images, "PIECE_ROWS", 3)
    monkeypatch.setattr(stream_images, "NAMES_PER_STEP", 3)
    monkeypatch.setattr(directory, "Journal", SteppedJournal)


def test_nothing_acknowledged_is_lost_or_changed_by_a_power_loss() -> None:
    halts: Counter[str] = Counter()
    survived_in_flight = 0

    def run(seed: int) -> None:
        nonlocal survived_in_flight
        machine = Machine(seed)
        for _ in range(LIVES):
            machine.live()
        machine.start()
        halts.update(machine.halts)
        survived_in_flight += machine.history.survived_in_flight

    for_each_seed(300, run)
    if all_seeds_run():
        blind = [scene for scene in SCENES if not halts[scene]]
        assert not blind, f"the machine never halted {blind}"
        assert survived_in_flight, "nothing that was in flight ever survived"
