"""Real proxies with the files of `deploy/`, each in front of one server."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from headwater.testing.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
PUBLIC_NAME = "headwater.example.com"
"""What the files call the site; clients that connect to this machine may say so in `Host`."""
START_SECONDS_MAX = 30.0
TIMEOUT_SECONDS = 20.0


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


@dataclass(frozen=True)
class Proxy:
    """A proxy that listens, and what a client needs to trust its certificate."""

    url: str
    tls: ssl.SSLContext
    log: Path
    """Where it logs requests."""

    @contextmanager
    def connected(self, source: str = "127.0.0.1") -> Iterator[HTTPSConnection]:
        port = urlsplit(self.url).port
        connection = HTTPSConnection(
            "localhost", port, timeout=TIMEOUT_SECONDS, context=self.tls, source_address=(source, 0)
        )
        with closing(connection):
            yield connection

    @contextmanager
    def opened(self, target: str, headers: Mapping[str, str] | None = None) -> Iterator[HTTPResponse]:
        """A response whose body may still be arriving."""
        with self.connected() as connection:
            connection.request("GET", target, headers=headers or {})
            with connection.getresponse() as response:
                yield response

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        source: str = "127.0.0.1",
    ) -> Answer:
        with self.connected(source) as connection:
            connection.request(method, target, body, headers or {})
            with connection.getresponse() as response:
                return Answer(response.status, response.headers, response.read())


def find(name: str) -> str | None:
    """The path of a program: in this environment, on the PATH, or where Debian installs servers."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))


@contextmanager
def caddy(upstream: str, folder: Path, *, tls: bool = True) -> Iterator[Proxy]:
    """Caddy with our Caddyfile; it creates its own certificate authority."""
    port = free_port()
    config = folder / "Caddyfile"
    config.write_text(
        "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\tlocal_certs\n"
        f"\tstorage file_system {folder}/storage\n\tdefault_bind 127.0.0.1\n}}\n"
        f"import {DEPLOY}/caddy/Caddyfile\n"
    )
    environment = {
        **os.environ,
        "HOME": str(folder),
        "PROXY_SITE": f"https://localhost:{port}, https://{PUBLIC_NAME}:{port}" if tls else f"http://localhost:{port}",
        "PROXY_UPSTREAM": upstream,
    }
    command = [find("caddy") or "caddy", "run", "--config", str(config), "--adapter", "caddyfile"]
    with running(command, folder / "caddy.log", port, environment, tls=tls):
        if not tls:
            yield Proxy(f"http://localhost:{port}", ssl.create_default_context(), folder / "caddy.log")
            return
        root = folder / "storage" / "pki" / "authorities" / "local" / "root.crt"
        yield Proxy(f"https://localhost:{port}", ssl.create_default_context(cafile=str(root)), folder / "caddy.log")


@contextmanager
def nginx(upstream: str, folder: Path, *, tls: bool = True) -> Iterator[Proxy]:
    """nginx with our server block; only addresses and the paths of the certificate are replaced."""
    port = free_port()
    certificate, key = _certificate(folder)
    text = (DEPLOY / "nginx" / "headwater.conf").read_text()
    for ours, theirs in {
        "127.0.0.1:4437": upstream,
        "listen 80;": f"listen 127.0.0.1:{free_port()};",
        "listen 443 ": f"listen 127.0.0.1:{port} ",
        "/etc/ssl/headwater/fullchain.pem": str(certificate),
        "/etc/ssl/headwater/privkey.pem": str(key),
        "/var/log/nginx/headwater.log": str(folder / "access.log"),
    }.items():
        assert ours in text, f"{ours!r} is missing in deploy/nginx/headwater.conf"
        text = text.replace(ours, theirs)
    if not tls:
        assert " ssl http2;" in text
        text = text.replace(" ssl http2;", ";")
    (folder / "headwater.conf").write_text(text)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(
        f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}include {folder}/headwater.conf;\n}}\n"
    )
    command = [find("nginx") or "nginx", "-e", "stderr", "-p", str(folder), "-c", str(config)]
    with running(command, folder / "nginx.log", port, dict(os.environ), tls=tls):
        yield Proxy(
            f"http{'s' if tls else ''}://localhost:{port}",
            ssl.create_default_context(cafile=str(certificate)),
            folder / "access.log",
        )


class StartsProxy(Protocol):
    """Starts a proxy in front of a server, with its files in a folder; without TLS it is faster."""

    def __call__(self, upstream: str, folder: Path, *, tls: bool = True) -> AbstractContextManager[Proxy]: ...


PROXIES: dict[str, StartsProxy] = {"caddy": caddy, "nginx": nginx}


@contextmanager
def running(
    command: list[str], log: Path, port: int, environment: dict[str, str], *, tls: bool = True
) -> Iterator[None]:
    """Run a proxy for the duration of the block, which begins once the proxy listens."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _listens(port, tls=tls):
            assert process.poll() is None, f"{command[0]} ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{command[0]} does not listen:\n{log.read_text()}"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def _listens(port: int, *, tls: bool) -> bool:
    """Whether a connection succeeds, and a handshake: Caddy accepts connections before it has its certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as probe:
            if tls:
                context.wrap_socket(probe, server_hostname="localhost").close()
            return True
    except OSError:
        return False


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
