import pytest

from headwater.protocol import content_types
from headwater.protocol.limits import CONTENT_TYPE_BYTES_MAX


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/vnd.api+json", "text/plain;charset=utf-8", 'text/plain ; a="b c"', "x/y;"],
)
def test_a_type_with_a_subtype_is_valid(content_type: str) -> None:
    assert content_types.is_valid(content_type)


@pytest.mark.parametrize(
    "content_type",
    ["", "text", "text/", "/plain", "text/plain/x", "text /plain", "text/plain\n", "text/plain;\r\n x", "tëxt/plain"],
)
def test_garbage_is_not_a_content_type(content_type: str) -> None:
    assert not content_types.is_valid(content_type)


def test_a_content_type_is_at_most_as_long_as_a_stream_may_keep_in_memory() -> None:
    longest = "a/" + "b" * (CONTENT_TYPE_BYTES_MAX - 2)
    assert content_types.is_valid(longest)
    assert not content_types.is_valid(longest + "b")


@pytest.mark.parametrize(
    ("content_type", "media"),
    [("text/plain", "text/plain"), ("TEXT/Plain", "text/plain"), ("text/plain ; charset=utf-8", "text/plain")],
)
def test_types_are_compared_without_parameters_and_case(content_type: str, media: str) -> None:
    assert content_types.media_type(content_type) == media


@pytest.mark.parametrize(
    ("content_type", "json", "text"),
    [
        ("application/json", True, True),
        ("Application/JSON; charset=utf-8", True, True),
        ("application/x-ndjson", False, False),
        ("text/json", False, True),
        ("text/plain", False, True),
        ("application/octet-stream", False, False),
        ("context/plain", False, False),
    ],
)
def test_json_mode_and_text_events_go_by_the_media_type(content_type: str, json: bool, text: bool) -> None:
    assert content_types.is_json(content_type) is json
    assert content_types.is_text(content_type) is text


def test_the_value_of_a_header_is_a_text_without_blanks_around_it() -> None:
    assert content_types.of_header(b" text/x-\xe9 ") == "text/x-é"
