"""Streaming from live streams: the offset has an entry for each stream, its life and how far that was read.

    {"s": {"team/notes": [17, 4096]}, "v": 1}

The first offset of a query, and those after it until something is read, also say where the query began: Spark asks for
the beginning anew when it repeats the first batch, and by then it may be another one. Times stand in every offset.
"""

from typing import Any, NamedTuple

from headwater.spark.link import Link
from headwater.spark.options.places import Offsets
from headwater.spark.options.reading import SourceOptions
from headwater.spark.source.lake.admission import UNLIMITED, Limits
from headwater.spark.source.live.admission import LiveAdmission, Pending
from headwater.spark.source.live.plan import (
    Known,
    LiveRange,
    LiveRefused,
    LiveWork,
    describe,
    from_earliest,
    from_offset,
    known_of,
    packed,
)
from headwater.spark.source.losses import lose

Lives = dict[str, tuple[int, int]]
"""By name: the incarnation, and an offset in it."""


class LiveOffset(NamedTuple):
    """How far a query has come."""

    lives: Lives
    beginning: Lives | None = None
    since: int | None = None
    until: int | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """In the form that Spark keeps: it compares texts, so there is one for each offset."""
        plain: dict[str, Any] = {"s": _plain(self.lives), "v": 1}
        if self.beginning is not None:
            plain = {"beginning": _plain(self.beginning), **plain}
        if self.since is not None or self.until is not None:
            plain["t"] = [self.since, self.until]
        return {name: plain[name] for name in sorted(plain)}

    @property
    def is_new(self) -> bool:
        """Whether nothing was read yet."""
        return self.beginning == self.lives


def _plain(lives: Lives) -> dict[str, list[int]]:
    return {name: list(lives[name]) for name in sorted(lives)}


def parse_offset(plain: dict[str, Any]) -> LiveOffset:
    """An offset as Spark gives it back."""
    try:
        if plain["v"] != 1:
            raise KeyError("v")
        beginning = _lives(plain["beginning"]) if "beginning" in plain else None
        return LiveOffset(_lives(plain["s"]), beginning, *plain.get("t", (None, None)))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LiveRefused(
            "The checkpoint is not of a live query; a query stays on the path that it began on (option via)."
        ) from None


def _lives(plain: dict[str, list[int]]) -> Lives:
    return {name: (incarnation, offset) for name, (incarnation, offset) in plain.items()}


class LiveStream:
    """What the driver does for one query."""

    def __init__(self, options: SourceOptions, link: Link) -> None:
        self._options, self._link = options, link
        self._admission = LiveAdmission(link)
        self._target: dict[str, Known] | None = None
        self._newest: dict[str, Known] | None = None

    # -- How far ----------------------------------------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Where a new query begins; a stream that is not named begins at its earliest message."""
        options, starting = self._options, self._options.starting
        lives: Lives = {}
        if isinstance(starting, Offsets) or (starting != "earliest" and options.since is None):
            known = self._target if self._target is not None else describe(self._link, options.selection)
            places = starting.streams if isinstance(starting, Offsets) else dict.fromkeys(known, "latest")
            for name, place in places.items():
                if name in known and place != "earliest":
                    lives[name] = known[name].incarnation, known[name].tail if place == "latest" else int(place)
        return LiveOffset(lives, lives, options.since, options.until).plain

    def prepare(self) -> None:
        """End at what there is now."""
        self._target = describe(self._link, self._options.selection)

    def latest(self, start: dict[str, Any], limits: Limits = UNLIMITED) -> dict[str, Any]:
        """The end of the next batch; where it starts, if there is nothing new."""
        offset = parse_offset(start)
        known = self._newest = describe(self._link, self._options.selection)
        for name in sorted(offset.lives.keys() - known.keys()):
            lose(self._options, f"The stream {name!r} is not there any more")
        lives = {name: life for name, life in offset.lives.items() if name in known}
        pending = []
        for name, facts in known.items():
            if name in lives and lives[name][0] != facts.incarnation:
                lose(self._options, f"The stream {name!r} was deleted and made again")
                del lives[name]
            began = self._range(lives.get(name), name, facts)
            end = self._tail(name, facts)
            if began.start < end or (began.bootstraps and end == facts.tail):
                records = facts.record_start, facts.record_next
                pending.append(Pending(name, facts.incarnation, began.start, end, facts.start, *records))
        for name, end in self._admission.ends(pending, limits).items():
            lives[name] = known[name].incarnation, end
        if lives == offset.lives:
            return start
        return offset._replace(lives=lives, beginning=offset.beginning if offset.is_new else None).plain

    def report(self) -> dict[str, Any] | None:
        """How far there is something to read, as far as is known."""
        if self._newest is None:
            return None
        return LiveOffset({name: (facts.incarnation, facts.tail) for name, facts in self._newest.items()}).plain

    def _range(self, life: tuple[int, int] | None, name: str, facts: Known) -> LiveRange:
        """What there is of a stream behind what was read."""
        if life is None:
            return from_earliest(self._options, name, facts)
        return from_offset(self._options, name, facts, life[1])

    def _tail(self, name: str, facts: Known) -> int:
        """Up to where a stream may be read: for a query that ends, what there was when it began."""
        if self._target is None:
            return facts.tail
        target = self._target.get(name)
        return 0 if target is None or target.incarnation != facts.incarnation else min(target.tail, facts.tail)

    # -- What -------------------------------------------------------------------------------------------------------

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[LiveWork]:
        """The partitions of a batch, the same rows however often it is asked for, as long as the streams have them."""
        if start == end:
            return []
        last = parse_offset(end)
        # Where the first batch began is in its end: when it is repeated, its start was made up anew.
        first = parse_offset(start).lives if last.beginning is None else last.beginning
        changed = [name for name, life in last.lives.items() if first.get(name) != life]
        known = known_of([self._link.describe(changed)], self._options.selection) if changed else {}
        ranges = []
        for name in changed:
            incarnation, end_offset = last.lives[name]
            facts = known.get(name)
            if facts is None or facts.incarnation != incarnation:
                lose(self._options, f"The stream {name!r} is not there any more")
                continue
            life = first.get(name)
            one = self._range(life if life and life[0] == incarnation else None, name, facts)
            ranges.append(one._replace(end=end_offset))
        wanted = [one for one in ranges if one.start < one.end or one.bootstraps]
        return packed(self._options, wanted, last.since, last.until)
