import pytest

from headwater.streams import images


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write images in many small pieces, so that much happens between the first and the last."""
    monkeypatch.setattr(images, "PIECE_BYTES", 700)
    monkeypatch.setattr(images, "PIECE_ROWS", 3)
    monkeypatch.setattr(images, "NAMES_PER_STEP", 3)


collect_ignore = ["short_syncs"]
"""For servers that are killed; imported here, it would change the journal of every other test."""
