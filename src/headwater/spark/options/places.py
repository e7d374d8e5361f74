"""Places to start and to end at, as people name them: words, offsets of streams, or positions of shards."""

import json
from typing import Literal, NamedTuple

from headwater.protocol import offsets
from headwater.protocol.names import DEFAULT_BUCKET
from headwater.spark.options.values import Given, OptionRefused

Word = Literal["earliest", "latest"]
WORDS: dict[str, Word] = {"earliest": "earliest", "-1": "earliest", "latest": "latest", "now": "latest"}


class Positions(NamedTuple):
    """A place in the logs of all shards."""

    shards: dict[str, int]


class Offsets(NamedTuple):
    """A place in each of some streams, by whole names: an offset, or one of the words."""

    streams: dict[str, int | Word]


Place = Word | Positions | Offsets


def parse_place(given: Given, option: str, bucket: str | None) -> Place | None:
    """The place that an option names, None if it is not given; names are whole, or within a bucket."""
    text = given.text(option)
    if text is None:
        return None
    word = WORDS.get(text.strip().lower())
    if word is not None:
        return word
    forms = 'earliest, latest, {"stream": offset} or {"shards": {"0": position}}'
    problem = OptionRefused(f"The option {option} is {forms}, not {text!r}.")
    try:
        told = json.loads(text)
    except ValueError:
        raise problem from None
    if not isinstance(told, dict) or not told:
        raise problem
    shards = told.get("shards")
    if isinstance(shards, dict):
        if set(shards) != {"0"} or not _is_offset(shards["0"]):
            raise OptionRefused(f"The option {option} names a position for shard 0, the only one, and for no other.")
        return Positions(shards)
    places: dict[str, int | Word] = {}
    for name, value in told.items():
        place = _offset(value)
        if place is None:
            raise problem
        places[whole_name(name, bucket)] = place
    return Offsets(places)


def _offset(value: object) -> int | Word | None:
    if isinstance(value, str):
        # As the server prints it, or as a number.
        number = offsets.parse(value) if "_" in value else int(value) if value.isascii() and value.isdigit() else None
        return WORDS.get(value.lower()) or (number if _is_offset(number) else None)
    if _is_offset(value):
        assert isinstance(value, int)
        return value
    return "earliest" if value == -1 else None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def whole_name(name: str, bucket: str | None) -> str:
    """The whole name of a stream: as it stands, or within a bucket; without either it is of the default one.

    >>> whole_name("notes", "team"), whole_name("team/notes", None), whole_name("notes", None)
    ('team/notes', 'team/notes', '_default/notes')
    """
    if bucket is not None:
        return f"{bucket}/{name}"
    return name if "/" in name else f"{DEFAULT_BUCKET}/{name}"
