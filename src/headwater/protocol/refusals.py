"""Refusals: one stable code per reason why a request fails, and one value type for all of them."""

from enum import StrEnum

import msgspec


class Code(StrEnum):
    """The stable `code` of an error body; `codes.REFUSALS` gives each its HTTP status and title."""

    BAD_REQUEST = "bad_request"
    INVALID_OFFSET = "invalid_offset"
    INVALID_HEADER = "invalid_header"
    INVALID_NAME = "invalid_name"
    INVALID_JSON = "invalid_json"
    EMPTY_BODY = "empty_body"
    CONTENT_TYPE_MISSING = "content_type_missing"
    CONTENT_TYPE_MISMATCH = "content_type_mismatch"
    NOT_FOUND = "not_found"
    STREAM_NOT_FOUND = "stream_not_found"
    STREAM_GONE = "stream_gone"
    STREAM_EXISTS = "stream_exists"
    STREAM_CLOSED = "stream_closed"
    BUCKET_NOT_FOUND = "bucket_not_found"
    BUCKET_EXISTS = "bucket_exists"
    BUCKET_NOT_EMPTY = "bucket_not_empty"
    OFFSET_TRIMMED = "offset_trimmed"
    OFFSET_BEYOND_TAIL = "offset_beyond_tail"
    OFFSET_UNALIGNED = "offset_unaligned"
    INCARNATION_CHANGED = "incarnation_changed"
    PRODUCER_INCOMPLETE = "producer_incomplete"
    PRODUCER_PAYLOAD_MISMATCH = "producer_payload_mismatch"
    PRODUCER_EPOCH_STALE = "producer_epoch_stale"
    PRODUCER_EPOCH_INVALID = "producer_epoch_invalid"
    PRODUCER_SEQ_CONFLICT = "producer_seq_conflict"
    PRODUCERS_TOO_MANY = "producers_too_many"
    STREAM_SEQ_CONFLICT = "stream_seq_conflict"
    PRECONDITION_FAILED = "precondition_failed"
    RECORD_PRECONDITION_FAILED = "record_precondition_failed"
    SNAPSHOT_NOT_FOUND = "snapshot_not_found"
    SNAPSHOT_CONFLICT = "snapshot_conflict"
    FORK_CONFLICT = "fork_conflict"
    CONSUMER_NOT_FOUND = "consumer_not_found"
    CONSUMER_LAPSED = "consumer_lapsed"
    CONSUMERS_TOO_MANY = "consumers_too_many"
    RANGES_UNAVAILABLE = "ranges_unavailable"
    SWAP_REFUSED = "swap_refused"
    PURGE_NOT_FOUND = "purge_not_found"
    TOO_LARGE = "too_large"
    URI_TOO_LONG = "uri_too_long"
    HEADERS_TOO_LARGE = "headers_too_large"
    UNAUTHORIZED = "unauthorized"
    TOKEN_EXPIRED = "token_expired"
    FORBIDDEN = "forbidden"
    PRODUCER_FORBIDDEN = "producer_forbidden"
    AUTH_UNAVAILABLE = "auth_unavailable"
    RATE_LIMITED = "rate_limited"
    LIVE_READS_TOO_MANY = "live_reads_too_many"
    RELOAD_REFUSED = "reload_refused"
    HOST_REFUSED = "host_refused"
    ORIGIN_REFUSED = "origin_refused"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    QUOTA_EXCEEDED = "quota_exceeded"
    REQUEST_TIMEOUT = "request_timeout"
    OVERLOADED = "overloaded"
    WAITERS_TOO_MANY = "waiters_too_many"
    DRAINING = "draining"
    LOG_UNAVAILABLE = "log_unavailable"
    OUTCOME_UNKNOWN = "outcome_unknown"
    NOT_IMPLEMENTED = "not_implemented"
    INTERNAL = "internal"


class Problem(msgspec.Struct, frozen=True, gc=False):
    """Why one of many ranges cannot be read: its index, and where its stream begins if the range was trimmed."""

    index: int
    code: Code
    earliest: int | None = None


class RateLimit(msgspec.Struct, frozen=True, gc=False):
    """A limit of a client: so much in a window of time, or at the same time if there is none."""

    name: str
    quota: int
    window_seconds: int | None
    retry_after_seconds: int


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """A failed request: one sentence for a person, and the facts that go into headers."""

    code: Code
    detail: str
    incarnation: int | None = None
    next_offset: int | None = None
    closed: bool = False
    earliest_offset: int | None = None
    producer_epoch: int | None = None
    expected_seq: int | None = None
    received_seq: int | None = None
    record_first: int | None = None
    record_next: int | None = None
    allow: str | None = None
    problems: tuple[Problem, ...] | None = None
    challenge: str | None = None
    """What a client must prove, for `WWW-Authenticate`."""
    rate_limit: RateLimit | None = None
    """The limit that is used up."""


def stream_not_found(name: str) -> Refusal:
    return Refusal(Code.STREAM_NOT_FOUND, f"Stream {name!r} does not exist; create it with PUT.")


def bucket_not_found(bucket: str) -> Refusal:
    return Refusal(Code.BUCKET_NOT_FOUND, f"Bucket {bucket!r} does not exist; create it with PUT.")


def stream_gone(name: str) -> Refusal:
    return Refusal(Code.STREAM_GONE, f"Stream {name!r} was deleted; its data is kept only for its forks.")


def incarnation_changed(name: str, incarnation: int) -> Refusal:
    return Refusal(
        Code.INCARNATION_CHANGED,
        f"Stream {name!r} was deleted and created again, or the server was restored; read it from the beginning.",
        incarnation=incarnation,
    )


def log_changed(ours: str, theirs: str) -> Refusal:
    return Refusal(
        Code.INCARNATION_CHANGED,
        f"The request is about log {theirs!r}, but this server has log {ours!r}: it was restored from a backup, or "
        "replaced; start over.",
    )
