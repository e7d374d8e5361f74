"""A certificate authority for tests, made by the command `openssl`, and connections with TLS."""

import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from .sockets import Wire

SERVER = "DNS:localhost,IP:127.0.0.1"


class Pair(NamedTuple):
    """A certificate with its chain, and its key."""

    cert: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return "--tls-cert", str(self.cert), "--tls-key", str(self.key)

    def copy_to(self, other: "Pair") -> None:
        shutil.copy(self.cert, other.cert)
        shutil.copy(self.key, other.key)


class Authority:
    """Signs certificates; its own is `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._name = folder, name
        self.ca, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        self._serial = 100
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"),
            *("-subj", f"/CN=Test {name}", "-keyout", str(self._key), "-out", str(self.ca)),
        )

    def issue(self, name: str, alternatives: str = SERVER, *, days: int = 30) -> Pair:
        """Sign a certificate for these alternative names; with negative `days` it has expired."""
        base = self._folder / f"{self._name}-{name}"
        pair = Pair(base.with_suffix(".pem"), base.with_suffix(".key"))
        request, extensions = base.with_suffix(".csr"), base.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={alternatives}\n")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", str(pair.key), "-out", str(request)),
        )
        self._serial += 1
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._key)),
            *("-set_serial", str(self._serial), "-days", str(days), "-extfile", str(extensions)),
            *("-out", str(pair.cert)),
        )
        return pair

    def issue_for_seconds(self, name: str, alternatives: str, seconds: int) -> Pair:
        """Sign a certificate that ends soon, which takes another command."""
        pair = self.issue(name, alternatives)
        folder = self._folder / f"{name}-issued"
        folder.mkdir()
        (folder / "index").touch()
        (folder / "serial").write_text(f"{self._serial + 1_000:04}\n")
        config = folder / "config"
        config.write_text(
            "[ca]\ndefault_ca = brief\n"
            f"[brief]\ndatabase = {folder}/index\nserial = {folder}/serial\nnew_certs_dir = {folder}\n"
            "default_md = sha256\npolicy = names\n"
            f"[names]\ncommonName = supplied\n[more]\nsubjectAltName = {alternatives}\n"
        )
        begins, ends = (time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() + add)) for add in (-3600, seconds))
        _openssl(
            *("ca", "-batch", "-notext", "-config", str(config), "-cert", str(self.ca), "-keyfile", str(self._key)),
            *("-in", str(pair.cert.with_suffix(".csr")), "-out", str(pair.cert), "-extensions", "more"),
            *("-startdate", begins, "-enddate", ends),
        )
        return pair

    def trusting(self, client: Pair | None = None) -> ssl.SSLContext:
        """What a client uses that believes this authority, and presents a certificate if it has one."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client.cert, client.key)
        return context


def _openssl(*arguments: str) -> None:
    command = shutil.which("openssl")
    if command is None:
        pytest.skip("openssl is not installed")
    subprocess.run([command, *arguments], check=True, capture_output=True)


class SecureWire(Wire):
    """A connection with TLS; an end that the server did not announce is an error."""

    socket: ssl.SSLSocket

    def __init__(self, url: str, context: ssl.SSLContext, *, receive_buffer_bytes: int = 0) -> None:
        super().__init__(url, receive_buffer_bytes=receive_buffer_bytes)
        plain: socket.socket = self.socket
        try:
            self.socket = context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)
        except OSError:
            plain.close()
            raise

    @property
    def serial(self) -> int:
        """The number of the server's certificate."""
        certificate = self.socket.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)
