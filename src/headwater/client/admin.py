"""The administrative surface of a Headwater server, below `/__headwater`: one program for each request.

Rows travel in Arrow's stream format. They are bytes here, so that the client does not need pyarrow.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.client.errors import NotFound, ProtocolViolation, ResponseIncomplete, TransportFailed
from headwater.client.operations import RequestTarget, ask, members, with_values
from headwater.client.settings import quoted
from headwater.client.wire import Emit, Program, Request, more
from headwater.protocol import content_types, headers
from headwater.protocol.refusals import Code

SURFACE = "/__headwater"
ARROW = "application/vnd.apache.arrow.stream"
JSON_FIELDS = with_values({headers.CONTENT_TYPE: content_types.JSON})
SHARD = 0
"""The only shard there is."""


class ScanRange(NamedTuple):
    """The messages of one incarnation of a stream that begin in a range of its bytes."""

    stream: str
    incarnation: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A registered consumer of the lake: how far it has read each shard, and when it last reported."""

    name: str
    positions: Mapping[str, int]
    committed_at_ms: int
    lapsed: bool
    """Whether it was silent for so long that the lake keeps nothing for it any more."""
    lease: bool
    """Whether it keeps the objects that the lake had at its positions, not the rows above them."""
    silence_seconds: int
    """After this time without a report it lapses."""


@dataclass(frozen=True, slots=True)
class PurgeBegun:
    """A purge that has begun."""

    id: str
    streams: int
    """How many streams existed that it removes."""


@dataclass(frozen=True, slots=True)
class PurgeInfo:
    """How far a purge is."""

    id: str
    stage: str
    """`deleting`, `rewriting`, `dropping`, `done` or `refused`."""
    done: bool
    problem: str | None
    """What keeps it from going on, as one sentence."""


# -- The server and its lake -------------------------------------------------------------------------------------------


def members_of(target: RequestTarget, method: str, sub: str) -> Program[dict[str, Any]]:
    """The JSON object with which the server answers a request without a body."""
    return (yield from _object(target, target.request(method, sub)))


def tell(target: RequestTarget, method: str, sub: str) -> Program[None]:
    """Send a request without a body, whose answer says nothing."""
    yield from ask(target.request(method, sub), target.policy)


def checkpoint(target: RequestTarget) -> Program[str]:
    answer = yield from _object(target, target.request("POST", "/cluster/checkpoint"))
    return str(answer["id"])


def flush(target: RequestTarget, all_tables: bool) -> Program[dict[str, int]]:
    params = {"tables": "all"} if all_tables else {}
    answer = yield from _object(target, target.request("POST", "/flush", params=params))
    positions: dict[str, int] = answer["positions"]
    return positions


def swap(
    target: RequestTarget, replaced: Sequence[int], keys: Sequence[str], dropped: int, deadline_us: int
) -> Program[None]:
    body = {
        "shard": SHARD,
        "replaced": list(replaced),
        "keys": list(keys),
        "dropped": dropped,
        "deadline": deadline_us,
    }
    yield from ask(_post(target, "/swap", body), target.policy)


def purge(target: RequestTarget, stream: str | None, prefix: str | None, with_forks: bool) -> Program[PurgeBegun]:
    body = {"stream": stream, "prefix": prefix, "with_forks": with_forks}
    answer = yield from _object(target, _post(target, "/purge", body))
    return PurgeBegun(answer["purge"], answer["streams"])


def read_purge(target: RequestTarget, purge_id: str) -> Program[PurgeInfo]:
    answer = yield from _object(target, target.request("GET", f"/purges/{quoted(purge_id)}"))
    return PurgeInfo(answer["purge"], answer["stage"], answer["done"], answer["problem"])


# -- Consumers of the lake ---------------------------------------------------------------------------------------------


def register_consumer(
    target: RequestTarget, name: str, positions: Mapping[str, int], renew: bool, silence_seconds: int | None
) -> Program[None]:
    silence = {} if silence_seconds is None else {"silence_seconds": silence_seconds}
    body = _json({"positions": dict(positions), "renew": renew, **silence})
    yield from ask(target.request("PUT", consumer_path(name), JSON_FIELDS, body=body), target.policy)


def lease(target: RequestTarget, name: str, seconds: int, renew: bool) -> Program[None]:
    body = _json({"lease_seconds": seconds, "renew": renew})
    yield from ask(target.request("PUT", consumer_path(name), JSON_FIELDS, body=body), target.policy)


def read_consumers(target: RequestTarget) -> Program[list[ConsumerInfo]]:
    answer = yield from _object(target, target.request("GET", "/consumers"))
    return [_consumer_info(one) for one in answer["consumers"]]


def read_consumer(target: RequestTarget, name: str) -> Program[ConsumerInfo | None]:
    """A consumer; None if it is not registered."""
    try:
        return _consumer_info((yield from _object(target, target.request("GET", consumer_path(name)))))
    except NotFound as error:
        if error.code != Code.CONSUMER_NOT_FOUND:
            raise
        return None


def consumer_path(name: str) -> str:
    return f"/consumers/{quoted(name)}"


def _consumer_info(answer: Mapping[str, Any]) -> ConsumerInfo:
    return ConsumerInfo(
        answer["consumer"],
        answer["positions"],
        answer["committed_at_ms"],
        answer["lapsed"],
        answer["lease"],
        answer["silence_seconds"],
    )


# -- Many streams at once ----------------------------------------------------------------------------------------------


def describe(target: RequestTarget, streams: Iterable[str]) -> Program[bytes]:
    answer = yield from ask(_post(target, "/describe", {"streams": list(streams)}), target.policy)
    return answer.response.body


def describe_prefix(
    target: RequestTarget, prefix: str, after: str | None, page_streams_max: int | None
) -> Program[bytes]:
    body = {"prefix": prefix, "after": after, "limit": page_streams_max}
    answer = yield from ask(_post(target, "/describe", body), target.policy)
    return answer.response.body


def locate(target: RequestTarget, records: Sequence[tuple[str, int, int]]) -> Program[list[int | None]]:
    answer = yield from _object(target, _post(target, "/locate", {"records": records}))
    found: list[int | None] = answer["offsets"]
    return found


def scan(
    target: RequestTarget,
    ranges: Sequence[ScanRange],
    columns: Sequence[str] | None,
    since: int | None,
    until: int | None,
) -> Program[None]:
    """Emit the bytes of the answer as they arrive; they are whole when this ends without an error."""
    body = {"ranges": ranges, "columns": columns, "since": since, "until": until}
    request = _post(target, "/scan", body)
    yield from ask(request, target.policy, opened=True)
    try:
        while data := (yield from more()):
            yield Emit(data)
    except TransportFailed as error:
        raise ResponseIncomplete(f"The response of {request.url} was cut short: {error}") from error


def append(target: RequestTarget, rows: bytes) -> Program[bytes]:
    request = target.request("POST", "/append", with_values({headers.CONTENT_TYPE: ARROW}), body=rows)
    answer = yield from ask(request, target.policy)
    return answer.response.body


# -- Requests and answers ----------------------------------------------------------------------------------------------


def _post(target: RequestTarget, sub: str, body: object) -> Request:
    return target.request("POST", sub, JSON_FIELDS, body=_json(body))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _object(target: RequestTarget, request: Request) -> Program[dict[str, Any]]:
    answer = yield from ask(request, target.policy)
    found = members(request, answer.response)
    if not isinstance(found, dict):
        raise ProtocolViolation(
            f"{answer.response.source(request)} was not answered by a Headwater server; check the URL."
        )
    return found
