"""What access control and TLS cost: processor time per request, of all processes that answer it.

`python -m benchmarks.access` compares a server in local mode with one that has an access file, one that also has TLS,
and nginx and Caddy that end TLS in front of one with an access file. They take turns, so that a noisy machine affects
all of them equally. 32 connections send one request each and wait for all answers, again and again.
"""

import argparse
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.access import tokens
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

CONNECTIONS = 32
START_SECONDS_MAX = 20.0
TICKS_PER_SECOND = 100
ROOT = Path("/proc")


class Front(NamedTuple):
    """Where requests are sent, and which processes answer them."""

    port: int
    tls: bool
    pids: tuple[int, ...]
    server: RunningServer


class Files(NamedTuple):
    """A certificate, its key, an access file and its token."""

    cert: Path
    key: Path
    auth: Path
    token: str

    @property
    def guarded(self) -> tuple[str, ...]:
        return "--auth", str(self.auth), "--audit", "/dev/null"

    @property
    def secured(self) -> tuple[str, ...]:
        return *self.guarded, "--tls-cert", str(self.cert), "--tls-key", str(self.key)


def make_files(folder: Path) -> Files:
    """Make everything that the servers and proxies need."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(30))
    cert = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    token = tokens.make("bench")
    files = Files(folder / "cert.pem", folder / "key.pem", folder / "auth.toml", token)
    files.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    digest = tokens.digest(token.encode()).hex()
    files.auth.write_text(f'version = 1\n[[token]]\nid = "bench"\nsha256 = "{digest}"\ngrants = ["* *"]\n')
    return files


# -- Fronts -----------------------------------------------------------------------------------------------------------


@contextmanager
def alone(*flags: str, tls: bool = False) -> Iterator[Front]:
    """A server that clients reach directly."""
    with running_server(*flags) as server:
        yield Front(urlsplit(server.url).port or 0, tls, (server.pid,), server)


@contextmanager
def behind(files: Files, folder: Path, configure: Callable[[Files, Path, int, int], list[str]]) -> Iterator[Front]:
    """A server with an access file, and a proxy in front of it that ends TLS."""
    with running_server(*files.guarded) as server:
        port = free_port()
        command = configure(files, folder, port, urlsplit(server.url).port or 0)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _await_port(port)
            yield Front(port, True, (server.pid, process.pid, *_children(process.pid)), server)
        finally:
            process.terminate()
            process.wait()


def nginx(files: Files, folder: Path, port: int, upstream: int) -> list[str]:
    """Write a configuration and return the command."""
    path = folder / f"nginx-{port}.conf"
    path.write_text(
        f"""daemon off; worker_processes 1; error_log /dev/null; pid {folder}/nginx-{port}.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 64m; keepalive_requests 1000000;
  upstream headwater {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000; }}
  server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {files.cert}; ssl_certificate_key {files.key};
    location / {{ proxy_pass http://headwater; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off; }} }}
}}
"""
    )
    return [shutil.which("nginx") or "nginx", "-c", str(path), "-p", str(folder)]


def caddy(files: Files, folder: Path, port: int, upstream: int) -> list[str]:
    """Write a configuration and return the command."""
    path = folder / f"Caddyfile-{port}"
    path.write_text(
        f"""{{
  admin off
  auto_https off
}}
https://localhost:{port} {{
  tls {files.cert} {files.key}
  reverse_proxy 127.0.0.1:{upstream} {{
    flush_interval -1
  }}
}}
"""
    )
    return [shutil.which("caddy") or "caddy", "run", "--adapter", "caddyfile", "--config", str(path)]


def _await_port(port: int) -> None:
    until = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _children(pid: int) -> tuple[int, ...]:
    time.sleep(0.5)
    return tuple(map(int, (ROOT / str(pid) / "task" / str(pid) / "children").read_text().split()))


# -- Load -------------------------------------------------------------------------------------------------------------


def _request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    lines = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    lines += f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    return lines.encode() + body


def _receive(connection: socket.socket) -> None:
    """Read one response, which must be a success."""
    data = connection.recv(1 << 18)
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 18)
    head, _, rest = data.partition(b"\r\n\r\n")
    status = head[9:12]
    assert status[:1] == b"2", head
    if status == b"204":
        return
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    left = length - len(rest)
    while left > 0:
        left -= len(connection.recv(1 << 18))


def _cpu_seconds(pids: tuple[int, ...]) -> float:
    total = 0
    for pid in pids:
        fields = (ROOT / str(pid) / "stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_SECOND


def measure(front: Front, request: bytes, seconds: float) -> float:
    """Return the microseconds of processor time that one request takes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            plain = socket.create_connection(("127.0.0.1", front.port), 30)
            one = context.wrap_socket(plain, server_hostname="localhost") if front.tls else plain
            connections.append(stack.enter_context(one))
        count, until, began = 0, 0.0, 0.0
        for warm in (True, False):
            count, until, began = 0, time.monotonic() + (0.3 if warm else seconds), _cpu_seconds(front.pids)
            while time.monotonic() < until:
                for one in connections:
                    one.sendall(request)
                for one in connections:
                    _receive(one)
                count += len(connections)
        return (_cpu_seconds(front.pids) - began) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = make_files(folder)
        fronts: dict[str, Callable[[], object]] = {
            "local": alone,
            "--auth": lambda: alone(*files.guarded),
            "--auth, TLS": lambda: alone(*files.secured, tls=True),
        }
        if shutil.which("nginx"):
            fronts["nginx, --auth"] = lambda: behind(files, folder, nginx)
        if shutil.which("caddy"):
            fronts["Caddy, --auth"] = lambda: behind(files, folder, caddy)
        requests = {
            "POST 100 B": _request("POST", "/v1/stream/bench/a", files.token, bytes(100)),
            "GET 1 KB": _request("GET", "/v1/stream/bench/k?offset=-1", files.token),
            "GET 1 MB": _request("GET", "/v1/stream/bench/m?offset=-1", files.token),
        }
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds):
            for front_name, opened in fronts.items():
                with opened() as front:  # type: ignore[attr-defined]
                    _fill(front, files.token)
                    for what, request in requests.items():
                        found.setdefault((front_name, what), []).append(measure(front, request, options.seconds))
    print(
        "Processor time per request in us, of all processes, median of the rounds; in parentheses the ratio to local."
    )
    print(f"{'':18}" + "".join(f"{what:>20}" for what in requests))
    for front_name in fronts:
        cells = []
        for what in requests:
            base, here = median(found["local", what]), median(found[front_name, what])
            cells.append(f"{f'{here:.0f} ({here / base:.2f})':>20}")
        print(f"{front_name:18}" + "".join(cells))


def _fill(front: Front, token: str) -> None:
    """Create the streams."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", front.port), 30)
    with context.wrap_socket(plain, server_hostname="localhost") if front.tls else plain as connection:
        for stream, size in (("a", 0), ("k", 1000), ("m", 1_000_000)):
            connection.sendall(_request("PUT", f"/v1/stream/bench/{stream}", token, bytes(size)))
            _receive(connection)


if __name__ == "__main__":
    main()
