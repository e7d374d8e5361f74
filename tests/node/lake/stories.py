"""A story: random changes to the streams of a node, and the rows that a scan must find afterwards."""

import asyncio
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from headwater.node.scans.scans import Scan
from headwater.node.scans.windows import Times
from headwater.protocol import message_ends
from headwater.protocol.producers import Producer
from headwater.streams.commands.forks import Ancestry
from headwater.streams.commands.snapshots import PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.forking import ForkRequest
from headwater.streams.queries import Ordinal, Range
from headwater.streams.replies import Appended, Created, Reply

from .lakes import TEXT, Bench

Row = dict[str, Any]

EVER = Times()
NAMES = ("a-b/x", "a/x", "a/y", "b/x/y", "b/z")


class Story:
    """The expected rows of everything done so far, computed here; only what the log decides is read from the state."""

    def __init__(self, bench: Bench, seed: int = 0) -> None:
        self.bench, self.random = bench, Random(seed)
        self.rows: dict[str, list[Row]] = {}
        """The rows of every living stream."""
        self.ends: dict[str, tuple[int, int, int]] = {}
        """Where every stream begins and ends, and its next record."""

    # -- Changes -----------------------------------------------------------------------------------------------------

    async def create(self, name: str) -> None:
        assert isinstance(await self.bench.ask(Create(name, TEXT)), Created)
        self.rows[name], self.ends[name] = [], (0, 0, 0)

    async def append(self, name: str, *messages: bytes, producer: Producer | None = None) -> None:
        """One append, and a row for each of its messages."""
        if name not in self.rows:
            await self.create(name)
        boundaries = [sum(map(len, messages[:count])) for count in range(len(messages) + 1)]
        command = Append(name, b"".join(messages), message_ends.of(messages), TEXT, producer=producer)
        assert isinstance(await self.bench.ask(command), Appended)
        (bucket, _, stream), (start, tail, record) = name.partition("/"), self.ends[name]
        hot = self.bench.state.streams[name].hot or []
        for index, (lower, upper) in enumerate(pairwise(boundaries)):
            self.rows[name].append(
                {
                    "bucket": bucket,
                    "stream": stream,
                    "incarnation": self.life(name),
                    "offset": tail + lower,
                    "next_offset": tail + upper,
                    "record": record + index,
                    "append": tail,
                    "position": hot[-1].position,
                    "committed_at": hot[-1].at,
                    "producer_id": None if producer is None else producer.id,
                    "producer_epoch": None if producer is None else producer.epoch,
                    "producer_seq": None if producer is None else producer.seq,
                    "content_type": TEXT,
                    "payload": messages[index],
                }
            )
        self.ends[name] = start, tail + boundaries[-1], record + len(messages)

    async def fork(self, name: str, source: str, to: int) -> None:
        """A fork at any byte; a message that it cuts is shorter in the fork."""
        start, _, _ = self.ends[source]
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        request = ForkRequest(name, Ancestry(source, to, 0, None, None), False, b"")
        self.bench.node.fork(request, reply.set_result)
        created = await asyncio.wait_for(reply, 10)
        assert isinstance(created, Created), created
        bucket, _, stream = name.partition("/")
        heir = {"bucket": bucket, "stream": stream, "incarnation": created.incarnation}
        rows = [row | heir for row in self.rows[source] if row["offset"] < to]
        if rows and rows[-1]["next_offset"] > to:
            last = rows[-1]
            rows[-1] = last | {"next_offset": to, "payload": last["payload"][: to - last["offset"]]}
        records = rows[-1]["record"] + 1 if rows else self._record_at(source, to)
        self.rows[name], self.ends[name] = rows, (start, to, records)

    def _record_at(self, name: str, offset: int) -> int:
        return next((row["record"] for row in self.rows[name] if row["offset"] == offset), self.ends[name][2])

    async def trim(self, name: str, row: Row) -> None:
        """A snapshot after a message; it trims what it covers."""
        snapshot = Snapshot(
            row["next_offset"], row["record"] + 1, f"blob{self.bench.state.position}", TEXT, 1, "digest"
        )
        await self.bench.ask(PublishSnapshot(name, self.life(name), snapshot, trims=True))
        self.rows[name] = [other for other in self.rows[name] if other["offset"] >= row["next_offset"]]
        _, tail, record = self.ends[name]
        self.ends[name] = row["next_offset"], tail, record

    async def delete(self, name: str) -> None:
        await self.bench.ask(Delete(name))
        del self.rows[name], self.ends[name]

    async def act(self) -> None:
        """A random change."""
        random, living = self.random, sorted(self.rows)
        kind = random.choice("aaaaaaaaffttdFFFC")
        if kind == "F":
            await self.bench.lake.flush()
        elif kind == "C":
            await self.bench.housekeeping.compactor.compact_once()
            await self.bench.housekeeping.cataloger.write()
            await self.bench.housekeeping.sweeper.sweep_retired()
        elif kind == "a" or not living:
            name = random.choice(NAMES)
            if name in self.rows or name not in self.bench.state.streams:
                messages = [random.randbytes(random.randint(1, 9)) for _ in range(random.choice([1, 1, 2, 5]))]
                await self.append(name, *messages)
        else:
            name = random.choice(living)
            start, tail, _ = self.ends[name]
            free = [other for other in NAMES if other not in self.bench.state.streams]
            if kind == "f" and free:
                await self.fork(random.choice(free), name, random.randint(start, tail))
            elif kind == "t" and self.rows[name] and self.bench.state.streams[name].snapshot is None:
                await self.trim(name, random.choice(self.rows[name]))
            elif kind == "d":
                await self.delete(name)

    # -- Questions ---------------------------------------------------------------------------------------------------

    def life(self, name: str) -> int:
        return self.bench.state.streams[name].incarnation

    def everything(self) -> list[Range]:
        """Every stream from its beginning to its end, cut at any bytes."""
        ranges = []
        for name, (start, tail, _) in sorted(self.ends.items()):
            cuts = sorted(self.random.randint(start, tail) for _ in range(self.random.randint(0, 4)))
            ranges += [Range(name, self.life(name), *boundaries) for boundaries in pairwise([start, *cuts, tail])]
        return ranges

    def anything(self) -> list[Range]:
        """Ranges of random streams in random order, some of them overlapping."""
        ranges = self.everything() + self.everything()
        self.random.shuffle(ranges)
        return ranges

    def rows_in(self, ranges: list[Range]) -> list[Row]:
        """The rows that begin in each range, range by range."""
        return [row for one in ranges for row in self.rows[one.name] if one.start <= row["offset"] < one.until]

    def all_rows(self) -> list[Row]:
        """The rows of all streams, by name and offset."""
        return [row for _, rows in sorted(self.rows.items()) for row in rows]

    def ordinals(self) -> list[tuple[Ordinal, int | None]]:
        """Records that exist, and some that do not, each with the offset at which it begins."""
        found: list[tuple[Ordinal, int | None]] = []
        for name, rows in sorted(self.rows.items()):
            life, (_, tail, record_next) = self.life(name), self.ends[name]
            first = rows[0]["record"] if rows else record_next
            found += [(Ordinal(name, life, row["record"]), row["offset"]) for row in rows]
            found += [(Ordinal(name, life, record_next), tail), (Ordinal(name, life, record_next + 1), None)]
            found += [(Ordinal(name, life + 1_000_000, record_next), None)]
            found += [(Ordinal(name, life, first - 1), None)] if first else []
        return found


async def plan(bench: Bench, ranges: list[Range], columns: list[str] | None = None, times: Times = EVER) -> Scan:
    """A scan that must be accepted."""
    scan = await bench.shard.scans.plan(ranges, columns, times)
    assert isinstance(scan, Scan), scan
    return scan


async def found(scan: Scan) -> list[Row]:
    """The rows that a scan finds; the scan is closed."""
    body = b"".join([part async for part in scan.parts()])
    scan.close()
    return rows_of(body)


def rows_of(body: bytes) -> list[Row]:
    """The rows of an Arrow stream; times are microseconds since 1970."""
    assert body.endswith(b"\xff\xff\xff\xff\0\0\0\0")
    table = pa.ipc.open_stream(body).read_all()
    if "committed_at" in table.column_names:
        index = table.column_names.index("committed_at")
        table = table.set_column(index, "committed_at", table["committed_at"].cast(pa.int64()))
    rows: list[Row] = table.to_pylist()
    return rows
