import pytest

from headwater.http.wire.codes import REFUSALS
from headwater.protocol import refusals
from headwater.protocol.refusals import Code, Refusal


def test_every_code_has_a_status_and_a_title() -> None:
    assert set(REFUSALS) == set(Code)


def test_a_code_is_printed_as_it_is_named() -> None:
    assert [code.value for code in Code] == [code.name.lower() for code in Code]


@pytest.mark.parametrize(
    ("refusal", "code", "incarnation"),
    [
        (refusals.stream_not_found("b/s"), Code.STREAM_NOT_FOUND, None),
        (refusals.stream_gone("b/s"), Code.STREAM_GONE, None),
        (refusals.incarnation_changed("b/s", 7), Code.INCARNATION_CHANGED, 7),
    ],
)
def test_a_refusal_about_a_stream_names_it(refusal: Refusal, code: Code, incarnation: int | None) -> None:
    assert refusal.code is code
    assert refusal.incarnation == incarnation
    assert "'b/s'" in refusal.detail


def test_a_refusal_about_another_log_names_both() -> None:
    refusal = refusals.log_changed("ours", "theirs")
    assert refusal.code is Code.INCARNATION_CHANGED
    assert "'ours'" in refusal.detail
    assert "'theirs'" in refusal.detail
