"""The bodies of requests about many streams: JSON, decoded a slice per turn of the loop where it is long."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

from headwater.lake.format import SCHEMA
from headwater.node.scans.pace import Pace
from headwater.node.scans.windows import Times
from headwater.protocol.limits import DESCRIBE_STREAMS_MAX, RANGES_COMMAS_MAX, SCAN_RANGES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import ALL
from headwater.streams.queries import Natural, Ordinal, Range

DECODED_PER_STEP = 5_000
"""How many ranges or records are decoded in one go: a millisecond."""

T = TypeVar("T", Range, Ordinal)


class DescribeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Streams by their names, or a page of those with a prefix."""

    streams: list[str] | None = None
    prefix: str | None = None
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=DESCRIBE_STREAMS_MAX)] | None = None


class _Scan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ranges: list[msgspec.Raw]
    columns: list[str] | None = None
    since: Natural | None = None
    until: Natural | None = None


class _Locate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


class ScanBody(msgspec.Struct, frozen=True):
    """Ranges, the columns that are asked for, and when what is meant was committed."""

    ranges: list[Range]
    columns: list[str] | None
    times: Times


_describe = msgspec.json.Decoder(DescribeBody)
_scan = msgspec.json.Decoder(_Scan)
_locate = msgspec.json.Decoder(_Locate)
_ranges = msgspec.json.Decoder(list[Range])
_ordinals = msgspec.json.Decoder(list[Ordinal])

NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises at bodies that are not as they should be, also at bytes that are no text and at deep ones."""

_TOO_CROWDED = Refusal(Code.TOO_LARGE, f"The body has more than {RANGES_COMMAS_MAX} commas; ask in parts.")


def _crowded(body: bytes) -> bool:
    # The decoder makes all elements of a list before it looks at how many there may be.
    return body.count(b",") > RANGES_COMMAS_MAX


def parse_describe(body: bytes) -> DescribeBody | Refusal:
    """What a request to describe streams asks for."""
    if _crowded(body):
        return _TOO_CROWDED
    try:
        asked = _describe.decode(body)
    except NOT_UNDERSTOOD as error:
        return _refused(f'Give the body as {{"streams": [...]}} or {{"prefix": "..."}}: {error}')
    paged = asked.prefix is not None
    if paged == (asked.streams is not None):
        return _refused("Name either streams or a prefix")
    if not paged and (asked.after is not None or asked.limit is not None):
        return _refused("Pages, by after and limit, are of streams with a prefix")
    if asked.streams is not None and len(asked.streams) > DESCRIBE_STREAMS_MAX:
        return _refused(f"{len(asked.streams)} streams are too many, {DESCRIBE_STREAMS_MAX} can be described at once")
    return asked


async def parse_scan(body: bytes) -> ScanBody | Refusal:
    """What a request to scan ranges asks for."""
    if _crowded(body):
        return _TOO_CROWDED
    try:
        asked = _scan.decode(body)
    except NOT_UNDERSTOOD as error:
        return _refused(f'Give the body as {{"ranges": [["bucket/stream", incarnation, from, until], ...]}}: {error}')
    unknown = [name for name in asked.columns or () if name not in SCHEMA.names]
    if unknown:
        return _refused(f"There is no column {unknown[0][:40]!r}; there are {', '.join(SCHEMA.names)}")
    if asked.columns is not None and not asked.columns:
        return _refused("Ask for at least one column, or leave the columns out to get all of them")
    ranges = await _items(asked.ranges, _ranges, "range", '["bucket/stream", incarnation, from, until]')
    if isinstance(ranges, Refusal):
        return ranges
    reversed_ones = (index for index, one in enumerate(ranges) if one.until < one.start)
    first = next(reversed_ones, None)
    if first is not None:
        return _refused(f"The range {first} ends before it begins")
    times = Times(asked.since or 0, ALL if asked.until is None else asked.until)
    return ScanBody(ranges, asked.columns, times)


async def parse_locate(body: bytes) -> list[Ordinal] | Refusal:
    """Which records a request wants to find."""
    if _crowded(body):
        return _TOO_CROWDED
    try:
        asked = _locate.decode(body)
    except NOT_UNDERSTOOD as error:
        return _refused(f'Give the body as {{"records": [["bucket/stream", incarnation, record], ...]}}: {error}')
    return await _items(asked.records, _ordinals, "record", '["bucket/stream", incarnation, record]')


async def _items(
    raw: Sequence[msgspec.Raw], decoder: "msgspec.json.Decoder[list[T]]", what: str, form: str
) -> list[T] | Refusal:
    if len(raw) > SCAN_RANGES_MAX:
        return _refused(f"{len(raw)} {what}s are too many, {SCAN_RANGES_MAX} can be asked for at once")
    items: list[T] = []
    pace = Pace()
    for first in range(0, len(raw), DECODED_PER_STEP):
        several = raw[first : first + DECODED_PER_STEP]
        try:
            items += decoder.decode(b"[%b]" % b",".join(several))
        except NOT_UNDERSTOOD:
            index, problem = _first_bad(several, decoder)
            return _refused(f"The {what} {first + index} is not {form}: {problem}")
        await pace.rest()
    return items


def _first_bad(raw: Sequence[msgspec.Raw], decoder: "msgspec.json.Decoder[list[T]]") -> tuple[int, str]:
    for index, one in enumerate(raw):
        try:
            decoder.decode(b"[%b]" % bytes(one))
        except NOT_UNDERSTOOD as error:
            return index, str(error).replace("$[0]", "$")
    raise AssertionError("together they were bad, and each is good")


def _refused(what: str) -> Refusal:
    return Refusal(Code.BAD_REQUEST, f"{what}.")
