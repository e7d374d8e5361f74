"""The settings of a client."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from headwater.client.nodes import Nodes
from headwater.client.retrying import RetryPolicy
from headwater.client.urls import FLAT, ServerUrls, checked_urls, origin, site, streams_path
from headwater.protocol.headers import AUTHORIZATION

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
    """How a client behaves; `wait_timeout_seconds` is for responses that a server delays on purpose.

    A URL without a path is the root of a server: its streams are below `/v1/stream`, its buckets below the root.
    Several URLs are the nodes of one cluster; URLs are made with the first, the base URL, and a request is sent to any.
    A name and password become a header, so that no URL that is logged or part of an error contains them.
    """

    urls: ServerUrls
    headers: Mapping[str, AsyncRequestValue] = field(default_factory=dict, repr=False)
    params: Mapping[str, AsyncRequestValue] = field(default_factory=dict, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    follow_retry: RetryPolicy = FOLLOW_RETRY
    timeout_seconds: float = 30.0
    wait_timeout_seconds: float = 75.0
    token: AsyncRequestValue | None = field(default=None, repr=False)
    """Sent to the origins of the URLs only, also if a stream is named by a URL of another one."""

    def __post_init__(self) -> None:
        urls, headers = checked_urls(self.urls, self.headers)
        if self.token is not None:
            if AUTHORIZATION.lower in map(str.lower, headers):
                raise ValueError("A token is sent as the header Authorization; give one of the two, or a password.")
            if isinstance(self.token, str):
                bearer(self.token)
        object.__setattr__(self, "urls", urls)
        object.__setattr__(self, "headers", headers)

    @property
    def base_urls(self) -> tuple[str, ...]:
        return tuple(self.urls)

    @property
    def base_url(self) -> str:
        return self.urls[0]

    @property
    def streams_url(self) -> str:
        """The URL below which the streams are.

        >>> [ClientSettings(url).streams_url for url in ("http://h/", "http://h/v1/stream/", "http://h/ds")]
        ['http://h/v1/stream', 'http://h/v1/stream', 'http://h/ds']
        """
        return site(self.base_url) + streams_path(self.base_url)

    @property
    def root_url(self) -> str:
        """The URL below which the buckets are.

        >>> [ClientSettings(url).root_url for url in ("http://h/", "http://h/v1/stream/", "http://h/ds")]
        ['http://h', 'http://h', 'http://h/ds']
        """
        return self.root_urls[0]

    @property
    def root_urls(self) -> tuple[str, ...]:
        """The same on each node."""
        return tuple(site(url) + streams_path(url).removesuffix(FLAT) for url in self.base_urls)

    def stream_url(self, path: str) -> str:
        """The URL of the stream at a path; a complete URL is left unchanged, unless it is that of another node.

        >>> ClientSettings("http://h").stream_url("a b/ü"), ClientSettings(["http://a", "http://b"]).stream_url("http://b/x")
        ('http://h/v1/stream/a%20b/%C3%BC', 'http://a/x')
        """
        if path.startswith(("http://", "https://")):
            if "@" in urlsplit(path).netloc:
                raise ValueError(
                    "A stream's URL cannot contain a password; pass it to the client, in its URL or headers."
                )
            return Nodes(self.root_urls).home_of(path)
        return f"{self.streams_url}/{quote(_checked(path).lstrip('/'), safe=SAFE)}"

    def bucket_url(self, name: str) -> str:
        return f"{self.root_url}/{segment(name)}"

    def is_ours(self, url: str) -> bool:
        """Whether a URL has the origin of one of the client's, which the token is for.

        >>> settings = ClientSettings("http://h:80/ds")
        >>> [settings.is_ours(url) for url in ("http://H/x", "http://h.other/x", "https://h/x", "http://h:81/x")]
        [True, False, False, False]
        """
        return origin(url) in map(origin, self.base_urls)


def bearer(token: str) -> str:
    """The value of the header for a token, which white space may surround, as in a file.

    >>> bearer(" abc ")
    'Bearer abc'
    """
    bare = token.strip()
    if not bare or not bare.isascii() or not bare.isprintable() or " " in bare:
        # The token itself must not get into a log.
        raise ValueError("The token is empty or not one word of printable ASCII; give it alone, without 'Bearer'.")
    return f"Bearer {bare}"


SAFE = "/!$&'()*+,;=:@~"
"""Characters that are not quoted in a path."""


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(_checked(name), safe=SAFE[1:])


def quoted(name: str) -> str:
    """A name of any characters, slashes too, as one segment of a path."""
    if name in (".", ".."):
        raise ValueError(f"{name!r} is not a valid name: it means another place in a URL.")
    return quote(name, safe="")


def _checked(path: str) -> str:
    """The path, unless it has dot segments: HTTP resolves them, so a name such as `../x` would leave the base URL."""
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise ValueError(f"{path!r} is not a valid name: no part between slashes may be '.' or '..'.")
    return path
