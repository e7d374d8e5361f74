"""Whenever the power goes, what was acknowledged is there, once, and nothing torn is visible."""

from collections import Counter

import pytest

from headwater.node import directory
from headwater.streams import images as stream_images

from .machine import Machine, SteppedJournal
from .seeds import all_seeds_run, for_each_seed

LIVES = 6


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images in many pieces, so that much happens between the first and the last."""
    monkeypatch.setattr(stream_images, "PIECE_BYTES", 700)
    monkeypatch.setattr(stream_images, "PIECE_ROWS", 3)
    monkeypatch.setattr(stream_images, "NAMES_PER_STEP", 3)
    monkeypatch.setattr(directory, "Journal", SteppedJournal)


def test_nothing_acknowledged_is_lost_or_changed_by_a_power_loss() -> None:
    halts: Counter[str] = Counter()
    totals: Counter[str] = Counter()

    def run(seed: int) -> None:
        machine = Machine(seed)
        for _ in range(LIVES):
            machine.live()
        machine.start()
        halts.update(machine.halts)
        totals["batches acknowledged"] += machine.history.acknowledged
        totals["batches that survived in flight"] += machine.history.survived_in_flight
        totals["images"] += machine.images_taken

    for_each_seed(300, run)
    print(totals, halts)
