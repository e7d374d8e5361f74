"""Writers of bulk appends, and the ledger of their answers. Their streams are never deleted."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from random import Random
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from ..http.api.bulk.requests import ARROW, PATH, decode, encode, row, table_of
from .clients import Client, Unknown, parse_offset, render_offset
from .messages import JSON, TEXT, Composed, Key, compose_batch, keys, split, store

STREAMS = {
    f"bulk/{kind}-{number}": content_type
    for kind, content_type in (("json", JSON), ("text", TEXT))
    for number in range(12)
}
ROWS = (1, 5, 40, 300)
"""The number of rows in a request."""


class Sent(NamedTuple):
    """A row as it was sent."""

    stream: str
    append: Composed
    seq: int | None


class Acknowledged(NamedTuple):
    """Bytes that a stream must hold, and where they end if the answer says so."""

    key: Key
    stored: bytes
    end: int | None


class BulkLedger:
    """Shared by all writers: what each stream may show, and what it must."""

    def __init__(self) -> None:
        self.sent: dict[str, set[Key]] = {name: set() for name in STREAMS}
        self.acknowledged: dict[str, list[Acknowledged]] = {name: [] for name in STREAMS}
        self.contents: dict[str, bytes] = dict.fromkeys(STREAMS, b"")
        """As read after the last restart."""
        self.counts: Counter[str] = Counter()
        self._lock = Lock()

    def send(self, sent: Iterable[Sent]) -> None:
        with self._lock:
            for one in sent:
                self.sent[one.stream].add(one.append.key)

    def acknowledge(self, one: Sent, end: int | None) -> None:
        with self._lock:
            self.counts["acknowledged"] += 1
            self.acknowledged[one.stream].append(Acknowledged(one.append.key, one.append.stored, end))


class BulkWriter:
    """Sends requests of many rows, one after another, until the server is gone. It outlives the servers.

    With a producer it repeats requests whose outcome is unknown, and sometimes others; without one it never does.
    """

    def __init__(self, identity: str, ledger: BulkLedger, random: Random, *, produces: bool) -> None:
        self.identity, self._ledger, self._random, self._produces = identity, ledger, random, produces
        self._numbers = 0
        self._seqs: Counter[str] = Counter()
        self._unknown: list[Sent] = []
        self._done: list[Sent] = []
        self.was_answered = Event()
        self.error: Exception | None = None

    def start(self, url: str) -> Thread:
        self.was_answered.clear()
        thread = Thread(target=self._run, args=(url,), name=self.identity)
        thread.start()
        return thread

    def _run(self, url: str) -> None:
        client = Client(url)
        try:
            while True:
                self._step(client)
                self.was_answered.set()
        except Unknown:
            pass
        except Exception as error:
            self.error = error
        finally:
            client.close()

    def _step(self, client: Client) -> None:
        if self._unknown:
            self._ledger.counts["repeated"] += len(self._unknown)
            self._settle(self._unknown, self._ask(client, self._unknown), again=True)
        elif self._done and self._random.random() < 0.2:
            answers = self._ask(client, self._done)
            assert {one["status"] for one in answers} == {204}, f"{self.identity} was accepted twice: {answers[:3]}"
        else:
            sent = self._compose()
            self._ledger.send(sent)
            if self._produces:
                self._unknown = sent
            self._settle(sent, self._ask(client, sent), again=False)

    def _compose(self) -> list[Sent]:
        rows = []
        for _ in range(self._random.choice(ROWS)):
            name = self._random.choice(list(STREAMS))
            self._numbers += 1
            append = compose_batch(Key(self.identity, self._numbers), STREAMS[name], self._random)
            rows.append(Sent(name, append, self._seqs[name] if self._produces else None))
            self._seqs[name] += 1
        return rows

    def _ask(self, client: Client, sent: list[Sent]) -> list[dict[str, Any]]:
        rows = [
            row(
                one.stream,
                *one.append.frames,
                content_type=STREAMS[one.stream],
                create=True,
                producer=None if one.seq is None else (self.identity, 0, one.seq),
            )
            for one in sent
        ]
        response = client.ask("POST", PATH, ARROW, encode(table_of(rows)))
        assert response.status == 200, f"{self.identity}: {response.status} {response.body[:300]!r}"
        return decode(response.body)

    def _settle(self, sent: list[Sent], answers: list[dict[str, Any]], *, again: bool) -> None:
        assert len(answers) == len(sent)
        for one, answer in zip(sent, answers, strict=True):
            assert answer["status"] in ((200, 204) if again else (200,)), f"{one.append.key} on {one.stream}: {answer}"
            # A repeated append may be answered with the tail, which is after everything that followed it.
            self._ledger.acknowledge(one, answer["next_offset"] if answer["status"] == 200 else None)
        for _, rows in groupby(sorted(zip(sent, answers, strict=True), key=_stream), key=_stream):
            statuses = [answer["status"] for _, answer in rows]
            assert statuses == sorted(statuses, reverse=True), f"{self.identity}: accepted out of order"
        self._unknown, self._done = [], sent if self._produces else []


def _stream(pair: tuple[Sent, dict[str, Any]]) -> str:
    return pair[0].stream


# -- Checks ------------------------------------------------------------------------------------------------------------


def check(ledger: BulkLedger, client: Client) -> None:
    """Compare every stream with the ledger while no writer is running."""
    for name, content_type in STREAMS.items():
        texts = _read_all(client, name, content_type)
        content = store(texts, content_type)
        assert content.startswith(ledger.contents[name]), f"{name} has changed since the last restart"
        _check_keys(ledger, name, keys(texts))
        for acknowledged in ledger.acknowledged[name]:
            if acknowledged.end is None:
                assert acknowledged.stored in content, f"{name} has lost {acknowledged.key}"
            else:
                found = content[acknowledged.end - len(acknowledged.stored) : acknowledged.end]
                assert found == acknowledged.stored, f"{name} has lost or moved {acknowledged.key}"
            ledger.counts["checked"] += 1
        ledger.contents[name] = content
        ledger.acknowledged[name] = []


def _check_keys(ledger: BulkLedger, name: str, found: list[Key]) -> None:
    unknown = set(found) - ledger.sent[name]
    assert not unknown, f"{name} shows {unknown}, which was never sent"
    twice = [key for key, count in Counter(found).items() if count > 1]
    assert not twice, f"{name} shows {twice} more than once"
    last: dict[str, int] = {}
    for writer, number in found:
        assert number > last.get(writer, 0), f"{name} shows {writer}'s appends out of order"
        last[writer] = number


def _read_all(client: Client, name: str, content_type: str) -> list[str]:
    texts: list[str] = []
    offset = 0
    while True:
        page = client.request("GET", name, query=f"?offset={render_offset(offset)}")
        if page.status == 404:
            return []
        assert page.status == 200, f"{page.status} to GET of {name}"
        texts += split(page.body, content_type)
        offset = parse_offset(page.headers["Stream-Next-Offset"])
        if page.headers.get("Stream-Up-To-Date") == "true":
            return texts
