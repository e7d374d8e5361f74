"""One program for each thing that is one request: what to send, and what the answer means."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from headwater.client.errors import Conflict, ProtocolViolation, number, refusal
from headwater.client.pages import page
from headwater.client.retrying import Answer, RetryPolicy, attempt
from headwater.client.values import Appended, Chunk, Created, StreamInfo
from headwater.client.wire import (
    CONTENT_TYPE,
    ETAG,
    INCARNATION,
    NEXT_OFFSET,
    RECORD_FIRST,
    RECORD_NEXT,
    RECORD_START,
    SNAPSHOT_OFFSET,
    STREAM_CLOSED,
    Program,
    Request,
    Response,
)
from headwater.protocol import content_types
from headwater.protocol.producers import Producer

IfExists = Literal["accept", "fail"]


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """The stream that is meant: its URL, the life of it if that matters, and how often to try."""

    url: str
    policy: RetryPolicy
    incarnation: str | None = None

    def request(
        self,
        method: str,
        sub: str = "",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Request:
        life = {} if self.incarnation is None else {INCARNATION: self.incarnation}
        return Request(method, self.url + sub, {**life, **(headers or {})}, params or {}, body)


def ask(request: Request, policy: RetryPolicy, *, repeatable: bool = True, opened: bool = False) -> Program[Answer]:
    """Send a request until it succeeds; everything but success is raised."""
    answer = yield from attempt(request, policy, repeatable=repeatable, opened=opened)
    if not answer.response.ok:
        raise refusal(request, answer.response)
    return answer


# -- A stream's life ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fork:
    """What a new stream begins with: all of another one up to an offset, and a little more.

    `source` is the URL of the other stream, or the path of that URL.
    """

    source: str
    offset: str | None = None
    sub_offset: int | None = None


def create(
    target: RequestTarget,
    content_type: str | None,
    *,
    body: bytes | None = None,
    ttl_seconds: int | None = None,
    expires_at: str | None = None,
    closed: bool = False,
    fork: Fork | None = None,
    attrs: Mapping[str, Any] | None = None,
    if_exists: IfExists = "accept",
) -> Program[Created]:
    fork_headers: dict[str, str | None] = {}
    if fork is not None:
        sub_offset = None if fork.sub_offset is None else str(fork.sub_offset)
        fork_headers = {
            "Stream-Forked-From": urlsplit(fork.source).path,
            "Stream-Fork-Offset": fork.offset,
            "Stream-Fork-Sub-Offset": sub_offset,
        }
    headers = given(
        {
            "Content-Type": content_type,
            "Stream-TTL": None if ttl_seconds is None else str(ttl_seconds),
            "Stream-Expires-At": expires_at,
            "Stream-Closed": "true" if closed else None,
            "Stream-Attrs": None if attrs is None else json.dumps(attrs),
            **fork_headers,
        }
    )
    request = target.request("PUT", headers=headers, body=body)
    answer = yield from ask(request, target.policy)
    # If an earlier attempt got no answer, it was that attempt which made the stream.
    new = answer.response.status == 201 or answer.in_doubt
    if not new and if_exists == "fail":
        raise Conflict(request, answer.response.saying(409, "The stream exists."))
    headers_back = answer.response.headers
    return Created(new, headers_back.get(NEXT_OFFSET), headers_back.get("location"), headers_back.get(INCARNATION))


def head(target: RequestTarget, etag: str | None = None) -> Program[StreamInfo | None]:
    """What a stream is; None if it is still as it was when it gave `etag`."""
    request = target.request("HEAD", headers=given({"If-None-Match": etag}))
    answer = yield from attempt(request, target.policy, repeatable=True)
    if answer.response.status == 304:
        return None
    if not answer.response.ok:
        raise refusal(request, answer.response)
    headers = answer.response.headers
    snapshot_offset = headers.get(SNAPSHOT_OFFSET)
    return StreamInfo(
        content_type=headers.get(CONTENT_TYPE, content_types.DEFAULT),
        next_offset=_next_offset(request, answer.response),
        closed=answer.response.flag(STREAM_CLOSED),
        etag=headers.get(ETAG),
        ttl_seconds=number(headers.get("stream-ttl")),
        expires_at=headers.get("stream-expires-at"),
        incarnation=headers.get(INCARNATION),
        snapshot_offset=None if snapshot_offset == "-1" else snapshot_offset,
        record_first=number(headers.get(RECORD_FIRST)),
        record_next=number(headers.get(RECORD_NEXT)),
        headers=headers,
    )


def delete(target: RequestTarget) -> Program[None]:
    """Delete; if an earlier attempt got no answer, it was that attempt which deleted what is now missing."""
    request = target.request("DELETE")
    answer = yield from attempt(request, target.policy, repeatable=True)
    missing = answer.response.status in (404, 410) and answer.in_doubt
    if not answer.response.ok and not missing:
        raise refusal(request, answer.response)


# -- Writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold for an append to happen."""

    seq: str | None = None
    if_match: str | None = None
    record_match: int | None = None

    def headers(self) -> dict[str, str]:
        record = None if self.record_match is None else str(self.record_match)
        return given({"Stream-Seq": self.seq, "If-Match": self.if_match, "Stream-Record-Match": record})

    @property
    def none(self) -> bool:
        return self.seq is None and self.if_match is None and self.record_match is None


def append(
    target: RequestTarget, content_type: str, body: bytes, conditions: Conditions, *, closed: bool = False
) -> Program[Appended]:
    headers = {"Content-Type": content_type, **conditions.headers(), **({"Stream-Closed": "true"} if closed else {})}
    request = target.request("POST", headers=headers, body=body)
    answer = yield from ask(request, target.policy, repeatable=False)
    return appended(request, answer.response)


def append_once(
    target: RequestTarget, content_type: str, body: bytes, producer: Producer, *, closed: bool = False
) -> Program[Appended]:
    """Append as one request of a producer, which happens once however often it is sent."""
    numbers = {"Producer-Id": producer.id, "Producer-Epoch": str(producer.epoch), "Producer-Seq": str(producer.seq)}
    headers = {"Content-Type": content_type, **numbers, **({"Stream-Closed": "true"} if closed else {})}
    request = target.request("POST", headers=headers, body=body)
    answer = yield from ask(request, target.policy)
    response = answer.response
    return Appended(
        next_offset=response.headers.get(NEXT_OFFSET, ""),
        duplicate=response.status == 204,
        record_start=number(response.headers.get(RECORD_START)),
        record_next=number(response.headers.get(RECORD_NEXT)),
    )


def close(target: RequestTarget) -> Program[Appended]:
    """Close without a last message, which may be done any number of times."""
    request = target.request("POST", headers={"Stream-Closed": "true"}, body=b"")
    answer = yield from ask(request, target.policy)
    return appended(request, answer.response)


def appended(request: Request, response: Response) -> Appended:
    return Appended(
        next_offset=_next_offset(request, response),
        record_start=number(response.headers.get(RECORD_START)),
        record_next=number(response.headers.get(RECORD_NEXT)),
    )


# -- Reading one page --------------------------------------------------------------------------------------------------


def read_page(
    target: RequestTarget, offset: str, page_bytes_max: int | None, etag: str | None
) -> Program[Chunk | None]:
    """One plain read; None if the page is still the one that gave `etag`."""
    params = given({"offset": offset, "max_bytes": None if page_bytes_max is None else str(page_bytes_max)})
    request = target.request("GET", headers=given({"If-None-Match": etag}), params=params)
    answer = yield from attempt(request, target.policy, repeatable=True)
    if answer.response.status == 304:
        return None
    if not answer.response.ok:
        raise refusal(request, answer.response)
    return page(request, answer.response, content_types.DEFAULT)


def members(request: Request, response: Response) -> Any:
    try:
        return json.loads(response.body)
    except ValueError as error:
        raise ProtocolViolation(f"{request.url} did not answer with valid JSON: {error}.") from error


def _next_offset(request: Request, response: Response) -> str:
    offset = response.headers.get(NEXT_OFFSET)
    if offset is None:
        raise ProtocolViolation(f"{request.url} answered {request.method} without {NEXT_OFFSET}.")
    return offset


def given(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
