"""One program for each extension of the base protocol: snapshots, batches, attributes, records, buckets."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.client import framing
from headwater.client.errors import ProtocolViolation, ResponseIncomplete, refusal
from headwater.client.multipart import PartParser, snapshot
from headwater.client.operations import Conditions, RequestTarget, ask, members, with_parameters, with_values
from headwater.client.retrying import attempt
from headwater.client.values import BatchAck, BucketInfo, ListedStream, Record, Snapshot
from headwater.client.wire import Emit, Program, more
from headwater.protocol import content_types, headers

# -- Snapshots, retention, attributes ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in a stream: an offset, or a record number."""

    offset: str | None = None
    record: int | None = None

    def __post_init__(self) -> None:
        if (self.offset is None) == (self.record is None):
            raise ValueError("Give either an offset or a record.")

    def under(self, sub: str) -> tuple[str, dict[str, str]]:
        """The path below the stream, and the parameters, that name this position."""
        return (sub, with_parameters(record=self.record)) if self.offset is None else (f"{sub}/{self.offset}", {})


def publish_snapshot(
    target: RequestTarget, data: bytes, position: StreamPosition, content_type: str
) -> Program[str | None]:
    """Publish a snapshot, and return its offset."""
    sub, params = position.under("/snapshot")
    fields = with_values({headers.CONTENT_TYPE: content_type})
    answer = yield from ask(target.request("PUT", sub, fields, params, data), target.policy)
    return answer.response.header(headers.STREAM_SNAPSHOT_OFFSET) or position.offset


def read_snapshot(target: RequestTarget, offset: str | None) -> Program[Snapshot]:
    """The snapshot at `offset`, or the latest one, to which the server redirects."""
    request = target.request("GET", "/snapshot" if offset is None else f"/snapshot/{offset}")
    answer = yield from ask(request, target.policy)
    response = answer.response
    found = response.header(headers.STREAM_SNAPSHOT_OFFSET) or offset
    if found is None:
        missing = headers.STREAM_SNAPSHOT_OFFSET.name
        raise ProtocolViolation(f"{response.source(request)} answered with a snapshot without {missing}.")
    return Snapshot(response.body, response.header(headers.CONTENT_TYPE) or content_types.DEFAULT, found)


def retain_from(target: RequestTarget, position: StreamPosition) -> Program[None]:
    sub, params = position.under("/retention")
    yield from ask(target.request("PUT", sub, params=params, body=b""), target.policy)


def write_attrs(target: RequestTarget, attrs: Mapping[str, Any]) -> Program[None]:
    fields = with_values({headers.CONTENT_TYPE: content_types.JSON})
    yield from ask(target.request("PUT", "/attrs", fields, body=json.dumps(attrs).encode()), target.policy)


def read_attrs(target: RequestTarget) -> Program[dict[str, Any]]:
    request = target.request("GET", "/attrs")
    answer = yield from ask(request, target.policy)
    attrs: dict[str, Any] = members(request, answer.response)
    return attrs


# -- Bootstrap ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BootstrapHead:
    """The beginning of a bootstrap, and where the stream continues after it."""

    snapshot: Snapshot | None
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool


def bootstrap(target: RequestTarget) -> Program[None]:
    """Emit the head, then each message as bytes, as they arrive."""
    answer = yield from ask(target.request("GET", "/bootstrap"), target.policy, opened=True)
    response = answer.response
    parser = PartParser(response.header(headers.CONTENT_TYPE) or "")
    seen = 0
    while not parser.ended:
        data = yield from more()
        if not data:
            raise ResponseIncomplete(f"The bootstrap of {target.url} was cut short; start over.")
        for part in parser.feed(data):
            if seen == 0:
                closed = response.flag(headers.STREAM_CLOSED)
                up_to_date = response.flag(headers.STREAM_UP_TO_DATE) or closed
                next_offset = response.header(headers.STREAM_NEXT_OFFSET) or ""
                found = snapshot(part, response)
                yield Emit(BootstrapHead(found, part.content_type, next_offset, up_to_date, closed))
            else:
                yield Emit(part.data)
            seen += 1


# -- Batches -----------------------------------------------------------------------------------------------------------


def append_batch(
    target: RequestTarget, content_type: str, messages: Sequence[bytes], conditions: Conditions
) -> Program[list[BatchAck]]:
    body = b"".join(map(framing.frame, messages))
    fields = with_values({headers.CONTENT_TYPE: content_type, **conditions.fields})
    request = target.request("POST", "/append-batch", fields, body=body)
    answer = yield from ask(request, target.policy, repeatable=False)
    acks = members(request, answer.response)
    if not isinstance(acks, list) or len(acks) != len(messages):
        raise ProtocolViolation(f"{answer.response.source(request)} did not acknowledge each message of the batch.")
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
    """Emit each record from number `first` on, or the `last` ones of that number, up to the current end."""
    start = with_parameters(record=first) if first is not None else with_parameters(tail_records=last)
    while True:
        request = target.request("GET", params={**start, **with_parameters(max_records=page_records_max)})
        answer = yield from ask(request, target.policy)
        response = answer.response
        number, following = (response.number(one) for one in (headers.STREAM_RECORD_START, headers.STREAM_RECORD_NEXT))
        if number is None or following is None:
            raise ProtocolViolation(f"{response.source(request)} answered a read of records without their numbers.")
        lines = [line for line in response.body.split(b"\n") if line]
        for at, line in enumerate(lines, number):
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ProtocolViolation(f"Record {at} of {target.url} is not valid JSON: {error}.") from error
            yield Emit(Record(at, value))
        if not lines or response.flag(headers.STREAM_UP_TO_DATE) or response.flag(headers.STREAM_CLOSED):
            return
        start = with_parameters(record=following)


# -- Buckets -----------------------------------------------------------------------------------------------------------


def create_bucket(target: RequestTarget, *, exist_ok: bool) -> Program[bool]:
    """Create a bucket, and return whether it is new."""
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
    """Emit each stream of a bucket, or of a server, sorted by name."""
    page = yield from _page(target, "/streams", prefix, None, page_streams_max)
    while page is not None:
        for line in page["streams"]:
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
        page = yield from _page(target, "/streams", prefix, page, page_streams_max)


def list_buckets(target: RequestTarget, prefix: str | None, page_buckets_max: int | None) -> Program[None]:
    """Emit each bucket of a server, sorted by name."""
    page = yield from _page(target, "/buckets", prefix, None, page_buckets_max)
    while page is not None:
        for line in page["buckets"]:
            yield Emit(BucketInfo(line["bucket_id"], line["streams"]))
        page = yield from _page(target, "/buckets", prefix, page, page_buckets_max)


def _page(
    target: RequestTarget, sub: str, prefix: str | None, last: Mapping[str, Any] | None, entries_max: int | None
) -> Program[Mapping[str, Any] | None]:
    """The page of a listing after the last one, or the first; None after the end."""
    after = None
    if last is not None:
        after = last.get("next_cursor")
        if not last.get("has_more") or after is None:
            return None
    params = with_parameters(prefix=prefix, after=after, limit=entries_max)
    request = target.request("GET", sub, params=params)
    answer = yield from ask(request, target.policy)
    found = members(request, answer.response)
    if not isinstance(found, dict):
        raise ProtocolViolation(f"{answer.response.source(request)} did not answer with a listing.")
    return found
