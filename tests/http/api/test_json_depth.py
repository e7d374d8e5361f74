"""How deeply JSON may be nested: the same, whichever way it is appended and whichever Python the server runs on."""

import json
from collections.abc import Callable

import pytest

from headwater.client import Client
from headwater.http.api.streams import SPLIT_ON_LOOP_BYTES_MAX
from headwater.protocol.limits import JSON_DEPTH_MAX
from headwater.testing import RunningServer

from ..sockets import Wire, refused, unchanged
from .bulk.requests import bulk, codes, row
from .extensions.pieces import frames

JSON = {"Content-Type": "application/json"}
PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
TYPE = "application/json"
SENTENCE = f"JSON may have at most {JSON_DEPTH_MAX} levels of arrays and objects."


def objects(levels: int) -> bytes:
    return b'{"[":' * levels + b'"{"' + b"}" * levels


def arrays(levels: int) -> bytes:
    """One message, sent as the only element of an array."""
    return b"[" * (levels + 1) + b"]" * (levels + 1)


def among_others(levels: int) -> bytes:
    return b'[1,%b,"\\ud800"]' % objects(levels)


def padded(levels: int) -> bytes:
    """A body that is split in a thread."""
    return b'["%b",%b]' % (b"[" * SPLIT_ON_LOOP_BYTES_MAX, objects(levels))


BODIES = [objects, arrays, among_others, padded]


@pytest.mark.parametrize("headers", [{}, PRODUCER, {"Stream-Seq": "a"}], ids=["plain", "producer", "conditional"])
@pytest.mark.parametrize("body", BODIES)
def test_an_append(
    server: RunningServer, wire: Wire, documents: str, body: Callable[[int], bytes], headers: dict[str, str]
) -> None:
    for levels in (JSON_DEPTH_MAX + 1, 1_500, 100_000):
        with unchanged(server.url, documents):
            problem = refused(wire.ask("POST", documents, {**JSON, **headers}, body(levels)), 400, "invalid_json")
            assert problem["detail"] == SENTENCE
    # It changed no state of the producer either.
    assert wire.ask("POST", documents, {**JSON, **headers}, body(JSON_DEPTH_MAX)).status in (200, 204)
    page = wire.ask("GET", f"{documents}?offset=-1").body
    assert len(json.loads(page)) == len(json.loads(body(1))) if body is not objects else 1


@pytest.mark.parametrize("body", BODIES)
def test_a_creation_and_a_fork(server: RunningServer, wire: Wire, documents: str, body: Callable[[int], bytes]) -> None:
    for path, headers in ((f"{documents}-new", {}), (f"{documents}-fork", {"Stream-Forked-From": documents})):
        with unchanged(server.url, path):
            problem = refused(wire.ask("PUT", path, {**JSON, **headers}, body(JSON_DEPTH_MAX + 1)), 400, "invalid_json")
            assert problem["detail"] == SENTENCE
        assert wire.ask("PUT", path, {**JSON, **headers}, body(JSON_DEPTH_MAX)).status == 201


def test_a_batch(wire: Wire) -> None:
    path = "/depth/batch"
    wire.ask("PUT", "/depth")
    assert wire.ask("PUT", path, JSON).status == 201
    sent = frames(objects(JSON_DEPTH_MAX), objects(JSON_DEPTH_MAX + 1), arrays(JSON_DEPTH_MAX + 1), b"1")
    acknowledged = json.loads(wire.ask("POST", f"{path}/append-batch", JSON, sent).body)
    assert [one["status"] for one in acknowledged] == [204, 400, 400, 204]
    assert wire.ask("GET", f"{path}?offset=0").body == b"[%b,1]" % objects(JSON_DEPTH_MAX)


def test_a_bulk_append(wire: Wire) -> None:
    def one(name: str, *messages: bytes) -> dict[str, object]:
        return row(name, *messages, create=True, content_type=TYPE)

    outcomes = bulk(
        wire,
        one("depth/a", b"1", objects(JSON_DEPTH_MAX)),
        one("depth/b", b"1", objects(JSON_DEPTH_MAX + 1)),
        one("depth/c", arrays(JSON_DEPTH_MAX - 1)),
        one("depth/d", arrays(JSON_DEPTH_MAX)),
    )
    assert [status for status, _ in codes(outcomes)] == [200, 400, 200, 400]
    assert outcomes[1]["detail"] == outcomes[3]["detail"] == SENTENCE


def test_attributes(wire: Wire) -> None:
    path = "/depth/attributes"
    wire.ask("PUT", "/depth")
    assert wire.ask("PUT", path, JSON).status == 201
    for levels, status in ((JSON_DEPTH_MAX, 204), (JSON_DEPTH_MAX + 1, 400), (4_000, 400)):
        # The attributes are a level, and the metadata another.
        body = b'{"metadata":{"a":%b}}' % (b"[" * (levels - 2) + b"]" * (levels - 2))
        assert wire.ask("PUT", f"{path}/attrs", JSON, body).status == status
    cut = b'{"metadata":{"a":' + b"[" * 1_005
    assert refused(wire.ask("PUT", f"{path}/attrs", JSON, cut), 400, "invalid_json")["detail"] == SENTENCE
    created = wire.ask("PUT", f"{path}-2", {**JSON, "Stream-Attrs": cut.decode()})
    assert refused(created, 400, "invalid_json")["detail"] == SENTENCE


def test_the_client(server: RunningServer, documents: str) -> None:
    with Client(server.url) as client:
        stream = client.stream(documents.rpartition("/")[2])
        with pytest.raises(ValueError, match=SENTENCE):
            stream.append(objects(JSON_DEPTH_MAX + 1))
        stream.append(objects(JSON_DEPTH_MAX))
