from headwater.protocol.offsets import NOW
from headwater.streams.queries import Read, Records


def test_a_read_begins_at_the_beginning_by_default() -> None:
    assert Read("b/s") == Read("b/s", offset=0, incarnation=None)


def test_only_a_read_from_now_begins_at_the_tail() -> None:
    assert Read("b/s", NOW).from_now
    assert not Read("b/s", 0).from_now
    assert Read("b/s", records=Records(start=NOW)).from_now
    assert Read("b/s", records=Records(tail=3)).from_now
    assert not Read("b/s", records=Records(start=3)).from_now


def test_the_read_after_a_page_continues_after_it_in_the_same_life_and_form() -> None:
    assert Read("b/s", NOW, None, 9).following(5, 7) == Read("b/s", 5, 7, 9)
    by_records = Read("b/s", 0, None, None, Records(3, None, 2, True))
    assert by_records.following(5, 7) == Read("b/s", 5, 7, None, Records(None, None, 2, True))
