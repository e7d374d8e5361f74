"""The result of checking a credential: an `Identity`, or `Denied` with the reason."""

from enum import StrEnum
from math import inf
from typing import NamedTuple

import msgspec

from headwater.access.grants import Action


class Moment(NamedTuple):
    """One instant on two clocks: the wall clock, which credentials use, and the monotonic one, which cannot be set."""

    wall_seconds: float
    monotonic_seconds: float

    def monotonic_at(self, wall_seconds: float | None) -> float:
        """Return the monotonic time of a wall time, as the clocks stand now; infinity for None."""
        return inf if wall_seconds is None else self.monotonic_seconds + (wall_seconds - self.wall_seconds)


class Kind(StrEnum):
    """How an identity was proved."""

    ANONYMOUS = "anonymous"
    TOKEN = "token"
    TICKET = "ticket"
    PROVIDER = "provider"
    CERTIFICATE = "certificate"


class Identity(msgspec.Struct, eq=False, kw_only=True, weakref=True):
    """A client that was identified, and what it may do.

    `exact` and `prefixes` are those of `grants.Rights`. `expires_at` is monotonic, so a stepped clock moves nothing.
    """

    name: str
    """For people: the id of a token, the subject of a ticket, the name in a certificate."""
    kind: Kind
    principal: str
    """Unique among all identities; what limits and usage are counted by."""
    entry: str
    """The entry of the access file that vouches for it: the id of a token or key, the URL of an issuer, a SAN."""
    exact: tuple[frozenset[str], ...]
    prefixes: tuple[tuple[str, ...], ...]
    expires_at: float = inf
    limits: str | None = None
    subject: str | None = None
    ticket_id: str | None = None
    issued_at: float | None = None
    """`sub`, `jti` and `iat` of a ticket or provider token: what a revocation names."""
    left_out: tuple[str, ...] = ()
    """Grants of an issuer's rules whose placeholders could not be filled, for the audit log."""

    def may(self, action: Action, name: str) -> bool:
        """Whether the action is allowed on this name."""
        return name in self.exact[action] or name.startswith(self.prefixes[action])

    def may_all_below(self, action: Action, prefix: str) -> bool:
        """Whether the action is allowed on every name that begins with the prefix, as a listing needs it."""
        return prefix.startswith(self.prefixes[action])

    def may_some(self, action: Action) -> bool:
        """Whether the action is allowed on anything."""
        return bool(self.prefixes[action] or self.exact[action])


class Reason(StrEnum):
    """Why a credential gives no identity; also the label of the metric."""

    MISSING = "missing"
    INVALID = "invalid"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNAVAILABLE = "unavailable"
    """The keys of the issuer are not known at the moment; the same request may succeed later."""


class Denied(NamedTuple):
    """No identity. The detail is for the operator's log, not for the client, and never has a part of the credential."""

    reason: Reason
    detail: str
    verified: bool = False
    """Whether a signature was checked and found wrong: the failure that costs the server something."""
