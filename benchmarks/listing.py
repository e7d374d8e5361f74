"""Pages of a very long listing: how long each takes after a random name, and with a random prefix."""

import json
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.idle import create
from benchmarks.servers import Server, Spec
from benchmarks.streams import stream_path
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load import messages
from headwater.load.loads import percentiles
from headwater.load.sockets import Connection

CREATE_SECONDS_MAX = 600.0
ANSWER_SECONDS_MAX = 10.0
PAGE_STREAMS = 1_000
SEED = 1


class Listing:
    name = "listing"
    title = f"Listing, pages of {PAGE_STREAMS:,} names over one connection (the reference server has no listing)"
    figures: tuple[Figure, ...] = (
        *(Figure(f"after_{key}_ms", f"{key} ms, after a random name", 2) for key in ("p50", "p99", "max")),
        *(Figure(f"prefix_{key}_ms", f"{key} ms, with a random prefix", 2) for key in ("p50", "p99", "max")),
        Figure("cpu_us", "server CPU us/page", 0),
        Figure("creations", "creations/s", 0),
    )
    peers: tuple[str, ...] = ("headwater",)
    rounds_max = 1

    def cases(self, scale: Scale) -> list[Case]:
        return [Case(f"{scale.listed_streams:,} streams", streams=scale.listed_streams)]

    def suits(self, spec: Spec) -> bool:
        return spec.is_started and not spec.name.startswith("reference")

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        bucket = f"bench-{secrets.token_hex(4)}"
        creation = create(server, f"{server.base}/{bucket}", case.streams, CREATE_SECONDS_MAX)
        sample = Sample({"creations": creation.rate}, creation.problems())
        if creation.done < case.streams:
            sample.problems.append(f"only {creation.done:,} streams were created within {CREATE_SECONDS_MAX:.0f} s")
            return sample
        catalogue = Catalogue(bucket, case.streams)
        lister = Lister(server, catalogue)
        lister.run(catalogue.after, rig.scale.warm_seconds)
        watch, began_cpu, pages = Watch(server), time.process_time(), 0
        for kind, ask in (("after", catalogue.after), ("prefix", catalogue.with_prefix)):
            latencies_us = lister.run(ask, rig.scale.seconds)
            sample.values |= {f"{kind}_{key}_ms": us / 1e3 for key, us in percentiles(latencies_us).items()}
            pages += len(latencies_us)
        sample.values |= {"pages": pages, "cpu_us": watch.server_seconds() / pages * 1e6}
        sample.values["foreign_share"] = watch.foreign_share(time.process_time() - began_cpu)
        sample.problems += lister.problems()
        lister.connection.close()
        return sample


@dataclass(frozen=True, slots=True)
class Question:
    """A page to request, and the streams that it must list, by index."""

    query: str
    expected: range
    has_more: bool


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A bucket whose streams are known, in the order of their names."""

    bucket: str
    streams: int

    def name(self, index: int) -> str:
        return stream_path("", index)[1:]

    def after(self, choice: random.Random) -> Question:
        """The page after a random name."""
        index = choice.randrange(self.streams)
        return self._question(f"after={self.name(index)}", index + 1, self.streams)

    def with_prefix(self, choice: random.Random) -> Question:
        """The first page of the names that share a prefix with a random one: one page of them, or many."""
        index, share = choice.randrange(self.streams), choice.choice((1_000, 10_000, 100_000, 1_000_000))
        first = index - index % share
        prefix = self.name(index)[: -len(str(share)) + 1]
        return self._question(f"prefix={prefix}", first, min(first + share, self.streams))

    def _question(self, query: str, first: int, end: int) -> Question:
        return Question(query, range(first, min(end, first + PAGE_STREAMS)), end > first + PAGE_STREAMS)


class Lister:
    """Requests one page at a time, and compares each with what it must list."""

    def __init__(self, server: Server, catalogue: Catalogue) -> None:
        self.catalogue, self.choice = catalogue, random.Random(SEED)
        self.connection = Connection(server.target, timeout_seconds=ANSWER_SECONDS_MAX)
        self.wrong = 0

    def run(self, ask: Callable[[random.Random], Question], seconds: float) -> list[int]:
        """Return the microseconds until each page was complete, without the comparison."""
        latencies_us = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            question = ask(self.choice)
            path = f"/{self.catalogue.bucket}/streams?{question.query}&limit={PAGE_STREAMS}"
            request = messages.request("GET", path)
            began_ns = time.monotonic_ns()
            response = self.connection.ask(request)
            latencies_us.append((time.monotonic_ns() - began_ns) // 1000)
            self.wrong += not self._is_right(question, response)
        return latencies_us

    def _is_right(self, question: Question, response: bytes) -> bool:
        if messages.status(response) != 200:
            return False
        page = json.loads(messages.body(response))
        expected = [self.catalogue.name(index) for index in question.expected]
        return [entry["stream_id"] for entry in page["streams"]] == expected and page["has_more"] == question.has_more

    def problems(self) -> list[str]:
        return [f"{self.wrong:,} pages listed the wrong streams"] if self.wrong else []
