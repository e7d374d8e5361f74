"""The errors and headers of httpx2, for both clients."""

from collections.abc import Mapping

import httpx2

from headwater.client.errors import TransportFailed, problem_of
from headwater.client.wire import Request

UNAUTHORIZED = 401
NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.LocalProtocolError,
)


def failed(request: Request, error: httpx2.HTTPError) -> TransportFailed:
    """An error of httpx2 as ours; `sent` unless it is certain that the request was not."""
    if isinstance(error, httpx2.UnsupportedProtocol):
        raise ValueError(f"{request.url} cannot be reached: {error}") from error
    reason = str(error) or type(error).__name__
    sent = not isinstance(error, NOT_SENT)
    return TransportFailed(f"{request.method} {request.url} got no answer: {reason}.", sent=sent)


def is_renewable(body: bytes) -> bool:
    """Whether a refusal with 401 and this body may be due to the token's age; other servers send no codes.

    >>> is_renewable(b'{"code": "token_expired"}'), is_renewable(b"expired"), is_renewable(b'{"code": "x"}')
    (True, True, False)
    """
    return problem_of(body).get("code") in (None, "token_expired", "unauthorized")


def not_followed(request: Request) -> bool:
    """Whether redirects are not followed: httpx2 could turn a write into a read."""
    return request.method not in ("GET", "HEAD")


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
