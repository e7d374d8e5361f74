"""TLS: the context made of the certificate's files, how a renewed certificate is taken, and the names of clients.

A renewed certificate is loaded into a context of its own, which replaces the current one only if everything fits.
Connections keep the context that they began with. So a bad pair of files, or one that is half written, changes nothing.
"""

import asyncio
import hashlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from headwater.settings import Settings, SettingsError

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has no others."""
PROTOCOLS = ["http/1.1"]
WATCH_SECONDS = 5.0
"""How often the files are compared with what was loaded."""
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENTS = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL}

log = logging.getLogger(__name__)


class ClientNames(NamedTuple):
    """What the certificate of a client is called, as an authority that the server believes has confirmed."""

    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()


NO_NAMES = ClientNames()


class SecurableProtocol(asyncio.Protocol):
    """A protocol that is told whose certificate the client has."""

    client_names: ClientNames = NO_NAMES
    """Set when the handshake is done; stays empty without TLS, and for clients without a certificate."""
    client_until: float = inf
    """When the client's certificate ends, in seconds since 1970: a connection may last longer."""

    def introduce(self, certificate: Mapping[str, Any] | None) -> None:
        """Learn whose the verified certificate is, and how long it is valid."""
        self.client_names = names_of(certificate)
        if certificate:
            self.client_until = ssl.cert_time_to_seconds(certificate["notAfter"])


def names_of(certificate: Mapping[str, Any] | None) -> ClientNames:
    """The names in a certificate, in the form of `ssl.SSLObject.getpeercert`; none without a certificate.

    >>> names_of({"subjectAltName": (("URI", "spiffe://prod/spark"), ("DNS", "spark.example"), ("DNS", "b.example"))})
    ClientNames(uris=('spiffe://prod/spark',), dns=('spark.example', 'b.example'))
    """
    alternatives = (certificate or {}).get("subjectAltName", ())
    if not alternatives:
        return NO_NAMES
    return ClientNames(
        tuple(name for kind, name in alternatives if kind == "URI"),
        tuple(name for kind, name in alternatives if kind == "DNS"),
    )


# -- Files -------------------------------------------------------------------------------------------------------------


class TlsFiles(NamedTuple):
    """The contents of the files, read at one moment."""

    cert: bytes
    key: bytes
    client_ca: bytes

    def digest(self) -> bytes:
        """What tells two versions apart without keeping the key."""
        return hashlib.sha256(b"".join(hashlib.sha256(one).digest() for one in self)).digest()


def read_files(settings: Settings) -> TlsFiles:
    """Read all files; `SettingsError` if one cannot be."""
    return TlsFiles(*(_read(path) for path in (settings.tls_cert, settings.tls_key, settings.tls_client_ca)))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from error


def make_context(settings: Settings, files: TlsFiles) -> ssl.SSLContext:
    """The context of a server with these files; `SettingsError` if they cannot be used or do not fit together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.tls_min]
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(PROTOCOLS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    load_pair(context, settings.tls_cert, settings.tls_key, files)
    if settings.tls_client_ca:
        try:
            context.load_verify_locations(cadata=files.client_ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(f"{settings.tls_client_ca} holds no certificates that can be used.") from error
        context.verify_mode = _CLIENTS[settings.tls_client]
        # A resumed session would not be verified again, even if its certificate has expired since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def load_pair(context: ssl.SSLContext, cert: str, key: str, files: TlsFiles) -> None:
    """Load a certificate and its key from memory, so that what was read is what is used."""
    try:
        with _as_file(files.cert) as cert_path, _as_file(files.key) as key_path:
            context.load_cert_chain(cert_path, key_path, password=_refuse_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(f"The key in {key} does not belong to the certificate in {cert}.") from error
        reason = (error.reason or "no certificate, or no key").replace("_", " ").lower()
        raise SettingsError(f"{cert} and {key} cannot be used for TLS ({reason}).") from error
    except ValueError as error:
        raise SettingsError(f"The key in {key} has a passphrase; store it without one.") from error


def _refuse_passphrase() -> NoReturn:
    # Without this function, the library would ask on the terminal.
    raise ValueError("no passphrase")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """The path of a file with these bytes, in memory if the system can: the library reads keys from files only."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("headwater-tls"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as temporary:
            temporary.write(data)
            temporary.flush()
            yield temporary.name


# -- Renewal -----------------------------------------------------------------------------------------------------------


class Certificates:
    """The current context, renewed when the files change."""

    def __init__(self, settings: Settings, *, watch_seconds: float = WATCH_SECONDS) -> None:
        self._settings = settings
        self._watch_seconds = watch_seconds
        files = read_files(settings)
        self._loaded = files.digest()
        self._failed: tuple[bytes, str] | None = None
        self.context = make_context(settings, files)
        """What new connections use."""
        self.reloads = 0
        self.reload_failures = 0
        self.handshake_failures = 0
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Look at the files now."""
        self._asked.set()

    async def watch(self) -> None:
        """Take each renewed certificate, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), self._watch_seconds)
            self._asked.clear()
            await loop.run_in_executor(None, self.renew)

    def renew(self) -> None:
        """Take the files if they have changed and can be used; otherwise keep what there is, and log why."""
        digest = b""
        try:
            files = read_files(self._settings)
            digest = files.digest()
            if digest == self._loaded:
                self._failed = None
                return
            self.context = make_context(self._settings, files)
        except (SettingsError, OSError) as error:
            # It is tried again and again, but reported once.
            if (digest, str(error)) != self._failed:
                self._failed = digest, str(error)
                self.reload_failures += 1
                log.error("the certificate was not renewed, and the old one stays in use: %s", error)
        else:
            self._loaded, self._failed = digest, None
            self.reloads += 1
            log.info("certificate renewed", extra={"tls_cert": self._settings.tls_cert})

    def count_failure(self) -> None:
        """A client did not complete its handshake."""
        self.handshake_failures += 1
