"""THE table from reply to HTTP: a status, header lines, and the body of a refusal.

`answer(reply, dialect)` looks up the reply's type in `ANSWERS`, and a refusal's code in `codes.REFUSALS`. Headers that
are not about the outcome itself (CORS, Date, framing) are added by `rendering`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from headwater.http.wire.browsers import ALLOW_ALL_LINES
from headwater.http.wire.codes import REFUSALS, RETRY_LATER_SECONDS
from headwater.protocol import etags, headers, incarnations
from headwater.protocol.content_types import DEFAULT, is_json, media_type
from headwater.protocol.offsets import Form, render
from headwater.protocol.refusals import RateLimit, Refusal
from headwater.streams.replies import (
    Acknowledged,
    Appended,
    BucketDropped,
    BucketOpened,
    ClosedOnly,
    Created,
    Deleted,
    Described,
    Duplicate,
    Existed,
    Page,
    Published,
    Reply,
)


class Dialect(NamedTuple):
    """How responses about a stream are written: the form of offsets, the id in incarnations, and who may keep them."""

    form: Form
    log_id: str
    private: bool = False
    """Whether only the client's own cache may keep a page, and no shared one."""
    attachments: bool = False
    """Whether browsers save byte streams instead of showing them."""
    by_origin: bool = False
    """Whether responses depend on the origin of the page that asks."""
    guarded: bool = False
    """Whether reading the stream needs a credential, so that a cache must revalidate before each use."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A status, header lines that each end in CRLF, and a body."""

    status: int
    headers: str
    body: bytes = b""
    is_page: bool = False
    """Whether it is a page of ours, which brings its own security policy."""
    is_shared: bool = False
    """Whether caches may give it to others, so that it says whether all origins may read it, whoever asked."""
    is_empty: bool = False
    """Whether there is never a body, so that browsers need no policy for it."""


EXTENSIONS = "append-batch, attrs, bootstrap, conditional-append, fork, incarnation, retention, snapshot"
JSON_EXTENSIONS = f"{EXTENSIONS}, json-record-coordinates-v1, records"
JSON_EXTENSIONS_LINE = f"{headers.STREAM_EXTENSIONS.line}{JSON_EXTENSIONS}\r\n"

_CACHE_PAGE = f"{headers.CACHE_CONTROL.line}public, max-age=60, stale-while-revalidate=300\r\n"
_CACHE_TAIL = f"{headers.CACHE_CONTROL.line}no-cache\r\n"
_CACHE_GUARDED = f"{headers.CACHE_CONTROL.line}private, no-cache\r\n"
_NO_STORE = f"{headers.CACHE_CONTROL.line}no-store\r\n"
_VARY = f"{headers.VARY.line}{headers.STREAM_INCARNATION.name}"
"""The URL does not say which incarnation a page is of; a cache must not give it to a client that names another one."""
_CLOSED = f"{headers.STREAM_CLOSED.line}true\r\n"
_UP_TO_DATE = headers.STREAM_UP_TO_DATE.line
_IS_UP_TO_DATE = f"{_UP_TO_DATE}true\r\n"
# Bound here, since an attribute of a module costs a lookup more on each request.
_CONTENT_TYPE = headers.CONTENT_TYPE.line
_CURSOR = headers.STREAM_CURSOR.line
_ETAG = headers.ETAG.line
_INCARNATION = headers.STREAM_INCARNATION.line
_NEXT_OFFSET = headers.STREAM_NEXT_OFFSET.line
_PRODUCER_EPOCH = headers.PRODUCER_EPOCH.line
_PRODUCER_SEQ = headers.PRODUCER_SEQ.line
_RECORD_FIRST = headers.STREAM_RECORD_FIRST.line
_RECORD_NEXT = headers.STREAM_RECORD_NEXT.line
_RECORD_START = headers.STREAM_RECORD_START.line
_SNAPSHOT_DIGEST = headers.STREAM_SNAPSHOT_DIGEST.line
_SNAPSHOT_OFFSET = headers.STREAM_SNAPSHOT_OFFSET.line


def answer(reply: Reply, dialect: Dialect) -> Answer:
    """A reply as HTTP."""
    return ANSWERS[type(reply)](reply, dialect)


def incarnation_line(incarnation: int, dialect: Dialect) -> str:
    return f"{_INCARNATION}{incarnations.render(dialect.log_id, incarnation)}\r\n"


def stream_lines(incarnation: int, next_offset: int, closed: bool, dialect: Dialect) -> str:
    """The header lines of nearly every response about a stream."""
    lines = (
        f"{_NEXT_OFFSET}{render(next_offset, dialect.form)}\r\n"
        f"{_INCARNATION}{incarnations.render(dialect.log_id, incarnation)}\r\n"
    )
    return lines + _CLOSED if closed else lines


def _vary(dialect: Dialect) -> str:
    line = f"{_VARY}, {headers.ORIGIN.name}" if dialect.by_origin else _VARY
    return f"{line}, {headers.AUTHORIZATION.name}\r\n" if dialect.guarded else f"{line}\r\n"


def _created(reply: Created, dialect: Dialect) -> Answer:
    lines = _configuration_lines(reply, dialect) + _record_lines(reply.record, None, reply.record_next)
    if reply.producer_epoch is not None:
        lines += producer_lines(reply.producer_epoch, reply.producer_seq)
    return Answer(201, lines)


def _existed(reply: Existed, dialect: Dialect) -> Answer:
    return Answer(200, _configuration_lines(reply, dialect))


def _configuration_lines(reply: Created | Existed | Described, dialect: Dialect) -> str:
    lines = f"{_CONTENT_TYPE}{reply.content_type}\r\n"
    lines += f"{headers.STREAM_EXTENSIONS.line}{extensions(reply.content_type)}\r\n"
    return lines + stream_lines(reply.incarnation, reply.next_offset, reply.closed, dialect)


def extensions(content_type: str) -> str:
    """The extensions that are active on a stream of this type."""
    return JSON_EXTENSIONS if is_json(content_type) else EXTENSIONS


def _record_lines(record: int | None, record_first: int | None, record_next: int | None) -> str:
    """Record numbers of a JSON stream: of the first message of the response, of the oldest retained, of the next."""
    lines = "" if record is None else f"{_RECORD_START}{record}\r\n"
    if record_first is not None:
        lines += f"{_RECORD_FIRST}{record_first}\r\n"
    return lines if record_next is None else f"{lines}{_RECORD_NEXT}{record_next}\r\n"


def appended(reply: Appended, dialect: Dialect) -> Answer:
    records, producer = reply.record is not None, reply.producer_epoch is not None
    lines = append_template(dialect, records=records, producer=producer) % append_numbers(reply)
    return Answer(200 if producer else 204, _CLOSED + lines if reply.closed else lines, is_empty=True)


def append_numbers(reply: Appended) -> tuple[int | None, ...]:
    """What `append_template` has places for."""
    records = () if reply.record is None else (reply.record, reply.record_next)
    producer = () if reply.producer_epoch is None else (reply.producer_epoch, reply.producer_seq)
    return reply.next_offset, reply.incarnation, *records, *producer


def append_template(dialect: Dialect, *, records: bool, producer: bool) -> str:
    """The header lines of an append with places for its numbers, in the order in which `appended` has them."""
    lines = f"{_NEXT_OFFSET}{dialect.form.value}\r\n{_INCARNATION}{dialect.log_id}-%d\r\n"
    lines += f"{_RECORD_START}%d\r\n{_RECORD_NEXT}%d\r\n" if records else ""
    return f"{lines}{_PRODUCER_EPOCH}%d\r\n{_PRODUCER_SEQ}%d\r\n" if producer else lines


def _closed_only(reply: ClosedOnly, dialect: Dialect) -> Answer:
    lines = stream_lines(reply.incarnation, reply.next_offset, True, dialect)
    if reply.producer_epoch is not None:
        lines += producer_lines(reply.producer_epoch, reply.producer_seq)
    return Answer(204, lines)


def _duplicate(reply: Duplicate, dialect: Dialect) -> Answer:
    lines = stream_lines(reply.incarnation, reply.next_offset, reply.closed, dialect)
    lines += _record_lines(reply.record, None, reply.record_next)
    return Answer(204, lines + producer_lines(reply.producer_epoch, reply.producer_seq))


def producer_lines(epoch: int, seq: int | None) -> str:
    return f"{_PRODUCER_EPOCH}{epoch}\r\n{_PRODUCER_SEQ}{seq}\r\n"


def _deleted(reply: Deleted, dialect: Dialect) -> Answer:
    return Answer(204, incarnation_line(reply.incarnation, dialect))


def _described(reply: Described, dialect: Dialect) -> Answer:
    etag = etags.render(dialect.log_id, reply.incarnation, 0, reply.next_offset, reply.closed)
    lines = f"{_configuration_lines(reply, dialect)}{_ETAG}{etag}\r\n{_NO_STORE}{_vary(dialect)}"
    if reply.lifetime.ttl_seconds is not None:
        lines += f"{headers.STREAM_TTL.line}{reply.lifetime.ttl_seconds}\r\n"
    if reply.lifetime.expires_at_text is not None:
        lines += f"{headers.STREAM_EXPIRES_AT.line}{reply.lifetime.expires_at_text}\r\n"
    if reply.snapshot is not None:
        lines += f"{_SNAPSHOT_OFFSET}{render(reply.snapshot.offset, dialect.form)}\r\n"
        lines += f"{_SNAPSHOT_DIGEST}{reply.snapshot.digest}\r\n"
    return Answer(200, lines + _record_lines(None, reply.record_first, reply.record_next))


def _acknowledged(reply: Acknowledged, dialect: Dialect) -> Answer:
    return Answer(204, incarnation_line(reply.incarnation, dialect))


def _published(reply: Published, dialect: Dialect) -> Answer:
    lines = snapshot_lines(
        reply.incarnation, reply.snapshot_offset, reply.next_offset, reply.closed, reply.digest, dialect
    )
    return Answer(204, lines)


def snapshot_lines(  # noqa: PLR0917
    incarnation: int, offset: int, tail: int, closed: bool, digest: str, dialect: Dialect
) -> str:
    """The header lines of a response about a snapshot: its offset, where to resume, and whether anything follows."""
    up_to_date = offset == tail
    lines = f"{_SNAPSHOT_OFFSET}{render(offset, dialect.form)}\r\n{_SNAPSHOT_DIGEST}{digest}\r\n"
    lines += stream_lines(incarnation, offset, closed and up_to_date, dialect)
    return f"{lines}{_UP_TO_DATE}{'true' if up_to_date else 'false'}\r\n"


def _page(reply: Page, dialect: Dialect) -> Answer:
    return Answer(200, page_lines(reply, dialect), reply.body, is_shared=True)


def page_lines(page: Page, dialect: Dialect) -> str:
    """The header lines of a page."""
    numbers = page.next_offset, page.incarnation, page.incarnation, page.start, page.next_offset
    records = () if page.record_next is None else (page.record_first, page.record_next)
    return by_record_lines(page) + page_template(page, dialect) % (*numbers, *records)


def by_record_lines(page: Page) -> str:
    """The header lines of a page that was read by record: its first record, and that there are such reads."""
    return "" if page.record is None else f"{_record_lines(page.record, None, None)}{JSON_EXTENSIONS_LINE}"


def page_template(page: Page, dialect: Dialect) -> str:
    """The header lines of a page with places for its numbers, in the order in which `page_lines` has them."""
    ended, incarnation = page.up_to_date and page.closed, f"{dialect.log_id}-%d"
    lines = (
        f"{_CONTENT_TYPE}{page.content_type.replace('%', '%%')}\r\n{_NEXT_OFFSET}{dialect.form.value}\r\n"
        f"{_INCARNATION}{incarnation}\r\n{_CLOSED if ended else ''}{_IS_UP_TO_DATE if page.up_to_date else ''}"
        f'{_ETAG}"{incarnation}:%d:%d{":c" if ended else ""}"\r\n'
        f"{_cache_lines(page.content_type, dialect)[0 if page.next_offset > page.start else 1]}"
    )
    return lines if page.record_next is None else f"{lines}{_RECORD_FIRST}%d\r\n{_RECORD_NEXT}%d\r\n"


def shared_lines(dialect: Dialect) -> str:
    """What a response says to all origins, because a page of any may get it: from a cache, or for a request without a
    known `Origin`."""
    return "" if dialect.by_origin else ALLOW_ALL_LINES


@lru_cache(maxsize=1024)
def _cache_lines(content_type: str, dialect: Dialect) -> tuple[str, str]:
    """What tells caches and browsers how to keep a page: one with data, and an empty one."""
    page, tail = _CACHE_PAGE, _CACHE_TAIL
    if dialect.guarded:
        page = tail = _CACHE_GUARDED
    elif dialect.private:
        page = page.replace("public", "private")
    saved = dialect.attachments and media_type(content_type) == DEFAULT
    more = (
        _vary(dialect) + (f"{headers.CONTENT_DISPOSITION.line}attachment\r\n" if saved else "") + shared_lines(dialect)
    )
    return page + more, tail + more


def _refusal(reply: Refusal, dialect: Dialect) -> Answer:
    status, title = REFUSALS[reply.code]
    lines = f"{_CONTENT_TYPE}application/problem+json\r\n{_NO_STORE}"
    problem: dict[str, Any] = {
        "type": f"urn:headwater:error:{reply.code.value}",
        "title": title,
        "status": status,
        "detail": reply.detail,
        "code": reply.code.value,
    }
    if reply.incarnation is not None:
        lines += incarnation_line(reply.incarnation, dialect)
    if reply.next_offset is not None:
        lines += f"{_NEXT_OFFSET}{render(reply.next_offset, dialect.form)}\r\n"
    if reply.closed:
        lines += _CLOSED
    if reply.earliest_offset is not None:
        lines += f"{headers.STREAM_EARLIEST_OFFSET.line}{render(reply.earliest_offset, dialect.form)}\r\n"
    lines += _record_lines(None, reply.record_first, reply.record_next)
    if reply.producer_epoch is not None:
        lines += f"{_PRODUCER_EPOCH}{reply.producer_epoch}\r\n"
    if reply.expected_seq is not None:
        lines += f"{headers.PRODUCER_EXPECTED_SEQ.line}{reply.expected_seq}\r\n"
        lines += f"{headers.PRODUCER_RECEIVED_SEQ.line}{reply.received_seq}\r\n"
        problem |= {"expected_seq": reply.expected_seq, "received_seq": reply.received_seq}
    if reply.problems:
        problem["problems"] = reply.problems
    if reply.allow is not None:
        lines += f"{headers.ALLOW.line}{reply.allow}\r\n"
    if reply.rate_limit is not None:
        lines += _rate_limit_lines(reply.rate_limit)
    elif reply.code in RETRY_LATER_SECONDS:
        lines += f"{headers.RETRY_AFTER.line}{RETRY_LATER_SECONDS[reply.code]}\r\n"
    if reply.challenge is not None:
        lines += f"{headers.WWW_AUTHENTICATE.line}{reply.challenge}\r\n"
    return Answer(status, lines, msgspec.json.encode(problem))


def _rate_limit_lines(limit: RateLimit) -> str:
    lines = f"{headers.RETRY_AFTER.line}{limit.retry_after_seconds}\r\n"
    window = "" if limit.window_seconds is None else f";w={limit.window_seconds}"
    lines += f'{headers.RATE_LIMIT_POLICY.line}"{limit.name}";q={limit.quota}{window}\r\n'
    return f'{lines}{headers.RATE_LIMIT.line}"{limit.name}";r=0;t={limit.retry_after_seconds}\r\n'


ANSWERS: dict[type, Callable[[Any, Dialect], Answer]] = {
    Created: _created,
    Existed: _existed,
    Appended: appended,
    ClosedOnly: _closed_only,
    Duplicate: _duplicate,
    Deleted: _deleted,
    Described: _described,
    Acknowledged: _acknowledged,
    Published: _published,
    BucketOpened: lambda _, __: Answer(201, _NO_STORE),
    BucketDropped: lambda _, __: Answer(204, ""),
    Page: _page,
    Refusal: _refusal,
}


def from_now(page: Page, dialect: Dialect) -> Answer:
    """The answer to a catch-up read that began at the tail: never cached, and without an ETag."""
    lines = f"{_CONTENT_TYPE}{page.content_type}\r\n{_NO_STORE}"
    if page.up_to_date:
        lines += _IS_UP_TO_DATE
    if page.record_next is not None:
        lines += by_record_lines(page) + _record_lines(None, page.record_first, page.record_next)
    ended = page.up_to_date and page.closed
    return Answer(200, lines + stream_lines(page.incarnation, page.next_offset, ended, dialect), page.body)


def not_modified(page: Page, dialect: Dialect) -> Answer:
    """The answer to a read whose ETag the client already has: the same headers, and no body."""
    return Answer(304, page_lines(page, dialect), is_shared=True)


def polled(page: Page, dialect: Dialect, cursor: int) -> Answer:
    """The answer to a long-poll that found data: a page with a cursor."""
    return Answer(200, f"{page_lines(page, dialect)}{_CURSOR}{cursor}\r\n", page.body, is_shared=True)


def poll_ended(page: Page, dialect: Dialect, cursor: int) -> Answer:
    """The answer to a long-poll that found nothing: the reader is still at the tail, or at the end."""
    lines = stream_lines(page.incarnation, page.next_offset, page.closed, dialect)
    lines += f"{_IS_UP_TO_DATE}{_NO_STORE}{by_record_lines(page)}"
    lines += _record_lines(None, page.record_first, page.record_next)
    return Answer(204, lines if page.closed else f"{lines}{_CURSOR}{cursor}\r\n")
