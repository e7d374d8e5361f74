"""What processes that serve together keep for each other."""

from pathlib import Path

from headwater.http.workers.siblings import Siblings


def test_counters_that_cannot_be_kept_are_those_of_before(tmp_path: Path) -> None:
    ours = Siblings(tmp_path, "w0", ["w0", "w1"], {})
    ours.save(b"1")
    in_the_way = tmp_path / "w0.new"  # As on a full disk, no file can be written.
    in_the_way.mkdir()
    ours.save(b"2")
    assert ours.saved() == b"1"
    in_the_way.rmdir()
    ours.save(b"3")
    assert Siblings(tmp_path, "w1", ["w0", "w1"], {}).saved("w0") == b"3"
