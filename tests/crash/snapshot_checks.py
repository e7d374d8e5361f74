"""Checks of snapshots, of the retained history, of bootstraps, and of the files of snapshots."""

import time
from hashlib import sha256
from pathlib import Path

from .clients import BUCKET, Client, Response, parse_offset
from .ledger import Ledger, Life, Snapshot

SWEPT_SECONDS_MAX = 10.0
PIN_SECONDS_MAX = 40.0
"""How long an interrupted fork may hold its source and its snapshot: half a minute, and some to notice."""
POLL_SECONDS = 0.02


def read_snapshot(client: Client, ledger: Ledger, life: Life) -> Snapshot | None:
    """The latest snapshot of a life, by the redirect, as one of those that were sent; None if there is none."""
    headers = {"Stream-Incarnation": life.incarnation}
    found = client.ask("GET", f"{BUCKET}/{life.name}/snapshot", headers)
    if found.status in (404, 410):
        return None
    assert found.status == 307, f"{found.status} to GET of the snapshot of {life.name}"
    location = found.headers["Location"]
    shown = client.ask("GET", location[location.index(BUCKET) :], headers)
    if shown.status in (404, 410):
        return None
    assert shown.status == 200, f"{shown.status} to GET of {location}"
    assert shown.snapshot_offset == parse_offset(location.rpartition("/")[2]), f"{location} leads elsewhere"
    facts = (shown.snapshot_offset, shown.headers["Content-Type"], sha256(shown.body).digest())
    for snapshot in ledger.snapshots_of(life):
        if (snapshot.offset, snapshot.content_type, snapshot.digest) == facts:
            return snapshot
    raise AssertionError(f"{life.name} {life.incarnation} shows a snapshot that was refused or never sent: {facts}")


def check_snapshot(ledger: Ledger, client: Client, life: Life, head: Response, start: int) -> Snapshot | None:
    """The latest acknowledged snapshot is shown, or a later one; and history was trimmed as requested."""
    what, known = f"{life.name} {life.incarnation}", life.snapshot
    shown = read_snapshot(client, ledger, life)
    assert head.snapshot_offset == (None if shown is None else shown.offset), f"{what} says {head.snapshot_offset}"
    if known is not None:
        assert shown is not None, f"{what} has lost its snapshot at {known.offset}"
        assert shown.offset >= known.offset, f"{what} shows a snapshot before {known.offset}, which was acknowledged"
        assert shown.offset > known.offset or shown == known, f"{what} shows another snapshot at {known.offset}"
    assert start >= life.start, f"{what} holds bytes from {start} on, but was to keep none before {life.start}"
    assert start in ledger.starts_of(life), f"{what} has lost what is before {start}, though no client trimmed it"
    assert start == 0 or (shown is not None and shown.offset >= start), f"{what} begins at {start} without a snapshot"
    assert shown is None or not shown.trims or start == shown.offset, f"{what} was not trimmed with its snapshot"
    life.snapshot, life.start = shown, start
    return shown


def check_bootstrap(ledger: Ledger, client: Client, life: Life, head: Response, messages: list[bytes]) -> None:
    """A bootstrap is the snapshot and exactly the messages after it."""
    with ledger.using(life.name):
        answer = client.ask("GET", f"{BUCKET}/{life.name}/bootstrap", {"Stream-Incarnation": life.incarnation})
    assert answer.status == 200, f"{answer.status} to a bootstrap of {life.name}"
    (content_type, blob), *rest = _parts(answer)
    snapshot = life.snapshot
    if snapshot is None:
        assert (answer.headers["Stream-Snapshot-Offset"], blob) == ("-1", b""), f"{life.name} begins with {blob!r}"
    else:
        found = (answer.snapshot_offset, content_type, sha256(blob).digest())
        expected = (snapshot.offset, snapshot.content_type, snapshot.digest)
        assert found == expected, f"a bootstrap of {life.name} begins with another snapshot"
    assert answer.next_offset == head.next_offset, f"a bootstrap of {life.name} ends at {answer.next_offset}"
    assert [data for _, data in rest] == messages, f"a bootstrap of {life.name} shows other messages than a read"


def _parts(answer: Response) -> list[tuple[str, bytes]]:
    """The types and exact bytes of a multipart body."""
    boundary = answer.headers["Content-Type"].rpartition("boundary=")[2]
    first, *parts, end = (b"\r\n" + answer.body).split(f"\r\n--{boundary}".encode())
    assert (first, end) == (b"", b"--\r\n"), "a bootstrap is torn"
    heads = [part.partition(b"\r\n\r\n") for part in parts]
    return [(head.decode().partition("Content-Type: ")[2], data) for head, _, data in heads]


# -- Files -------------------------------------------------------------------------------------------------------------


def check_blobs(ledger: Ledger, folder: Path) -> None:
    """Soon the only files are those of snapshots that are shown or that a fork may hold, and of interrupted uploads."""
    forked = {kind.source for kind in ledger.kinds.values() if kind.source is not None}
    needed = {snapshot.digest for name in forked for snapshot in ledger.snapshots(name)}
    for name in ledger.kinds:
        needed |= {life.snapshot.digest for life in ledger.living(name) if life.snapshot is not None}
    _await_no_files_but(needed | ledger.snapshots_unanswered, folder)


def check_blobs_are_gone(ledger: Ledger, folder: Path) -> None:
    """Once every stream is deleted, no snapshot that was published remains, without a restart."""
    cut = {source for source, sent_at in ledger.forks_unanswered if sent_at > time.time() - PIN_SECONDS_MAX}
    held = {name for source in cut for name in ledger.lineage(source)}
    kept = {snapshot.digest for name in held for snapshot in ledger.snapshots(name)}
    _await_no_files_but(kept | ledger.snapshots_unanswered, folder)


def _await_no_files_but(needed: set[bytes], folder: Path) -> None:
    deadline = time.monotonic() + SWEPT_SECONDS_MAX
    while (strays := [path.name for path in _finished(folder) if _digest(path) not in {*needed, None}]) != []:
        assert time.monotonic() < deadline, f"nothing needs {strays}, but they stay"
        time.sleep(POLL_SECONDS)


def _finished(folder: Path) -> list[Path]:
    """All files but those of uploads that were interrupted before their end, which stay until their deadline."""
    return [path for path in folder.iterdir() if path.suffix != ".tmp"]


def _digest(path: Path) -> bytes | None:
    try:
        return sha256(path.read_bytes()).digest()
    except FileNotFoundError:
        return None
