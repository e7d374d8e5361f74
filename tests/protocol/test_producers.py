import pytest

from headwater.protocol import producers
from headwater.protocol.limits import NUMBER_MAX, PRODUCER_ID_BYTES_MAX
from headwater.protocol.producers import LastAccepted, Producer, Standing
from headwater.protocol.refusals import Code, Refusal


def last(epoch: int, seq: int) -> LastAccepted:
    return LastAccepted(epoch, seq, next_offset=0, record=0, record_next=0, at=0, size=0, crc=0, closes=False)


@pytest.mark.parametrize(
    ("known", "epoch", "seq", "standing"),
    [
        (None, 0, 0, Standing.NEW),
        (None, 5, 0, Standing.NEW),
        (None, 0, 1, Standing.GAP),
        (last(2, 3), 2, 4, Standing.NEW),
        (last(2, 3), 2, 3, Standing.DUPLICATE),
        (last(2, 3), 2, 0, Standing.DUPLICATE),
        (last(2, 3), 2, 5, Standing.GAP),
        (last(2, 3), 3, 0, Standing.NEW),
        (last(2, 3), 9, 0, Standing.NEW),
        (last(2, 3), 3, 1, Standing.EPOCH_INVALID),
        (last(2, 3), 3, 4, Standing.EPOCH_INVALID),
        (last(2, 3), 1, 0, Standing.STALE),
        (last(2, 3), 1, 4, Standing.STALE),
    ],
)
def test_a_request_compares_with_the_last_one_as_the_table_says(
    known: LastAccepted | None, epoch: int, seq: int, standing: Standing
) -> None:
    assert producers.compare(known, Producer("p", epoch, seq)) is standing


def test_without_headers_there_is_no_producer() -> None:
    assert producers.parse(None, None, None) is None


@pytest.mark.parametrize(
    ("epoch", "seq", "producer"),
    [
        ("0", "0", Producer("p", 0, 0)),
        ("007", "3", Producer("p", 7, 3)),
        (str(NUMBER_MAX), str(NUMBER_MAX), Producer("p", NUMBER_MAX, NUMBER_MAX)),
    ],
)
def test_three_headers_make_a_producer(epoch: str, seq: str, producer: Producer) -> None:
    assert producers.parse("p", epoch, seq) == producer


@pytest.mark.parametrize(
    "headers",
    [("p", None, None), (None, "0", None), (None, None, "0"), ("p", "0", None), ("p", None, "0"), (None, "0", "0")],
)
def test_the_three_headers_go_together(headers: tuple[str | None, str | None, str | None]) -> None:
    refusal = producers.parse(*headers)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_INCOMPLETE


@pytest.mark.parametrize(
    "number", ["", "-1", "+1", "1abc", "0xyz", "1e3", "1.0", " 1", "1\n", "\u0663", str(NUMBER_MAX + 1), "1" * 5000]
)
def test_epoch_and_seq_are_plain_numbers_that_javascript_can_count(number: str) -> None:
    for header, refusal in (
        ("Producer-Epoch", producers.parse("p", number, "0")),
        ("Producer-Seq", producers.parse("p", "0", number)),
    ):
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.INVALID_HEADER
        assert refusal.detail.startswith(header)


def test_a_producer_has_a_name_that_is_not_too_long() -> None:
    assert producers.parse("p" * PRODUCER_ID_BYTES_MAX, "0", "0") == Producer("p" * PRODUCER_ID_BYTES_MAX, 0, 0)
    for identity in ("", "p" * (PRODUCER_ID_BYTES_MAX + 1)):
        refusal = producers.parse(identity, "0", "0")
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.INVALID_HEADER
        assert refusal.detail.startswith("Producer-Id")


@pytest.mark.parametrize("identity", [b"p", b"a b", b" p ", b"\xe9", b"x" * 600, b"", b" "])
@pytest.mark.parametrize("epoch", [b"0", b"7", b"", b"+1", b"9" * 15, b"9" * 17])
@pytest.mark.parametrize("seq", [b"0", b"12", b"-1", b"1_0", b" 1", b"9" * 15, b"9" * 16, b"\xb2"])
def test_headers_of_the_usual_form_are_parsed_as_all_others(identity: bytes, epoch: bytes, seq: bytes) -> None:
    plain = producers.parse_plain(identity, epoch, seq)
    texts = [value.decode("latin-1").strip() for value in (identity, epoch, seq)]
    if plain is not None:
        assert plain == producers.parse(*texts)
    usual = len(identity) < 100 and identity.strip() and epoch in (b"0", b"7") and seq in (b"0", b"12")
    assert plain is not None or not usual
