import pytest

from headwater.protocol import etags
from headwater.protocol.etags import Version


def test_every_fact_of_a_response_changes_its_tag() -> None:
    tags = {
        etags.render("j", 7, 0, 42, False),
        etags.render("k", 7, 0, 42, False),
        etags.render("j", 8, 0, 42, False),
        etags.render("j", 7, 1, 42, False),
        etags.render("j", 7, 0, 43, False),
        etags.render("j", 7, 0, 42, True),
    }
    assert len(tags) == 6


@pytest.mark.parametrize(
    ("if_none_match", "matched"),
    [
        ('"j-7:0:42"', True),
        ('W/"j-7:0:42"', True),
        ('"other", "j-7:0:42"', True),
        (" * ", True),
        ('"j-7:0:4"', False),
        ('"j-7:0:42:c"', False),
        ("j-7:0:42", False),
        ("", False),
    ],
)
def test_if_none_match_may_be_a_list_weak_or_a_star(if_none_match: str, matched: bool) -> None:
    assert etags.matches(if_none_match, etags.render("j", 7, 0, 42, False)) is matched


@pytest.mark.parametrize(
    ("if_match", "versions"),
    [
        ('"j-7:0:42"', (Version(7, 42, False),)),
        ('"j-7:9:42:c"', (Version(7, 42, True),)),
        ('"j-7:0:42" , "j-8:0:1"', (Version(7, 42, False), Version(8, 1, False))),
        ('W/"j-7:0:42" , "j-8:0:1"', (Version(8, 1, False),)),
        (" * ", None),
        ('"other"', ()),
        ('"k-7:0:42"', ()),
        ('"j-7:0:42:d"', ()),
        ("j-7:0:42", ()),
        ("", ()),
    ],
)
def test_if_match_names_the_states_that_a_stream_may_be_in(if_match: str, versions: tuple[Version, ...] | None) -> None:
    assert etags.parse("j", if_match) == versions
