"""Identification: turn a credential into an identity, by tables that were validated when the policy was loaded."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from headwater.access import jws, tokens
from headwater.access.claims import Value, check_claims, holds
from headwater.access.document import Stamp
from headwater.access.grants import (
    GRANTS_MAX,
    NO_RIGHTS,
    Grant,
    GrantError,
    Rights,
    Template,
    compile_rights,
    narrow,
    parse_grant,
)
from headwater.access.identities import Denied, Identity, Kind, Moment, Reason
from headwater.access.jwks import FetchedKeys, Keyring, KeysUnavailable
from headwater.access.jws import HS256, Claims, HmacKey, Jws
from headwater.access.limits import Limits, Quota
from headwater.access.tickets import GRANTS_CLAIM

_JWT_BEGIN = b"ey"
"""How a JSON object with a member begins in base64url."""


class FileToken(NamedTuple):
    """A token of the file: its identity, and when it ends."""

    identity: Identity
    expires_wall_seconds: float | None


class TicketKey(NamedTuple):
    """A key that signs tickets, and the most that a ticket can give."""

    id: str
    key: HmacKey
    grants: tuple[Grant, ...]
    audiences: frozenset[str]
    seconds_max: int
    limits: str | None


class Rule(NamedTuple):
    """Grants for every client whose claims meet a condition."""

    when: Mapping[str, Value]
    templates: tuple[Template, ...]


class Issuer(NamedTuple):
    """An identity provider."""

    url: str
    audiences: frozenset[str]
    algorithms: frozenset[str]
    keys: Keyring
    claim: str | None
    rules: tuple[Rule, ...]
    limits: str | None


class RevokedSubject(NamedTuple):
    """Revokes what one entry of the file, or any entry if None, issued to a subject before a time."""

    before_wall_seconds: float
    kind: Kind | None
    entry: str | None


class Revocations(NamedTuple):
    """Tickets and provider tokens that are revoked before they expire."""

    ids: frozenset[str]
    subjects: Mapping[str, Sequence[RevokedSubject]]

    def name(self, kind: Kind, entry: str, claims: Claims) -> bool:
        """Whether a ticket or provider token is revoked; one without `iat` counts as issued before."""
        if claims.get("jti") in self.ids:
            return True
        issued_at = claims.get("iat")
        return any(
            revoked.kind in (None, kind)
            and revoked.entry in (None, entry)
            and (issued_at is None or issued_at < revoked.before_wall_seconds)
            for revoked in self.subjects.get(claims.get("sub", ""), ())
        )


class Policy(NamedTuple):
    """The access file, compiled. All methods are safe in any thread, and none waits."""

    path: Path
    files: Mapping[Path, Stamp | None]
    """Everything that it was read from, as it looked before: if one of them differs, it must be loaded again."""
    anonymous: Identity
    anonymous_grants: tuple[Grant, ...]
    tokens: Mapping[bytes, FileToken]
    keys: Mapping[str, TicketKey]
    issuers: Mapping[str, Issuer]
    certificates: Mapping[str, Identity]
    revocations: Revocations
    limits: Mapping[str, Limits]
    buckets: Mapping[str, Quota]

    def identify_bearer(self, credential: bytes, now: Moment) -> Identity | Denied:
        """Return the identity behind `Authorization: Bearer {credential}`."""
        is_jwt = credential.startswith(_JWT_BEGIN)
        return self.identify_jwt(credential, now) if is_jwt else self.identify_token(credential, now)

    def identify_token(self, token: bytes, now: Moment) -> Identity | Denied:
        """Return the identity behind a token of the file."""
        found = self.tokens.get(tokens.digest(token))
        if found is None:
            return Denied(Reason.INVALID, "It is not a token of the access file.")
        ends = found.expires_wall_seconds
        if ends is None:
            return found.identity
        if now.wall_seconds >= ends:
            return Denied(Reason.EXPIRED, f"Token {found.identity.name!r} has expired.")
        return msgspec.structs.replace(found.identity, expires_at=now.monotonic_at(ends))

    def identify_jwt(self, token: bytes, now: Moment) -> Identity | Denied:
        """Return the identity behind a ticket (HS256) or a provider's token (any other algorithm)."""
        found = jws.parse(token)
        if found is None:
            return Denied(Reason.INVALID, "It is not a signed token that this server accepts.")
        return self._identify_ticket(found, now) if found.algorithm == HS256 else self._identify_provided(found, now)

    def identify_certificate(self, names: Iterable[tuple[str, str]]) -> Identity | Denied:
        """Identify a client by the names of its verified certificate, given as `ssl` gives `subjectAltName`.

        URI names come first; DNS names count only if no URI name is in the file. A certificate that the file does not
        know counts as none. One that names two entries is an identity without any rights.
        """
        alternatives = list(names)
        for kind in ("URI", "DNS"):
            named = {name for one, name in alternatives if one == kind and (":" in name) == (kind == "URI")}
            entries = named & self.certificates.keys()
            if len(entries) > 1:
                return make_identity(Kind.CERTIFICATE, " and ".join(sorted(entries)), NO_RIGHTS)
            if entries:
                return self.certificates[entries.pop()]
        return Denied(Reason.MISSING, "No entry of the access file names this certificate.")

    def refresh(self, now: Moment) -> None:
        """Start to fetch keys that are due; to be called at the start and every few seconds."""
        for issuer in self.issuers.values():
            if isinstance(issuer.keys, FetchedKeys):
                issuer.keys.refresh(now.monotonic_seconds)

    def _identify_ticket(self, ticket: Jws, now: Moment) -> Identity | Denied:
        entry, claims = self.keys.get(ticket.key_id), ticket.claims
        if entry is None:
            return Denied(Reason.INVALID, "No key of the access file has the id that the ticket names.")
        problem = check_claims(claims, now, entry.audiences)
        if problem is not None:
            return problem
        if claims["exp"] - now.wall_seconds > entry.seconds_max:
            return Denied(Reason.INVALID, f"It is valid for longer than seconds_max of key {entry.id!r} allows.")
        if not jws.verify(ticket, entry.key):
            return Denied(Reason.INVALID, f"It was not signed with key {entry.id!r}.", verified=True)
        if self.revocations.name(Kind.TICKET, entry.id, claims):
            return Denied(Reason.REVOKED, f"A ticket of key {entry.id!r} was revoked.")
        granted = parse_grants(claims.get(GRANTS_CLAIM))
        if granted is None:
            return Denied(Reason.INVALID, f"Its claim {GRANTS_CLAIM!r} is not a list of grants.")
        grants = [*narrow(granted, entry.grants), *self.anonymous_grants]
        return _signed(Kind.TICKET, entry.id, grants, limits=entry.limits, claims=claims, now=now)

    def _identify_provided(self, token: Jws, now: Moment) -> Identity | Denied:
        claims = token.claims
        issuer = self.issuers.get(claims["iss"]) if isinstance(claims.get("iss"), str) else None
        if issuer is None:
            return Denied(Reason.INVALID, "No issuer of the access file has issued it.")
        if token.algorithm not in issuer.algorithms:
            return Denied(Reason.INVALID, f"Issuer {issuer.url} may not sign with its algorithm.")
        problem = check_claims(claims, now, issuer.audiences)
        if problem is not None:
            return problem
        if "sub" not in claims:
            return Denied(Reason.INVALID, "It has no sub.")
        try:
            key = issuer.keys.find(token.key_id, now.monotonic_seconds)
        except KeysUnavailable:
            return Denied(Reason.UNAVAILABLE, f"The keys of issuer {issuer.url} are not known at the moment.")
        if key is None:
            return Denied(Reason.INVALID, f"Issuer {issuer.url} has no key with the id that it names.")
        if not jws.verify(token, key):
            return Denied(Reason.INVALID, f"It was not signed by issuer {issuer.url}.", verified=True)
        if self.revocations.name(Kind.PROVIDER, issuer.url, claims):
            return Denied(Reason.REVOKED, f"A token of issuer {issuer.url} was revoked.")
        return self._grant_provided(issuer, claims, now)

    def _grant_provided(self, issuer: Issuer, claims: Claims, now: Moment) -> Identity | Denied:
        """Apply the rules of an issuer to verified claims."""
        grants: list[Grant] = []
        left_out: list[str] = []
        for template in (one for rule in issuer.rules if holds(rule.when, claims) for one in rule.templates):
            filled = template.fill(claims)
            if filled is None:
                left_out.append(template.text)
            else:
                grants.append(filled)
        if issuer.claim is not None and issuer.claim in claims:
            wanted = parse_grants(claims[issuer.claim])
            if wanted is None:
                return Denied(Reason.INVALID, f"Its claim {issuer.claim!r} is not a list of grants.")
            grants = narrow(grants, wanted)
        grants += self.anonymous_grants
        found = _signed(Kind.PROVIDER, issuer.url, grants, limits=issuer.limits, claims=claims, now=now)
        found.left_out = tuple(left_out)
        return found


def parse_grants(claimed: object) -> list[Grant] | None:
    """Return the grants in a claim; None if it is anything but a list of grants."""
    if not isinstance(claimed, list) or len(claimed) > GRANTS_MAX:
        return None
    if not all(isinstance(text, str) for text in claimed):
        return None
    try:
        return [parse_grant(text) for text in claimed]
    except GrantError:
        return None


def _signed(
    kind: Kind, entry: str, grants: Iterable[Grant], *, limits: str | None, claims: Claims, now: Moment
) -> Identity:
    """Return the identity behind verified claims."""
    subject: str | None = claims.get("sub")
    found = make_identity(kind, entry, compile_rights(grants), limits=limits)
    if subject is not None:
        found.name = found.subject = subject
        found.principal += f" {subject}"  # Neither an id nor a URL has a space, so this is unambiguous.
    found.ticket_id, found.issued_at = claims.get("jti"), claims.get("iat")
    found.expires_at = now.monotonic_at(claims["exp"])
    return found


def make_identity(kind: Kind, entry: str, rights: Rights, *, limits: str | None = None) -> Identity:
    """Return an identity that is named after its entry and does not end."""
    return Identity(
        name=entry,
        kind=kind,
        principal=f"{kind.value} {entry}",
        entry=entry,
        exact=rights.exact,
        prefixes=rights.prefixes,
        limits=limits,
    )
