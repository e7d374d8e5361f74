"""One writer at a fixed rate, many live readers: how many messages arrive, and how long after they were due."""

import secrets
import time
from dataclasses import dataclass

from benchmarks.servers import Server, Spec
from benchmarks.streams import stream_path
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load import messages
from headwater.load.events import event, warm_up
from headwater.load.loads import BUSY_SHARE_MAX, SENDING_CORES, Latencies
from headwater.load.readers import Audience, Ending, Receipt
from headwater.load.sockets import share

GRACE_SECONDS = 5.0
WARM_MESSAGES = 30
WARM_PERIOD_SECONDS = 0.03


class Fanout:
    name = "fanout"
    title = "Fan-out over server-sent events, 100 B messages"
    figures: tuple[Figure, ...] = (
        Figure("delivered_percent", "delivered %", 1),
        Figure("rate", "deliveries/s", 0, higher_is_better=True),
        Figure("p50_ms", "p50 ms", 2, higher_is_better=False),
        Figure("p99_ms", "p99 ms", 2, higher_is_better=False),
        Figure("cpu_us", "server CPU us/delivery", 1),
    )
    peers: tuple[str, ...] = ("headwater", "reference-memory")
    rounds_max = 99

    def cases(self, scale: Scale) -> list[Case]:
        return [
            Case(f"{readers:,} readers, {rate} messages/s", readers=readers, rate=rate)
            for readers in scale.readers
            for rate in scale.message_rates
        ]

    def suits(self, spec: Spec) -> bool:
        return True

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        path = stream_path(f"{server.base}/bench-{secrets.token_hex(4)}", 0)
        with server.client() as client:
            client.must("PUT", path, b"", messages.TEXT)
        with Audience(server.target, path, share(case.readers, SENDING_CORES)) as audience:
            audience.await_ready()
            warm(server, path)
            return broadcast(case, server, path, audience, rig.scale.seconds)


@dataclass(slots=True)
class Broadcast:
    """How much was to be sent, how much was sent, and what the readers received."""

    readers: int
    due: int
    sent: int
    seconds: float
    receipts: list[Receipt]

    @property
    def delivered(self) -> int:
        return sum(receipt.delivered for receipt in self.receipts)

    def values(self) -> dict[str, float]:
        latencies = Latencies()
        for receipt in self.receipts:
            latencies.merge(receipt.latencies)
        latencies_us = latencies.percentiles()
        return {
            "delivered_percent": 100.0 * self.delivered / (self.due * self.readers),
            "rate": self.delivered / self.seconds,
            "p50_ms": latencies_us["p50"] / 1e3,
            "p99_ms": latencies_us["p99"] / 1e3,
            "readers_busy": max(receipt.cpu_seconds for receipt in self.receipts) / self.seconds,
        }

    def problems(self) -> list[str]:
        found = []
        if self.sent < self.due:
            found.append(f"only {self.sent:,} of {self.due:,} messages were accepted in time")
        if missing := self.sent * self.readers - self.delivered:
            found.append(f"{missing:,} deliveries were missing {GRACE_SECONDS:.0f} s after the end")
        if strays := sum(receipt.skipped + receipt.repeated for receipt in self.receipts):
            found.append(f"{strays:,} messages were skipped, or arrived twice or late")
        if changed := sum(receipt.changed for receipt in self.receipts):
            found.append(f"{changed:,} messages arrived with different content")
        return found

    def notes(self) -> list[str]:
        found = []
        if self.values()["readers_busy"] > BUSY_SHARE_MAX:
            found.append("the readers were busy all the time: their limit, not the server's")
        if resumed := sum(receipt.resumed for receipt in self.receipts):
            found.append(f"the server ended {resumed:,} live reads, and their readers resumed")
        return found


def broadcast(case: Case, server: Server, path: str, audience: Audience, seconds: float) -> Sample:
    due = round(case.rate * seconds)
    watch, began = Watch(server), time.monotonic()
    deadline = began + seconds + GRACE_SECONDS
    sent = write(server, path, due, case.rate, deadline=deadline, audience=audience)
    receipts = audience.finish(Ending(sent, deadline, is_closed=False))
    server_seconds, foreign_share = watch.server_seconds(), watch.foreign_share(sum(r.cpu_seconds for r in receipts))
    last = max(receipt.last_ns for receipt in receipts) / 1e9
    outcome = Broadcast(case.readers, due, sent, max(last - began, 0.001), receipts)
    sample = Sample(outcome.values() | {"foreign_share": foreign_share}, outcome.problems(), outcome.notes())
    if outcome.delivered:
        sample.values["cpu_us"] = server_seconds / outcome.delivered * 1e6
    return sample


def warm(server: Server, path: str) -> None:
    """Send messages that readers do not count; a just-in-time compiler does its work during them."""
    with server.client() as client:
        for _ in range(WARM_MESSAGES):
            client.must("POST", path, warm_up(), messages.TEXT)
            time.sleep(WARM_PERIOD_SECONDS)


def write(server: Server, path: str, total: int, rate: int, *, deadline: float, audience: Audience) -> int:
    """Append each message when it is due, or once the previous one is answered; return how many were sent."""
    with server.client() as client:
        began_ns = time.monotonic_ns()
        for sequence in range(total):
            due_ns = began_ns + sequence * 1_000_000_000 // rate
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            if time.monotonic() > deadline:
                return sequence
            # Takes the readers' reports, and raises if one of them has failed.
            audience.delivered()
            client.must("POST", path, event(sequence, due_ns), messages.TEXT)
    return total
