"""Records that are lost, doubled, torn or misplaced are noticed."""

import pytest

from headwater.load.records import Findings, Ledger, record

WRITTEN = [record(0, number, 64) for number in range(10)]


@pytest.mark.parametrize(
    ("read", "findings"),
    [
        (WRITTEN, Findings(10)),
        (WRITTEN[:4] + WRITTEN[5:], Findings(9, skipped=1)),
        (WRITTEN + WRITTEN[3:5], Findings(10, doubled=2)),
        ([*WRITTEN[:9], b"?" * 64], Findings(9, torn=1)),
        ([*WRITTEN[:9], WRITTEN[9][:-1] + b"?"], Findings(9, torn=1)),
        ([*WRITTEN, WRITTEN[0][:20]], Findings(10, torn=1)),
        ([WRITTEN[1], WRITTEN[0], *WRITTEN[2:]], Findings(10, misplaced=1)),
        ([*WRITTEN, record(0, 99, 64)], Findings(11, misplaced=1)),
        ([*WRITTEN[:8], WRITTEN[9], WRITTEN[8]], Findings(10, misplaced=1)),
        ([*WRITTEN[:5], WRITTEN[5].replace(b"000-", b"0O0-"), *WRITTEN[6:]], Findings(9, torn=1, skipped=1)),
        ([*WRITTEN[:5], WRITTEN[5].replace(b"000-", b"001-"), *WRITTEN[6:]], Findings(10, misplaced=1, skipped=1)),
        ([], Findings(0)),
        (WRITTEN[:3] + WRITTEN[:3], Findings(3, doubled=3)),
    ],
)
def test_a_ledger_finds_what_is_wrong_with_a_stream_of_one_writer(read: list[bytes], findings: Findings) -> None:
    ledger = Ledger(64, range(10))
    ledger.add(b"".join(read))
    assert ledger.findings() == findings


def test_records_of_several_writers_may_come_in_any_order() -> None:
    ledger = Ledger()
    ledger.add(record(1, 5) + record(0, 7) + record(1, 4))
    ledger.add(record(2, 5))
    assert ledger.findings() == Findings(4)
    assert ledger.problems(4, 0) == []


def test_problems_are_judged_by_what_was_acknowledged() -> None:
    ledger = Ledger()
    ledger.add(record(0, 1) + record(0, 2) + record(0, 2) + b"?" * 100)
    lost, doubled, torn = ledger.problems(5, 0)
    assert "3 of 5 acknowledged records" in lost
    assert "1 records are there twice" in doubled
    assert "1 records are torn" in torn
    # Two were read, one was acknowledged, and one may have been written without an answer.
    assert len(ledger.problems(1, unanswered_max=1)) == 2
    assert "1 records more than were acknowledged" in ledger.problems(1, unanswered_max=0)[0]
