"""One program for each operation that is one request: what to send, and what the answer means."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from headwater.client.errors import Conflict, ProtocolViolation, refusal
from headwater.client.pages import page
from headwater.client.retrying import Answer, RetryPolicy, attempt
from headwater.client.values import START, Appended, Chunk, Created, StreamInfo
from headwater.client.wire import Program, Request, Response
from headwater.protocol import content_types, headers
from headwater.protocol.headers import Header
from headwater.protocol.producers import Producer

IfExists = Literal["accept", "fail"]


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What requests are about: a URL, the incarnation of the stream there if that matters, and how to retry."""

    url: str
    policy: RetryPolicy
    incarnation: str | None = None

    def request(
        self,
        method: str,
        sub: str = "",
        fields: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Request:
        """A request to this URL, or to a path below it; `fields` are its headers."""
        own = with_values({headers.STREAM_INCARNATION: self.incarnation})
        return Request(method, self.url + sub, {**own, **(fields or {})}, params or {}, body)


def ask(request: Request, policy: RetryPolicy, *, repeatable: bool = True, opened: bool = False) -> Program[Answer]:
    """Send a request until it succeeds; everything but success is raised."""
    answer = yield from attempt(request, policy, repeatable=repeatable, opened=opened)
    if not answer.response.ok:
        raise refusal(request, answer.response)
    return answer


def with_values(fields: Mapping[Header, object]) -> dict[str, str]:
    """The headers that have a value.

    >>> with_values({headers.STREAM_TTL: 60, headers.STREAM_CLOSED: False, headers.IF_MATCH: None})
    {'Stream-TTL': '60'}
    """
    return {
        header.name: "true" if value is True else str(value)
        for header, value in fields.items()
        if value is not None and value is not False
    }


def with_parameters(**params: str | int | None) -> dict[str, str]:
    """The query parameters that have a value."""
    return {name: str(value) for name, value in params.items() if value is not None}


# -- A stream's lifecycle ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fork:
    """The beginning of a new stream: the data of another one up to an offset.

    `source` is the URL of the other stream, or the path of that URL. `sub_offset` adds that many messages (JSON) or
    bytes after `offset`.
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
    fields: dict[Header, object] = {
        headers.CONTENT_TYPE: content_type,
        headers.STREAM_TTL: ttl_seconds,
        headers.STREAM_EXPIRES_AT: expires_at,
        headers.STREAM_CLOSED: closed,
        headers.STREAM_ATTRS: None if attrs is None else json.dumps(attrs),
    }
    if fork is not None:
        fields[headers.STREAM_FORKED_FROM] = urlsplit(fork.source).path
        fields[headers.STREAM_FORK_OFFSET] = fork.offset
        fields[headers.STREAM_FORK_SUB_OFFSET] = fork.sub_offset
    request = target.request("PUT", fields=with_values(fields), body=body)
    answer = yield from ask(request, target.policy)
    response = answer.response
    # If an earlier attempt got no answer, that attempt created the stream.
    new = response.status == 201 or answer.in_doubt
    if not new and if_exists == "fail":
        raise Conflict(request, response.restated(409, "The stream exists."))
    return Created(
        new,
        _next_offset(request, response),
        response.header(headers.LOCATION),
        response.header(headers.STREAM_INCARNATION),
    )


def head(target: RequestTarget, etag: str | None = None) -> Program[StreamInfo | None]:
    """A stream's metadata; None if it has not changed since it returned `etag`."""
    request = target.request("HEAD", fields=with_values({headers.IF_NONE_MATCH: etag}))
    response = yield from _unless_unchanged(request, target.policy)
    if response is None:
        return None
    snapshot_offset = response.header(headers.STREAM_SNAPSHOT_OFFSET)
    return StreamInfo(
        content_type=response.header(headers.CONTENT_TYPE) or content_types.DEFAULT,
        next_offset=_next_offset(request, response),
        closed=response.flag(headers.STREAM_CLOSED),
        etag=response.header(headers.ETAG),
        ttl_seconds=response.number(headers.STREAM_TTL),
        expires_at=response.header(headers.STREAM_EXPIRES_AT),
        incarnation=response.header(headers.STREAM_INCARNATION),
        snapshot_offset=None if snapshot_offset == START else snapshot_offset,
        record_first=response.number(headers.STREAM_RECORD_FIRST),
        record_next=response.number(headers.STREAM_RECORD_NEXT),
        headers=response.headers,
    )


def delete(target: RequestTarget) -> Program[None]:
    """Delete; if an earlier attempt got no answer, that attempt deleted what is now missing."""
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

    @property
    def fields(self) -> dict[Header, object]:
        return {
            headers.STREAM_SEQ: self.seq,
            headers.IF_MATCH: self.if_match,
            headers.STREAM_RECORD_MATCH: self.record_match,
        }

    @property
    def none(self) -> bool:
        return self.seq is None and self.if_match is None and self.record_match is None


def append(
    target: RequestTarget, content_type: str, body: bytes, conditions: Conditions, *, closed: bool = False
) -> Program[Appended]:
    fields = {headers.CONTENT_TYPE: content_type, headers.STREAM_CLOSED: closed, **conditions.fields}
    request = target.request("POST", fields=with_values(fields), body=body)
    answer = yield from ask(request, target.policy, repeatable=False)
    return appended(answer.response, next_offset=_next_offset(request, answer.response))


def append_once(
    target: RequestTarget, content_type: str, body: bytes, producer: Producer, *, closed: bool = False
) -> Program[Appended]:
    """Append as one request of a producer, which is idempotent."""
    fields = {headers.CONTENT_TYPE: content_type, headers.STREAM_CLOSED: closed, **producer_fields(producer)}
    request = target.request("POST", fields=with_values(fields), body=body)
    answer = yield from ask(request, target.policy)
    return appended(answer.response, duplicate=answer.response.status == 204)


def producer_fields(producer: Producer) -> dict[Header, object]:
    return {
        headers.PRODUCER_ID: producer.id,
        headers.PRODUCER_EPOCH: producer.epoch,
        headers.PRODUCER_SEQ: producer.seq,
    }


def close(target: RequestTarget) -> Program[Appended]:
    """Close without a last message, which is idempotent."""
    request = target.request("POST", fields=with_values({headers.STREAM_CLOSED: True}), body=b"")
    answer = yield from ask(request, target.policy)
    return appended(answer.response, next_offset=_next_offset(request, answer.response))


def appended(response: Response, *, next_offset: str | None = None, duplicate: bool = False) -> Appended:
    """The result of an accepted append. A server need not say the next offset of a producer's append."""
    return Appended(
        next_offset=next_offset or response.header(headers.STREAM_NEXT_OFFSET) or "",
        duplicate=duplicate,
        record_start=response.number(headers.STREAM_RECORD_START),
        record_next=response.number(headers.STREAM_RECORD_NEXT),
    )


# -- Reading one page --------------------------------------------------------------------------------------------------


def read_page(
    target: RequestTarget, offset: str, page_bytes_max: int | None, etag: str | None
) -> Program[Chunk | None]:
    """One plain read; None if the page has not changed since it returned `etag`."""
    params = with_parameters(offset=offset, max_bytes=page_bytes_max)
    request = target.request("GET", fields=with_values({headers.IF_NONE_MATCH: etag}), params=params)
    response = yield from _unless_unchanged(request, target.policy)
    return None if response is None else page(request, response, content_types.DEFAULT)


def _unless_unchanged(request: Request, policy: RetryPolicy) -> Program[Response | None]:
    answer = yield from attempt(request, policy, repeatable=True)
    if answer.response.status == 304:
        if headers.IF_NONE_MATCH.name not in request.headers:
            raise ProtocolViolation(
                f"{answer.response.source(request)} was answered with 304, although nothing was said to be known."
            )
        return None
    if not answer.response.ok:
        raise refusal(request, answer.response)
    return answer.response


def members(request: Request, response: Response) -> Any:
    """The JSON value in a response."""
    try:
        return json.loads(response.body)
    except ValueError as error:
        raise ProtocolViolation(f"{response.source(request)} did not answer with valid JSON: {error}.") from error


def _next_offset(request: Request, response: Response) -> str:
    offset = response.header(headers.STREAM_NEXT_OFFSET)
    if offset is None:
        missing = headers.STREAM_NEXT_OFFSET.name
        raise ProtocolViolation(f"{response.source(request)} answered {request.method} without {missing}.")
    return offset
