import pytest

from headwater.protocol import lifetimes
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import MINUTE_US, SECOND_US, TTL_SECONDS_MAX
from headwater.protocol.refusals import Code, Refusal


def test_without_headers_a_stream_lives_forever() -> None:
    assert lifetimes.parse(None, None) is FOREVER


@pytest.mark.parametrize("ttl", ["0", "1", "3600", str(TTL_SECONDS_MAX)])
def test_a_ttl_is_whole_seconds(ttl: str) -> None:
    assert lifetimes.parse(ttl, None) == Lifetime(ttl_seconds=int(ttl))


@pytest.mark.parametrize(
    "ttl",
    ["", "00060", "+60", "60.5", "1e3", "abc", "-1", " 60", "60\n", "\u0666", str(TTL_SECONDS_MAX + 1), "9" * 5000],
)
def test_any_other_ttl_is_refused(ttl: str) -> None:
    refusal = lifetimes.parse(ttl, None)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_HEADER
    assert "Stream-TTL" in refusal.detail
    assert len(refusal.detail) < 200


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", SECOND_US),
        ("1970-01-01 00:00:01+00:00", SECOND_US),
        ("1970-01-01T01:30:00+01:30", 0),
        ("1970-01-01T11:00:00+11:00", 0),
        ("1969-12-31T22:30:00-01:30", 0),
        ("1970-01-01T00:00:00.5Z", SECOND_US // 2),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("1970-01-01T00:00:60Z", MINUTE_US),
        ("1969-12-31T23:59:59Z", -SECOND_US),
        ("2024-02-29T00:00:00Z", 1_709_164_800 * SECOND_US),
    ],
)
def test_an_instant_is_understood_in_every_zone_and_kept_as_it_was_written(text: str, instant: int) -> None:
    assert lifetimes.parse(None, text) == Lifetime(expires_at=instant, expires_at_text=text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not-a-timestamp",
        "2030-01-31",
        "2030-W05-4",
        "2030-01-31T12:00:00",
        "2030-01-31T12:00Z",
        "1893456000",
        "2030-02-30T00:00:00Z",
        "2030-01-31T24:00:00Z",
        "2030-01-31T12:00:61Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+01:00",
        "2030-01-31T12:00:00Z\n",
        "2030-01-31T12:00:00.Z",
        "\uff12030-01-31T12:00:00Z",
        "2030-01-31T12:00:00+24:00",
        "2030-01-31T12:00:00+01:60",
    ],
)
def test_any_other_instant_is_refused(text: str) -> None:
    refusal = lifetimes.parse(None, text)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_HEADER
    assert "Stream-Expires-At" in refusal.detail


def test_ttl_and_instant_exclude_each_other() -> None:
    refusal = lifetimes.parse("60", "2030-01-31T12:00:00Z")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_HEADER


@pytest.mark.parametrize(
    ("lifetime", "deadline"),
    [
        (FOREVER, None),
        (Lifetime(ttl_seconds=0), 7),
        (Lifetime(ttl_seconds=1), 7 + 1_100_000),
        (Lifetime(ttl_seconds=600), 7 + 660 * SECOND_US),
        (Lifetime(ttl_seconds=86_400), 7 + 86_460 * SECOND_US),
        (Lifetime(expires_at=5), 5),
        (Lifetime(expires_at=0), 0),
    ],
)
def test_a_sliding_deadline_allows_for_a_tenth_and_a_minute_at_most(lifetime: Lifetime, deadline: int | None) -> None:
    assert lifetimes.deadline(lifetime, touched_at=7) == deadline


def test_the_longest_deadline_fits_into_64_bits() -> None:
    now = 4_000_000_000 * SECOND_US
    end = lifetimes.deadline(Lifetime(ttl_seconds=TTL_SECONDS_MAX), now)
    assert end is not None
    assert end < 2**63


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (FOREVER, Lifetime(), True),
        (Lifetime(ttl_seconds=5), Lifetime(ttl_seconds=5), True),
        (Lifetime(ttl_seconds=5), Lifetime(ttl_seconds=6), False),
        (Lifetime(ttl_seconds=5), FOREVER, False),
        (Lifetime(expires_at=5), FOREVER, False),
        (Lifetime(expires_at=5), Lifetime(expires_at=6), False),
        (Lifetime(expires_at=0, expires_at_text="a"), Lifetime(expires_at=0, expires_at_text="b"), True),
    ],
)
def test_lifetimes_are_compared_by_what_they_mean(one: Lifetime, other: Lifetime, same: bool) -> None:
    assert one.same_as(other) is same
    assert other.same_as(one) is same
