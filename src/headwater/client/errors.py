"""What can go wrong, as one tree.

    ClientError                  everything below
    ├── TransportFailed          no usable answer came; the request did nothing, or was one that is safe to send again
    │   ├── OutcomeUnknown       a write was sent and no answer came: it may or may not have happened
    │   └── ResponseIncomplete   a response that is read as it arrives broke off
    ├── ProtocolViolation        an answer came that is not the protocol's: broken JSON, broken events, a missing header
    ├── ProducerEnded            something was given to a producer that has been closed
    └── RequestRefused           the server said no: `status`, `code`, `detail`, `headers`, `url`
        ├── BadRequest           400
        ├── ProducerFenced       403: another instance took the producer's id over; `current_epoch`
        ├── NotFound             404
        ├── Conflict             409
        │   ├── StreamClosed     nothing can be added any more; `next_offset`
        │   └── SequenceConflict the sequence number is not the next one; `expected_seq`
        ├── Gone                 410: the stream was deleted, or what is meant of it is no longer there
        │   ├── OffsetTrimmed    the history before `earliest_offset` is gone
        │   └── IncarnationChanged  the stream was deleted and made anew
        ├── PreconditionFailed   412
        ├── TooLarge             413
        └── ServerUnavailable    408, 429 and 5xx, after as many attempts as the policy allows; `retry_after_seconds`

Expected outcomes that are no errors (a duplicate, an unchanged page, a stream that was there) are values.
"""

import json
from collections.abc import Mapping
from typing import Any

from headwater.client.wire import (
    EARLIEST_OFFSET,
    NEXT_OFFSET,
    PRODUCER_EPOCH,
    PRODUCER_EXPECTED_SEQ,
    RETRY_AFTER,
    STREAM_CLOSED,
    Request,
    Response,
)

DETAIL_CHARACTERS_MAX = 500


class ClientError(Exception):
    """The root of all errors of this client."""


class TransportFailed(ClientError):
    """No usable answer came."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have reached the server."""


class OutcomeUnknown(TransportFailed):
    """A write was sent, and no answer came back to say whether it happened."""


class ResponseIncomplete(TransportFailed):
    """The connection broke before the response was complete; what had arrived is valid."""


class ProtocolViolation(ClientError):
    """The answer is not one that the protocol knows."""


class ProducerEnded(ClientError):
    """The producer was closed before."""


class RequestRefused(ClientError):
    """The server answered, and said no."""

    def __init__(self, request: Request, response: Response) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url = request.url
        self.problem: Mapping[str, Any] = _problem(response)
        """All members of the problem document, or the text of another body as its `detail`."""
        self.code = self._text("code")
        self.title = self._text("title")
        self.detail = self._text("detail")
        reason = self.detail or self.title or "no reason given"
        super().__init__(f"{request.method} {request.url} was answered with {self.status}: {reason}")
        self._made_from = (Request(request.method, request.url), response)

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments of an error are its message; another process makes the error again from the response.
        return type(self), self._made_from

    def _text(self, name: str) -> str | None:
        value = self.problem.get(name)
        return value if isinstance(value, str) else None

    @property
    def next_offset(self) -> str | None:
        return self.headers.get(NEXT_OFFSET)


class BadRequest(RequestRefused):
    """400."""


class ProducerFenced(RequestRefused):
    """403: another instance of the producer has taken over."""

    @property
    def current_epoch(self) -> int | None:
        return number(self.headers.get(PRODUCER_EPOCH))


class NotFound(RequestRefused):
    """404."""


class Conflict(RequestRefused):
    """409."""


class StreamClosed(Conflict):
    """409: nothing can be added any more."""


class SequenceConflict(Conflict):
    """409: a sequence number that is not the next one."""

    @property
    def expected_seq(self) -> int | None:
        return number(self.headers.get(PRODUCER_EXPECTED_SEQ))


class Gone(RequestRefused):
    """410."""


class OffsetTrimmed(Gone):
    """410: the history before `earliest_offset` was let go of."""

    @property
    def earliest_offset(self) -> str | None:
        return self.headers.get(EARLIEST_OFFSET)


class IncarnationChanged(Gone):
    """410: the stream was deleted and made anew; what is known of the old one is void."""


class PreconditionFailed(RequestRefused):
    """412."""


class TooLarge(RequestRefused):
    """413."""


class ServerUnavailable(RequestRefused):
    """408, 429 or 5xx, at the last of all attempts."""

    @property
    def retry_after_seconds(self) -> float | None:
        return seconds(self.headers.get(RETRY_AFTER))


_BY_STATUS: dict[int, type[RequestRefused]] = {
    400: BadRequest,
    403: ProducerFenced,
    404: NotFound,
    408: ServerUnavailable,
    409: Conflict,
    410: Gone,
    412: PreconditionFailed,
    413: TooLarge,
    429: ServerUnavailable,
}
_BY_CODE: dict[str, type[RequestRefused]] = {
    "stream_closed": StreamClosed,
    "stream_seq_conflict": SequenceConflict,
    "producer_seq_conflict": SequenceConflict,
    "offset_trimmed": OffsetTrimmed,
    "incarnation_changed": IncarnationChanged,
    "producer_epoch_stale": ProducerFenced,
}


def refusal(request: Request, response: Response) -> RequestRefused:
    """The error that a response is; servers without codes are understood by their headers."""
    kind = _BY_CODE.get(str(_problem(response).get("code")))
    if kind is None:
        kind = _by_headers(response) or _BY_STATUS.get(response.status, RequestRefused)
        if response.status >= 500:
            kind = ServerUnavailable
        elif response.status == 403 and PRODUCER_EPOCH not in response.headers:
            kind = RequestRefused
    return kind(request, response)


def _by_headers(response: Response) -> type[RequestRefused] | None:
    if response.status == 409:
        if response.flag(STREAM_CLOSED):
            return StreamClosed
        if PRODUCER_EXPECTED_SEQ in response.headers or b"sequence" in response.body[:DETAIL_CHARACTERS_MAX].lower():
            return SequenceConflict
    if response.status == 410 and EARLIEST_OFFSET in response.headers:
        return OffsetTrimmed
    return None


def _problem(response: Response) -> dict[str, Any]:
    """The members of a problem+json body; the text of any other body is its detail."""
    try:
        problem = json.loads(response.body)
    except ValueError:
        text = response.body.decode(errors="replace").strip()
        return {"detail": text[:DETAIL_CHARACTERS_MAX]} if text else {}
    return problem if isinstance(problem, dict) else {}


def number(text: str | None) -> int | None:
    """The whole number in a header, None if there is none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def seconds(text: str | None) -> float | None:
    """The seconds of a `Retry-After`; a date is not understood, and means nothing.

    >>> seconds("3"), seconds("Wed, 21 Oct 2026 07:28:00 GMT")
    (3.0, None)
    """
    found = number(text)
    return None if found is None else float(found)
