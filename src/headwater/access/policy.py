"""Load the access file: check everything in it, read the files that it names, and compile a `Policy`.

Reload it in a thread, because reading and comparing its entries takes time.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from headwater.access import tokens
from headwater.access.document import (
    CertificateTable,
    Document,
    IssuerTable,
    KeyTable,
    PolicyError,
    RevokedTable,
    RuleTable,
    Stamp,
    TokenTable,
    read_document,
    read_jwks_file,
    read_key_file,
    stamp_of,
)
from headwater.access.grants import GRANTS_MAX, Grant, GrantError, Template, compile_rights, parse_grant, parse_template
from headwater.access.identifying import (
    FileToken,
    Issuer,
    Policy,
    Revocations,
    RevokedSubject,
    Rule,
    TicketKey,
    make_identity,
)
from headwater.access.identities import Identity, Kind
from headwater.access.jwks import FetchedKeys, FixedKeys, JwksError, Keyring, check_url, parse_jwks
from headwater.access.jws import PUBLIC_KEY_ALGORITHMS, HmacKey
from headwater.access.limits import Limits, Quota, parse_limits, parse_quota

__all__ = ["Policy", "PolicyError", "Reloaded", "load", "reload"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ANY_BUCKET = "*"
LISTED_MAX = 100
"""How many entries are listed by their ids."""

Changes = dict[str, list[str]]
"""Which entries were added, removed and changed, by their kinds and ids."""


def load(path: Path, previous: Policy | None = None) -> Policy:
    """Read the access file, or raise `PolicyError`; keys that `previous` fetched are kept where the URL is the same."""
    files = {path: stamp_of(path)}
    return _Loader(path, files, read_document(path), previous).load()


class _Loader:
    """Compiles one document. Every problem is one sentence that begins with the file and the entry."""

    def __init__(
        self, path: Path, files: dict[Path, Stamp | None], document: Document, previous: Policy | None
    ) -> None:
        self.path = path
        self.files = files
        self.document = document
        self.previous = previous

    def load(self) -> Policy:
        document = self.document
        limits = {name: self._limits(name) for name in document.limits}
        buckets = {name: self._quota(name) for name in document.bucket}
        anonymous = tuple(self._grants("[anonymous]", document.anonymous.grants))
        self._check_limits("[anonymous]", document.anonymous.limits)
        return Policy(
            path=self.path,
            anonymous=make_identity(
                Kind.ANONYMOUS, "anonymous", compile_rights(anonymous), limits=document.anonymous.limits
            ),
            anonymous_grants=anonymous,
            tokens=self._tokens(document.token, anonymous),
            keys=self._keys(document.key),
            issuers=self._issuers(document.issuer),
            certificates=self._certificates(document.certificate, anonymous),
            revocations=self._revocations(document.revoked),
            limits=limits,
            buckets=buckets,
            files=self.files,  # Complete only now: keys and issuers name more of them.
        )

    def _tokens(self, tables: Sequence[TokenTable], anonymous: Sequence[Grant]) -> dict[bytes, FileToken]:
        self._check_unique("token", "id", [table.id for table in tables])
        self._check_unique("token", "sha256", [table.sha256 for table in tables])
        found: dict[bytes, FileToken] = {}
        for table in tables:
            place = f"[[token]] {table.id!r}"
            if not tokens.ID.fullmatch(table.id):
                raise self._error(place, "has an id that is not valid; use 1 to 32 characters from a-z, 0-9 and '-'")
            if not _DIGEST.fullmatch(table.sha256):
                raise self._error(
                    place, "has a sha256 that is not 64 hex digits; make a token with headwater token create"
                )
            expires = None if table.expires is None else self._seconds(place, "expires", table.expires)
            self._check_limits(place, table.limits)
            grants = [*self._grants(place, table.grants), *anonymous]
            identity = make_identity(Kind.TOKEN, table.id, compile_rights(grants), limits=table.limits)
            found[bytes.fromhex(table.sha256)] = FileToken(identity, expires)
        return found

    def _keys(self, tables: Sequence[KeyTable]) -> dict[str, TicketKey]:
        self._check_unique("key", "id", [table.id for table in tables])
        return {table.id: self._key(table, f"[[key]] {table.id!r}") for table in tables}

    def _key(self, table: KeyTable, place: str) -> TicketKey:
        if not _KEY_ID.fullmatch(table.id):
            raise self._error(place, "has an id that is not valid; use 1 to 64 letters, digits and '._-'")
        if table.seconds_max <= 0:
            raise self._error(place, "has a seconds_max below 1; write how long a ticket may be valid, as in 3600")
        self._check_limits(place, table.limits)
        grants = tuple(self._grants(place, table.grants))
        secret = read_key_file(self._beside(table.file), f"{self.path}: {place}")
        audiences = self._audiences(place, table.audience)
        return TicketKey(table.id, HmacKey(secret), grants, audiences, table.seconds_max, table.limits)

    def _issuers(self, tables: Sequence[IssuerTable]) -> dict[str, Issuer]:
        self._check_unique("issuer", "url", [table.url for table in tables])
        return {table.url: self._issuer(table, f"[[issuer]] {table.url!r}") for table in tables}

    def _issuer(self, table: IssuerTable, place: str) -> Issuer:
        if not table.url or not table.url.isprintable() or " " in table.url:
            raise self._error(place, "has a url that cannot be an issuer's; write what its tokens have as iss")
        audiences = self._audiences(place, table.audience)
        if not audiences:
            raise self._error(place, "has no audience; write what its tokens for this server have as aud")
        unknown = set(table.algorithms) - set(PUBLIC_KEY_ALGORITHMS)
        if unknown or not table.algorithms:
            raise self._error(
                place, f"has algorithms that are not known; write some of {', '.join(PUBLIC_KEY_ALGORITHMS)}"
            )
        if sum(len(rule.grants) for rule in table.rules) > GRANTS_MAX:
            raise self._error(place, f"has more than {GRANTS_MAX} grants in its rules; use patterns that cover more")
        if table.claim == "":
            raise self._error(place, "has an empty claim; write the name of a claim with grants, or leave it out")
        self._check_limits(place, table.limits)
        rules = tuple(self._rule(place, rule) for rule in table.rules)
        algorithms = frozenset(table.algorithms)
        keys = self._keyring(table, place, algorithms)
        return Issuer(table.url, audiences, algorithms, keys, table.claim, rules, table.limits)

    def _rule(self, place: str, rule: RuleTable) -> Rule:
        templates: list[Template] = []
        for text in rule.grants:
            try:
                templates.append(parse_template(text))
            except GrantError as error:
                raise self._error(place, f"has a rule whose grant is wrong: {str(error).rstrip('.')}") from None
        return Rule(rule.when, tuple(templates))

    def _keyring(self, table: IssuerTable, place: str, algorithms: frozenset[str]) -> Keyring:
        if (table.jwks is None) == (table.keys is None):
            raise self._error(place, "needs either jwks, the URL of its keys, or keys, a file with them")
        try:
            if table.jwks is not None:
                check_url(table.jwks)
                return self._fetched_before(table, algorithms) or FetchedKeys(table.jwks, algorithms)
            assert table.keys is not None
            path = self._beside(table.keys)
            found = parse_jwks(read_jwks_file(path, f"{self.path}: {place}"), algorithms)
        except JwksError as error:
            advice = "write an https URL as jwks" if table.jwks is not None else "write a JSON Web Key Set to the file"
            raise self._error(place, f"has keys that are not usable, since {error}; {advice}") from None
        if not found:
            raise self._error(
                place, f"has no usable key in {path}; it needs a kid, and one of the algorithms of the entry"
            )
        return FixedKeys(found)

    def _fetched_before(self, table: IssuerTable, algorithms: frozenset[str]) -> FetchedKeys | None:
        before = None if self.previous is None else self.previous.issuers.get(table.url)
        keys = None if before is None else before.keys
        if isinstance(keys, FetchedKeys) and keys.url == table.jwks and keys.algorithms == algorithms:
            return keys
        return None

    def _certificates(self, tables: Sequence[CertificateTable], anonymous: Sequence[Grant]) -> dict[str, Identity]:
        self._check_unique("certificate", "name", [table.name for table in tables])
        found: dict[str, Identity] = {}
        for table in tables:
            place = f"[[certificate]] {table.name!r}"
            if not table.name or "*" in table.name:
                raise self._error(place, "has a name that no client has; write one URI or DNS name, without a *")
            self._check_limits(place, table.limits)
            grants = [*self._grants(place, table.grants), *anonymous]
            found[table.name] = make_identity(Kind.CERTIFICATE, table.name, compile_rights(grants), limits=table.limits)
        return found

    def _revocations(self, table: RevokedTable) -> Revocations:
        subjects: dict[str, list[RevokedSubject]] = {}
        for number, one in enumerate(table.subjects, 1):
            place = f"[revoked] subject number {number}"
            if one.issuer is not None and one.key is not None:
                raise self._error(place, "names an issuer and a key; write one of them, or neither for all")
            if one.issuer is not None and one.issuer not in {issuer.url for issuer in self.document.issuer}:
                raise self._error(place, f"names the issuer {one.issuer!r}, which is not in the file; write its url")
            if one.key is not None and one.key not in {key.id for key in self.document.key}:
                raise self._error(place, f"names the key {one.key!r}, which is not in the file; write its id")
            kind = Kind.PROVIDER if one.issuer is not None else Kind.TICKET if one.key is not None else None
            before = self._seconds(place, "before", one.before)
            subjects.setdefault(one.sub, []).append(RevokedSubject(before, kind, one.issuer or one.key))
        return Revocations(frozenset(table.ids), subjects)

    def _limits(self, name: str) -> Limits:
        try:
            return parse_limits(self.document.limits[name])
        except ValueError as error:
            raise self._error(f"[limits.{name}]", str(error)) from None

    def _quota(self, name: str) -> Quota:
        if name != _ANY_BUCKET and (not name or "/" in name or "*" in name):
            raise self._error(f"[bucket.{name!r}]", "is not a bucket; write its name, or '*' for every other bucket")
        try:
            return parse_quota(self.document.bucket[name])
        except ValueError as error:
            raise self._error(f"[bucket.{name!r}]", str(error)) from None

    def _grants(self, place: str, texts: Sequence[str]) -> list[Grant]:
        if len(texts) > GRANTS_MAX:
            raise self._error(
                place, f"has {len(texts)} grants, and {GRANTS_MAX} are allowed; use patterns that cover more"
            )
        try:
            return [parse_grant(text) for text in texts]
        except GrantError as error:
            raise self._error(place, f"has a wrong grant: {str(error).rstrip('.')}") from None

    def _audiences(self, place: str, audience: str | list[str]) -> frozenset[str]:
        found = frozenset([audience] if isinstance(audience, str) else audience)
        if "" in found:
            raise self._error(place, "has an empty audience; write what its tokens for this server have as aud")
        return found

    def _check_limits(self, place: str, name: str | None) -> None:
        if name is not None and name not in self.document.limits:
            raise self._error(place, f"has limits = {name!r}, which is not defined; add [limits.{name}]")

    def _check_unique(self, table: str, field: str, values: Sequence[str]) -> None:
        seen: set[str] = set()
        for value in values:
            if value in seen:
                raise self._error(f"[[{table}]]", f"has two entries with {field} = {value!r}; remove or rename one")
            seen.add(value)

    def _seconds(self, place: str, field: str, at: datetime) -> float:
        if at.tzinfo is None:
            raise self._error(place, f"has {field} without a time zone; write it like 2027-06-01T00:00:00Z")
        return at.timestamp()

    def _beside(self, name: str) -> Path:
        """Return the path of a file that the document names, relative to the document, and remember it."""
        path = self.path.parent / name
        self.files[path] = stamp_of(path)
        return path

    def _error(self, place: str, problem: str) -> PolicyError:
        return PolicyError(f"{self.path}: {place} {problem}.")


class Reloaded(NamedTuple):
    """The new rules, and their differences from the old ones."""

    policy: Policy
    changes: Changes


def reload(before: Policy) -> Reloaded:
    """Read the access file again, or raise `PolicyError`."""
    after = load(before.path, before)
    return Reloaded(after, _differences(_entries(before), _entries(after)))


def _entries(policy: Policy) -> dict[str, object]:
    entries: dict[str, object] = {"anonymous": policy.anonymous_grants}
    for token in policy.tokens.values():
        identity = token.identity
        rights = identity.exact, identity.prefixes, identity.limits
        entries[f"token {identity.name}"] = rights, token.expires_wall_seconds
    entries |= {f"key {key.id}": key[2:] for key in policy.keys.values()}
    entries |= {f"issuer {issuer.url}": (issuer.rules, issuer.audiences) for issuer in policy.issuers.values()}
    for name, identity in policy.certificates.items():
        entries[f"certificate {name}"] = identity.exact, identity.prefixes, identity.limits
    return entries | {"revoked": policy.revocations}


def _differences(before: dict[str, object], after: dict[str, object]) -> Changes:
    both = before.keys() & after.keys()
    return {
        "added": _some(after.keys() - before.keys()),
        "removed": _some(before.keys() - after.keys()),
        "changed": _some(name for name in both if before[name] != after[name]),
    }


def _some(entries: Iterable[str]) -> list[str]:
    found = sorted(entries)
    more = [f"and {len(found) - LISTED_MAX} more"] if len(found) > LISTED_MAX else []
    return found[:LISTED_MAX] + more
