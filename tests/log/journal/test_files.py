"""Reading journal files back: damage is refused, a torn end is cut."""

import logging

import pytest

from headwater.log import frames
from headwater.log.journal import files, identity
from headwater.log.journal.files import JournalDamaged
from headwater.log.journal.identity import Identity
from headwater.log.journal.journal import SPARE

from .journals import DIRECTORY, JOURNAL_FILE_BYTES, Workbench

# -- Damage --------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_a_gap_and_refused() -> None:
    bench = Workbench()
    bench.fill(20)
    gone = bench.files()[1]
    bench.disk.remove(gone)
    with pytest.raises(JournalDamaged, match=r"Positions \d+ to \d+ are missing before .*\.journal"):
        bench.replay()


def test_a_missing_first_file_is_refused_unless_an_image_covers_it() -> None:
    bench = Workbench()
    bench.fill(20)
    bench.disk.remove(bench.files()[0])
    second = files.first_position_of(bench.files()[0].name)
    with pytest.raises(JournalDamaged, match=f"Positions 1 to {second - 1} are missing"):
        bench.replay()
    with pytest.raises(JournalDamaged, match=f"Positions {second - 1} to {second - 1} are missing"):
        bench.replay(after=second - 2)
    assert bench.replay(after=second - 1) == bench.committed[second - 1 :]


def test_a_log_that_ends_before_the_image_is_refused_and_left_unchanged() -> None:
    bench = Workbench()
    bench.fill(3)
    path = bench.files()[-1]
    bench.write(path, bench.frames(path)[-1][1], b"torn")
    before = bench.disk.read(path)
    with pytest.raises(JournalDamaged, match="is damaged after position 3, but an image covers positions up to 4"):
        bench.replay(after=4)
    assert bench.disk.read(path) == before


def test_an_empty_journal_beside_an_image_is_refused() -> None:
    with pytest.raises(JournalDamaged, match="is damaged after position 0, but an image covers positions up to 4"):
        Workbench().replay(after=4)


def test_a_bad_frame_before_the_tail_is_refused_with_its_place() -> None:
    bench = Workbench()
    bench.fill(4, size=100)
    path = bench.files()[-1]
    begin, end = bench.frames(path)[1]
    bench.damage(path, begin + 40)
    with pytest.raises(JournalDamaged, match=f"{path} is damaged at byte {begin}, before position 3"):
        bench.replay()
    assert begin < end


def test_a_bad_last_frame_of_an_earlier_file_is_refused() -> None:
    bench = Workbench()
    bench.fill(20)
    path = bench.files()[0]
    bench.damage(path, bench.frames(path)[-1][0] + 40)
    with pytest.raises(JournalDamaged, match="are missing before"):
        bench.replay()


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_bad_header_is_refused(where: str) -> None:
    bench = Workbench()
    bench.fill(20)
    bench.damage(bench.files()[0 if where == "first" else -1], 30)
    with pytest.raises(JournalDamaged, match="does not begin with a header of log"):
        bench.replay()


def test_a_file_of_another_journal_is_refused() -> None:
    ours, theirs = Workbench(), Workbench()
    ours.fill(3)
    theirs.fill(3)
    path = ours.files()[0]
    ours.write(path, 0, theirs.disk.read(path))
    with pytest.raises(JournalDamaged, match="does not begin with a header of log"):
        ours.replay()


def test_a_file_under_another_name_is_refused() -> None:
    bench = Workbench()
    bench.fill(20)
    bench.disk.remove(bench.files()[0])
    bench.disk.rename(bench.files()[0], DIRECTORY / files.name_of(1))
    with pytest.raises(JournalDamaged, match="does not begin with a header of log"):
        bench.replay()


def test_a_file_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    bench.fill(1)
    path = bench.files()[0]
    ours = identity.load(DIRECTORY, bench.disk)
    assert ours is not None
    with monkeypatch.context() as later:
        later.setattr(files, "VERSION", files.VERSION + 1)
        files.write_header(bench.disk.open(path), ours.log_id, ours.seed, 1)
    with pytest.raises(
        JournalDamaged, match=f"has format {files.VERSION + 1}; this server reads format {files.VERSION}"
    ):
        bench.replay()


def test_a_command_of_a_later_version_is_refused_with_what_to_do() -> None:
    bench = Workbench()
    bench.fill(1)
    path, ours = bench.files()[0], identity.load(DIRECTORY, bench.disk)
    assert ours is not None
    record = b"\x92\x01\x91\x91\xa8append.9"  # [1, [["append.9"]]]
    bench.write(path, bench.frames(path)[-1][1], b"".join(frames.encode(record, 2, 1, ours.seed)))
    with pytest.raises(JournalDamaged, match=r"position 2 that this version does not know .* start the version"):
        bench.replay()


def test_a_frame_in_the_wrong_place_is_refused() -> None:
    bench = Workbench()
    bench.fill(2)
    path, ours = bench.files()[0], identity.load(DIRECTORY, bench.disk)
    assert ours is not None
    bench.write(path, bench.frames(path)[-1][1], b"".join(frames.encode(b"\x92\x01\x90", 9, 1, ours.seed)))
    with pytest.raises(JournalDamaged, match="has position 9 where 3 is expected"):
        bench.replay()


# -- The torn end --------------------------------------------------------------------------------------------------


def tear_last(bench: Workbench, keep_bytes: int) -> bytes:
    """Leave only the beginning of the last frame, as a power loss would, and return it."""
    path = bench.files()[-1]
    begin, end = bench.frames(path)[-1]
    left = bench.disk.read(path)[begin : begin + keep_bytes]
    bench.write(path, begin + keep_bytes, bytes(end - begin - keep_bytes))
    return left


@pytest.mark.parametrize("keep_bytes", [1, 4, 27, 28, 60, 200])
def test_a_torn_end_is_moved_to_another_file_and_reported(keep_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    bench = Workbench()
    bench.fill(3)
    left = tear_last(bench, keep_bytes)
    with caplog.at_level(logging.WARNING):
        assert bench.replay() == bench.committed[:2]
    assert bench.torn() == [left.rstrip(b"\0")]
    assert "torn bytes before position 3; kept in /data/journal/torn/" in caplog.text


def test_a_second_open_after_the_cut_finds_nothing_torn_and_continues() -> None:
    bench = Workbench()
    bench.fill(3)
    tear_last(bench, 100)
    del bench.committed[2:]
    journal = bench.reopen()
    assert len(bench.torn()) == 1
    bench.commit(journal, b"in its place")
    assert bench.replay() == bench.committed
    assert len(bench.torn()) == 1


def test_a_position_that_is_torn_twice_is_kept_twice() -> None:
    bench = Workbench()
    bench.fill(3)
    first = tear_last(bench, 100)
    journal = bench.reopen()
    bench.commit(journal, b"torn as well" * 20)
    second = tear_last(bench, 120)
    bench.reopen()
    assert bench.torn() == [first.rstrip(b"\0"), second.rstrip(b"\0")]


def test_the_cut_survives_a_power_loss_right_after() -> None:
    for seed in range(20):
        bench = Workbench(seed=seed)
        bench.fill(3)
        tear_last(bench, 300)
        bench.reopen()
        bench.disk.lose_power()
        assert bench.replay() == bench.committed[:2]
        assert len(bench.torn()) == 1


def test_a_frame_that_a_killed_process_did_not_live_to_sync_is_synced_before_it_is_served() -> None:
    for seed in range(20):
        bench = Workbench(seed=seed)
        journal = bench.fill(2)
        bench.disk.halt_in(2)
        with pytest.raises(OSError, match="halts at a sync"):
            bench.commit(journal, b"written, not synced")
        bench.disk.kill_process()
        served = bench.replay()
        assert len(served) == 3
        bench.disk.lose_power()
        assert bench.replay() == served


def test_rubbish_after_the_last_frame_is_cut_and_only_there() -> None:
    bench = Workbench()
    bench.fill(3)
    path = bench.files()[-1]
    bench.write(path, JOURNAL_FILE_BYTES - 1, b"\x01")
    assert bench.replay() == bench.committed
    assert bench.disk.read(path)[-1] == 0


def test_a_full_disk_finds_room_for_the_torn_end_where_the_spare_was() -> None:
    bench = Workbench()
    bench.fill(3)
    tear_last(bench, 100)
    assert DIRECTORY / SPARE in bench.disk.paths()
    bench.disk.capacity_bytes = bench.disk.used_bytes
    assert bench.replay() == bench.committed[:2]


# -- Forgery -------------------------------------------------------------------------------------------------------


def forged_frames(bench: Workbench, key: str, number: int) -> bytes:
    """A payload with a whole frame at every place where one could be aligned, made from what a client knows."""
    seed = Identity(1, bench.open().log_id, key).seed if key else frames.seed("journal", bench.open().log_id)
    record = b"\x92\x01\x91\x95\xa8append.1\xa6forged\xc4\x00\xc0\xa0"
    frame = b"".join(frames.encode(record, number, 1, seed)).rstrip(b"\0")
    return b"".join(frame + bytes(65 - len(frame)) for _ in range(64))


def test_a_payload_of_forged_frames_is_a_payload() -> None:
    bench = Workbench(file_bytes=16384)
    journal = bench.fill(1)
    ours = identity.load(DIRECTORY, bench.disk)
    assert ours is not None
    bench.commit(journal, forged_frames(bench, ours.key, 3))
    bench.commit(journal, b"after")
    assert bench.replay() == bench.committed


def test_a_torn_payload_of_forged_frames_is_cut_like_any_other() -> None:
    bench = Workbench(file_bytes=16384)
    journal = bench.fill(1)
    bench.commit(journal, forged_frames(bench, "", 3))
    path = bench.files()[-1]
    begin, _ = bench.frames(path)[-1]
    bench.write(path, begin, bytes(64))
    assert bench.replay() == bench.committed[:1]
    assert len(bench.torn()) == 1
