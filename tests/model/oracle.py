"""A model of streams, as simple as possible, that the core is compared with.

It shares no code with the core. A stream is a list of appends, each a list of messages; a fork is a copy; an offset is
a length. An outcome is a word, with facts.
"""

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

SECOND = 1_000_000
WEEK = 7 * 24 * 3600 * SECOND
PRODUCERS_MAX = 3
DEPTH_MAX = 3

Outcome = tuple[str, dict[str, object]]


def outcome(word: str, **facts: object) -> Outcome:
    return word, {name: fact for name, fact in facts.items() if fact is not None and fact is not False}


@dataclass(frozen=True)
class Settings:
    """What a client may choose when it creates a stream; a fork inherits what is None."""

    content_type: str | None = "text/plain"
    ttl: int | None = None
    until: int | None = None
    closed: bool = False
    attrs: bytes | None = None

    @property
    def has_lifetime(self) -> bool:
        return self.ttl is not None or self.until is not None


@dataclass(frozen=True)
class Point:
    """A fork point as a client requests it."""

    source: str
    offset: int | None = None
    sub_offset: int = 0


@dataclass(frozen=True)
class Who:
    """The producer headers of a request."""

    name: str
    epoch: int
    seq: int


@dataclass(frozen=True)
class Founding:
    """What else the first request of a stream may carry."""

    seq: str | None = None
    who: Who | None = None
    incarnation: int | None = None


@dataclass
class LastAccepted:
    """A producer's last accepted request, and the response to it."""

    epoch: int
    seq: int
    offset: int
    records: tuple[int, int]
    messages: list[bytes]
    closes: bool
    at: int

    @property
    def size(self) -> int:
        return sum(map(len, self.messages))


@dataclass(frozen=True)
class Folded:
    """A snapshot: its offset and its content."""

    offset: int
    text: str


@dataclass(eq=False)
class Life:
    """One life of one stream."""

    name: str
    incarnation: int
    requested: Settings
    content_type: str
    ttl: int | None
    until: int | None
    used_at: int
    closed: bool = False
    deleted: bool = False
    appends: list[list[bytes]] = field(default_factory=list)
    last_seq: str | None = None
    producers: dict[str, LastAccepted] = field(default_factory=dict)
    point: Point | None = None
    parent: "Life | None" = None
    forks: list["Life"] = field(default_factory=list)
    start: int = 0
    folded: Folded | None = None
    attrs: bytes | None = None

    @property
    def messages(self) -> list[bytes]:
        return [message for append in self.appends for message in append]

    @property
    def content(self) -> bytes:
        return b"".join(self.messages)

    @property
    def tail(self) -> int:
        return len(self.content)

    @property
    def is_json(self) -> bool:
        return kind_of(self.content_type) == "application/json"

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def records_before(self, offset: int) -> int:
        """How many messages end at or before an offset."""
        return sum(end <= offset for end in accumulate(map(len, self.messages)))

    def over(self, now: int) -> bool:
        if self.ttl is not None:
            allowance = min(self.ttl * SECOND // 10, 60 * SECOND)
            return now >= self.used_at + self.ttl * SECOND + allowance
        return self.until is not None and now >= self.until

    def beginning(self, length: int) -> list[list[bytes]]:
        """A copy of the appends up to a length, the last message cut."""
        copied: list[list[bytes]] = []
        for append in self.appends:
            copied.append([])
            for message in append:
                copied[-1].append(message[:length])
                length = max(length - len(message), 0)
        return [kept for append in copied if (kept := [message for message in append if message])]

    def spans(self) -> list[tuple[int, int]]:
        """Where each append begins and ends."""
        ends = list(accumulate((sum(map(len, append)) for append in self.appends), initial=0))
        return list(pairwise(ends))

    def boundaries(self) -> set[int]:
        """Every offset at which a read may begin, except where history was trimmed."""
        return self.message_boundaries() if self.is_json else set(range(self.tail + 1))

    def message_boundaries(self) -> set[int]:
        """Every offset at which a snapshot may be placed."""
        return set(accumulate(map(len, self.messages), initial=0))


def kind_of(content_type: str) -> str:
    return content_type.split(";", maxsplit=1)[0].strip().lower()


class Oracle:
    """All streams, by name."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.unpaid: list[Life] = []

    def find(self, name: str, now: int) -> Life | Outcome:
        life = self.lives.get(name)
        if life is None or (life.over(now) and not life.deleted and not life.forks):
            return outcome("stream_not_found")
        if life.deleted or life.over(now):
            return outcome("stream_gone")
        return life

    # -- Creation --------------------------------------------------------------------------------------------------

    def create(
        self, name: str, requested: Settings, messages: list[bytes], founding: Founding, *, now: int, incarnation: int
    ) -> Outcome:
        existing = self._existing(name, requested, None, founding, messages, now) or self._judge_founding(founding)
        if existing is not None:
            return existing
        assert requested.content_type is not None
        life = Life(name, incarnation, requested, requested.content_type, requested.ttl, requested.until, now)
        return self._born(life, messages, founding)

    def fork(
        self,
        name: str,
        point: Point,
        requested: Settings,
        messages: list[bytes] | None,
        founding: Founding,
        *,
        now: int,
        incarnation: int,
    ) -> Outcome:
        """A complete fork; None as messages means a body that is not JSON."""
        existing = self._existing(name, requested, point, founding, messages, now)
        if existing is not None:
            return existing
        source = self.find(point.source, now)
        if not isinstance(source, Life):
            return outcome("fork_conflict") if source[0] == "stream_gone" else source
        length = self._cut_at(source, point)
        if not isinstance(length, int):
            return length
        if source.depth >= DEPTH_MAX:
            return outcome("fork_conflict")
        if source.start and source.folded and length < source.folded.offset:
            return self._trimmed(source, source.folded.offset)
        if requested.content_type is not None and kind_of(requested.content_type) != kind_of(source.content_type):
            return outcome("content_type_mismatch")
        if messages is None:
            return outcome("invalid_json")
        refused = self._judge_founding(founding)
        if refused is not None:
            return refused
        lifetime = requested if requested.has_lifetime else Settings(None, source.ttl, source.until)
        content_type = source.content_type if requested.content_type is None else requested.content_type
        life = Life(
            name,
            incarnation,
            requested,
            content_type,
            lifetime.ttl,
            lifetime.until,
            now,
            appends=source.beginning(length),
        )
        life.point, life.parent = point, source
        life.start = source.start
        if source.folded is not None and source.folded.offset <= length:
            life.folded = source.folded
        source.forks.append(life)
        return self._born(life, messages, founding)

    def _judge_founding(self, founding: Founding) -> Outcome | None:
        if founding.who is None or founding.who.seq == 0:
            return None
        return outcome("producer_seq_conflict", expected_seq=0, received_seq=founding.who.seq)

    def _born(self, life: Life, messages: list[bytes], founding: Founding) -> Outcome:
        former = self.lives.get(life.name)
        if former is not None:
            self._remove(former)
        self.lives[life.name] = life
        if messages:
            life.appends.append(messages)
        life.closed, life.last_seq, life.attrs = life.requested.closed, founding.seq, life.requested.attrs
        word, facts = self._about("created", life)
        if messages:
            facts |= self._ordinals(life, len(life.messages) - len(messages), len(life.messages))
        if founding.who is None:
            return word, facts
        who = founding.who
        records = len(life.messages) - len(messages), len(life.messages)
        life.producers[who.name] = LastAccepted(
            who.epoch, who.seq, life.tail, records, messages, life.closed, life.used_at
        )
        return outcome(word, **facts, producer_epoch=who.epoch, producer_seq=who.seq)

    def _existing(  # noqa: PLR0917
        self,
        name: str,
        requested: Settings,
        point: Point | None,
        founding: Founding,
        messages: list[bytes] | None,
        now: int,
    ) -> Outcome | None:
        found = self.find(name, now)
        if not isinstance(found, Life):
            return outcome("fork_conflict") if found[0] == "stream_gone" else None
        if founding.incarnation is not None and founding.incarnation != found.incarnation:
            return outcome("incarnation_changed", incarnation=found.incarnation)
        if self._same(found, requested, point):
            if founding.who is not None and messages is None:
                return outcome("invalid_json")
            if founding.who is not None and self._differs(found, founding.who, messages or [], close=requested.closed):
                return self._mismatch(found)
            return self._about("existed", found)
        return outcome("stream_exists", incarnation=found.incarnation, next_offset=found.tail, closed=found.closed)

    def _same(self, life: Life, requested: Settings, point: Point | None) -> bool:
        if (life.point is None) != (point is None):
            return False
        if life.point is not None and point is not None:
            if life.point.source != point.source or life.point.sub_offset != point.sub_offset:
                return False
            if point.offset is not None and life.point.offset != point.offset:
                return False
        if requested.content_type is not None and kind_of(requested.content_type) != kind_of(life.content_type):
            return False
        if requested.attrs is not None and requested.attrs != (life.attrs or b"{}"):
            return False
        inherits = point is not None and not requested.has_lifetime
        return requested.closed == life.closed and (
            inherits or (requested.ttl, requested.until) == (life.ttl, life.until)
        )

    @staticmethod
    def _differs(life: Life, who: Who, messages: list[bytes], *, close: bool) -> bool:
        """Whether this is the number of the producer's last request, but not its content."""
        last = life.producers.get(who.name)
        if last is None or (who.epoch, who.seq) != (last.epoch, last.seq) or (close and last.closes):
            return False
        return messages != last.messages

    @staticmethod
    def _mismatch(life: Life) -> Outcome:
        return outcome(
            "producer_payload_mismatch", incarnation=life.incarnation, next_offset=life.tail, closed=life.closed
        )

    def _about(self, word: str, life: Life) -> Outcome:
        return outcome(
            word,
            incarnation=life.incarnation,
            content_type=life.content_type,
            next_offset=life.tail,
            closed=life.closed,
        )

    def _cut_at(self, source: Life, point: Point) -> int | Outcome:
        """The length of what a fork inherits."""
        if point.offset is None:
            return source.tail
        unreadable = self._unreadable(source, point.offset)
        if unreadable is not None:
            return unreadable
        reachable = [point.offset]
        for start, end in source.spans():
            if start <= point.offset < end:
                reachable += [boundary for boundary in sorted(source.boundaries()) if point.offset < boundary <= end]
        if point.sub_offset < len(reachable):
            return reachable[point.sub_offset]
        return outcome("invalid_offset", incarnation=source.incarnation, next_offset=source.tail)

    # -- Writes ----------------------------------------------------------------------------------------------------

    def append(
        self,
        name: str,
        messages: list[bytes],
        content_type: str,
        now: int,
        *,
        close: bool = False,
        seq: str | None = None,
        who: Who | None = None,
        incarnation: int | None = None,
        seen: list[tuple[int, int, bool]] | None = None,
        record: int | None = None,
    ) -> Outcome:
        """An append; `seen` lists the states of the stream (life, tail, closed) that its condition accepts."""
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        this = {"incarnation": life.incarnation}
        here = {**this, "next_offset": life.tail}
        if incarnation is not None and incarnation != life.incarnation:
            return outcome("incarnation_changed", **this)
        life.used_at = life.used_at if life.ttl is None else now
        last = life.producers.get(who.name) if who else None
        again = who is not None and last is not None and who.epoch == last.epoch and who.seq <= last.seq
        if life.closed and not again:
            return (
                outcome("stream_closed", **here, closed=True)
                if messages or not close
                else outcome("closed_only", **here)
            )
        if messages and kind_of(content_type) != kind_of(life.content_type) and not life.closed:
            return outcome("content_type_mismatch", **here)
        if who and last and again:
            if self._differs(life, who, messages, close=close):
                return self._mismatch(life)
            return outcome(
                "duplicate",
                incarnation=life.incarnation,
                next_offset=last.offset if who.seq == last.seq else life.tail,
                closed=life.closed,
                producer_epoch=last.epoch,
                producer_seq=last.seq,
                size=last.size if who.seq == last.seq else None,
                **self._ordinals(life, *last.records if who.seq == last.seq else (None, None)),
            )
        if who:
            refused = self._refused(life, who, last, now)
            if refused is not None:
                return refused
        if seen is not None and (life.incarnation, life.tail, life.closed) not in seen:
            return outcome("precondition_failed", **here)
        if record is not None and not life.is_json:
            return outcome("bad_request", **this)
        if record is not None and record != len(life.messages):
            return outcome("record_precondition_failed", **here, record_next=len(life.messages))
        if seq is not None and life.last_seq is not None and not seq.encode() > life.last_seq.encode():
            return outcome("stream_seq_conflict", **here)
        return self._written(life, messages, now, close=close, seq=seq, who=who)

    def _refused(self, life: Life, who: Who, last: LastAccepted | None, now: int) -> Outcome | None:
        this = {"incarnation": life.incarnation}
        if last is None:
            if who.seq > 0:
                return outcome("producer_seq_conflict", **this, expected_seq=0, received_seq=who.seq)
            silent = min((known.at for known in life.producers.values()), default=now)
            if len(life.producers) >= PRODUCERS_MAX and now - silent < WEEK:
                return outcome("producers_too_many", **this)
            return None
        if who.epoch < last.epoch:
            return outcome("producer_epoch_stale", **this, producer_epoch=last.epoch)
        if who.epoch > last.epoch:
            return outcome("producer_epoch_invalid", **this, producer_epoch=last.epoch) if who.seq else None
        if who.seq > last.seq + 1:
            return outcome("producer_seq_conflict", **this, expected_seq=last.seq + 1, received_seq=who.seq)
        return None

    def _written(
        self, life: Life, messages: list[bytes], now: int, *, close: bool, seq: str | None, who: Who | None
    ) -> Outcome:
        record = len(life.messages)
        if messages:
            life.appends.append(messages)
        life.closed = close
        life.used_at = now
        if seq is not None:
            life.last_seq = seq
        if who:
            life.producers.pop(who.name, None)
            if len(life.producers) >= PRODUCERS_MAX:
                del life.producers[min(life.producers, key=lambda name: life.producers[name].at)]
            life.producers[who.name] = LastAccepted(
                who.epoch, who.seq, life.tail, (record, len(life.messages)), messages, close, now
            )
        echo = {"producer_epoch": who.epoch, "producer_seq": who.seq} if who else {}
        if not messages:
            return outcome("closed_only", incarnation=life.incarnation, next_offset=life.tail, **echo)
        return outcome(
            "appended",
            incarnation=life.incarnation,
            next_offset=life.tail,
            closed=life.closed,
            **self._ordinals(life, record, len(life.messages)),
            **echo,
        )

    def _ordinals(self, life: Life, record: int | None, record_next: int | None) -> dict[str, int | None]:
        return {"record": record, "record_next": record_next} if life.is_json else {}

    # -- Snapshots, retention, attributes ---------------------------------------------------------------------------

    def publish(self, name: str, incarnation: int, folded: Folded, now: int, *, trims: bool) -> Outcome:
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        if incarnation != life.incarnation:
            return outcome("incarnation_changed", incarnation=life.incarnation)
        conflict = outcome("snapshot_conflict", incarnation=life.incarnation, next_offset=life.tail)
        if folded.offset > life.tail:
            return conflict
        if life.folded is not None and folded.offset == life.folded.offset:
            if folded.text != life.folded.text:
                return conflict
            life.start = max(life.start, folded.offset) if trims else life.start
            return self._published(life)
        if folded.offset < life.start:
            return self._trimmed(life, life.start)
        if life.folded is not None and folded.offset < life.folded.offset:
            return self._trimmed(life, life.start) if trims else conflict
        life.folded = folded
        if trims:
            life.start = folded.offset
        return self._published(life)

    def _published(self, life: Life) -> Outcome:
        assert life.folded is not None
        return outcome(
            "published",
            incarnation=life.incarnation,
            snapshot_offset=life.folded.offset,
            next_offset=life.tail,
            closed=life.closed,
            digest=life.folded.text,
        )

    def _trimmed(self, life: Life, earliest: int) -> Outcome:
        return outcome("offset_trimmed", incarnation=life.incarnation, earliest_offset=earliest)

    def retain(self, name: str, incarnation: int, offset: int, now: int) -> Outcome:
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        if incarnation != life.incarnation:
            return outcome("incarnation_changed", incarnation=life.incarnation)
        if life.folded is None or offset > life.folded.offset:
            return outcome("snapshot_conflict", incarnation=life.incarnation, next_offset=life.tail)
        if offset < life.start:
            return self._trimmed(life, life.start)
        life.start = offset
        return outcome("acknowledged", incarnation=life.incarnation)

    def set_attrs(self, name: str, attrs: bytes, incarnation: int | None, now: int) -> Outcome:
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        if incarnation is not None and incarnation != life.incarnation:
            return outcome("incarnation_changed", incarnation=life.incarnation)
        life.attrs, life.used_at = attrs, now
        return outcome("acknowledged", incarnation=life.incarnation)

    def touch(self, name: str, incarnation: int, now: int) -> Outcome:
        life = self.find(name, now)
        if isinstance(life, Life) and life.incarnation == incarnation:
            life.used_at = now
        return outcome("done")

    # -- Ends ------------------------------------------------------------------------------------------------------

    def delete(self, name: str, incarnation: int | None, now: int) -> Outcome:
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        if incarnation is not None and incarnation != life.incarnation:
            return outcome("incarnation_changed", incarnation=life.incarnation)
        self._end(life)
        return outcome("deleted", incarnation=life.incarnation)

    def expire(self, name: str, incarnation: int, now: int) -> Outcome:
        life = self.lives.get(name)
        if life is None or life.incarnation != incarnation or life.deleted or not life.over(now):
            return outcome("done")
        self._end(life)
        return outcome("deleted", incarnation=life.incarnation)

    def _end(self, life: Life) -> None:
        if life.forks:
            life.deleted = True
        else:
            self._remove(life)

    def _remove(self, life: Life) -> None:
        del self.lives[life.name]
        if life.parent is not None:
            self.unpaid.append(life)

    def pay(self) -> None:
        """Ended forks release their sources, which may end too as a result."""
        while self.unpaid:
            fork = self.unpaid.pop()
            source = fork.parent
            assert source is not None
            source.forks.remove(fork)
            if source.deleted and not source.forks:
                self._remove(source)

    # -- Reads -----------------------------------------------------------------------------------------------------

    def head(self, name: str, now: int) -> Outcome:
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        word, facts = self._about("described", life)
        records = {"record_first": life.records_before(life.start), "record_next": len(life.messages)}
        return outcome(
            word,
            **facts,
            ttl_seconds=life.ttl,
            expires_at=life.until,
            snapshot=life.folded,
            attrs=life.attrs,
            **records if life.is_json else {},
        )

    def read(self, name: str, offset: int, now: int) -> bytes | Outcome:
        """Everything from `offset` on, or why not."""
        life = self.find(name, now)
        if not isinstance(life, Life):
            return life
        return self._unreadable(life, offset) or life.content[offset:]

    def _unreadable(self, life: Life, offset: int) -> Outcome | None:
        where = {"incarnation": life.incarnation, "next_offset": life.tail}
        if offset > life.tail:
            return outcome("offset_beyond_tail", **where)
        if offset < life.start:
            return self._trimmed(life, life.start)
        return None if offset in life.boundaries() else outcome("offset_unaligned", **where)
