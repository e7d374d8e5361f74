"""What one response to a read contains: a page, or the parts of an event stream."""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwater.client.errors import ProtocolViolation
from headwater.client.values import Chunk
from headwater.client.wire import Program, Request, Response, Shut, more
from headwater.protocol import content_types, headers

ERROR_BYTES_MAX = 16 * 1024 * 1024
"""How much is read of a response that is an error. A refused scan lists each of 100,000 ranges in up to 80 bytes."""


def page(request: Request, response: Response, content_type: str) -> Chunk:
    """The chunk in the response to a plain read or a long-poll."""
    next_offset = response.header(headers.STREAM_NEXT_OFFSET)
    if next_offset is None:
        raise ProtocolViolation(
            f"{response.source(request)} answered a read without {headers.STREAM_NEXT_OFFSET.name}."
        )
    if response.status == 200:
        content_type = response.header(headers.CONTENT_TYPE) or content_type
    closed = response.flag(headers.STREAM_CLOSED)
    return Chunk(
        data=response.body,
        next_offset=next_offset,
        content_type=content_type,
        up_to_date=response.flag(headers.STREAM_UP_TO_DATE) or closed or response.status == 204,
        closed=closed,
        incarnation=response.header(headers.STREAM_INCARNATION),
        cursor=response.header(headers.STREAM_CURSOR),
        etag=response.header(headers.ETAG),
    )


def media(response: Response) -> str:
    return content_types.media_type(response.header(headers.CONTENT_TYPE) or "")


def decoded(data: bytes) -> bytes:
    try:
        return b64decode(data.replace(b"\n", b""), validate=True)
    except Base64Error as error:
        raise ProtocolViolation(f"An event's data is not valid base64: {error}.") from error


def control_members(data: bytes) -> Mapping[str, Any]:
    try:
        control = json.loads(data)
    except ValueError as error:
        raise ProtocolViolation(f"A control event is not valid JSON: {error}.") from error
    if not isinstance(control, dict) or not isinstance(control.get("streamNextOffset"), str):
        raise ProtocolViolation("A control event has no next offset.")
    return control


def whole(response: Response) -> Program[Response]:
    """An opened response that turned out to be an error, with as much of its body as the error needs."""
    pieces: list[bytes] = []
    size = 0
    while size < ERROR_BYTES_MAX:
        data = yield from more()
        if not data:
            return replace(response, body=b"".join(pieces))
        pieces.append(data)
        size += len(data)
    yield Shut()
    return replace(response, body=b"".join(pieces))
