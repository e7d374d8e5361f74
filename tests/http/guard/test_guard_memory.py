"""What strangers, and very many good clients, make a server with an access file remember is bounded.

TESTS_ATTACK_CREDENTIALS, or `scripts/attack --credentials 100000`, is how many good tickets there are; it must be
more than a server keeps. There are ten times as many bad credentials then.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path

import pytest

from headwater.access import tokens
from headwater.http.guard.gates import KNOWN_MAX

from ..guarded import Guarded, guarded
from ..processes import resident_bytes
from ..sockets import request

pytestmark = pytest.mark.attack

MIB = 1024 * 1024
TEXT = {"Content-Type": "text/plain"}
ONE = "/v1/stream/mine/one"
FULL = os.environ.get("TESTS_ATTACK_CREDENTIALS")
COUNT = int(FULL or 20_000)
BAD_COUNT = 10 * COUNT if FULL else COUNT
PIPELINED = 50
BAD_BYTES_MAX = 16 * MIB
"""For all bad credentials together: nothing of them is kept, so this is for the allocator. 1 MiB was measured."""
GOOD_BYTES_MAX = 64 * MIB + COUNT * 2048
"""For `KNOWN_MAX` credentials with their identities, and an account for each of `COUNT` users. 60 MiB were measured for
20,000 of them."""


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, {"other": ["read mine/*"]}) as found, found.wire() as wire:
        assert wire.ask("PUT", ONE, {**TEXT, **found.bearer("root")}, b"some text").status == 201
        yield found


def send(guard: Guarded, credentials: Iterable[str]) -> tuple[set[int], int]:
    """Send a request with each, while another client is served; returns their statuses, and what the server holds more.

    The other client begins before, and has its page after every few of them.
    """
    statuses: set[int] = set()
    with guard.wire() as wire, guard.wire() as other:
        assert other.ask("GET", ONE, guard.bearer("other")).status == 200
        before = resident_bytes(guard.server.pid)
        left = iter(credentials)
        for number in count():
            some = list(islice(left, PIPELINED))
            if not some:
                break
            wire.send(b"".join(request("GET", ONE, {"Authorization": f"Bearer {one}"}) for one in some))
            if number % 20 == 0:
                assert other.ask("GET", ONE, guard.bearer("other")).body == b"some text"
            statuses |= {wire.receive().status for _ in some}
        after = resident_bytes(guard.server.pid)
    with guard.wire() as another:
        assert another.ask("GET", ONE, guard.bearer("other")).status == 200
    return statuses, after - before


def test_bad_credentials_leave_nothing_behind(guard: Guarded) -> None:
    signed = guard.ticket("read mine/*", seconds=3600).rpartition(".")[0]
    unknown = (tokens.make("other") for _ in range(BAD_COUNT // 2))
    senseless = (f"ey{secrets.token_urlsafe(48)}" for _ in range(BAD_COUNT // 4))
    forged = (f"{signed}.{secrets.token_urlsafe(32)}" for _ in range(BAD_COUNT // 4))
    statuses, held_bytes = send(guard, chain(unknown, senseless, forged))
    print(f"{BAD_COUNT} bad credentials: {held_bytes / MIB:.1f} MiB more")
    # Of an address with many wrong signatures, no further ones are verified for a while.
    assert {401} <= statuses <= {401, 429}
    assert held_bytes <= BAD_BYTES_MAX


def test_good_tickets_of_many_users_take_a_bounded_amount(guard: Guarded) -> None:
    assert COUNT > KNOWN_MAX, "or the credentials that are known are never too many"
    users = (f"user-{number}" for number in range(COUNT))
    statuses, held_bytes = send(guard, (guard.ticket("read mine/*", sub=user, seconds=3600) for user in users))
    print(f"{COUNT} good tickets: {held_bytes / MIB:.1f} MiB more")
    assert statuses == {200}
    assert held_bytes <= GOOD_BYTES_MAX
