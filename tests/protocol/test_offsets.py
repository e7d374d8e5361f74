import pytest

from headwater.protocol import offsets
from headwater.protocol.offsets import Form


@pytest.mark.parametrize("form", Form)
def test_tokens_are_understood_and_sort_like_their_positions(form: Form) -> None:
    positions = [0, 1, 9, 10, 99, 10**9, 10**15 - 1]
    tokens = [offsets.render(position, form) for position in positions]
    assert tokens == sorted(tokens)
    assert [offsets.parse(token) for token in tokens] == positions


def test_zero_is_printed_as_the_official_suite_expects() -> None:
    assert offsets.render(0, Form.FLAT) == "0000000000000000_0000000000000000"
    assert offsets.render(0, Form.PLAIN) == "00000000000000000000"


def test_the_beginning_and_now_have_names() -> None:
    assert offsets.parse("-1") == 0
    assert offsets.parse("now") == offsets.NOW


def test_the_largest_tokens_lie_beyond_any_tail() -> None:
    assert offsets.parse("9999999999999999_9999999999999999") == 10**31 - 1
    assert offsets.parse("9" * 20) == 10**20 - 1


def test_a_client_that_adds_one_to_a_flat_offset_still_means_the_same_position() -> None:
    tokens = [f"0000000000000000_{420 + spare:016}" for spare in range(10)]
    assert tokens[0] == offsets.render(42, Form.FLAT)
    assert {offsets.parse(token) for token in tokens} == {42}
    assert all(token < offsets.render(43, Form.FLAT) for token in tokens)


def test_a_plain_decimal_is_an_offset_only_where_offsets_are_plain() -> None:
    for token, position in (("0", 0), ("42", 42), ("007", 7), ("9" * 20, 10**20 - 1)):
        assert offsets.parse(token, Form.PLAIN) == offsets.parse_position(token, Form.PLAIN) == position
    for token in ("0", "42", "9" * 19):
        assert offsets.parse(token) is None
    for token in ("", "9" * 21, "-2", "+1", " 1", "1_0", "\u0661"):
        assert offsets.parse(token, Form.PLAIN) is None


def test_the_words_for_the_ends_are_not_positions() -> None:
    assert offsets.parse_position("-1", Form.PLAIN) is offsets.parse_position("now", Form.PLAIN) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        "0",
        "-2",
        "NOW",
        "now ",
        "-1\n",
        "00000000000000000042\n",
        "0000000000000000000",
        "000000000000000000000",
        "0000000000000000-0000000000000000",
        "0000000000000000_000000000000000",
        "0000000000000000_0000000000000000\n",
        "a,b",
        "a b",
        "a/b",
        "..",
        "\0",
        "\r",
        "+0000000000000000042",
        "\u0660" * 20,
    ],
)
def test_anything_else_is_not_an_offset(token: str) -> None:
    assert offsets.parse(token) is None
