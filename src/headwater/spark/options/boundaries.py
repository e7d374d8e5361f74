"""Where a read starts and ends, as users write it: a word, offsets of streams, or a position in the log."""

import json
from typing import Literal, NamedTuple

from headwater.protocol import offsets
from headwater.protocol.names import DEFAULT_BUCKET
from headwater.spark.options.values import OptionRefused, OptionValues
from headwater.spark.positions import SHARD

Edge = Literal["earliest", "latest"]
EDGES: dict[str, Edge] = {"earliest": "earliest", "-1": "earliest", "latest": "latest", "now": "latest"}


class LogPosition(NamedTuple):
    """A position in the log; it covers all streams."""

    position: int


class StreamOffsets(NamedTuple):
    """An offset, or an edge, for each of some streams, keyed by full name."""

    streams: dict[str, int | Edge]


Boundary = Edge | LogPosition | StreamOffsets


def parse_boundary(values: OptionValues, option: str, bucket: str | None) -> Boundary | None:
    """The boundary that an option names, or None if it is absent. Stream names are full, or relative to `bucket`."""
    text = values.text(option)
    if text is None:
        return None
    edge = EDGES.get(text.strip().lower())
    if edge is not None:
        return edge
    forms = f'earliest, latest, {{"stream": offset}} or {{"shards": {{"{SHARD}": position}}}}'
    malformed = OptionRefused(f"The option {option} must be {forms}, not {text!r}.")
    try:
        parsed = json.loads(text)
    except ValueError:
        raise malformed from None
    if not isinstance(parsed, dict) or not parsed:
        raise malformed
    shards = parsed.get("shards")
    if isinstance(shards, dict):
        if set(shards) != {SHARD} or not _is_offset(shards[SHARD]):
            raise OptionRefused(f"The option {option} must give a position for shard {SHARD}, which is the only shard.")
        return LogPosition(shards[SHARD])
    streams: dict[str, int | Edge] = {}
    for name, value in parsed.items():
        offset = _offset(value)
        if offset is None:
            raise malformed
        streams[full_name(name, bucket)] = offset
    return StreamOffsets(streams)


def _offset(value: object) -> int | Edge | None:
    if isinstance(value, str):
        # Either the server's printed form or a plain number.
        number = offsets.parse(value) if "_" in value else int(value) if value.isascii() and value.isdigit() else None
        return EDGES.get(value.lower()) or (number if _is_offset(number) else None)
    if _is_offset(value):
        assert isinstance(value, int)
        return value
    return "earliest" if value == -1 else None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def full_name(name: str, bucket: str | None) -> str:
    """The full name of a stream: in `bucket` if one is given, otherwise as it is, or in the default bucket.

    >>> full_name("notes", "team"), full_name("team/notes", None), full_name("notes", None)
    ('team/notes', 'team/notes', '_default/notes')
    """
    if bucket is not None:
        return f"{bucket}/{name}"
    return name if "/" in name else f"{DEFAULT_BUCKET}/{name}"
