"""One program for each thing that goes beyond the base protocol: snapshots, batches, attributes, records, buckets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.client import framing
from headwater.client.errors import ProtocolViolation, ResponseIncomplete, number, refusal
from headwater.client.multipart import PartParser, snapshot
from headwater.client.operations import Conditions, RequestTarget, ask, given, members
from headwater.client.retrying import attempt
from headwater.client.values import BatchAck, BucketInfo, ListedStream, Record, Snapshot
from headwater.client.wire import (
    CONTENT_TYPE,
    NEXT_OFFSET,
    RECORD_NEXT,
    RECORD_START,
    SNAPSHOT_OFFSET,
    STREAM_CLOSED,
    UP_TO_DATE,
    Emit,
    Program,
    more,
)
from headwater.protocol import content_types

# -- Snapshots, retention, attributes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where in a stream: an offset, or the number of a record."""

    offset: str | None = None
    record: int | None = None

    def __post_init__(self) -> None:
        if (self.offset is None) == (self.record is None):
            raise ValueError("Give either an offset or a record.")

    def under(self, sub: str) -> tuple[str, dict[str, str]]:
        """The path below the stream and the parameters that name this place."""
        return (sub, {"record": str(self.record)}) if self.offset is None else (f"{sub}/{self.offset}", {})


def publish_snapshot(
    target: RequestTarget, data: bytes, place: StreamPosition, content_type: str
) -> Program[str | None]:
    """Publish, and say at which offset the snapshot stands."""
    sub, params = place.under("/snapshot")
    request = target.request("PUT", sub, {"Content-Type": content_type}, params, data)
    answer = yield from ask(request, target.policy)
    return answer.response.headers.get(SNAPSHOT_OFFSET, place.offset)


def read_snapshot(target: RequestTarget, offset: str | None) -> Program[Snapshot]:
    """The snapshot at `offset`, or the latest one, to which the server leads on."""
    request = target.request("GET", "/snapshot" if offset is None else f"/snapshot/{offset}")
    answer = yield from ask(request, target.policy)
    headers = answer.response.headers
    found = headers.get(SNAPSHOT_OFFSET, offset)
    if found is None:
        raise ProtocolViolation(f"{request.url} answered with a snapshot that does not say where it stands.")
    return Snapshot(answer.response.body, headers.get(CONTENT_TYPE, content_types.DEFAULT), found)


def retain_from(target: RequestTarget, place: StreamPosition) -> Program[None]:
    sub, params = place.under("/retention")
    yield from ask(target.request("PUT", sub, params=params, body=b""), target.policy)


def write_attrs(target: RequestTarget, attrs: Mapping[str, Any]) -> Program[None]:
    body = json.dumps(attrs).encode()
    yield from ask(target.request("PUT", "/attrs", {"Content-Type": content_types.JSON}, body=body), target.policy)


def read_attrs(target: RequestTarget) -> Program[dict[str, Any]]:
    request = target.request("GET", "/attrs")
    answer = yield from ask(request, target.policy)
    attrs: dict[str, Any] = members(request, answer.response)
    return attrs


# -- Bootstrap ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BootstrapHead:
    """What a bootstrap begins with, and where to go on after it."""

    snapshot: Snapshot | None
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool


def bootstrap(target: RequestTarget) -> Program[None]:
    """Emit the head, then each message as bytes, while they arrive."""
    answer = yield from ask(target.request("GET", "/bootstrap"), target.policy, opened=True)
    response, headers = answer.response, answer.response.headers
    parser = PartParser(headers.get(CONTENT_TYPE, ""))
    seen = 0
    while not parser.ended:
        data = yield from more()
        if not data:
            raise ResponseIncomplete(f"The bootstrap of {target.url} was cut short; start over.")
        for part in parser.feed(data):
            if seen == 0:
                closed = response.flag(STREAM_CLOSED)
                up_to_date = response.flag(UP_TO_DATE) or closed
                found = snapshot(part, headers)
                yield Emit(BootstrapHead(found, part.content_type, headers.get(NEXT_OFFSET, ""), up_to_date, closed))
            else:
                yield Emit(part.data)
            seen += 1


# -- Batches -----------------------------------------------------------------------------------------------------------


def append_batch(
    target: RequestTarget, content_type: str, messages: Sequence[bytes], conditions: Conditions
) -> Program[list[BatchAck]]:
    body = b"".join(map(framing.frame, messages))
    headers = {"Content-Type": content_type, **conditions.headers()}
    request = target.request("POST", "/append-batch", headers=headers, body=body)
    answer = yield from ask(request, target.policy, repeatable=False)
    acks = members(request, answer.response)
    if not isinstance(acks, list) or len(acks) != len(messages):
        raise ProtocolViolation(f"{request.url} did not acknowledge each message of the batch.")
    return [
        BatchAck(
            status=ack["status"],
            next_offset=ack.get("stream_next_offset"),
            code=ack.get("error_code"),
            error=ack.get("error"),
            record_start=ack.get("stream_record_start"),
            record_next=ack.get("stream_record_next"),
        )
        for ack in acks
    ]


# -- Records -----------------------------------------------------------------------------------------------------------


def read_records(
    target: RequestTarget, *, first: int | None, last: int | None, page_records_max: int | None
) -> Program[None]:
    """Emit each record from number `first`, or the `last` so many, up to what is the end for now."""
    place = {"record": str(first)} if first is not None else {"tail_records": str(last)}
    while True:
        page_max = None if page_records_max is None else str(page_records_max)
        request = target.request("GET", params=given({**place, "max_records": page_max}))
        answer = yield from ask(request, target.policy)
        response = answer.response
        start, following = number(response.headers.get(RECORD_START)), number(response.headers.get(RECORD_NEXT))
        if start is None or following is None:
            raise ProtocolViolation(f"{request.url} answered a read of records without their numbers.")
        lines = [line for line in response.body.split(b"\n") if line]
        for at, line in enumerate(lines):
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ProtocolViolation(f"Record {start + at} of {target.url} is no valid JSON: {error}.") from error
            yield Emit(Record(start + at, value))
        if not lines or response.flag(UP_TO_DATE) or response.flag(STREAM_CLOSED):
            return
        place = {"record": str(following)}


# -- Buckets -----------------------------------------------------------------------------------------------------------


def create_bucket(target: RequestTarget, *, exist_ok: bool) -> Program[bool]:
    """Make a bucket; whether it is new."""
    request = target.request("PUT", body=b"")
    answer = yield from attempt(request, target.policy, repeatable=True)
    if answer.response.status == 409 and (exist_ok or answer.in_doubt):
        return answer.in_doubt
    if not answer.response.ok:
        raise refusal(request, answer.response)
    return True


def describe_bucket(target: RequestTarget) -> Program[BucketInfo]:
    request = target.request("GET")
    answer = yield from ask(request, target.policy)
    found = members(request, answer.response)
    return BucketInfo(found["bucket_id"], found["streams"])


def list_streams(target: RequestTarget, prefix: str | None, page_streams_max: int | None) -> Program[None]:
    """Emit each stream of a bucket, page after page, sorted by name."""
    after: str | None = None
    while True:
        limit = None if page_streams_max is None else str(page_streams_max)
        request = target.request("GET", "/streams", params=given({"prefix": prefix, "after": after, "limit": limit}))
        answer = yield from ask(request, target.policy)
        found = members(request, answer.response)
        for line in found["streams"]:
            yield Emit(
                ListedStream(
                    name=line["stream_id"],
                    closed=line["status"] != "Open",
                    content_type=line["content_type"],
                    tail_offset=line["tail_offset"],
                    created_at_ms=line["created_at_ms"],
                    last_write_at_ms=line["last_write_at_ms"],
                )
            )
        after = found.get("next_cursor")
        if not found.get("has_more") or after is None:
            return
