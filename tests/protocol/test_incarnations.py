import pytest

from headwater.protocol import incarnations


@pytest.mark.parametrize("log_id", ["9f2c", "with-a-dash"])
def test_a_printed_incarnation_is_understood(log_id: str) -> None:
    assert incarnations.parse(log_id, incarnations.render(log_id, 10**18)) == 10**18


@pytest.mark.parametrize(
    "text", ["", "-", "7", "j-", "j-x", "j--7", "j-07", "j-+7", "j-7 ", "j-\u0667", "k-7", "j-" + "1" * 20]
)
def test_a_text_that_no_life_of_this_journal_can_have_is_foreign(text: str) -> None:
    assert incarnations.parse("j", text) == incarnations.FOREIGN
