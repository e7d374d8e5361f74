"""Which of a client's URLs a request is sent to, without any I/O.

    stick    requests go to the same URL as long as it answers, over connections that are kept open
    avoid    a URL that failed is left alone for a while, which doubles with each failure in a row
    move     meanwhile requests go to the next URL of the list; they stay there when the first one works again
    insist   if all URLs are avoided, the one whose time is up first is tried

A URL fails if no connection is made, if it breaks or times out before the response is complete, or if the answer is
502, 503 or 504: this node, or what is behind the proxy there, cannot serve now, and another one may. Whether a request
may be repeated is decided elsewhere (`retrying`).

Threads share this without a lock: the worst that a lost update costs is one more attempt.
"""

from dataclasses import dataclass
from math import inf

from headwater.client.urls import origin, site
from headwater.client.wire import Route

AVOID_SECONDS_FIRST = 1.0
"""How long a URL is avoided after it failed once: longer than the other requests that fail at the same moment take."""
AVOID_SECONDS_MAX = 30.0
"""How long at most; a node that restarts is back in use that soon after its cluster needs it."""
FAILED_STATUSES = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Aim:
    """The URL that a request is sent to, and when."""

    url: str
    began_at: float
    node: int | None = None
    """The number of the client's URL; None if there is no choice."""


@dataclass(slots=True)
class _Node:
    site: str
    failures: int = 0
    failed_at: float = -inf
    avoided_until: float = -inf


class Nodes:
    """The URLs of a client, which have one path, and how they fared."""

    def __init__(self, root_urls: tuple[str, ...]) -> None:
        self._nodes = [_Node(site(url)) for url in root_urls]
        self._path = root_urls[0].removeprefix(self._nodes[0].site)
        self._current = 0

    def aim(self, url: str, now: float) -> Aim:
        """Aim a request at a node; a URL elsewhere, or that of a single server, stays as it is.

        >>> nodes = Nodes(("http://a", "http://b"))
        >>> nodes.failed(nodes.aim("http://a/x", 0.0), 0.0).others
        1
        >>> nodes.aim("http://a/x", 0.5).url, nodes.aim("http://elsewhere/x", 0.5).url
        ('http://b/x', 'http://elsewhere/x')
        """
        home = self._nodes[0].site
        rest = url.removeprefix(home)
        if len(self._nodes) == 1 or rest == url or not _is_below(rest, self._path):
            return Aim(url, now)
        self._current = self._next(now)
        return Aim(self._nodes[self._current].site + rest, now, self._current)

    def home_of(self, url: str) -> str:
        """The URL on the first node for one on any node, such as a server gives in `Location`."""
        here = site(url)
        rest = url.removeprefix(here)
        ours = any(origin(here) == origin(node.site) for node in self._nodes)
        return self._nodes[0].site + rest if ours and len(self._nodes) > 1 and _is_below(rest, self._path) else url

    def _next(self, now: float) -> int:
        count = len(self._nodes)
        ring = [(self._current + step) % count for step in range(count)]
        good = (at for at in ring if self._nodes[at].avoided_until <= now)
        return next(good, min(ring, key=lambda at: self._nodes[at].avoided_until))

    def answered(self, aim: Aim, status: int, now: float) -> Route:
        """Record an answer."""
        if aim.node is None:
            return Route(aim.url)
        if status in FAILED_STATUSES:
            return self.failed(aim, now)
        node = self._nodes[aim.node]
        # An answer to an old request does not say that the node works again.
        if aim.began_at >= node.failed_at:
            node.failures, node.avoided_until = 0, -inf
        return Route(aim.url)

    def failed(self, aim: Aim, now: float) -> Route:
        """Record a failure; requests that fail together count once."""
        if aim.node is None:
            return Route(aim.url)
        node = self._nodes[aim.node]
        if aim.began_at >= node.failed_at:
            avoid_seconds = min(AVOID_SECONDS_MAX, AVOID_SECONDS_FIRST * 2 ** min(node.failures, 16))
            node.failures += 1
            node.failed_at, node.avoided_until = now, now + avoid_seconds
        count = len(self._nodes)
        return Route(aim.url, count - 1, count if all(one.failures for one in self._nodes) else 0)


def _is_below(rest: str, path: str) -> bool:
    """Whether what follows the host in a URL is below a path.

    >>> [_is_below(rest, "/ds") for rest in ("/ds/x", "/ds", "/ds?a=1", "/dsx", ".evil/ds")]
    [True, True, True, False, False]
    """
    return rest.startswith(path) and rest[len(path) : len(path) + 1] in ("", "/", "?")
