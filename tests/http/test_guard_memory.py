"""What strangers, and very many good clients, make a server with an access file remember is bounded."""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headwater.access import tokens
from headwater.http.gates import KNOWN_MAX

from .guarded import Guarded, guarded
from .processes import resident_bytes
from .sockets import request

pytestmark = pytest.mark.attack

MIB = 1024 * 1024
TEXT = {"Content-Type": "text/plain"}
ONE = "/v1/stream/mine/one"
COUNT = 20_000
PIPELINED = 50
BAD_BYTES_MAX = 16 * MIB
"""For all bad credentials together: nothing of them is kept, so this is for the allocator. 1 MiB was measured."""
GOOD_BYTES_MAX = 96 * MIB
"""For `KNOWN_MAX` credentials with their identities, and an account for each of `COUNT` users. 64 MiB were measured."""


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, {"other": ["read mine/*"]}) as found, found.wire() as wire:
        assert wire.ask("PUT", ONE, {**TEXT, **found.bearer("root")}, b"some text").status == 201
        yield found


def send(guard: Guarded, credentials: Sequence[str]) -> tuple[set[int], int]:
    """Send a request with each, while another client is served; returns their statuses, and what the server holds more.

    The other client begins before, and has its page after every few of them.
    """
    statuses: set[int] = set()
    with guard.wire() as wire, guard.wire() as other:
        assert other.ask("GET", ONE, guard.bearer("other")).status == 200
        before = resident_bytes(guard.server.pid)
        for first in range(0, len(credentials), PIPELINED):
            some = credentials[first : first + PIPELINED]
            wire.send(b"".join(request("GET", ONE, {"Authorization": f"Bearer {one}"}) for one in some))
            if first % (20 * PIPELINED) == 0:
                assert other.ask("GET", ONE, guard.bearer("other")).body == b"some text"
            statuses |= {wire.receive().status for _ in some}
        after = resident_bytes(guard.server.pid)
    with guard.wire() as another:
        assert another.ask("GET", ONE, guard.bearer("other")).status == 200
    return statuses, after - before


def test_bad_credentials_leave_nothing_behind(guard: Guarded) -> None:
    ticket = guard.ticket("read mine/*")
    unknown = [tokens.make("other") for _ in range(COUNT // 2)]
    senseless = [f"ey{secrets.token_urlsafe(48)}" for _ in range(COUNT // 4)]
    forged = [f"{ticket.rpartition('.')[0]}.{secrets.token_urlsafe(32)}" for _ in range(COUNT // 4)]
    statuses, held_bytes = send(guard, unknown + senseless + forged)
    # Of an address with many wrong signatures, no further ones are verified for a while.
    assert {401} <= statuses <= {401, 429}
    assert held_bytes <= BAD_BYTES_MAX


def test_good_tickets_of_many_users_take_a_bounded_amount(guard: Guarded) -> None:
    assert COUNT > KNOWN_MAX, "or the credentials that are known are never too many"
    statuses, held_bytes = send(guard, [guard.ticket("read mine/*", sub=f"user-{number}") for number in range(COUNT)])
    assert statuses == {200}
    assert held_bytes <= GOOD_BYTES_MAX
