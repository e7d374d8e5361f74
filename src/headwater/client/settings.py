"""The settings of a client."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headwater.client.retrying import RetryPolicy
from headwater.protocol.headers import AUTHORIZATION

V = TypeVar("V")
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


FLAT = "/v1/stream"
"""The path of all streams on a server of the protocol."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a client behaves; `wait_timeout_seconds` is for responses that a server delays on purpose.

    A base URL without a path is the root of a server: its streams are below `/v1/stream`, its buckets below the root. A
    name and password in it become a header, so that no URL that is logged or part of an error contains them.
    """

    base_url: str
    headers: Mapping[str, AsyncRequestValue] = field(default_factory=dict, repr=False)
    params: Mapping[str, AsyncRequestValue] = field(default_factory=dict, repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    follow_retry: RetryPolicy = FOLLOW_RETRY
    timeout_seconds: float = 30.0
    wait_timeout_seconds: float = 75.0
    token: AsyncRequestValue | None = field(default=None, repr=False)
    """Sent to the base URL's origin only, also if a stream is named by a URL of another one."""

    def __post_init__(self) -> None:
        url, headers = move_credentials(self.base_url, self.headers)
        if problem := problem_of_url(url):
            raise ValueError(f"{problem}.")
        if self.token is not None:
            if AUTHORIZATION.lower in map(str.lower, headers):
                raise ValueError("A token is sent as the header Authorization; give one of the two, or a password.")
            if isinstance(self.token, str):
                bearer(self.token)
        object.__setattr__(self, "base_url", url)
        object.__setattr__(self, "headers", headers)

    @property
    def streams_url(self) -> str:
        """The URL below which the streams are.

        >>> [ClientSettings(url).streams_url for url in ("http://h/", "http://h/v1/stream/", "http://h/ds")]
        ['http://h/v1/stream', 'http://h/v1/stream', 'http://h/ds']
        """
        url = self.base_url.rstrip("/")
        return url if urlsplit(url).path else url + FLAT

    @property
    def root_url(self) -> str:
        """The URL below which the buckets are.

        >>> [ClientSettings(url).root_url for url in ("http://h/", "http://h/v1/stream/", "http://h/ds")]
        ['http://h', 'http://h', 'http://h/ds']
        """
        return self.streams_url.removesuffix(FLAT)

    def stream_url(self, path: str) -> str:
        """The URL of the stream at a path; a complete URL is left unchanged.

        >>> ClientSettings("http://h").stream_url("a b/ü")
        'http://h/v1/stream/a%20b/%C3%BC'
        """
        if path.startswith(("http://", "https://")):
            if "@" in urlsplit(path).netloc:
                raise ValueError(
                    "A stream's URL cannot contain a password; pass it to the client, in its URL or headers."
                )
            return path
        return f"{self.streams_url}/{quote(_checked(path).lstrip('/'), safe=SAFE)}"

    def bucket_url(self, name: str) -> str:
        return f"{self.root_url}/{segment(name)}"

    def is_ours(self, url: str) -> bool:
        """Whether a URL has the origin of the base URL, which the token is for.

        >>> settings = ClientSettings("http://h:80/ds")
        >>> [settings.is_ours(url) for url in ("http://H/x", "http://h.other/x", "https://h/x", "http://h:81/x")]
        [True, False, False, False]
        """
        return origin(url) == origin(self.base_url)


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


@lru_cache(maxsize=256)
def origin(url: str) -> tuple[str, str | None, int | None]:
    """The scheme, host and port of a URL.

    >>> origin("HTTPS://Host/x")
    ('https', 'host', 443)
    """
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


_PORTS = {"http": 80, "https": 443}


def problem_of_url(url: str) -> str | None:
    """Why a URL, without a password, cannot be that of a server; None if it can.

    >>> problem_of_url("http://h:1/ds"), problem_of_url("h:1")
    (None, "'h:1' is not the URL of a server; write it like http://host:4437")
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        return f"{url!r} is not the URL of a server; write it like http://host:4437"
    if "?" in url or "#" in url:
        return f"{url!r} has a query or a fragment, which the URL of a server cannot have"
    return None


def move_credentials(url: str, headers: Mapping[str, V]) -> tuple[str, dict[str, V | str]]:
    """The URL without the name and password in it, and the headers with them, unless they have others.

    >>> move_credentials("http://ada:p%40ss@h:1/x", {})
    ('http://h:1/x', {'Authorization': 'Basic YWRhOnBAc3M='})
    """
    parts = urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, dict(headers)
    name, _, password = userinfo.partition(":")
    encoded = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    moved = {AUTHORIZATION.name: f"Basic {encoded}"} if AUTHORIZATION.lower not in map(str.lower, headers) else {}
    return urlunsplit(parts._replace(netloc=host)), {**moved, **headers}


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
