"""Queries: everything that looks at a stream and changes nothing (but for renewing a sliding lifetime)."""

import msgspec

from headwater.protocol.commands import Ancestry
from headwater.protocol.offsets import NOW


class Head(msgspec.Struct, frozen=True, gc=False):
    """What a stream is; does not renew its lifetime."""

    name: str
    incarnation: int | None = None


class Read(msgspec.Struct, frozen=True, gc=False):
    """The bytes from `offset` on, a page of them; `NOW` is the tail."""

    name: str
    offset: int = 0
    incarnation: int | None = None
    bytes_max: int | None = None
    """What the client wants at the most; the server's own limit holds too."""

    @property
    def from_now(self) -> bool:
        return self.offset == NOW


class Target(msgspec.Struct, frozen=True, gc=False):
    """Whether a fork may be made under this name, or what stands there already."""

    name: str
    closed: bool
    ancestry: Ancestry
    incarnation: int | None = None


class Anchor(msgspec.Struct, frozen=True, gc=False):
    """The byte position of a fork point: `sub_offset` messages (JSON) or bytes past an offset."""

    name: str
    offset: int
    sub_offset: int


Query = Head | Read | Target | Anchor
