"""Whether the time of a refusal tells what it must not: that the id of a token exists, or that a stream does.

`python -m benchmarks.refusals` starts a server with an access file and asks for two kinds of refusals in random order,
one request at a time over one connection. It prints the quartiles of both kinds, and how probable a difference like the
measured one is if there is none (Mann-Whitney, two-sided, normal approximation). A p below 0.01 is a reason to look
again: run it a second time, on a quiet machine, before you believe it.
"""

import argparse
import math
import random
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

from headwater.access import tokens
from headwater.testing import running_server

SAMPLES = 10_000
WARM_UP = 500
TIMEOUT_SECONDS = 10.0
P_MIN = 0.01


@dataclass(frozen=True)
class Comparison:
    """Two kinds of requests with the same refusal, each made anew for every request."""

    name: str
    status: int
    kinds: tuple[str, str]
    requests: tuple["Maker", "Maker"]


class Maker:
    """Makes GETs, of the same length for both kinds; with a token of its own each time if none is given."""

    def __init__(self, path: str, *, token: str = "", token_id: str = "") -> None:
        self._path, self._token, self._token_id = path, token, token_id

    def make(self) -> bytes:
        token = self._token or tokens.make(self._token_id)
        return f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability that two samples of one distribution differ at least as much in their ranks.

    >>> round(mann_whitney([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]), 3), round(mann_whitney(range(20), range(10, 30)), 6)
    (1.0, 5.2e-05)
    """
    ordered = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    total, at, rank_sum, ties = len(ordered), 0, 0.0, 0
    while at < total:
        end = at
        while end < total and ordered[end][0] == ordered[at][0]:
            end += 1
        # Equal values share the mean of their ranks, at + 1 to end.
        rank_sum += (at + 1 + end) / 2 * sum(1 for _, sample in ordered[at:end] if sample == 0)
        ties += (end - at) ** 3 - (end - at)
        at = end
    pairs = len(first) * len(second)
    u = rank_sum - len(first) * (len(first) + 1) / 2
    deviation = math.sqrt(pairs / 12 * (total + 1 - ties / (total * (total - 1))))
    distance = max(0.0, abs(u - pairs / 2) - 0.5)  # U is a whole number, the normal distribution is not.
    return math.erfc(distance / deviation / math.sqrt(2)) if deviation else 1.0


def measure(address: tuple[str, int], comparison: Comparison, samples: int, dice: random.Random) -> list[list[float]]:
    """Return the microseconds of each request, by kind."""
    order = [0, 1] * (WARM_UP + samples)
    head, rest = order[: 2 * WARM_UP], order[2 * WARM_UP :]
    dice.shuffle(rest)
    found: list[list[float]] = [[], []]
    expected = f"HTTP/1.1 {comparison.status} ".encode()
    with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, kind in enumerate(head + rest):
            data = comparison.requests[kind].make()
            began_ns = time.perf_counter_ns()
            connection.sendall(data)
            answer = connection.recv(1 << 16)
            micros = (time.perf_counter_ns() - began_ns) / 1e3
            # A refusal is short enough to come in one piece.
            if not answer.startswith(expected):
                raise SystemExit(f"{comparison.kinds[kind]}: not answered with {comparison.status}: {answer[:200]!r}")
            if number >= len(head):
                found[kind].append(micros)
    return found


@contextmanager
def guarded() -> Iterator[tuple[tuple[str, int], list[Comparison]]]:
    """A server with two tokens and one stream, and what to compare on it."""
    root, known = tokens.make("root"), tokens.make("known")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "auth.toml")
        text = "version = 1\n"
        for token, token_id, grant in ((root, "root", "* *"), (known, "known", "read mine/*")):
            digest = tokens.digest(token.encode()).hex()
            text += f'[[token]]\nid = "{token_id}"\nsha256 = "{digest}"\ngrants = ["{grant}"]\n'
        file.write_text(text)
        with running_server("--auth", str(file), "--audit", str(Path(folder, "audit.log"))) as server:
            parts = urlsplit(server.url)
            address = parts.hostname or "", parts.port or 0
            create(address, root, "/v1/stream/theirs/there")
            there, nowhere = "/v1/stream/theirs/there", "/v1/stream/theirs/never"
            yield (
                address,
                [
                    Comparison(
                        "401 for a token that is not valid",
                        401,
                        ("known id, wrong secret", "unknown id"),
                        (Maker(there, token_id="known"), Maker(there, token_id="other")),
                    ),
                    Comparison(
                        "403 for a stream of others",
                        403,
                        ("the stream exists", "there is no such stream"),
                        (Maker(there, token=known), Maker(nowhere, token=known)),
                    ),
                ],
            )


def create(address: tuple[str, int], token: str, path: str) -> None:
    with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
        lines = f"Host: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
        connection.sendall(f"PUT {path} HTTP/1.1\r\n{lines}\r\n".encode())
        answer = connection.recv(1 << 16)
    if not answer.startswith(b"HTTP/1.1 201 "):
        raise SystemExit(f"The stream was not created: {answer[:200]!r}")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.refusals", description="Compares the times of refusals.")
    parser.add_argument(
        "--samples", type=int, default=SAMPLES, metavar="N", help=f"of each kind; {SAMPLES:,} if absent"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the order")
    options = parser.parse_args()
    with guarded() as (address, comparisons):
        for comparison in comparisons:
            found = measure(address, comparison, options.samples, random.Random(options.seed))
            p = mann_whitney(*found)
            print(f"{comparison.name}, {options.samples:,} of each kind")
            for kind, micros in zip(comparison.kinds, found, strict=True):
                low, median, high = quantiles(micros, n=4)
                print(f"  {kind:25} quartiles {low:8.1f} {median:8.1f} {high:8.1f} us")
            print(f"  p = {p:.3f}: {'no difference was found' if p > P_MIN else 'they may differ; measure again'}")


if __name__ == "__main__":
    main()
