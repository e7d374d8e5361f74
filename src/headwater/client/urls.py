"""The URLs of a client: one of a server, or several of the nodes of one cluster, any of which answers any request."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from headwater.protocol.headers import AUTHORIZATION

V = TypeVar("V")

ServerUrls: TypeAlias = str | Sequence[str]
"""One URL, or several as a sequence or as text with commas between them."""

FLAT = "/v1/stream"
"""The path of all streams on a server of the protocol."""
URLS_MAX = 64
"""More than any cluster has nodes."""
_NEXT_URL = re.compile(r"\s*,\s*(?=https?://)", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}


def split_urls(urls: ServerUrls) -> list[str]:
    """The URLs one by one; a comma inside a path does not end a URL.

    >>> split_urls("http://a:1, http://b:1"), split_urls("http://a/x,y"), split_urls(["http://a"])
    (['http://a:1', 'http://b:1'], ['http://a/x,y'], ['http://a'])
    """
    return _NEXT_URL.split(urls) if isinstance(urls, str) else list(urls)


def join_urls(urls: Sequence[str]) -> str:
    """Several URLs as one text, which `split_urls` takes apart."""
    return ",".join(urls)


def checked_urls(urls: ServerUrls, headers: Mapping[str, V]) -> tuple[tuple[str, ...], dict[str, V | str]]:
    """The URLs of one cluster without passwords, and the headers with them; ValueError if they cannot be that.

    >>> checked_urls(["http://h:1", "http://ada:secret@h:2/"], {})
    (('http://h:1', 'http://h:2/'), {'Authorization': 'Basic YWRhOnNlY3JldA=='})
    """
    found = split_urls(urls)
    if not 1 <= len(found) <= URLS_MAX:
        raise ValueError(f"A client takes from 1 to {URLS_MAX} URLs, not {len(found)}.")
    bare: list[str] = []
    moved: dict[str, str] = {}
    for url in found:
        without, credentials = move_credentials(url, {})
        bare.append(without)
        if credentials and moved and credentials != moved:
            raise ValueError("The URLs contain different passwords; the nodes of one cluster have the same.")
        moved |= credentials
    if problem := problem_of_urls(bare):
        raise ValueError(f"{problem}.")
    if AUTHORIZATION.lower in map(str.lower, headers):
        moved = {}
    return tuple(bare), {**moved, **headers}


def problem_of_urls(urls: Sequence[str]) -> str | None:
    """Why URLs, without passwords, cannot be those of the nodes of one cluster; None if they can.

    >>> problem_of_urls(["http://a", "http://b/ds"])
    'http://a and http://b/ds have different paths; the nodes of one cluster have the same'
    """
    first = urls[0]
    for at, url in enumerate(urls):
        if problem := problem_of_url(url):
            return problem
        if origin(url) in map(origin, urls[:at]):
            return f"{url} is given twice; name each node once"
        # A token that is meant for https must not get lost over http.
        if origin(url)[0] != origin(first)[0]:
            return f"{first} and {url} have different schemes; use https for all nodes, or http"
        if streams_path(url) != streams_path(first):
            # A redirect, or the source of a fork, is a path that must mean the same on every node.
            return f"{first} and {url} have different paths; the nodes of one cluster have the same"
    return None


def problem_of_url(url: str) -> str | None:
    """Why a URL, without a password, cannot be that of a server; None if it can.

    >>> problem_of_url("http://h:1/ds"), problem_of_url("h:1")
    (None, "'h:1' is not the URL of a server; write it like http://host:4437")
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "," not in parts.netloc
    except ValueError:
        valid = False
    if not valid:
        return f"{url!r} is not the URL of a server; write it like http://host:4437"
    if "?" in url or "#" in url:
        return f"{url!r} has a query or a fragment, which the URL of a server cannot have"
    return None


def streams_path(url: str) -> str:
    """The path of the streams on the server at a URL.

    >>> [streams_path(url) for url in ("http://h/", "http://h/v1/stream/", "http://h/ds")]
    ['/v1/stream', '/v1/stream', '/ds']
    """
    return urlsplit(url).path.rstrip("/") or FLAT


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


@lru_cache(maxsize=256)
def origin(url: str) -> tuple[str, str | None, int | None]:
    """The scheme, host and port of a URL.

    >>> origin("HTTPS://Host/x")
    ('https', 'host', 443)
    """
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def site(url: str) -> str:
    """A URL up to its path.

    >>> site("http://h:1/ds/x?offset=1")
    'http://h:1'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
