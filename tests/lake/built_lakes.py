"""Lakes written by a real server, and that server's answers about every stream in them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa

from headwater.lake.catalog import read_catalog, read_forks, read_tombstones
from headwater.lake.format import name_of
from headwater.lake.scanning import EVERYTHING, Plan, RowFilter, live_rows
from headwater.lake.segments.reader import read_all
from headwater.storage.store import Store
from headwater.testing import running_server

from ..http.api.extensions.pieces import JSON, TEXT, frames, plain
from ..http.sockets import Response, Wire


class Content(NamedTuple):
    """The whole of one stream: where it begins and ends, and the bytes that a read returns."""

    start: int
    end: int
    body: bytes


class Writer:
    """Sends a server requests that must succeed."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.names: list[str] = []
        """Every stream that was ever created, as /bucket/stream."""

    def ask(self, method: str, target: str, headers: Mapping[str, str] = TEXT, body: bytes | None = None) -> Response:
        response = self._wire.ask(method, target, headers, body)
        assert response.status < 300, (method, target, response.status, response.body)
        return response

    def make(self, path: str, body: bytes | None = None, headers: Mapping[str, str] = TEXT) -> str:
        self.ask("PUT", path, headers, body)
        self.names.append(path)
        return path

    def append(self, path: str, *bodies: bytes, headers: Mapping[str, str] = TEXT) -> None:
        for body in bodies:
            self.ask("POST", path, headers, body)

    def fork(self, path: str, source: str, at: int | None = None, sub: int = 0, body: bytes | None = None) -> str:
        kind = self._wire.ask("HEAD", source).headers["content-type"]
        headers = {"Content-Type": kind, "Stream-Forked-From": source}
        if at is not None:
            headers |= {"Stream-Fork-Offset": plain(at)}
        if sub:
            headers |= {"Stream-Fork-Sub-Offset": str(sub)}
        return self.make(path, body, headers)

    def trim(self, path: str, offset: int) -> None:
        self.ask("PUT", f"{path}/snapshot/{plain(offset)}", TEXT, b"folded")

    def delete(self, path: str) -> None:
        self.ask("DELETE", path)

    def flush(self) -> None:
        self.ask("POST", "/__headwater/flush?tables=all", {}, b"")

    def tail(self, path: str) -> int:
        return int(self._wire.ask("HEAD", path).next_offset)

    def contents(self) -> dict[str, Content]:
        """The server's answer for every existing stream, by name."""
        found = {}
        for path in sorted(set(self.names)):
            response = self._wire.ask("GET", f"{path}?offset={plain(0)}")
            start = 0
            if response.status == 410 and "stream-earliest-offset" in response.headers:
                start = int(response.headers["stream-earliest-offset"])
                response = self.ask("GET", f"{path}?offset={plain(start)}")
            if response.status == 200:
                assert response.headers["stream-up-to-date"] == "true"
                found[path[1:]] = Content(start, int(response.next_offset), response.body)
        return found


@contextmanager
def writing(data: Path, *flags: str) -> Iterator[Writer]:
    """A writer with its own server, whose lake is in the data directory unless a flag says otherwise."""
    with running_server(*flags, data=data) as server, Wire(server.url) as wire:
        for bucket in ("team", "team-a"):
            assert wire.ask("PUT", f"/{bucket}").status in (201, 409)
        yield Writer(wire)


def tell_a_story(writer: Writer) -> None:
    """Everything that can happen to a stream, over four flushes; at the end everything is in the lake."""
    made, append, fork, flush = writer.make, writer.append, writer.fork, writer.flush
    made("/team/plain", b"one ")
    made("/team-a/x", b"before team by its whole name")
    documents = made("/team/documents", b'[{"a":1},{"a":[2,"\xc3\xa4"]},3]', JSON)
    for name in ("deleted", "again", "trimmed", "trimmed-hot", "source", "ghost"):
        made(f"/team/{name}", b"hello ")
    flush()
    append("/team/plain", b"two ", b"three ")
    append(documents, b'["four",5]', headers={**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"})
    writer.ask("POST", "/team/plain/append-batch", TEXT, frames(b"a", b"bb", b"ccc"))
    for name in ("again", "trimmed", "trimmed-hot", "source", "ghost"):
        append(f"/team/{name}", b"world ", b"and all ")
    fork("/team/fork-boundary", "/team/source", 6, body=b"own")
    fork("/team/fork-inside", "/team/source", 6, 3)
    fork("/team/fork-of-fork", "/team/fork-boundary", body=b" and more")
    fork("/team/fork-of-ghost", "/team/ghost", 12, 2)
    fork("/team/fork-of-documents", documents, 0, 2, body=b"[true]")
    writer.delete("/team/deleted")
    writer.delete("/team/again")
    made("/team/again", b"a second life")
    writer.trim("/team/trimmed", 6)
    flush()
    append("/team/trimmed-hot", b"more ", b"and more")
    # A part of this was never in the lake, which leaves a gap between dead and live rows.
    writer.trim("/team/trimmed-hot", 25)
    writer.delete("/team/ghost")
    fork("/team/middle", "/team/fork-boundary", body=b"middle ")
    fork("/team/last", "/team/middle", body=b"last")
    writer.delete("/team/middle")
    append("/team/fork-inside", b"behind the cut")
    append("/team/again", b" goes on")
    made("/team/short", b"never long")
    writer.delete("/team/short")
    made("/team/dead-source", b"gone with its fork")
    fork("/team/dead-fork", "/team/dead-source")
    writer.delete("/team/dead-fork")
    flush()
    fork("/team/fork-trimmed", "/team/source", body=b"kept")
    writer.trim("/team/fork-trimmed", 6)
    fork("/team/fork-of-trimmed", "/team/fork-trimmed", body=b" on")
    writer.trim("/team/fork-trimmed", writer.tail("/team/fork-trimmed"))
    append("/team/fork-trimmed", b"after")
    append(documents, b'"last"', headers=JSON)
    flush()


def act_randomly(writer: Writer, random: Random, steps: int, word: str = "s") -> None:
    """A random history of a few streams; at the end everything is in the lake."""
    boundaries: dict[str, list[int]] = {}
    """Where the retained messages of each existing stream end."""
    held: set[str] = set()
    """The sources of forks, which keep their names when they are deleted."""
    for step in range(steps):
        path = random.choice(list(boundaries)) if boundaries else ""
        match random.choice(["make", "append", "append", "append", "fork", "fork", "trim", "delete", "flush"]):
            case "make":
                free = [name for name in writer.names if name not in boundaries and name not in held]
                name = random.choice([*free, f"/team/{word}{step}"])
                boundaries[writer.make(name, b"begin;")] = [0, 6]
            case "append" if path:
                for _ in range(random.randrange(1, 4)):
                    message = b"%d;" % random.randrange(10 ** random.randrange(1, 9))
                    writer.append(path, message)
                    boundaries[path].append(boundaries[path][-1] + len(message))
            case "fork" if path:
                index = random.randrange(len(boundaries[path]))
                at, *behind = boundaries[path][index:]
                sub = random.randrange(behind[0] - at) if behind else 0
                name = writer.fork(f"/team/{word}{step}", path, at, sub, random.choice([b"forked;", None]))
                held |= {path, name}
                kept = [*boundaries[path][: index + 1], *([at + sub] if sub else [])]
                boundaries[name] = [*kept, *([writer.tail(name)] if writer.tail(name) > kept[-1] else [])]
            case "trim" if path:
                index = random.randrange(len(boundaries[path]))
                writer.trim(path, boundaries[path][index])
                boundaries[path] = boundaries[path][index:]
            case "delete" if path:
                del boundaries[path]
                writer.delete(path)
            case "flush":
                writer.flush()
    writer.flush()


def plan_of(store: Store, row_filter: RowFilter = EVERYTHING) -> Plan:
    """A plan over the newest catalog."""
    catalog = read_catalog(store)
    assert catalog is not None
    return live_rows(catalog, read_tombstones(store, catalog), read_forks(store, catalog), row_filter)


def scanned(store: Store, plan: Plan) -> pa.Table:
    """The rows that a plan finds."""
    tables = []
    for listed in plan.segments:
        for table in read_all(partial(store.read, listed.key), listed.segment):
            tables.append(plan.rows(table))
    return pa.concat_tables(tables)


def contents_of(rows: pa.Table) -> dict[str, Content]:
    """The contents of every stream according to rows, by name; each must have every byte once."""
    found = {}
    rows = rows.sort_by([("bucket", "ascending"), ("stream", "ascending"), ("offset", "ascending")])
    streams: dict[str, list[dict[str, object]]] = {}
    for row in rows.to_pylist():
        streams.setdefault(name_of(row["bucket"], row["stream"]), []).append(row)
    for name, own in streams.items():
        assert len({row["incarnation"] for row in own}) == 1, name
        for before, after in pairwise(own):
            assert before["next_offset"] == after["offset"], (name, before, after)
        payloads = [bytes(row["payload"]) for row in own]  # type: ignore[call-overload]
        body = b"".join(payloads)
        if own[0]["content_type"] == JSON["Content-Type"]:
            body = b"[" + b",".join(payloads) + b"]"
        start, end = own[0]["offset"], own[-1]["next_offset"]
        assert isinstance(start, int)
        assert isinstance(end, int)
        found[name] = Content(start, end, body)
    return found
