import pytest

from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.message_ends import pack
from headwater.protocol.offsets import NOW, parse
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import reading
from headwater.streams.commands.streams import Append, Create
from headwater.streams.hot import Hot
from headwater.streams.queries import Anchor, Read
from headwater.streams.replies import Anchored, Page
from headwater.streams.state import Stream

from .shards import Shards, messages_of

JSON = "application/json"


@pytest.fixture(params=["memory", "lake", "both"])
def tier(request: pytest.FixtureRequest) -> str:
    """Where the bytes are: for `both` the first append of each stream is in the lake, the others are in memory."""
    return str(request.param)


def sink(shards: Shards, tier: str) -> None:
    if tier != "memory":
        shards.flush(appends_max=1 if tier == "both" else None)


@pytest.fixture
def shards(tier: str) -> Shards:
    """A stream of text (two appends), one of JSON (one append of three messages, one of one), an empty one of each."""
    shards = Shards()
    shards.ask(Create("b/text", "text/plain", payload=b"abcd"))
    shards.ask(Append("b/text", b"efg", content_type="text/plain"))
    shards.ask(Create("b/json", JSON, payload=b'10"b"300', ends=pack((2, 5, 8))))
    shards.ask(Append("b/json", b"4000", content_type=JSON))
    shards.ask(Create("b/empty", "text/plain"))
    shards.ask(Create("b/empty-json", JSON))
    sink(shards, tier)
    return shards


def page(shards: Shards, name: str, offset: int, bytes_max: int) -> tuple[bytes, int, bool]:
    found = shards.query(Read(name, offset), bytes_max)
    assert isinstance(found, Page)
    assert found.next_offset == offset + len(found.body)
    return found.body, found.next_offset, found.up_to_date


# -- Where a read may begin -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b/text", "b/json", "b/empty", "b/empty-json"])
@pytest.mark.parametrize("token", ["now", "tail"])
def test_a_read_at_the_tail_is_empty_and_up_to_date(name: str, token: str, shards: Shards) -> None:
    offset = NOW if token == "now" else shards.stream(name).tail
    found = shards.query(Read(name, offset))
    assert isinstance(found, Page)
    assert (found.body, found.next_offset, found.up_to_date) == (b"", shards.stream(name).tail, True)


@pytest.mark.parametrize("offset", [8, parse("9999999999999999_9999999999999999")])
def test_the_refusal_of_a_read_beyond_the_tail_names_the_tail(offset: int, shards: Shards) -> None:
    refusal = shards.query(Read("b/text", offset))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.OFFSET_BEYOND_TAIL
    assert (refusal.incarnation, refusal.next_offset) == (1, 7)


def test_the_refusal_of_a_read_before_the_retained_start_names_the_start() -> None:
    trimmed = Stream("b/s", 5, "text/plain", FOREVER, 0, 0, 0, tail=13, start=10, hot=[hot(10, b"abc")])
    refusal = reading.judge(trimmed, 9, no_source)
    assert refusal is not None
    assert refusal.code is Code.OFFSET_TRIMMED
    assert (refusal.incarnation, refusal.earliest_offset) == (5, 10)
    assert reading.judge(trimmed, 10, no_source) is None


@pytest.mark.parametrize("offset", range(8))
def test_any_byte_of_a_text_stream_is_an_offset(offset: int, shards: Shards) -> None:
    assert page(shards, "b/text", offset, 100) == (b"abcdefg"[offset:], 7, True)


@pytest.mark.parametrize("offset", [0, 2, 5, 8, 12])
def test_a_boundary_between_json_messages_is_an_offset(offset: int, shards: Shards) -> None:
    assert page(shards, "b/json", offset, 100) == (b'10"b"3004000'[offset:], 12, True)


@pytest.mark.parametrize("offset", [1, 3, 4, 6, 7, 9, 10, 11])
def test_the_inside_of_a_json_message_is_not_an_offset(offset: int, shards: Shards) -> None:
    refusal = shards.query(Read("b/json", offset))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.OFFSET_UNALIGNED
    assert (refusal.incarnation, refusal.next_offset) == (3, 12)


# -- Pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "offset", "bytes_max", "body"),
    [
        ("b/text", 0, 100, b"abcdefg"),
        ("b/text", 0, 7, b"abcdefg"),
        ("b/text", 0, 6, b"abcd"),
        ("b/text", 0, 4, b"abcd"),
        ("b/text", 0, 3, b"abc"),
        ("b/text", 0, 1, b"a"),
        ("b/text", 0, 0, b"a"),
        ("b/text", 2, 5, b"cdefg"),
        ("b/text", 2, 4, b"cd"),
        ("b/text", 2, 1, b"c"),
        ("b/text", 5, 1, b"f"),
        ("b/text", 4, 2, b"ef"),
        ("b/json", 0, 100, b'10"b"3004000'),
        ("b/json", 0, 11, b'10"b"300'),
        ("b/json", 0, 7, b'10"b"'),
        ("b/json", 0, 4, b"10"),
        ("b/json", 0, 1, b"10"),
        ("b/json", 2, 1, b'"b"'),
        ("b/json", 2, 6, b'"b"300'),
        ("b/json", 2, 5, b'"b"'),
        ("b/json", 5, 6, b"300"),
        ("b/json", 8, 1, b"4000"),
    ],
)
def test_a_page_holds_whole_messages_or_a_part_of_one_where_every_byte_is_an_offset(
    name: str, offset: int, bytes_max: int, body: bytes, shards: Shards
) -> None:
    end = offset + len(body)
    assert page(shards, name, offset, bytes_max) == (body, end, end == shards.stream(name).tail)


@pytest.mark.parametrize("bytes_max", [1, 4, 5])
def test_a_page_that_its_first_message_fills_holds_no_other(bytes_max: int, tier: str) -> None:
    shards = Shards()
    shards.ask(Create("b/s", JSON, payload=b"10000", ends=pack((5,))))
    for payload in (b"1", b"2", b"3"):
        shards.ask(Append("b/s", payload, content_type=JSON))
    sink(shards, tier)
    assert page(shards, "b/s", 0, bytes_max) == (b"10000", 5, False)


@pytest.mark.parametrize(
    ("text", "bytes_max", "parts"),
    [
        ("größe", 3, [b"gr", "ö".encode(), "ß".encode() + b"e"]),
        ("größe", 4, ["grö".encode(), "ße".encode()]),
        ("a\r\n\r\nb", 2, [b"a", b"\r\n", b"\r\n", b"b"]),
        ("🌊🌊", 7, ["🌊".encode(), "🌊".encode()]),
        ("🌊a", 3, ["🌊".encode(), b"a"]),
        ("\r\n", 1, [b"\r\n"]),
    ],
)
def test_text_is_cut_between_characters_and_not_within_a_line_end(
    text: str, bytes_max: int, parts: list[bytes], tier: str
) -> None:
    shards = Shards()
    shards.ask(Create("b/s", "text/plain", payload=text.encode()))
    sink(shards, tier)
    found, offset = list[bytes](), 0
    while not found or offset < shards.stream("b/s").tail:
        body, offset, _ = page(shards, "b/s", offset, bytes_max)
        found.append(body)
    assert found == parts


def test_bytes_that_are_not_text_are_cut_at_the_limit(tier: str) -> None:
    shards = Shards()
    shards.ask(Create("b/s", "image/png", payload="🌊".encode()))
    sink(shards, tier)
    assert page(shards, "b/s", 0, 3) == ("🌊".encode()[:3], 3, False)


def test_no_slice_of_a_page_is_empty(shards: Shards) -> None:
    plan = shards.plan(shards.stream("b/text"), 0, 5)
    assert [(piece.start, piece.end) for piece in plan.slices] == [(0, 4)]


def test_a_page_is_planned_without_touching_bytes(shards: Shards) -> None:
    shards.all[0].lake.appends_per_run = 1
    plan = shards.plan(shards.stream("b/text"), 2, 100)
    parts = [(hot.payload, lo, hi) for piece in plan.slices for hot, lo, hi in piece.parts()]
    assert parts == [(b"abcd", 2, 4), (b"efg", 0, 3)]
    assert plan.next_offset == 7


@pytest.mark.parametrize(
    ("start", "end", "parts"),
    [
        (4, 10, [(b"efg", 0, 3), (b"hij", 0, 3)]),
        (5, 8, [(b"efg", 1, 3), (b"hij", 0, 1)]),
        (7, 10, [(b"hij", 0, 3)]),
        (4, 7, [(b"efg", 0, 3)]),
        (6, 7, [(b"efg", 2, 3)]),
    ],
)
def test_a_range_in_memory_is_one_slice(start: int, end: int, parts: list[tuple[bytes, int, int]]) -> None:
    appends = [hot(4, b"efg"), hot(7, b"hij")]
    stream = Stream("b/s", 5, "text/plain", FOREVER, 0, 0, 0, tail=10, hot=appends)
    found = reading.slice_of(stream, start, end)
    assert [(piece.payload, lo, hi) for piece, lo, hi in found.parts()] == parts


def test_a_stream_without_hot_bytes_has_an_empty_slice() -> None:
    stream = Stream("b/s", 5, "text/plain", FOREVER, 0, 0, 0, tail=10)
    assert list(reading.slice_of(stream, 10, 10).parts()) == []


# -- Forks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def family(shards: Shards, tier: str) -> Shards:
    """child: abcde + XY + Z; grandchild: of the child at 6, abcdeX + !!; sibling: of the child at 3, abc + ? + ??.

    cousin: of the text at 7, abcdefg + N + M.
    """
    shards.finish(shards.fork("b/child", "b/text", 4, sub_offset=1, body=b"XY"))
    shards.finish(shards.fork("b/grandchild", "b/child", 5, sub_offset=1, body=b"!!"))
    shards.finish(shards.fork("b/sibling", "b/child", 3, body=b"?"))
    shards.finish(shards.fork("b/cousin", "b/text", 7, body=b"N"))
    shards.ask(Append("b/text", b"never seen", content_type="text/plain"))
    shards.ask(Append("b/cousin", b"M", content_type="text/plain"))
    shards.ask(Append("b/child", b"Z", content_type="text/plain"))
    shards.ask(Append("b/sibling", b"??", content_type="text/plain"))
    sink(shards, tier)
    return shards


CONTENTS = {"b/child": b"abcdeXYZ", "b/grandchild": b"abcdeX!!", "b/sibling": b"abc???", "b/cousin": b"abcdefgNM"}


@pytest.mark.parametrize("messages_max", [1, 2, 3, 4, 99])
@pytest.mark.parametrize("name", ["b/text", "b/json", *CONTENTS])
def test_a_page_has_whole_messages_up_to_the_number_it_may_have(name: str, messages_max: int, family: Shards) -> None:
    stream = family.stream(name)
    offset, sizes = stream.start, []
    while offset < stream.tail:
        found = family.plan(stream, offset, 1 << 20, messages_max)
        sizes.append(sum(len(messages_of(slice_)) for slice_ in found.slices))
        assert found.next_offset > offset
        assert family.record_at(stream, found.next_offset) is not None, "it ends at a message boundary"
        offset = found.next_offset
    assert sizes[:-1] == [messages_max] * (len(sizes) - 1)
    assert sum(sizes) == stream.record_next
    assert sizes[-1] <= messages_max


def test_a_page_from_within_a_message_counts_its_rest_as_one(family: Shards) -> None:
    found = family.plan(family.stream("b/child"), 2, 1 << 20, 2)
    messages = [message for slice_ in found.slices for message in messages_of(slice_)]
    assert (messages, found.next_offset) == ([b"cd", b"e"], 5)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_fork_reads_on_from_its_source_into_its_own_bytes(name: str, family: Shards) -> None:
    content = CONTENTS[name]
    for offset in range(len(content) + 1):
        assert page(family, name, offset, 100) == (content[offset:], len(content), True)


def test_a_page_of_a_fork_may_end_within_a_message_of_its_source_where_the_fork_point_is(family: Shards) -> None:
    assert page(family, "b/child", 0, 5) == (b"abcde", 5, False)


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("bytes_max", range(1, 9))
def test_the_pages_of_a_fork_make_up_the_whole(name: str, bytes_max: int, family: Shards) -> None:
    pages = list(family.messages(name, 0, bytes_max))
    assert b"".join(message for found in pages for message in found) == CONTENTS[name]
    assert all(len(found) == 1 or sum(map(len, found)) <= bytes_max for found in pages)


def test_a_fork_of_json_knows_the_boundaries_of_its_source(shards: Shards, tier: str) -> None:
    shards.finish(shards.fork("b/fork", "b/json", 2, sub_offset=1, body=b'[7, "x"]'))
    sink(shards, tier)
    assert [*shards.messages("b/fork", 0, 1)] == [[b"10"], [b'"b"'], [b"7"], [b'"x"']]
    refusals = [offset for offset in range(10) if isinstance(shards.query(Read("b/fork", offset)), Refusal)]
    assert refusals == [1, 3, 4, 7, 8]


# -- Records ----------------------------------------------------------------------------------------------------------


def test_a_record_begins_where_the_one_before_ends(shards: Shards) -> None:
    stream = shards.stream("b/json")
    assert [shards.offset_of(stream, record) for record in range(5)] == [0, 2, 5, 8, 12]
    assert [shards.record_at(stream, offset) for offset in (0, 2, 5, 8, 12)] == [0, 1, 2, 3, 4]
    assert [shards.record_at(stream, offset) for offset in (1, 3, 4, 6, 7, 9, 10, 11)] == [None] * 8


def test_the_records_of_a_fork_are_those_of_its_source_and_then_its_own(shards: Shards, tier: str) -> None:
    shards.finish(shards.fork("b/fork", "b/json", 2, sub_offset=1, body=b'[7, "x"]'))
    shards.ask(Append("b/fork", b"8", content_type=JSON))
    sink(shards, tier)
    stream = shards.stream("b/fork")
    assert [shards.offset_of(stream, record) for record in range(6)] == [0, 2, 5, 6, 9, 10]
    assert [shards.record_at(stream, offset) for offset in (0, 2, 5, 6, 9, 10)] == [0, 1, 2, 3, 4, 5]
    assert [shards.record_at(stream, offset) for offset in (1, 3, 4, 7, 8)] == [None] * 5


def test_the_first_record_of_a_fork_is_its_own(shards: Shards, tier: str) -> None:
    shards.finish(shards.fork("b/fork", "b/json", body=b"[7, 8]"))
    sink(shards, tier)
    stream = shards.stream("b/fork")
    assert [shards.offset_of(stream, record) for record in range(3, 7)] == [8, 12, 13, 14]
    assert [shards.record_at(stream, offset) for offset in (8, 12, 13, 14)] == [3, 4, 5, 6]


def test_records_are_counted_on_where_history_was_trimmed(shards: Shards) -> None:
    shards.publish("b/json", 5)
    stream = shards.stream("b/json")
    assert [shards.offset_of(stream, record) for record in (2, 3, 4)] == [5, 8, 12]
    assert [shards.record_at(stream, offset) for offset in (5, 8, 12)] == [2, 3, 4]
    assert page(shards, "b/json", 5, 3) == (b"300", 8, False)


# -- Fork points ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "point"),
    [
        (Anchor("b/text", 0, 0), (0, 0)),
        (Anchor("b/text", 0, 1), (1, 1)),
        (Anchor("b/text", 0, 4), (4, 1)),
        (Anchor("b/text", 2, 2), (4, 1)),
        (Anchor("b/text", 4, 0), (4, 1)),
        (Anchor("b/text", 4, 1), (5, 2)),
        (Anchor("b/text", 4, 3), (7, 2)),
        (Anchor("b/text", 7, 0), (7, 2)),
        (Anchor("b/empty", 0, 0), (0, 0)),
        (Anchor("b/json", 0, 0), (0, 0)),
        (Anchor("b/json", 0, 1), (2, 1)),
        (Anchor("b/json", 0, 3), (8, 3)),
        (Anchor("b/json", 2, 0), (2, 1)),
        (Anchor("b/json", 2, 2), (8, 3)),
        (Anchor("b/json", 5, 1), (8, 3)),
        (Anchor("b/json", 8, 0), (8, 3)),
        (Anchor("b/json", 8, 1), (12, 4)),
        (Anchor("b/json", 12, 0), (12, 4)),
        (Anchor("b/empty-json", 0, 0), (0, 0)),
    ],
)
def test_a_fork_point_lies_bytes_or_messages_past_its_anchor(
    query: Anchor, point: tuple[int, int], shards: Shards
) -> None:
    assert shards.query(query) == Anchored(shards.stream(query.name).incarnation, *point)


@pytest.mark.parametrize(
    ("name", "offset", "steps"),
    [
        ("b/text", 0, 5),
        ("b/text", 2, 3),
        ("b/text", 4, 4),
        ("b/text", 7, 1),
        ("b/empty", 0, 1),
        ("b/json", 0, 4),
        ("b/json", 2, 3),
        ("b/json", 5, 2),
        ("b/json", 8, 2),
        ("b/json", 8, 10**30),
        ("b/json", 12, 1),
        ("b/empty-json", 0, 1),
    ],
)
def test_a_fork_point_past_the_append_of_its_anchor_is_refused(
    name: str, offset: int, steps: int, shards: Shards
) -> None:
    refusal = shards.query(Anchor(name, offset, steps))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_OFFSET
    assert (refusal.incarnation, refusal.next_offset) == (shards.stream(name).incarnation, shards.stream(name).tail)


@pytest.mark.parametrize(
    ("name", "offset", "code"),
    [
        ("b/text", 8, Code.OFFSET_BEYOND_TAIL),
        ("b/json", 3, Code.OFFSET_UNALIGNED),
        ("b/none", 0, Code.STREAM_NOT_FOUND),
    ],
)
def test_a_fork_point_must_be_readable(name: str, offset: int, code: Code, shards: Shards) -> None:
    refusal = shards.query(Anchor(name, offset, 0))
    assert isinstance(refusal, Refusal)
    assert refusal.code is code


@pytest.mark.parametrize(
    ("offset", "steps", "to", "record_to"), [(4, 1, 5, 2), (5, 2, 7, 3), (6, 1, 7, 3), (7, 1, 8, 4)]
)
def test_a_fork_point_in_a_fork_is_bounded_by_what_the_fork_has(
    offset: int, steps: int, to: int, record_to: int, family: Shards
) -> None:
    assert family.query(Anchor("b/child", offset, steps)) == Anchored(
        family.stream("b/child").incarnation, to, record_to
    )
    assert isinstance(family.query(Anchor("b/child", offset, steps + 1)), Refusal)


@pytest.mark.parametrize(("offset", "steps"), [(0, 2), (8, 1)])
def test_a_fork_point_in_a_fork_of_json_is_bounded_by_what_the_fork_has(
    offset: int, steps: int, shards: Shards, tier: str
) -> None:
    shards.ask(Create("b/other", JSON, payload=b'10"b"300', ends=pack((2, 5, 8))))
    shards.ask(Append("b/other", b"1234", pack((1, 2, 4)), JSON))
    sink(shards, tier)
    shards.finish(shards.fork("b/fork", "b/other", offset, sub_offset=steps))
    fork = shards.stream("b/fork")
    assert shards.query(Anchor("b/fork", offset, steps)) == Anchored(fork.incarnation, fork.tail, fork.record_next)
    assert isinstance(shards.query(Anchor("b/fork", offset, steps + 1)), Refusal)


def hot(offset: int, payload: bytes) -> Hot:
    return Hot(offset, payload, None, 0, 1, 0, None)


def no_source(origin: object) -> Stream:
    raise AssertionError("only a fork has a source")


# -- A few appends at the tail ----------------------------------------------------------------------------------------
