"""Message ends: packed numbers that say where each of several messages ends."""

import pytest

from headwater.protocol import message_ends


@pytest.mark.parametrize(
    ("messages", "ends"), [([], None), ([b"abc"], None), ([b"a", b"bcd"], [1, 4]), ([b"1", b"2", b"3"], [1, 2, 3])]
)
def test_only_several_messages_need_their_ends(messages: list[bytes], ends: list[int] | None) -> None:
    packed = message_ends.of(messages)
    assert (None if packed is None else list(message_ends.unpack(packed))) == ends
    assert message_ends.count(packed) == max(len(messages), 1)


def test_an_end_takes_four_bytes_and_holds_any_offset_of_a_payload() -> None:
    packed = message_ends.pack([1, 2**24, 2**32 - 1])
    assert len(packed) == 3 * message_ends.END_BYTES
    assert list(message_ends.unpack(packed)) == [1, 2**24, 2**32 - 1]
    assert packed[:4] == b"\x01\x00\x00\x00", "little-endian, since commands and images hold these bytes"
