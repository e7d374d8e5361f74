"""The errors and headers of httpx2, for both clients."""

from collections.abc import Mapping

import httpx2

from headwater.client.errors import TransportFailed
from headwater.client.wire import Request

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


def not_followed(request: Request) -> bool:
    """Whether redirects are not followed: httpx2 could turn a write into a read."""
    return request.method not in ("GET", "HEAD")


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
