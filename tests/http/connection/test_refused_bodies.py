"""The body of a refused request is a body: nothing in it is taken for a request, however it is framed and arrives."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from headwater.http.wire.intakes import SMALL_BODY_BYTES

from ..guarded import Guarded, guarded
from ..sockets import Ended, Response, Wire, chunked, request

pytestmark = pytest.mark.attack

TEXT = {"Content-Type": "text/plain"}
VICTIM, SMUGGLED = "/v1/stream/mine/victim", "/v1/stream/mine/smuggled"
SIZES = {"one request": 1, "small": SMALL_BODY_BYTES // 2, "large": 2 * SMALL_BODY_BYTES, "very large": 2_000_000}
LINES = [
    "POST /v1/stream/theirs/one",
    "PUT /v1/stream/theirs/new",
    "DELETE /v1/stream/theirs/one",
    "GET /v1/stream/theirs/one",
    "PUT /theirs/one/snapshot/0",
    "POST /__headwater/append",
    "POST /__headwater/describe",
]


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("bodies"), {"reader": ["read mine/*"]}) as found:
        with found.wire() as wire:
            for path in (VICTIM, "/v1/stream/theirs/one"):
                assert wire.ask("PUT", path, {**TEXT, **found.bearer("root")}, b"here").status == 201
        yield found


def smuggled(guard: Guarded, size: int) -> bytes:
    """Requests of somebody who may do everything, one after the other, at least so many bytes of them."""
    root = guard.bearer("root")
    both = request("PUT", SMUGGLED, {**TEXT, **root}, b"") + request("DELETE", VICTIM, root)
    return both * -(-size // len(both))


def answers(wire: Wire) -> list[Response]:
    """Every response until the connection ends; a server that does not read a body may reset it after its answer."""
    found = []
    with suppress(Ended, ConnectionResetError):
        while True:
            found.append(wire.receive())
    return found


def check(guard: Guarded, found: list[Response], status: int, size: int) -> None:
    """The request was refused; the one after it was answered, or the connection ended; and nothing else happened."""
    assert found[0].status == status
    rest = [response.status for response in found[1:]]
    assert rest == [200] if size <= SMALL_BODY_BYTES else rest in ([], [200]), rest
    with guard.wire() as wire:
        root = guard.bearer("root")
        assert (wire.ask("HEAD", VICTIM, root).status, wire.ask("HEAD", SMUGGLED, root).status) == (200, 404)


@pytest.mark.parametrize("who", ["reader", None])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("line", LINES)
def test_a_refused_body_is_not_parsed(guard: Guarded, line: str, size: int, framing: str, who: str | None) -> None:
    method, target = line.split()
    body = smuggled(guard, size)
    headers = TEXT if who is None else {**TEXT, **guard.bearer(who)}
    if framing == "length":
        data = request(method, target, headers, body)
    else:
        # Each chunk begins where a request in it does.
        step = len(smuggled(guard, 1))
        parts = [body[at : at + step] for at in range(0, len(body), step)]
        data = request(method, target, {**headers, "Transfer-Encoding": "chunked"}) + chunked(*parts)
    last = request("GET", VICTIM, {**guard.bearer("reader"), "Connection": "close"})
    with guard.wire() as wire:
        wire.send(data + last)
        check(guard, answers(wire), 401 if who is None else 403, len(body))


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_refused_body_that_comes_after_its_refusal_is_not_parsed_either(
    guard: Guarded, size: int, framing: str
) -> None:
    body = smuggled(guard, size)
    headers = {**TEXT, **guard.bearer("reader")}
    last = request("GET", VICTIM, {**guard.bearer("reader"), "Connection": "close"})
    if framing == "length":
        head, data = request("POST", "/v1/stream/theirs/one", {**headers, "Content-Length": str(len(body))}), body
    else:
        head = request("POST", "/v1/stream/theirs/one", {**headers, "Transfer-Encoding": "chunked"})
        data = chunked(body)
    with guard.wire() as wire:
        wire.send(head + data[:30])
        # The head of a large body is refused at once, the one of a small body with its body.
        found = [wire.receive()] if framing == "length" and len(body) > SMALL_BODY_BYTES else []
        with suppress(ConnectionError):
            wire.send(data[30:] + last)
        check(guard, found + answers(wire), 403, len(body))
