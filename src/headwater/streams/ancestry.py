"""Where a fork comes from: what its client asked for, and the range of its source that it begins with."""

import msgspec

from headwater.protocol.lifetimes import Lifetime


class Origin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a fork's inherited bytes are: a range of one incarnation of its source, held by a pin."""

    name: str
    incarnation: int
    start: int
    to: int
    record_start: int
    record_to: int
    pin: str
    depth: int
    blob: str | None = None
    """The source's snapshot when it was pinned; the fork begins with it."""


class Ancestry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fork as the client requested it, kept to compare a second PUT with; None means inherited."""

    source: str
    offset: int | None
    sub_offset: int
    content_type: str | None
    lifetime: Lifetime | None
