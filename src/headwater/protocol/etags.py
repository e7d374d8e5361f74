"""Entity tags: one life of one stream, the range that was read, and whether it ended there."""

import re

from headwater.protocol import incarnations

_ETAG = re.compile(r'(?:W/)?"([^"]*)"')


def render(journal: str, incarnation: int, start: int, end: int, closed: bool) -> str:
    """The tag of a response; after a delete and a re-creation it is another one.

    >>> render("j", 7, 0, 42, True)
    '"j-7:0:42:c"'
    """
    return f'"{incarnations.render(journal, incarnation)}:{start}:{end}{":c" if closed else ""}"'


def matches(if_none_match: str, etag: str) -> bool:
    """Whether `If-None-Match` names this tag: in a list, weakly, or by `*`.

    >>> matches('W/"a", "b"', '"b"'), matches('*', '"b"'), matches('"c"', '"b"')
    (True, True, False)
    """
    return if_none_match.strip() == "*" or etag[1:-1] in _ETAG.findall(if_none_match)
