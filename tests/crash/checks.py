"""Checks: after a restart, when nobody writes, every stream is compared with the ledger."""

import time
from collections import Counter

from .clients import Client, Response, parse_offset, render_offset
from .ledger import Ledger, Life
from .messages import keys, split, store


def check_all(ledger: Ledger, url: str) -> Counter[str]:
    """Compare all streams of a server with the ledger; how much was checked."""
    client = Client(url)
    checked: Counter[str] = Counter()
    for name in ledger.kinds:
        checked += _check_name(ledger, client, name)
    client.close()
    ledger.forget_the_dead()
    return checked


def _check_name(ledger: Ledger, client: Client, name: str) -> Counter[str]:
    asked_at = time.time()
    head = client.request("HEAD", name)
    assert head.status in (200, 404, 410), f"{head.status} to HEAD of {name}"
    incarnation = head.incarnation if head.status == 200 else ""
    for life in ledger.living(name):
        if life.incarnation != incarnation:
            ledger.bury(life)
    if head.status != 200:
        return Counter()
    assert not ledger.is_buried(incarnation), f"{name} {incarnation} is back from the dead"
    life = ledger.life(name, incarnation)
    assert not ledger.has_outlived(life, asked_at), f"{name} {incarnation} has outlived its lifetime"
    return _check_life(ledger, client, life, head)


def _check_life(ledger: Ledger, client: Client, life: Life, head: Response) -> Counter[str]:
    texts, content = _read_all(ledger, client, life)
    what = f"{life.name} {life.incarnation}"
    assert head.next_offset >= life.tail, f"{what} ends at {head.next_offset}, but {life.tail} was acknowledged"
    assert len(content) == head.next_offset, f"{what} shows {len(content)} bytes and claims {head.next_offset}"
    _check_closure(life, head)
    assert content.startswith(life.content), f"{what} has changed since the last restart"
    for end, data, _ in life.told:
        assert content[end - len(data) : end] == data, f"{what} has lost or changed {data[:60]!r} before {end}"
    _check_origin(life, content)
    _check_appends(ledger, life, texts)
    appends = sum(told.appended for told in life.told)
    checked = Counter(streams=1, appends=appends, reads=len(life.told) - appends, bytes=len(content))
    life.content, life.told, life.tail = content, [], len(content)
    return checked


def _check_closure(life: Life, head: Response) -> None:
    if life.closed_at is not None:
        assert head.closed, f"{life.name} was closed and is open again"
        assert head.next_offset == life.closed_at, f"{life.name} grew after it was closed"
    if head.closed:
        assert life.close_sent, f"{life.name} was closed by nobody"
        life.closed_at = head.next_offset


def _check_origin(life: Life, content: bytes) -> None:
    """A fork shows its source as far as it inherited it, also when the source is gone."""
    source, limit = life.fork_of, life.fork_offset
    if source is None:
        return
    inherited, known = content[:limit], source.content[:limit]
    assert inherited.startswith(known), f"{life.name} does not begin like {source.name}"
    for end, data, _ in source.told:
        if end <= limit:
            assert inherited[end - len(data) : end] == data, f"{life.name} has lost {data[:60]!r} of {source.name}"


def _check_appends(ledger: Ledger, life: Life, texts: list[str]) -> None:
    """Whole, sent by somebody, once, and in each writer's order."""
    found = keys(texts)
    unknown = set(found) - ledger.senders(life.name)
    assert not unknown, f"{life.name} shows {unknown}, which was refused or never sent"
    twice = [key for key, count in Counter(found).items() if count > 1]
    assert not twice, f"{life.name} shows {twice} more than once"
    last: dict[str, int] = {}
    for writer, number in found:
        assert number > last.get(writer, 0), f"{life.name} shows {writer}'s appends out of order"
        last[writer] = number


def _read_all(ledger: Ledger, client: Client, life: Life) -> tuple[list[str], bytes]:
    """Every message of a stream, and its bytes as the stream counts them."""
    content_type = ledger.kinds[life.name].content_type
    texts: list[str] = []
    offset = 0
    while True:
        with ledger.using(life.name):
            page = client.request("GET", life.name, query=f"?offset={render_offset(offset)}")
        assert page.status == 200, f"{page.status} to GET of {life.name}"
        assert page.incarnation == life.incarnation, f"{life.name} has another life in the middle of a read"
        texts += split(page.body, content_type)
        offset = parse_offset(page.headers["Stream-Next-Offset"])
        if page.headers.get("Stream-Up-To-Date") == "true":
            return texts, store(texts, content_type)
