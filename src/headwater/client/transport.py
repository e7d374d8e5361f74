"""The errors and headers of httpx2, for both clients."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from headwater.client.errors import TransportFailed, problem_of
from headwater.client.nodes import Aim
from headwater.client.wire import Request, Response, Route

UNAUTHORIZED = 401
NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.LocalProtocolError,
)
OWN = (httpx2.PoolTimeout, httpx2.LocalProtocolError)
"""What is wrong here, and would be with every server."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A response whose body is still to be read, and the request's way."""

    http: httpx2.Response
    aim: Aim
    route: Route

    def response(self, body: bytes = b"") -> Response:
        return Response(self.http.status_code, plain_headers(self.http.headers), body, self.route)


def failed(request: Request, error: httpx2.HTTPError, route: Route) -> TransportFailed:
    """An error of httpx2 as ours; `sent` unless it is certain that the request was not."""
    if isinstance(error, httpx2.UnsupportedProtocol):
        raise ValueError(f"{route.url} cannot be reached: {error}") from error
    reason = str(error).rstrip(".") or type(error).__name__
    sent = not isinstance(error, NOT_SENT)
    all_failed = f"; all {route.failed} URLs failed" if route.failed else ""
    message = f"{request.method} {route.url} got no answer: {reason}{all_failed}."
    return TransportFailed(message, sent=sent, others=route.others)


def broken(error: httpx2.HTTPError, route: Route) -> TransportFailed:
    """The error for a response that broke off."""
    return TransportFailed(f"The connection broke during the response of {route.url}: {error!r}.", sent=True)


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
