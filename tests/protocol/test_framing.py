import pytest

from headwater.protocol import framing
from headwater.protocol.limits import BATCH_FRAMES_MAX
from headwater.protocol.refusals import Code, Refusal


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_a_batch_gives_back_the_frames_that_went_in() -> None:
    frames = [b"a", b"\0" * 300, b"\xff", b"[1,2]"]
    assert framing.split(b"".join(map(frame, frames))) == frames


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.EMPTY_BODY),
        (b"\0", Code.BAD_REQUEST),
        (b"\0\0\0", Code.BAD_REQUEST),
        (b"\0\0\0\0", Code.BAD_REQUEST),
        (b"\0\0\0\2a", Code.BAD_REQUEST),
        (b"\xff\xff\xff\xffa", Code.BAD_REQUEST),
        (frame(b"a") + b"\0\0\0\0", Code.BAD_REQUEST),
        (frame(b"a") + b"\0\0\0\2b", Code.BAD_REQUEST),
        (frame(b"a") * (BATCH_FRAMES_MAX + 1), Code.TOO_LARGE),
    ],
)
def test_what_is_not_whole_frames_is_refused_as_a_whole(body: bytes, code: Code) -> None:
    refusal = framing.split(body)
    assert isinstance(refusal, Refusal)
    assert refusal.code is code


def test_a_batch_may_have_as_many_frames_as_the_limit_says() -> None:
    assert framing.split(frame(b"a") * BATCH_FRAMES_MAX) == [b"a"] * BATCH_FRAMES_MAX
