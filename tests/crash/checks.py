"""Checks: compares every stream with the ledger after a restart, while no writer is running."""

import time
from collections import Counter
from typing import NamedTuple

from .clients import Client, Response, parse_offset, render_offset
from .extents import Extent
from .ledger import Ledger, Life
from .messages import keys, split, store
from .snapshot_checks import check_bootstrap, check_snapshot


class Contents(NamedTuple):
    """Everything a stream retains: its messages, and each of them as the stream counts it."""

    start: int
    texts: list[str]
    pieces: list[bytes]

    @property
    def extent(self) -> Extent:
        return Extent(self.start, b"".join(self.pieces))

    def since(self, offset: int) -> "Contents":
        """The messages from an offset on, which must be between two of them."""
        at, first = self.start, 0
        while at < offset and first < len(self.pieces):
            at += len(self.pieces[first])
            first += 1
        return Contents(at, self.texts[first:], self.pieces[first:])


def check_streams(ledger: Ledger, client: Client) -> tuple[dict[str, Response], Counter[str]]:
    """Compare all streams of a server with the ledger; the HEAD of each, and how much was checked."""
    heads: dict[str, Response] = {}
    checked: Counter[str] = Counter()
    for name in ledger.kinds:
        asked_at = time.time()
        heads[name] = head = client.request("HEAD", name)
        assert head.status in (200, 404, 410), f"{head.status} to HEAD of {name}"
        checked += _check_name(ledger, client, name, head, asked_at)
    ledger.forget_the_dead()
    return heads, checked


def _check_name(ledger: Ledger, client: Client, name: str, head: Response, asked_at: float) -> Counter[str]:
    incarnation = head.incarnation if head.status == 200 else ""
    for life in ledger.living(name):
        if life.incarnation != incarnation:
            ledger.bury(life)
    if head.status != 200:
        return Counter()
    assert not ledger.is_buried(incarnation), f"{name} {incarnation} exists again after its end"
    life = ledger.life(name, incarnation)
    assert not ledger.has_outlived(life, asked_at), f"{name} {incarnation} has outlived its lifetime"
    return _check_life(ledger, client, life, head)


def _check_life(ledger: Ledger, client: Client, life: Life, head: Response) -> Counter[str]:
    contents = _read_all(ledger, client, life)
    content = contents.extent
    what = f"{life.name} {life.incarnation}"
    assert head.next_offset >= life.tail, f"{what} ends at {head.next_offset}, but {life.tail} was acknowledged"
    assert content.end == head.next_offset, f"{what} shows bytes up to {content.end} and claims {head.next_offset}"
    _check_closure(life, head)
    assert content.agrees_with(life.content), f"{what} has changed since the last restart"
    for seen, _ in life.seen:
        assert content.agrees_with(seen), f"{what} has lost or changed {seen.data[:60]!r} before {seen.end}"
    _check_origin(life, content)
    _check_appends(ledger, life, contents)
    snapshot = check_snapshot(ledger, client, life, head, content.start)
    following = contents.since(content.start if snapshot is None else snapshot.offset)
    check_bootstrap(ledger, client, life, head, following.pieces)
    retained = [seen for seen in life.seen if seen.extent.end > content.start]
    appends = sum(seen.appended for seen in retained)
    checked = Counter(streams=1, appends=appends, reads=len(retained) - appends, bytes=len(content.data))
    checked += Counter(snapshots=snapshot is not None, trimmed=content.start > 0)
    life.content, life.seen, life.boundaries, life.tail = content, [], [], content.end
    return checked


def _check_closure(life: Life, head: Response) -> None:
    if life.closed_at is not None:
        assert head.closed, f"{life.name} was closed and is open again"
        assert head.next_offset == life.closed_at, f"{life.name} grew after it was closed"
    if head.closed:
        assert life.close_sent, f"{life.name} is closed, but no client closed it"
        life.closed_at = head.next_offset


def _check_origin(life: Life, content: Extent) -> None:
    """A fork shows the part of its source that it inherited, even when the source is gone."""
    source, limit = life.fork_of, life.fork_offset
    if source is None:
        return
    inherited = content.until(limit)
    assert inherited.agrees_with(source.content), f"{life.name} does not begin like {source.name}"
    for seen, _ in source.seen:
        if seen.end <= limit:
            assert inherited.agrees_with(seen), f"{life.name} has lost {seen.data[:60]!r} of {source.name}"


def _check_appends(ledger: Ledger, life: Life, contents: Contents) -> None:
    """Each append is whole, was sent, and appears once and in its writer's order, trimmed history included."""
    found = keys(contents.texts, cut=contents.start > 0)
    unknown = set(found) - ledger.senders(life.name)
    assert not unknown, f"{life.name} shows {unknown}, which was refused or never sent"
    twice = [key for key, count in Counter(found).items() if count > 1]
    assert not twice, f"{life.name} shows {twice} more than once"
    new = contents.since(life.content.end)
    for writer, number in keys(new.texts, cut=new.start > life.content.end):
        assert number > life.last_numbers.get(writer, 0), f"{life.name} shows {writer}'s appends out of order, or twice"
        life.last_numbers[writer] = number


def _read_all(ledger: Ledger, client: Client, life: Life) -> Contents:
    """Every message that a stream retains."""
    content_type = ledger.kinds[life.name].content_type
    texts: list[str] = []
    start = offset = _find_start(ledger, client, life)
    while True:
        with ledger.using(life.name):
            page = client.request("GET", life.name, query=f"?offset={render_offset(offset)}")
        assert page.status == 200, f"{page.status} to GET of {life.name}"
        assert page.incarnation == life.incarnation, f"{life.name} has another life in the middle of a read"
        texts += split(page.body, content_type)
        offset = parse_offset(page.headers["Stream-Next-Offset"])
        if page.headers.get("Stream-Up-To-Date") == "true":
            return Contents(start, texts, [store([text], content_type) for text in texts])


def _find_start(ledger: Ledger, client: Client, life: Life) -> int:
    """The offset at which the retained history begins; nothing before it can be read."""
    for offset in ("-1", render_offset(max(0, life.start - 1))):
        with ledger.using(life.name):
            answer = client.request("GET", life.name, query=f"?offset={offset}")
        if life.start:
            assert answer.status == 410, f"{answer.status} to a read of {life.name} at {offset}, before {life.start}"
    if answer.status == 200:
        return 0
    assert (answer.status, answer.code) == (410, "offset_trimmed"), f"{answer.status} to GET of {life.name}"
    assert answer.earliest_offset is not None
    return answer.earliest_offset
