"""Remembered answers: asked once for each short text, and never many or long ones."""

from headwater.protocol.remembering import remembered


def test_a_short_text_is_asked_about_once_and_a_long_one_each_time() -> None:
    asked: list[str] = []

    @remembered(entries_max=2, length_max=3)
    def upper(text: str) -> str:
        asked.append(text)
        return text.upper()

    assert [upper(text) for text in ("abc", "abc", "long", "long")] == ["ABC", "ABC", "LONG", "LONG"]
    assert asked == ["abc", "long", "long"]


def test_when_there_are_too_many_answers_all_are_forgotten() -> None:
    asked: list[bytes] = []

    @remembered(entries_max=2, length_max=3)
    def size(text: bytes) -> int:
        asked.append(text)
        return len(text)

    assert [size(text) for text in (b"a", b"b", b"a", b"c", b"c", b"a")] == [1] * 6
    assert asked == [b"a", b"b", b"c", b"a"]
