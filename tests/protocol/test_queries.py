from headwater.protocol.offsets import NOW
from headwater.protocol.queries import Read


def test_a_read_begins_at_the_beginning_unless_told_otherwise() -> None:
    assert Read("b/s") == Read("b/s", offset=0, incarnation=None)


def test_only_a_read_from_now_begins_at_the_tail() -> None:
    assert Read("b/s", NOW).from_now
    assert not Read("b/s", 0).from_now
