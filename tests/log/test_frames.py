import struct
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log import frames

SEED = frames.seed("journal", "9f2c", 7)


def encoded(payload: bytes, number: int = 5, entries: int = 2, seed: int = SEED) -> bytes:
    return b"".join(frames.encode(payload, number, entries, seed))


@pytest.mark.parametrize("size", [0, 1, 35, 36, 37, 1000])
def test_a_frame_is_read_back_whole_and_ends_aligned(size: int) -> None:
    payload = Random(size).randbytes(size)
    data = encoded(payload)
    frame = frames.decode(data, 0, SEED)
    assert frame == frames.Frame(number=5, entries=2, payload=payload, end=len(data))
    assert len(data) % frames.ALIGNMENT == 0
    assert len(data) == frames.size(size)


def test_every_flipped_bit_that_is_covered_is_found() -> None:
    data = encoded(b"an append")
    covered = frames.HEADER.size + len(b"an append")
    for bit in range(covered * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert frames.decode(bytes(damaged), 0, SEED) is None, f"bit {bit} went unnoticed"


def test_every_truncation_is_found() -> None:
    data = encoded(b"an append")
    for length in range(frames.HEADER.size + len(b"an append")):
        assert frames.decode(data[:length], 0, SEED) is None


def test_a_frame_of_another_seed_is_none() -> None:
    assert frames.decode(encoded(b"theirs", seed=frames.seed("journal", "0000", 7)), 0, SEED) is None


def test_seeds_tell_files_apart() -> None:
    assert len({frames.seed("journal", "a"), frames.seed("journal", "b"), frames.seed("image", "a", 1)}) == 3


def test_zeros_are_not_a_frame() -> None:
    assert frames.decode(bytes(1024), 0, SEED) is None
    assert frames.find(bytes(1024), 0, SEED) is None


def test_frames_follow_each_other() -> None:
    data = encoded(b"a", 1) + encoded(b"b" * 100, 2)
    first = frames.decode(data, 0, SEED)
    assert first is not None
    second = frames.decode(data, first.end, SEED)
    assert second is not None and (second.payload, second.end) == (b"b" * 100, len(data))


def test_a_whole_frame_is_found_after_rubbish() -> None:
    rubbish = Random(1).randbytes(640)
    data = rubbish + encoded(b"whole", 9)
    frame = frames.find(data, 0, SEED)
    assert frame is not None and frame.number == 9


def test_a_frame_at_an_unaligned_place_is_not_found() -> None:
    assert frames.find(bytes(3) + encoded(b"inside a payload"), 0, SEED) is None


def test_magic_without_a_frame_is_passed_over() -> None:
    data = (frames.MAGIC + bytes(60)) * 3 + encoded(b"whole", 9)
    frame = frames.find(data, 0, SEED)
    assert frame is not None and frame.number == 9


# -- Torn data ----------------------------------------------------------------------------------------------------


def fake_head(length: int) -> bytes:
    """What a client can put into a payload: a head that names a payload of this length, without the file's seed."""
    return frames.MAGIC + struct.pack("<IIIIQ", 7, 7, length, 1, 5)


def first_whole_frame(data: bytes, at: int) -> frames.Frame | None:
    """The same as `frames.find`, in the plainest way: try every aligned place."""
    aligned = range(-(-at // frames.ALIGNMENT) * frames.ALIGNMENT, len(data), frames.ALIGNMENT)
    return next((found for place in aligned if (found := frames.decode(data, place, SEED)) is not None), None)


PIECES = st.one_of(
    st.binary(max_size=200),
    st.integers(0, 2**32 - 1).map(fake_head),
    st.integers(0, 300).map(fake_head),
    st.just(frames.MAGIC * 5),
    st.builds(encoded, st.binary(max_size=150)),
    st.builds(encoded, st.integers(0, 100).map(lambda size: fake_head(size) * 3)),
    st.tuples(st.builds(encoded, st.binary(max_size=150)), st.integers(1, 200)).map(lambda cut: cut[0][: cut[1]]),
    st.builds(encoded, st.binary(max_size=150), seed=st.just(frames.seed("another"))),
)


@given(st.lists(st.tuples(PIECES, st.booleans()), max_size=8), st.integers(0, 200))
def test_torn_and_damaged_are_told_apart_as_by_trying_every_place(pieces: list[tuple[bytes, bool]], at: int) -> None:
    data = b""
    for piece, aligned in pieces:
        data += bytes(-len(data) % frames.ALIGNMENT if aligned else 0) + piece
    assert frames.find(data, at, SEED) == first_whole_frame(data, at)


@pytest.mark.parametrize("spacing", [4, 64, 65])
def test_a_torn_append_full_of_fake_heads_is_judged_in_time_that_grows_with_its_size(spacing: int) -> None:
    size = 4 * 1024 * 1024
    heads = bytearray()
    while len(heads) < size:
        head = fake_head(max(size - len(heads) - 64, 0))
        heads += (head if spacing > len(head) else frames.MAGIC).ljust(spacing, b"x")
    began = time.monotonic()
    assert frames.find(bytes(heads), 0, SEED) is None
    assert time.monotonic() - began < 2
