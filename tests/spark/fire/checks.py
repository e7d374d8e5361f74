"""Comparing the streams that were written with their copies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headwater.client import ScanRange
from headwater.spark.link import Link, LinkSettings

from .ledger import number_of

EXAMPLES_MAX = 12


@dataclass
class Difference:
    """How many messages differ, and a few examples."""

    compared: int = 0
    missing: int = 0
    extra: int = 0
    changed: int = 0
    misplaced: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        return not (self.missing or self.extra or self.changed or self.misplaced)

    def __str__(self) -> str:
        counts = (
            f"missing = {self.missing}, extra = {self.extra}, changed = {self.changed}, misplaced = {self.misplaced}"
        )
        return "\n".join((f"{self.compared:,} messages compared: {counts}", *self.examples))

    def note(self, name: str, words: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(f"  {name}: {words}")


def compare(expected: Mapping[str, Sequence[bytes]], found: Mapping[str, Sequence[bytes]]) -> Difference:
    """Compare all streams, message by message: which are missing, repeated, changed or out of order.

    >>> one, two, three = (b"%d:" % number for number in (1, 2, 3))
    >>> str(compare({"s": [one, two]}, {"s": [one, two]}))
    '2 messages compared: missing = 0, extra = 0, changed = 0, misplaced = 0'
    >>> difference = compare({"s": [one, two, three]}, {"s": [three, two, two, b"3:!"], "t": [one]})
    >>> print(difference)
    3 messages compared: missing = 1, extra = 3, changed = 1, misplaced = 1
      s: 1 is missing
      s: 2 is found 2 times
      s: 3 is found 2 times
      s: 3 reads b'3:!' instead of b'3:'
      s: 3 comes before 2
      t: no writer wrote this stream, which holds 1 messages
    """
    difference = Difference(compared=sum(map(len, expected.values())))
    for name, messages in expected.items():
        _compare_stream(name, messages, found.get(name, ()), difference)
    for name in sorted(found.keys() - expected.keys()):
        difference.extra += len(found[name])
        difference.note(name, f"no writer wrote this stream, which holds {len(found[name])} messages")
    return difference


def _compare_stream(name: str, expected: Sequence[bytes], found: Sequence[bytes], difference: Difference) -> None:
    if expected == found:
        return
    known = {number_of(message): message for message in expected}
    counts = Counter(number_of(message) for message in found)
    for number in known.keys() - counts.keys():
        difference.missing += 1
        difference.note(name, f"{number} is missing")
    for number, times in sorted(counts.items(), key=lambda item: item[0] or 0):
        spare = times - (number in known)
        if spare:
            difference.extra += spare
            difference.note(name, f"{number} is found {times} times")
    for message in found:
        original = known.get(number_of(message))
        if original is not None and original != message:
            difference.changed += 1
            difference.note(name, f"{number_of(message)} reads {message!r} instead of {original!r}")
    firsts = list(dict.fromkeys(number for message in found if (number := number_of(message)) in known))
    for before, after in pairwise(firsts):
        if before is not None and after is not None and before > after:
            difference.misplaced += 1
            difference.note(name, f"{before} comes before {after}")


def read_streams(url: str, bucket: str) -> dict[str, list[bytes]]:
    """The messages of all streams of a bucket, from the server."""
    found: dict[str, list[bytes]] = {}
    with Link(LinkSettings(url)) as link:
        for page in link.describe_all(f"{bucket}/"):
            rows = page.select(["stream", "incarnation", "start", "tail"]).to_pylist()
            with link.scan([ScanRange(*row.values()) for row in rows], ["stream", "payload"]) as batches:
                for batch in batches:
                    for row in batch.to_pylist():
                        found.setdefault(row["stream"], []).append(row["payload"])
    return found
