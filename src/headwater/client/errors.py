"""The errors of the client, as one tree.

    ClientError                  everything below
    ├── TransportFailed          no usable answer arrived, and the request did nothing or is safe to repeat; `sent`
    │   ├── OutcomeUnknown       no answer says whether a write that was sent has happened, or the server does not know
    │   └── ResponseIncomplete   a response that is read as it arrives broke off
    ├── ProtocolViolation        the answer violates the protocol: invalid JSON, invalid events, a missing header
    ├── ProducerEnded            the producer has been closed and takes no more messages
    └── RequestRefused           the server refused: `status`, `code`, `detail`, `problem`, `headers`, `url`
        ├── BadRequest           400
        ├── Unauthorized         401: no token, or one that is unknown, revoked or expired
        ├── Forbidden            403: the token does not allow this
        ├── ProducerFenced       403: another instance of the producer has taken over; `current_epoch`
        ├── NotFound             404
        ├── Conflict             409
        │   ├── StreamClosed     the stream is closed and takes no more data; `next_offset`
        │   ├── SequenceConflict the sequence number is not the next one; `expected_seq`
        │   └── ProducerEpochUsed  another writer has used the producer's id, epoch and number; nothing was written
        ├── Gone                 410: the stream was deleted, or the requested part of it no longer exists
        │   ├── OffsetTrimmed    data before `earliest_offset` was trimmed
        │   └── IncarnationChanged  the stream was deleted and created again
        ├── PreconditionFailed   412
        ├── TooLarge             413
        ├── HostRefused          421: the server does not serve the host in the URL
        ├── QuotaExceeded        507: the bucket may hold no more; repeating the request does not help
        └── ServerUnavailable    408, 429 and 5xx, after the last attempt that the policy allows; `retry_after_seconds`
            └── RateLimited      429: too many requests or bytes for this token

Expected outcomes (an attempt that succeeded before, an unchanged page, a stream that exists already) are values, not
errors. All errors can be pickled.
"""

import json
from collections.abc import Mapping
from typing import Any

from headwater.client.wire import Request, Response
from headwater.protocol import headers
from headwater.protocol.refusals import Code

DETAIL_CHARACTERS_MAX = 500


class ClientError(Exception):
    """The root of all errors of this client."""


class TransportFailed(ClientError):
    """No usable answer arrived."""

    def __init__(self, message: str, *, sent: bool = True, others: int = 0) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have reached the server."""
        self.others = others
        """How many other URLs of the client may be tried at once."""


class OutcomeUnknown(TransportFailed):
    """A write was sent, and no answer says whether it happened.

    None arrived, or it is a 503 with the code `outcome_unknown`, which is the `__cause__`: a node of a cluster does not
    know what became of the write.
    """


class ResponseIncomplete(TransportFailed):
    """The connection broke before the response was complete; what had arrived is valid."""


class ProtocolViolation(ClientError):
    """The answer violates the protocol."""


class ProducerEnded(ClientError):
    """The producer has been closed."""


class RequestRefused(ClientError):
    """The server refused the request."""

    def __init__(self, request: Request, response: Response) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url = response.source(request)
        self.problem: Mapping[str, Any] = problem_of(response.body)
        """All members of the problem document; for any other body, its text as the `detail`."""
        self.code = self._text("code")
        self.title = self._text("title")
        self.detail = self._text("detail")
        reason = self.detail or self.title or _REASONS.get(self.status) or "no reason given"
        if response.route.failed:
            reason = f"{reason.rstrip('.')}; all {response.route.failed} URLs failed."
        super().__init__(f"{request.method} {self.url} was answered with {self.status}: {reason}")
        self._response = response
        self._request = Request(request.method, request.url)

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is pickled by its arguments, which are only the message.
        return type(self), (self._request, self._response)

    def _text(self, name: str) -> str | None:
        value = self.problem.get(name)
        return value if isinstance(value, str) else None

    @property
    def next_offset(self) -> str | None:
        return self._response.header(headers.STREAM_NEXT_OFFSET)


class BadRequest(RequestRefused):
    """400."""


class Unauthorized(RequestRefused):
    """401: no token, or one that is unknown, revoked or expired; for a producer, also one that does not allow this."""


class Forbidden(RequestRefused):
    """403: the token does not allow this."""


class ProducerFenced(RequestRefused):
    """403: another instance of the producer has taken over."""

    @property
    def current_epoch(self) -> int | None:
        return self._response.number(headers.PRODUCER_EPOCH)


class NotFound(RequestRefused):
    """404."""


class Conflict(RequestRefused):
    """409."""


class StreamClosed(Conflict):
    """409: the stream is closed and takes no more data."""


class SequenceConflict(Conflict):
    """409: the sequence number is not the next one."""

    @property
    def expected_seq(self) -> int | None:
        return self._response.number(headers.PRODUCER_EXPECTED_SEQ)


class ProducerEpochUsed(Conflict):
    """409: another writer has used the producer's id, epoch and number, so nothing was written."""


class Gone(RequestRefused):
    """410."""


class OffsetTrimmed(Gone):
    """410: data before `earliest_offset` was trimmed."""

    @property
    def earliest_offset(self) -> str | None:
        return self._response.header(headers.STREAM_EARLIEST_OFFSET)


class IncarnationChanged(Gone):
    """410: the stream was deleted and created again; offsets of the old one are void."""


class PreconditionFailed(RequestRefused):
    """412."""


class TooLarge(RequestRefused):
    """413."""


class HostRefused(RequestRefused):
    """421: the server does not serve the host in the URL."""


class QuotaExceeded(RequestRefused):
    """507: the bucket may hold no more; repeating the request does not help."""


class ServerUnavailable(RequestRefused):
    """408, 429 or 5xx, at the last attempt."""

    @property
    def retry_after_seconds(self) -> float | None:
        return retry_after_seconds(self._response)


class RateLimited(ServerUnavailable):
    """429: too many requests or bytes for this token."""


_BY_STATUS: dict[int, type[RequestRefused]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: ServerUnavailable,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    413: TooLarge,
    421: HostRefused,
    429: RateLimited,
    507: QuotaExceeded,
}
_REASONS = {421: "the server does not serve the host in this URL"}
"""For refusals that proxies also give, without a body."""
_BY_CODE: dict[str, type[RequestRefused]] = {
    "stream_closed": StreamClosed,
    "stream_seq_conflict": SequenceConflict,
    "producer_seq_conflict": SequenceConflict,
    "producer_payload_mismatch": ProducerEpochUsed,
    "offset_trimmed": OffsetTrimmed,
    "incarnation_changed": IncarnationChanged,
    "producer_epoch_stale": ProducerFenced,
    "producers_too_many": ServerUnavailable,
}


def refusal(request: Request, response: Response) -> RequestRefused:
    """The error for a response: by its code, or by its headers and status if the server sends no codes."""
    kind = _BY_CODE.get(str(problem_of(response.body).get("code")))
    if kind is None:
        other = ServerUnavailable if response.status >= 500 else RequestRefused
        kind = _by_headers(response) or _BY_STATUS.get(response.status, other)
    return kind(request, response)


def is_unknown(response: Response) -> bool:
    """Whether the server does not know what became of a write.

    >>> is_unknown(Response(503, body=b'{"code": "outcome_unknown"}')), is_unknown(Response(503))
    (True, False)
    """
    return response.status == 503 and problem_of(response.body).get("code") == Code.OUTCOME_UNKNOWN


def _by_headers(response: Response) -> type[RequestRefused] | None:
    if response.status == 409:
        if response.flag(headers.STREAM_CLOSED):
            return StreamClosed
        expected = response.header(headers.PRODUCER_EXPECTED_SEQ)
        if expected is not None or b"sequence" in response.body[:DETAIL_CHARACTERS_MAX].lower():
            return SequenceConflict
    if response.status == 403 and response.header(headers.PRODUCER_EPOCH) is not None:
        return ProducerFenced
    if response.status == 410 and response.header(headers.STREAM_EARLIEST_OFFSET) is not None:
        return OffsetTrimmed
    return None


def problem_of(body: bytes) -> dict[str, Any]:
    """The members of a problem document; the text of any other body is its detail."""
    try:
        problem = json.loads(body)
    except ValueError:
        text = body.decode(errors="replace").strip()
        return {"detail": text[:DETAIL_CHARACTERS_MAX]} if text else {}
    return problem if isinstance(problem, dict) else {}


def retry_after_seconds(response: Response) -> float | None:
    """The delay that a server asks for; a date is not supported, and counts as none.

    >>> [retry_after_seconds(Response(503, {"retry-after": text})) for text in ("3", "Wed, 21 Oct 2026 07:28:00 GMT")]
    [3.0, None]
    """
    found = response.number(headers.RETRY_AFTER)
    return None if found is None else float(found)
