"""The checks of `headwater doctor` on the access file, and on the files for TLS."""

import re
import ssl
import stat
import time
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.access.grants import CHANGING
from headwater.access.policy import Policy, PolicyError, load
from headwater.cli.doctor.checks import Finding
from headwater.http.tls.certificates import make_context, read_files
from headwater.secret_files import may_be_secret
from headwater.settings import Settings, SettingsError

DAYS_ENOUGH = 14
DAY_SECONDS = 86_400
SELF_SIGNED = 18
"""OpenSSL's code for a certificate that is its own authority."""
WRONG_NAME = frozenset({62, 64})
"""OpenSSL's codes for a certificate for other names, or for other addresses."""
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_TURNS_MAX = 10


def access_file(path: Path) -> Iterator[Finding]:
    """Check that a server can use the file, what it grants to anonymous clients, and which tokens expire soon."""
    try:
        policy = load(path)
    except PolicyError as error:
        problem, _, advice = str(error).rstrip(".").rpartition("; ")
        yield Finding("access file", "problem", problem or advice, advice if problem else "correct the file")
        return
    counts: dict[str, Sized] = {
        "tokens": policy.tokens,
        "keys": policy.keys,
        "issuers": policy.issuers,
        "names": policy.certificates,
    }
    detail = ", ".join(f"{len(entries)} {what}" for what, entries in counts.items())
    yield Finding("access file", "ok", detail)
    yield _anonymous(policy)
    yield from _ending(policy)


def _anonymous(policy: Policy) -> Finding:
    allowed = [action.word for action in CHANGING if policy.anonymous.may_some(action)]
    if allowed:
        fix = "remove these grants from [anonymous] unless every client that can reach the server may do that"
        return Finding("anonymous", "warning", f"clients may {', '.join(allowed)} without a credential", fix)
    return Finding("anonymous", "ok", "clients without a credential may change nothing")


def _ending(policy: Policy) -> Iterator[Finding]:
    for token in policy.tokens.values():
        if token.expires_wall_seconds is None:
            continue
        days = int((token.expires_wall_seconds - time.time()) // DAY_SECONDS)
        if days < DAYS_ENOUGH:
            ends = f"token {token.identity.name!r} " + (f"ends in {days} days" if days >= 0 else "has expired")
            yield Finding("tokens", "warning", ends, "make a new one with headwater token create, and revoke it")


def certificate(cert: str, key: str, hosts: str = "", public_url: str = "") -> Iterator[Finding]:
    """Check that the files fit together, how long they are valid and for which names, and who can read the key.

    `hosts` and `public_url` are those of the server: clients call it by these names.
    """
    if may_be_secret(key):
        yield Finding(
            "certificate", "problem", "the file of its key does not exist", "give its path, not the key itself"
        )
        return
    settings = Settings(tls_cert=cert, tls_key=key)
    try:
        files = read_files(settings)
        context = make_context(settings, files)
    except SettingsError as error:
        fix = "store the certificate chain and its key without a passphrase, both as PEM"
        yield Finding("certificate", "problem", str(error).rstrip("."), fix)
        return
    chain = _PEM.findall(files.cert)
    yield _validity(context, chain[0])
    called = _called(hosts, public_url)
    if called:
        yield _names(context, chain[0], called)
    yield _certificate_chain(context, chain)
    yield _key_file(Path(key))


def _validity(context: ssl.SSLContext, own: bytes) -> Finding:
    try:
        found = _verified(context, _trusting(own))
    except ssl.SSLCertVerificationError as error:
        return Finding("certificate", "problem", f"clients refuse it: {error.verify_message}", "renew it")
    days = int((ssl.cert_time_to_seconds(found["notAfter"]) - time.time()) // DAY_SECONDS)
    names = ", ".join(name for _, name in found.get("subjectAltName", ()))
    detail = f"it is valid for {days} days, for {names or 'no name'}"
    if not names:
        return Finding("certificate", "warning", detail, "clients compare alternative names only: have some added")
    if days < DAYS_ENOUGH:
        return Finding("certificate", "warning", detail, "renew it; the server loads new files automatically")
    return Finding("certificate", "ok", detail)


def _called(hosts: str, public_url: str) -> list[str]:
    """Return the names by which clients call a server.

    >>> _called("streams.example, *", "https://[::1]:4437")
    ['streams.example', '::1']
    """
    named = [name.strip().rstrip(".").lower() for name in hosts.split(",")]
    named.append(urlsplit(public_url).hostname or "" if public_url.lower().startswith("https:") else "")
    return list(dict.fromkeys(name for name in named if name not in ("", "*")))


def _names(context: ssl.SSLContext, own: bytes, called: list[str]) -> Finding:
    missing = [name for name in called if not _is_for(context, own, name)]
    if missing:
        detail = f"clients that call the server {' or '.join(missing)} refuse the certificate, which has other names"
        return Finding("names", "warning", detail, "have these names added, or remove them from the settings")
    return Finding("names", "ok", f"the certificate is for {', '.join(called)}")


def _is_for(context: ssl.SSLContext, own: bytes, name: str) -> bool:
    client = _trusting(own)
    client.check_hostname = True
    try:
        _verified(context, client, name)
    except ssl.SSLCertVerificationError as error:
        # Whether it has expired is not the question.
        return error.verify_code not in WRONG_NAME
    except ValueError:
        return False  # No certificate can be for such a name.
    return True


def _certificate_chain(context: ssl.SSLContext, chain: list[bytes]) -> Finding:
    """Check that each certificate in the file is confirmed by the next, up to an authority."""
    public = ssl.create_default_context()
    public.check_hostname = False
    size = f"{len(chain)} in the file"
    try:
        _verified(context, public)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == SELF_SIGNED:
            return Finding(
                "chain",
                "warning",
                "the certificate is self-signed",
                "add it to the trusted certificates of every client",
            )
        if len(chain) == 1:
            fix = "add those between it and its authority to the file, unless clients know that authority"
            return Finding("chain", "warning", f"{size}, and this machine does not know its authority", fix)
    else:
        return Finding("chain", "ok", f"{size}, and this machine trusts its authority")
    try:
        _verified(context, _trusting(chain[-1]))
    except ssl.SSLCertVerificationError:
        fix = "begin the file with the server's own certificate, each followed by that of its authority"
        return Finding("chain", "problem", f"{size}, but they do not confirm each other", fix)
    return Finding("chain", "ok", f"{size}, up to an authority that clients have to trust; this machine does not")


def _key_file(key: Path) -> Finding:
    mode = stat.S_IMODE(key.stat().st_mode)
    if mode & stat.S_IRWXO:
        detail = f"every user of this machine has access to {key} (mode {mode:o})"
        return Finding("key file", "warning", detail, f"run `chmod 600 {key}`")
    return Finding("key file", "ok", f"other users have no access to {key}")


def _trusting(authority: bytes) -> ssl.SSLContext:
    """Return a client context that trusts this certificate, whether or not it is an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authority.decode("ascii"))
    return context


def _verified(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = None) -> dict[str, Any]:
    """Return the certificate that a client accepts from the server of this name, or `SSLCertVerificationError`."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)
    for turn in range(_TURNS_MAX):
        try:
            ends[turn % 2].do_handshake()
        except ssl.SSLWantReadError:
            continue
        if turn % 2 == 0:
            break
    return dict(ends[0].getpeercert() or {})
