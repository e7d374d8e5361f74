"""Entity tags: the stream's incarnation, the range that was read, and whether the stream ended there."""

import re

import msgspec

from headwater.protocol import incarnations

_OURS = re.compile(r"([^:]+):[0-9]{1,19}:([0-9]{1,19})(:c)?")
_ETAG = re.compile(r'(?:W/)?"([^"]*)"')
_STRONG = re.compile(r'(W/)?"([^"]*)"')


class Version(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stream as a client saw it: its incarnation, its length, and whether it was closed."""

    incarnation: int
    tail: int
    closed: bool


def render(log_id: str, incarnation: int, start: int, end: int, closed: bool) -> str:
    """The tag of a response; a stream that is deleted and created again gets different ones.

    >>> render("j", 7, 0, 42, True)
    '"j-7:0:42:c"'
    """
    return tag(incarnations.render(log_id, incarnation), start, end, closed)


def tag(incarnation: str, start: int, end: int, closed: bool) -> str:
    """As `render`, of an incarnation in its printed form."""
    return f'"{incarnation}:{start}:{end}{":c" if closed else ""}"'


def parse(log_id: str, if_match: str) -> tuple[Version, ...] | None:
    """The versions that `If-Match` accepts: None for any; weak tags and those of other servers match nothing.

    >>> parse("j", '"j-7:0:42:c", "other", W/"j-7:0:43"')
    (Version(incarnation=7, tail=42, closed=True),)
    """
    if if_match.strip() == "*":
        return None
    versions = []
    for weak, tag in _STRONG.findall(if_match):
        match = None if weak else _OURS.fullmatch(tag)
        if match is not None and (incarnation := incarnations.parse(log_id, match[1])) != incarnations.FOREIGN:
            versions.append(Version(incarnation, int(match[2]), match[3] is not None))
    return tuple(versions)


def matches(if_none_match: str, etag: str) -> bool:
    """Whether `If-None-Match` names this tag: in a list, as a weak tag, or by `*`.

    >>> matches('W/"a", "b"', '"b"'), matches('*', '"b"'), matches('"c"', '"b"')
    (True, True, False)
    """
    return if_none_match.strip() == "*" or etag[1:-1] in _ETAG.findall(if_none_match)
