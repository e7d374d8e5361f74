"""The settings of a client."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from headwater.client.retrying import RetryPolicy

Text = Callable[[], str]
AsyncText = Callable[[], Awaitable[str]]
RequestValue = str | Text
"""A header or parameter; a function is called for each request, so that a token can be renewed."""
AsyncRequestValue = RequestValue | AsyncText

CONNECTIONS_MAX = 1_000
"""Every live reader holds a connection."""
KEPT_CONNECTIONS_MAX = 100
FOLLOW_RETRY = RetryPolicy(attempts_max=30, connect_attempts_max=30)
"""Followers and producers outlast a restart of the server: about four minutes."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a client behaves; `wait_timeout_seconds` is for responses that a server delays on purpose."""

    base_url: str
    headers: Mapping[str, AsyncRequestValue] = field(default_factory=dict, repr=False)
    params: Mapping[str, AsyncRequestValue] = field(default_factory=dict, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    follow_retry: RetryPolicy = FOLLOW_RETRY
    timeout_seconds: float = 30.0
    wait_timeout_seconds: float = 75.0

    def url_of(self, path: str) -> str:
        """The URL of a path below the base URL; a complete URL is left unchanged.

        >>> ClientSettings("http://h/v1/stream/").url_of("a b/ü")
        'http://h/v1/stream/a%20b/%C3%BC'
        """
        if path.startswith(("http://", "https://")):
            return path
        return f"{self.base_url.rstrip('/')}/{quote(_checked(path).lstrip('/'), safe=SAFE)}"


SAFE = "/!$&'()*+,;=:@~"
"""Characters that are not quoted in a path."""


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(_checked(name), safe=SAFE[1:])


def _checked(path: str) -> str:
    """The path, unless it has dot segments: HTTP resolves them, so a name such as `../x` would leave the base URL."""
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise ValueError(f"{path!r} is not a valid name: no part between slashes may be '.' or '..'.")
    return path
