"""Authentication and authorization: identify the client and check that it may perform the route's action on the target.

A request is judged once, before any state is read: by its credential, its route's action and the canonical name of its
target. So the answer does not reveal whether a stream exists. A request that names streams in its query or body passes
here with any grant for the action, and its handler judges each name.
"""

import time
from ipaddress import ip_address, ip_network
from typing import Protocol

import msgspec

from headwater.access.allowances import Account, Allowances
from headwater.access.grants import Action, compile_rights, parse_grant
from headwater.access.identifying import Policy, make_identity
from headwater.access.identities import Denied, Identity, Kind, Moment, Reason
from headwater.access.tokens import PREFIX
from headwater.http.guard.proxies import Proxies
from headwater.http.wire.browsers import Origins
from headwater.http.wire.requests import ACCESS_TOKEN, Request, cut_access_token
from headwater.protocol import headers
from headwater.protocol.refusals import Code, Refusal

EVERYBODY = make_identity(Kind.ANONYMOUS, "everybody", compile_rights([parse_grant("* *")]))
"""The identity of every client of a server without authentication; it may do everything."""

KNOWN_MAX = 16_384
"""How many credentials are known at a time; their identities take about 12 MB."""
KNOWN_SECONDS = 300.0
"""After this time, signatures are verified again: the keys of an issuer may have changed."""
FAILURES_PER_SECOND = 20
"""Wrong signatures from one address; further ones are not verified before a second has passed."""
ADDRESSES_MAX = 10_000

_AUTHORIZATION, _ORIGIN, _PRODUCER_ID = headers.AUTHORIZATION.key, headers.ORIGIN.key, headers.PRODUCER_ID.key
_BEARER = b"bearer "
_JWT_BEGIN = b"ey"
_READING = frozenset({b"GET", b"HEAD"})

_CHALLENGE = 'Bearer realm="headwater"'
_INVALID = f'{_CHALLENGE}, error="invalid_token"'
_MISSING_TOKEN = Refusal(
    Code.UNAUTHORIZED,
    "This needs a credential; send one in the header Authorization: Bearer.",
    challenge=_CHALLENGE,
)
_INVALID_TOKEN = Refusal(
    Code.UNAUTHORIZED,
    "The credential is not valid here; check that it is whole and for this server.",
    challenge=_INVALID,
)
_EXPIRED_TOKEN = Refusal(
    Code.TOKEN_EXPIRED,
    "The credential has expired; get a new one.",
    challenge=f'{_INVALID}, error_description="expired"',
)
_UNAVAILABLE = Refusal(
    Code.AUTH_UNAVAILABLE, "The keys of the token's issuer are not known yet; try again in 5 seconds."
)
_TOO_MANY_FAILURES = Refusal(Code.RATE_LIMITED, "Too many credentials of this address were not valid; wait a second.")
_TWICE = Refusal(Code.BAD_REQUEST, "There is a credential in the header and in access_token; send only one.")
_TOKEN_IN_URL = Refusal(
    Code.UNAUTHORIZED,
    "Access-file tokens are not accepted in URLs, because URLs are logged; sign a ticket instead.",
    challenge=_INVALID,
)
_NOT_A_TICKET = Refusal(
    Code.UNAUTHORIZED,
    "access_token is not a ticket, which is a JWT, three parts with dots between them; check that the page got one.",
    challenge=_INVALID,
)
_OF_REASON = {
    Reason.MISSING: _MISSING_TOKEN,
    Reason.INVALID: _INVALID_TOKEN,
    Reason.REVOKED: _INVALID_TOKEN,
    Reason.EXPIRED: _EXPIRED_TOKEN,
    Reason.UNAVAILABLE: _UNAVAILABLE,
}


class Known(msgspec.Struct, eq=False):
    """A credential that was good: whose it is, and the account to charge."""

    identity: Identity
    by: int
    """How often the rules had changed when it was good; it means nothing by others."""
    until: float
    """When it is verified again."""
    account: Account | None = None


class Caller(Protocol):
    """A connection, as far as it tells who the client is."""

    @property
    def address(self) -> str:
        """The client's IP address, or the proxy's."""

    @property
    def certificate_names(self) -> tuple[tuple[str, str], ...]:
        """The alternative names of the client's verified certificate."""

    @property
    def client_until(self) -> float:
        """When that certificate ends, in seconds since 1970."""


class Gate(Protocol):
    """Decides about every request."""

    changes: int
    """How often the rules have changed."""

    def admit(self, request: Request, action: Action, name: str | None, caller: Caller) -> Identity | Refusal:
        """Whose request it is, unless it is refused; the name is None if the handler judges the names."""

    def renew(self, request: Request, name: str | None, caller: Caller) -> Identity | Refusal:
        """Whose live read it is by the rules of now, unless that one may not read any more."""

    def forbid(self, request: Request, identity: Identity, action: Action, name: str | None) -> Refusal:
        """The refusal of what an identity may not do."""

    def is_public(self, name: str) -> bool:
        """Whether anonymous clients may read a stream, so that shared caches may store it."""


class OpenGate:
    """Allows everything, except to pages from other machines in local mode."""

    changes = 0

    def __init__(self, origins: Origins) -> None:
        self._origins = origins

    def admit(self, request: Request, action: Action, name: str | None, caller: Caller) -> Identity | Refusal:
        if _ORIGIN not in request.headers:
            return EVERYBODY
        return self._origins.refuse(request) or EVERYBODY

    def renew(self, request: Request, name: str | None, caller: Caller) -> Identity | Refusal:
        return EVERYBODY

    def forbid(self, request: Request, identity: Identity, action: Action, name: str | None) -> Refusal:
        raise AssertionError("every client may do everything")

    def is_public(self, name: str) -> bool:
        return True


class Guard:
    """Judges by the access file."""

    def __init__(self, policy: Policy, proxies: str = "", processes: int = 1, known_max: int = KNOWN_MAX) -> None:
        self.policy = policy
        self.changes = 0
        self.denied: dict[str, int] = dict.fromkeys([*Reason, "forbidden"], 0)
        """How many requests were denied, by reason."""
        self.reload_failures = 0
        """How often new rules were bad, so that the old ones stayed."""
        self.allowances = Allowances(time.monotonic, processes=processes)
        self.limited = 0
        """How many requests were refused because of a limit."""
        self._loads = self._adopted = 0
        self.known: dict[bytes, Known] = {}
        """Credentials that were good, by the header that they came in. They are forgotten one by one: to free all of
        them takes as long as hundreds of requests."""
        self._known_max = known_max
        self._failures: dict[str, tuple[float, int]] = {}
        self._proxies = Proxies(proxies)

    def begin_loading(self) -> int:
        """The number of a load of the rules that begins now, to adopt them with."""
        self._loads += 1
        return self._loads

    def adopt(self, policy: Policy, number: int) -> None:
        """Judge by new rules from now on, live reads included.

        If a load that began later has been adopted, nothing changes: this one may have read an older file.
        """
        if number >= self._adopted:
            self._adopted, self.policy = number, policy
            self.changes += 1

    def is_public(self, name: str) -> bool:
        anonymous = self.policy.anonymous
        return anonymous.may_some(Action.READ) and anonymous.may(Action.READ, name)

    def admit(self, request: Request, action: Action, name: str | None, caller: Caller) -> Identity | Refusal:
        now = time.monotonic()
        credential = request.headers.get(_AUTHORIZATION)
        known = None if credential is None or ACCESS_TOKEN in request.query else self.known.get(credential)
        if known is None or known.by != self.changes or now >= known.until:
            found = self._identify(request, credential, caller, now)
            if isinstance(found, Refusal):
                return found
            identity = found
        else:
            identity = known.identity
        if now >= identity.expires_at:
            self.denied[Reason.EXPIRED] += 1
            return _EXPIRED_TOKEN
        if identity.may_some(action) if name is None else identity.may(action, name):
            return identity
        return self.forbid(request, identity, action, name)

    def renew(self, request: Request, name: str | None, caller: Caller) -> Identity | Refusal:
        # Its credential was good, so wrong ones of the same address do not matter.
        found = self._identify(request, request.headers.get(_AUTHORIZATION), caller, time.monotonic(), throttled=False)
        if isinstance(found, Refusal) or (
            found.may_some(Action.READ) if name is None else found.may(Action.READ, name)
        ):
            return found
        return self.forbid(request, found, Action.READ, name)

    def forbid(self, request: Request, identity: Identity, action: Action, name: str | None) -> Refusal:
        if identity is self.policy.anonymous:
            self.denied[Reason.MISSING] += 1
            return _MISSING_TOKEN
        self.denied["forbidden"] += 1
        return forbidden(identity, action, name, by_producer=_PRODUCER_ID in request.headers)

    def account_of(self, request: Request, identity: Identity, caller: Caller) -> Account:
        """The account of a client: of its identity, or of its address if it has none."""
        limits = None if identity.limits is None else self.policy.limits[identity.limits]
        principal = identity.principal
        if identity is self.policy.anonymous:
            principal = f"anonymous {_network_of(self.address(request, caller))}"
        return self.allowances.of(principal, limits)

    def name_of(self, request: Request) -> str | None:
        """Who sends a request, if its credential was good."""
        known = self.known.get(request.headers.get(_AUTHORIZATION, b""))
        return None if known is None or known.by != self.changes else known.identity.name

    # -- Identifying ----------------------------------------------------------------------------------------------

    def _identify(
        self, request: Request, credential: bytes | None, caller: Caller, now: float, *, throttled: bool = True
    ) -> Identity | Refusal:
        """Find out who sends a request whose credential may not be known."""
        _, ticket = cut_access_token(request.query)
        if ticket is not None and credential is not None:
            return _TWICE
        if credential is not None:
            if credential[: len(_BEARER)].lower() != _BEARER:
                return self._deny(Denied(Reason.INVALID, "The credential is not a bearer token."))
            token = credential[len(_BEARER) :].strip()
            # With blanks around it, one token would have thousands of spellings, each as long as a header may be.
            spelled = credential if len(credential) == len(_BEARER) + len(token) else _BEARER + token
            return self._check_once(spelled, token, request, caller, now, throttled=throttled)
        if ticket is not None and request.method in _READING:
            if not ticket.startswith(_JWT_BEGIN):
                return _TOKEN_IN_URL if ticket.startswith(PREFIX) else _NOT_A_TICKET
            return self._check_once(_BEARER + ticket, ticket, request, caller, now, throttled=throttled)
        if caller.certificate_names:
            found_by_name = self.policy.identify_certificate(caller.certificate_names)
            if isinstance(found_by_name, Identity):
                ends = Moment(time.time(), now).monotonic_at(caller.client_until)
                return msgspec.structs.replace(found_by_name, expires_at=ends)
        return self.policy.anonymous

    def _check_once(
        self, spelled: bytes, token: bytes, request: Request, caller: Caller, now: float, *, throttled: bool
    ) -> Identity | Refusal:
        """Check a credential, unless it is known by how it is spelled as a header; one that has ended may be known."""
        known = self.known.get(spelled)
        if known is not None and known.by == self.changes and not known.until <= now < known.identity.expires_at:
            return known.identity
        # That its signature was good once is reason enough to verify it: wrong ones of the same address do not matter.
        found = self._check(token, request, caller, now, throttled=throttled and known is None)
        if known is not None:
            del self.known[spelled]
        if isinstance(found, Identity):
            if len(self.known) >= self._known_max:
                del self.known[next(iter(self.known))]
            self.known[spelled] = Known(found, self.changes, min(found.expires_at, now + KNOWN_SECONDS))
        return found

    def _check(
        self, token: bytes, request: Request, caller: Caller, now: float, *, throttled: bool
    ) -> Identity | Refusal:
        moment = Moment(time.time(), now)
        if not token.startswith(_JWT_BEGIN):
            found = self.policy.identify_token(token, moment)
        else:
            address = _network_of(self.address(request, caller))
            if throttled and self._fails_too_often(address, now):
                return _TOO_MANY_FAILURES
            found = self.policy.identify_jwt(token, moment)
            if isinstance(found, Denied) and found.verified:
                self._count_failure(address, now)
        return found if isinstance(found, Identity) else self._deny(found)

    def _deny(self, denied: Denied) -> Refusal:
        self.denied[denied.reason] += 1
        return _OF_REASON[denied.reason]

    # -- Addresses ------------------------------------------------------------------------------------------------

    def address(self, request: Request, caller: Caller) -> str:
        """The client's address, which a proxy of ours may have passed on."""
        return self._proxies.client_of(request, caller.address)

    def _fails_too_often(self, address: str, now: float) -> bool:
        since, count = self._failures.get(address, (now, 0))
        return count >= FAILURES_PER_SECOND and now - since < 1.0

    def _count_failure(self, address: str, now: float) -> None:
        since, count = self._failures.pop(address, (now, 0))
        if now - since >= 1.0:
            since, count = now, 0
        elif len(self._failures) >= ADDRESSES_MAX:
            self._failures.pop(next(iter(self._failures)))
        self._failures[address] = since, count + 1


def _network_of(address: str) -> str:
    """What one client may have of addresses: one of IPv4, and of IPv6 a whole /64.

    >>> _network_of("192.0.2.7"), _network_of("::ffff:192.0.2.7"), _network_of("2001:db8:1:2:3::4"), _network_of("?")
    ('192.0.2.7', '192.0.2.7', '2001:db8:1:2::/64', '?')
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    # On a listener for both, a client with IPv4 has such an address; all of them are in one /64.
    return str(parsed.ipv4_mapped or ip_network(f"{address}/64", strict=False))


def forbidden(identity: Identity, action: Action, name: str | None, *, by_producer: bool = False) -> Refusal:
    """The refusal of an action, by name alone.

    Clients that write with producer headers take 403 for a stale epoch, and may claim the next one for ever.
    """
    what = f"{action.word} any stream" if name is None else f"{action.word} {name[:256]!r}"
    return Refusal(
        Code.PRODUCER_FORBIDDEN if by_producer else Code.FORBIDDEN,
        f"{identity.name[:64]!r} may not {what}.",
        challenge=f'{_CHALLENGE}, error="insufficient_scope"',
    )
