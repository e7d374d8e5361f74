import pytest

from headwater.node.chores import imager
from headwater.streams import images


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images in many small pieces, so that much happens between the first and the last; no long waits."""
    monkeypatch.setattr(images, "PIECE_BYTES", 700)
    monkeypatch.setattr(images, "PIECE_ROWS", 3)
    monkeypatch.setattr(images, "NAMES_PER_STEP", 3)
    monkeypatch.setattr(imager, "SLICE_SECONDS", 0)
    monkeypatch.setattr(imager, "RETRY_SECONDS", 0.05)
