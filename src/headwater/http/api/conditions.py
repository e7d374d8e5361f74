"""Headers that say who writes and what must hold, which requests of several kinds carry. Nothing here reads state."""

import re
from typing import NamedTuple

from headwater.http.wire.requests import Request, parse_query
from headwater.protocol import etags, headers, incarnations, producers
from headwater.protocol.etags import Version
from headwater.protocol.limits import STREAM_SEQ_BYTES_MAX
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Head

NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")

_PRODUCER_ID, _PRODUCER_EPOCH = headers.PRODUCER_ID.key, headers.PRODUCER_EPOCH.key
_PRODUCER_SEQ, _STREAM_SEQ = headers.PRODUCER_SEQ.key, headers.STREAM_SEQ.key
_INCARNATION = headers.STREAM_INCARNATION.key
_WRITER_HEADERS = frozenset({_PRODUCER_ID, _PRODUCER_EPOCH, _PRODUCER_SEQ, _STREAM_SEQ, _INCARNATION})


class Writer(NamedTuple):
    """Who writes, and to which incarnation."""

    seq: str | None
    producer: Producer | None
    incarnation: int | None


_ANYBODY = Writer(None, None, None)


def parse_writer(request: Request, log_id: str) -> Writer | Refusal:
    """The producer, the sequence and the incarnation of a write, as far as its headers name them."""
    given, producer = request.headers, None
    if _WRITER_HEADERS.isdisjoint(given) and not request.query:
        return _ANYBODY
    if _PRODUCER_ID in given or _PRODUCER_EPOCH in given or _PRODUCER_SEQ in given:
        parsed = producers.parse(
            request.header(_PRODUCER_ID), request.header(_PRODUCER_EPOCH), request.header(_PRODUCER_SEQ)
        )
        if isinstance(parsed, Refusal):
            return parsed
        producer = parsed
    seq = request.header(_STREAM_SEQ)
    if seq is not None and len(seq) > STREAM_SEQ_BYTES_MAX:
        detail = f"{headers.STREAM_SEQ.name} is longer than {STREAM_SEQ_BYTES_MAX} bytes."
        return Refusal(Code.INVALID_HEADER, detail)
    incarnation = parse_incarnation(request, log_id)
    if isinstance(incarnation, Refusal):
        return incarnation
    return Writer(seq, producer, incarnation)


def parse_conditions(request: Request, log_id: str) -> tuple[tuple[Version, ...] | None, int | None] | Refusal:
    """What must hold for an append: the version of the stream that an ETag names, and the next record number."""
    record = request.header(headers.STREAM_RECORD_MATCH.key)
    if record is not None and NUMBER.fullmatch(record) is None:
        detail = f"{headers.STREAM_RECORD_MATCH.name} {record[:40]!r} is not a whole number."
        return Refusal(Code.INVALID_HEADER, detail)
    return parse_versions(request, log_id), None if record is None else int(record)


def parse_versions(request: Request, log_id: str) -> tuple[Version, ...] | None:
    """The versions of the stream that a change is for; None for any."""
    if_match = request.header(headers.IF_MATCH.key)
    return None if if_match is None else etags.parse(log_id, if_match)


def parse_incarnation(request: Request, log_id: str) -> int | Refusal | None:
    """The incarnation of the stream that a request is about, from a header or from the query."""
    text = request.header(_INCARNATION)
    if request.query:
        parameters = parse_query(request.query)
        if isinstance(parameters, Refusal):
            return parameters
        in_query = parameters.get("incarnation")
        if text is not None and in_query is not None and text != in_query:
            return Refusal(Code.BAD_REQUEST, "The header and the query name different incarnations.")
        text = in_query if text is None else text
    return None if text is None else incarnations.parse(log_id, text)


def parse_head(request: Request, name: str, log_id: str) -> Head | Refusal:
    """A query about what a stream is."""
    incarnation = parse_incarnation(request, log_id)
    return incarnation if isinstance(incarnation, Refusal) else Head(name, incarnation)
