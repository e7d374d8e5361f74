"""Random operations on streams, and a ledger of what the streams must contain."""

import json
from itertools import count
from random import Random
from typing import NamedTuple

from .streams import JSON, TEXT, Streams


class Message(NamedTuple):
    """A message as it appears in a row."""

    stream: str
    record: int
    offset: int
    next_offset: int
    payload: bytes


class Life:
    """The expected contents of one stream."""

    def __init__(self, content_type: str, messages: list[Message], fork_point: int = 0) -> None:
        self.content_type, self.messages = content_type, messages
        self.fork_point = fork_point
        self.start = 0
        self.has_forks = False

    @property
    def tail(self) -> int:
        return self.messages[-1].next_offset if self.messages else 0


class RandomStreams:
    """Performs random operations on streams of one bucket, and keeps the ledger."""

    def __init__(self, streams: Streams, seed: int) -> None:
        self._streams, self._random = streams, Random(seed)
        self._numbers = count()
        self.lives: dict[str, Life] = {}

    def act(self, times: int) -> None:
        kinds = [self._append] * 12 + [self._make] * 4 + [self._trim] * 2 + [self._delete] * 2 + [self._fork] * 3
        for _ in range(times):
            self._random.choice(kinds)()

    def expected(self, *, inherited: bool) -> list[Message]:
        """All messages, sorted by stream, with or without those that forks inherit from their sources."""
        return sorted(
            message
            for life in self.lives.values()
            for message in life.messages
            if message.offset >= life.start and (inherited or message.offset >= life.fork_point)
        )

    def _any(self) -> str | None:
        return self._random.choice(sorted(self.lives)) if self.lives else None

    def _make(self) -> None:
        name, content_type = f"s{next(self._numbers):03}", self._random.choice([TEXT, JSON])
        self._streams.make(name, content_type=content_type)
        self.lives[name] = Life(content_type, [])

    def _append(self) -> None:
        name = self._any()
        if name is None:
            return
        life = self.lives[name]
        if life.content_type == JSON:
            values = [{"n": next(self._numbers)} for _ in range(self._random.randint(1, 4))]
            self._streams.append_json(name, *values)
            payloads = [json.dumps(value, separators=(",", ":")).encode() for value in values]
        else:
            payloads = [self._random.randbytes(self._random.randint(1, 60)) for _ in range(self._random.randint(1, 3))]
            self._streams.append(name, *payloads)
        for payload in payloads:
            record = life.messages[-1].record + 1 if life.messages else 0
            life.messages.append(Message(name, record, life.tail, life.tail + len(payload), payload))

    def _trim(self) -> None:
        name = self._any()
        kept = (
            [] if name is None else [one for one in self.lives[name].messages if one.offset >= self.lives[name].start]
        )
        if name is not None and kept:
            life = self.lives[name]
            life.start = self._random.choice(kept).next_offset
            self._streams.trim(name, life.start)

    def _delete(self) -> None:
        name = self._any()
        if name is not None:
            self._streams.stream(name).delete()
            had_forks = self.lives.pop(name).has_forks
            # A source of forks is kept for them, so its name cannot be used again.
            if not had_forks and self._random.random() < 0.5:
                self._streams.make(name)
                self.lives[name] = Life(TEXT, [])

    def _fork(self) -> None:
        source = self._any()
        life = None if source is None else self.lives[source]
        if source is None or life is None or life.tail <= life.start:
            return
        name = f"s{next(self._numbers):03}"
        # Only streams that are not JSON can be forked within a message.
        points = [one.next_offset for one in life.messages if one.next_offset > life.start]
        point = self._random.choice(points) - (self._random.randint(0, 1) if life.content_type == TEXT else 0)
        if point <= life.start:
            return
        self._streams.fork(name, source, point)
        life.has_forks = True
        inherited = [
            Message(
                name,
                one.record,
                one.offset,
                min(one.next_offset, point),
                one.payload[: point - one.offset],
            )
            for one in life.messages
            if one.offset < point
        ]
        self.lives[name] = Life(life.content_type, inherited, point)
        self.lives[name].start = life.start
