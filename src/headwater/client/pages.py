"""What one response to a read says: a page, or the pieces of an event stream."""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any

from headwater.client.errors import ProtocolViolation
from headwater.client.values import Chunk
from headwater.client.wire import (
    CONTENT_TYPE,
    ETAG,
    INCARNATION,
    NEXT_OFFSET,
    STREAM_CLOSED,
    STREAM_CURSOR,
    UP_TO_DATE,
    Program,
    Request,
    Response,
    Shut,
    more,
)
from headwater.protocol import content_types

ERROR_BYTES_MAX = 64 * 1024
"""What is read of an answer that is not the one that was hoped for."""


def page(request: Request, response: Response, content_type: str) -> Chunk:
    """What one plain read or long-poll gave."""
    headers = response.headers
    if NEXT_OFFSET not in headers:
        raise ProtocolViolation(f"{request.url} answered a read without {NEXT_OFFSET}.")
    closed = response.flag(STREAM_CLOSED)
    return Chunk(
        data=response.body,
        next_offset=headers[NEXT_OFFSET],
        content_type=headers.get(CONTENT_TYPE, content_type) if response.status == 200 else content_type,
        up_to_date=response.flag(UP_TO_DATE) or closed or response.status == 204,
        closed=closed,
        incarnation=headers.get(INCARNATION),
        cursor=headers.get(STREAM_CURSOR),
        etag=headers.get(ETAG),
    )


def media(response: Response) -> str:
    return content_types.media_type(response.headers.get(CONTENT_TYPE, ""))


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
        raise ProtocolViolation("A control event does not say the next offset.")
    return control


def whole(response: Response) -> Program[Response]:
    """An opened response that is no event stream, with as much of its body as an error needs."""
    body = b""
    while len(body) < ERROR_BYTES_MAX:
        data = yield from more()
        if not data:
            return Response(response.status, response.headers, body)
        body += data
    yield Shut()
    return Response(response.status, response.headers, body)
