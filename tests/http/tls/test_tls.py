"""TLS: versions and ciphers, requests of every kind, slow clients, renewal, client certificates, and the end."""

import _ssl
import asyncio
import ctypes
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest
from cryptography import x509

from headwater.client import Client
from headwater.http.connection.connection import Connection
from headwater.http.server import Server
from headwater.http.tls.certificates import NO_NAMES, Certificates, ClientNames, names_of
from headwater.settings import Settings, SettingsError
from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer, running_server

from ...node.lake.lakes import bench
from ..authorities import Authority, Pair, SecureWire
from ..guarded import guarded
from ..processes import eventually, open_files
from ..sockets import Response, Wire, refused, request

pytestmark = pytest.mark.attack

MIB = 1024 * 1024
TEXT = {"Content-Type": "text/plain"}
PATH = "/v1/stream/s"
HANDSHAKES = int(os.environ.get("TESTS_ATTACK_HANDSHAKES", "0"))
STOPPED = int(os.environ.get("TESTS_ATTACK_STOPPED", "200"))
"""How many handshakes there are during renewals, at least, and how many clients stop in theirs; see scripts/attack."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("server")


@pytest.fixture(scope="module")
def trust(authority: Authority) -> ssl.SSLContext:
    return authority.trusting()


@pytest.fixture(scope="module")
def secure(pair: Pair) -> Iterator[RunningServer]:
    with running_server(*pair.flags, "--header-seconds", "2", "--page-bytes", "16MiB") as server:
        yield server
        assert "Traceback" not in server.output()


def metric(wire: Wire, name: str) -> int:
    lines = wire.ask("GET", "/metrics").body.decode().splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return int(float(value))


def logged(server: RunningServer) -> list[str]:
    return server.output().splitlines()


# -- Versions, ciphers, protocols --------------------------------------------------------------------------------------


def speaking(authority: Authority, version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    """A client that speaks one version only, however old."""
    context = authority.trusting()
    context.set_ciphers(ciphers)
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_current_versions_work(secure: RunningServer, authority: Authority, version: ssl.TLSVersion) -> None:
    assert secure.url.startswith("https://")
    with SecureWire(secure.url, speaking(authority, version)) as wire:
        assert wire.ask("GET", "/healthz").body == b"ok\n"
        assert wire.socket.version() == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_refused(secure: RunningServer, authority: Authority, version: str) -> None:
    with pytest.raises(ssl.SSLError):
        SecureWire(secure.url, speaking(authority, ssl.TLSVersion[version]))


@pytest.mark.parametrize("ciphers", ["ECDHE+AES:!AESGCM:!AESCCM", "kRSA"])
def test_ciphers_without_forward_secrecy_or_authentication_are_refused(
    secure: RunningServer, authority: Authority, ciphers: str
) -> None:
    with pytest.raises(ssl.SSLError):
        SecureWire(secure.url, speaking(authority, ssl.TLSVersion.TLSv1_2, f"{ciphers}:@SECLEVEL=0"))


def test_the_oldest_version_can_be_raised(pair: Pair, authority: Authority) -> None:
    with running_server(*pair.flags, "--tls-min", "1.3") as server:
        with pytest.raises(ssl.SSLError):
            SecureWire(server.url, speaking(authority, ssl.TLSVersion.TLSv1_2))
        with SecureWire(server.url, authority.trusting()) as wire:
            assert wire.ask("GET", "/healthz").status == 200


def test_a_client_that_offers_http_2_gets_http_1(secure: RunningServer, authority: Authority) -> None:
    context = authority.trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with SecureWire(secure.url, context) as wire:
        assert wire.socket.selected_alpn_protocol() == "http/1.1"
        assert wire.ask("GET", "/healthz").status == 200


def test_a_client_cannot_renegotiate(secure: RunningServer) -> None:
    address = secure.url.removeprefix("https://")
    command = ["openssl", "s_client", "-connect", address, "-tls1_2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        time.sleep(0.5)
        process.stdin.write(b"R\n")
        process.stdin.flush()
        time.sleep(0.5)
        output, _ = process.communicate(timeout=10)
    assert b"RENEGOTIATING" in output
    assert b"no renegotiation" in output


# -- Requests ----------------------------------------------------------------------------------------------------------


def test_requests_are_answered_as_without_tls(secure: RunningServer, trust: ssl.SSLContext) -> None:
    with SecureWire(secure.url, trust) as wire:
        created = wire.ask("PUT", "/v1/stream/plain", TEXT, b"hello")
        assert created.status == 201
        assert created.headers["location"] == "https://localhost/v1/stream/plain"
        wire.send(100 * request("POST", "/v1/stream/plain", TEXT, b"x") + request("GET", "/v1/stream/plain"))
        assert [wire.receive().status for _ in range(100)] == [204] * 100
        assert wire.receive().body == b"hello" + 100 * b"x"


def test_a_large_body_goes_in_and_comes_back_whole(secure: RunningServer, trust: ssl.SSLContext) -> None:
    body = os.urandom(MIB) * 16
    with SecureWire(secure.url, trust) as wire:
        assert wire.ask("PUT", "/v1/stream/large", {}, body).status == 201
        for _ in range(3):
            assert wire.ask("GET", "/v1/stream/large").body == body
        assert wire.ask("GET", "/v1/stream/large", {"Connection": "close"}).body == body
        assert wire.ended()


def test_live_reads_get_what_is_appended(secure: RunningServer, trust: ssl.SSLContext) -> None:
    path = "/v1/stream/live"
    with SecureWire(secure.url, trust) as wire, SecureWire(secure.url, trust) as reader:
        assert wire.ask("PUT", path, TEXT).status == 201
        with SecureWire(secure.url, trust) as tail:
            events = tail.open_sse(f"{path}?offset=-1&live=sse")
            assert events.event().kind == "control"
            reader.send(request("GET", f"{path}?offset=now&live=long-poll"))
            assert reader.silent_for(0.2)
            assert wire.ask("POST", path, TEXT, b"now").status == 204
            assert reader.receive().body == b"now"
            assert events.event().data == "now"


def test_a_client_that_sends_no_more_gets_its_answers(secure: RunningServer, trust: ssl.SSLContext) -> None:
    path = "/v1/stream/half"
    with SecureWire(secure.url, trust) as wire, SecureWire(secure.url, trust) as half:
        assert wire.ask("PUT", path, TEXT).status == 201
        half.send(50 * request("POST", path, TEXT, b"x") + request("GET", path))
        with socket.socket(fileno=os.dup(half.socket.fileno())) as below:
            below.shutdown(socket.SHUT_WR)
        assert [half.receive().status for _ in range(50)] == [204] * 50
        assert half.receive().body == 50 * b"x"
        assert half.ended()


def test_a_refused_client_that_keeps_sending_sees_why(secure: RunningServer, trust: ssl.SSLContext) -> None:
    with SecureWire(secure.url, trust) as wire:
        wire.send(request("POST", PATH, {**TEXT, "Content-Length": str(64 * MIB)}))
        for _ in range(64):
            wire.send(bytes(64 * 1024))
        refused(wire.receive(), 413, "too_large")
        assert wire.ended()


def test_a_server_that_starts_says_so(pair: Pair, trust: ssl.SSLContext) -> None:
    def ask(url: str, path: str) -> Response:
        with SecureWire(url, trust) as wire:
            return wire.ask("GET", path)

    async def run() -> None:
        in_thread = asyncio.get_running_loop().run_in_executor
        server = Server(Settings(port=0, tls_cert=str(pair.cert), tls_key=str(pair.key)))
        url = await server.listen()
        assert (await in_thread(None, ask, url, "/healthz")).status == 200
        refused(await in_thread(None, ask, url, PATH), 503, "draining")
        await server.drain()

    asyncio.run(run())


def test_the_client_the_pipeline_and_the_command_line_can_use_it(secure: RunningServer, authority: Authority) -> None:
    with httpx2.Client(verify=authority.trusting()) as http, Client(secure.url, http=http) as client:
        stream = client.stream("from-the-client")
        stream.create(content_type="text/plain")
        stream.append(b"hello")
    with Link(LinkSettings(secure.url, tls_ca=str(authority.ca))) as link:
        assert link.log_id()
    command = [sys.executable, "-m", "headwater", "status", "--url", secure.url]
    environment = {**os.environ, "SSL_CERT_FILE": str(authority.ca)}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=30)


# -- Slow and hostile clients ------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(pair: Pair, trust: ssl.SSLContext) -> Iterator[RunningServer]:
    """A server that cuts readers that take nothing for a second; it has one stream of 16 MiB."""
    flags = (*pair.flags, "--slow-reader-seconds", "1", "--page-bytes", "16MiB")
    with running_server(*flags) as server, SecureWire(server.url, trust) as wire:
        assert wire.ask("PUT", PATH, {}, bytes(range(256)) * (16 * MIB // 256)).status == 201
        yield server


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}])
def test_a_reader_that_is_slow_but_steady_gets_everything(
    impatient: RunningServer, trust: ssl.SSLContext, headers: dict[str, str]
) -> None:
    with SecureWire(impatient.url, trust, receive_buffer_bytes=4096) as slow:
        slow.send(request("GET", PATH, headers))
        slow.receive_head()
        received = b""
        until = time.monotonic() + 8
        while time.monotonic() < until:
            received += slow.take(4096)
            time.sleep(0.05)
        assert len(received) < 8 * MIB
        # With its tiny window the rest could take minutes on a busy machine.
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
        assert received + slow.take(16 * MIB - len(received)) == bytes(range(256)) * (16 * MIB // 256)


def test_a_reader_that_takes_nothing_is_cut(impatient: RunningServer, trust: ssl.SSLContext) -> None:
    files = open_files(impatient.pid)
    with SecureWire(impatient.url, trust, receive_buffer_bytes=4096) as lazy:
        lazy.send(request("GET", PATH))
        assert eventually(lambda: open_files(impatient.pid) == files + 1)
        assert eventually(lambda: open_files(impatient.pid) == files)


def test_what_a_client_does_not_read_is_counted(impatient: RunningServer, trust: ssl.SSLContext) -> None:
    with SecureWire(impatient.url, trust) as wire, SecureWire(impatient.url, trust, receive_buffer_bytes=4096) as lazy:
        lazy.send(request("GET", PATH))
        assert eventually(lambda: metric(wire, "headwater_sending_bytes") > 8 * MIB)
        assert eventually(lambda: metric(wire, "headwater_sending_bytes") == 0)


def test_clients_that_stop_in_the_handshake_are_dropped_and_stop_nobody(
    secure: RunningServer, trust: ssl.SSLContext
) -> None:
    files = open_files(secure.pid)
    hello = client_hello()
    with ExitStack() as stack:
        stopped = []
        for number in range(STOPPED):
            stopped.append(stack.enter_context(Wire(secure.url)))
            with suppress(ConnectionError):  # Of thousands, the first are dropped before the last begin.
                stopped[-1].send(hello[: number * 2 % (2 * len(hello))])
            if number % 200 == 199:
                with SecureWire(secure.url, trust) as wire:
                    assert wire.ask("GET", "/healthz").status == 200
        for one in stopped:
            with suppress(ConnectionResetError):
                one.rest()
    assert eventually(lambda: open_files(secure.pid) <= files)
    print(f"{STOPPED} clients stopped in their handshake")


def client_hello() -> bytes:
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "data",
    [
        request("GET", "/healthz"),
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        b"\r\n\r\n\x00\x0d\x0a\x51\x55\x49\x54\x0a",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        bytes(1000),
        os.urandom(1000),
    ],
)
def test_what_is_not_tls_is_closed_without_a_line_in_the_log(
    secure: RunningServer, trust: ssl.SSLContext, data: bytes
) -> None:
    lines = len(logged(secure))
    with SecureWire(secure.url, trust) as wire:
        before = metric(wire, "headwater_tls_handshake_failures_total")
        for _ in range(20):
            with Wire(secure.url) as plain:
                plain.send(data)
                with suppress(ConnectionResetError):
                    assert b"HTTP/" not in plain.rest()
        assert eventually(lambda: metric(wire, "headwater_tls_handshake_failures_total") == before + 20)
    assert len(logged(secure)) == lines


def test_tls_on_a_plain_port_is_closed_without_a_line_in_the_log(server: RunningServer, trust: ssl.SSLContext) -> None:
    lines = len(logged(server))
    for _ in range(20):
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            SecureWire(server.url, trust)
    assert len(logged(server)) == lines


def send_new_keys(wire: SecureWire, count: int) -> None:
    """Change the keys of TLS 1.3 again and again, and ask the server to do the same; Python has no name for that."""
    secured = wire.socket
    assert isinstance(secured, ssl.SSLSocket)
    library = ctypes.CDLL(_ssl.__file__)
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
    # The handle comes after the head of the object and a reference.
    handle = ctypes.c_void_p.from_address(id(secured._sslobj) + object.__basicsize__ + 8).value  # type: ignore[attr-defined]
    for _ in range(count):
        if library.SSL_key_update(handle, 1) != 1 or library.SSL_do_handshake(handle) != 1:
            raise ConnectionError("the server takes no more keys")


def test_a_client_that_only_changes_its_keys_is_cut(secure: RunningServer, trust: ssl.SSLContext) -> None:
    with SecureWire(secure.url, trust) as wire:
        wire.socket.setblocking(True)
        send_new_keys(wire, 100)
        assert wire.ask("GET", "/healthz").status == 200
        with pytest.raises(OSError):
            send_new_keys(wire, 6_000)
            wire.ask("GET", "/healthz")
        with SecureWire(secure.url, trust) as other:
            assert other.ask("GET", "/healthz").status == 200


def test_a_record_that_was_tampered_with_ends_the_connection(secure: RunningServer, trust: ssl.SSLContext) -> None:
    lines = len(logged(secure))
    with SecureWire(secure.url, trust) as wire:
        with socket.socket(fileno=os.dup(wire.socket.fileno())) as below:
            below.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
        with suppress(OSError):
            wire.rest()
    with SecureWire(secure.url, trust) as wire:
        assert wire.ask("GET", "/healthz").status == 200
    assert len(logged(secure)) == lines


# -- Renewal -----------------------------------------------------------------------------------------------------------


@contextmanager
def shaking_hands(server: RunningServer, trust: ssl.SSLContext) -> Iterator[list[int]]:
    """Connect again and again meanwhile; the serial numbers that were seen, and no handshake fails."""
    serials: list[int] = []
    failures: list[Exception] = []
    over = threading.Event()

    def connect() -> None:
        while not over.is_set():
            try:
                with SecureWire(server.url, trust) as wire:
                    assert wire.ask("GET", "/healthz").status == 200
                    serials.append(wire.serial)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=connect) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield serials
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    assert failures == []


def await_serial(serials: list[int], wanted: Pair) -> None:
    """Wait until a certificate is in use, and for some handshakes more."""
    serial = x509.load_pem_x509_certificate(wanted.cert.read_bytes()).serial_number
    assert eventually(lambda: serials[-1] == serial)
    after = len(serials)
    assert eventually(lambda: len(serials) > after + 50)


def swap_links(new: Pair, live: Pair) -> None:
    for source, link in zip(new, live, strict=True):
        fresh = link.with_suffix(".fresh")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(source)
        fresh.replace(link)


def write_in_halves(new: Pair, live: Pair) -> None:
    for source, target in zip(new, live, strict=True):
        data = source.read_bytes()
        with target.open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            time.sleep(0.2)
            file.write(data[len(data) // 2 :])


def certificate_first(new: Pair, live: Pair) -> None:
    shutil.copy(new.cert, live.cert)
    time.sleep(0.3)
    shutil.copy(new.key, live.key)


def key_first(new: Pair, live: Pair) -> None:
    shutil.copy(new.key, live.key)
    time.sleep(0.3)
    shutil.copy(new.cert, live.cert)


@pytest.mark.parametrize("renew", [certificate_first, key_first, write_in_halves, swap_links])
def test_no_handshake_fails_while_a_certificate_is_renewed(
    authority: Authority, tmp_path: Path, renew: Callable[[Pair, Pair], None]
) -> None:
    old, new = authority.issue("old"), authority.issue("new")
    live = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    old.copy_to(live)
    trust = authority.trusting()
    with running_server(*live.flags) as server, shaking_hands(server, trust) as serials:
        assert eventually(lambda: len(serials) > 50)
        asking = threading.Event()
        renewals = 0

        def ask() -> None:
            while not asking.wait(0.05):
                server.process.send_signal(signal.SIGHUP)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            while not renewals or len(serials) < HANDSHAKES:
                wanted = old if renewals % 2 else new
                renew(wanted, live)
                renewals += 1
                await_serial(serials, wanted)
        finally:
            asking.set()
            thread.join(10)
    switches = sum(one != other for one, other in pairwise(serials))
    assert len(set(serials)) == 2
    # Two threads note what they saw, so one may be late by a handshake.
    assert renewals <= switches <= 3 * renewals
    print(f"{len(serials)} handshakes during {renewals} renewals, none failed")


def test_files_that_do_not_fit_together_keep_the_old_certificate(authority: Authority, tmp_path: Path) -> None:
    first, second, third = (authority.issue(name) for name in ("first", "second", "third"))
    live = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    first.copy_to(live)
    trust = authority.trusting()
    with running_server(*live.flags) as server:
        with SecureWire(server.url, trust) as kept:
            serial = kept.serial
            shutil.copy(second.cert, live.cert)
            server.process.send_signal(signal.SIGHUP)
            assert eventually(lambda: metric(kept, "headwater_tls_reload_failures_total") == 1)
            with SecureWire(server.url, trust) as wire:
                assert wire.serial == serial
            assert "does not belong to the certificate" in server.output()
            live.key.unlink()
            server.process.send_signal(signal.SIGHUP)
            assert eventually(lambda: metric(kept, "headwater_tls_reload_failures_total") == 2)
            for _ in range(3):
                server.process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
            assert metric(kept, "headwater_tls_reload_failures_total") == 2
            # Without a signal, too.
            third.copy_to(live)
            assert eventually(lambda: metric(kept, "headwater_tls_reloads_total") == 1, 15)
        with SecureWire(server.url, trust) as wire:
            assert wire.serial not in (serial, None)
        assert "PRIVATE" not in server.output()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda pair: pair.cert.write_text("nonsense"), "cannot be used for TLS"),
        (lambda pair: pair.key.write_text(""), "cannot be used for TLS"),
        (lambda pair: pair.key.unlink(), "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_at_the_start_are_a_problem(
    authority: Authority, tmp_path: Path, damage: Callable[[Pair], object], problem: str
) -> None:
    live = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    authority.issue("damaged").copy_to(live)
    damage(live)
    with pytest.raises(SettingsError, match=problem):
        Certificates(Settings(tls_cert=str(live.cert), tls_key=str(live.key)))


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(pair: Pair, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", str(pair.key), "-aes256", "-passout", "pass:secret", "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(SettingsError, match="has a passphrase"):
        Certificates(Settings(tls_cert=str(pair.cert), tls_key=str(locked)))


# -- Client certificates -----------------------------------------------------------------------------------------------

SPARK = ClientNames(uris=("spiffe://prod/spark",), dns=("spark.example", "b.example"))


@pytest.fixture(scope="module")
def known(authority: Authority) -> Pair:
    return authority.issue("spark", "URI:spiffe://prod/spark,DNS:spark.example,DNS:b.example")


def answers(url: str, context: ssl.SSLContext) -> bool:
    """Whether the server answers; with TLS 1.3 a client learns of a refusal only after its own handshake."""
    try:
        with SecureWire(url, context) as wire:
            return wire.ask("GET", "/healthz").status == 200
    except OSError:
        return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("mode", ["required", "optional"])
def test_client_certificates_are_verified(
    authority: Authority, pair: Pair, known: Pair, tmp_path: Path, *, mode: str, version: ssl.TLSVersion
) -> None:
    stranger = Authority(tmp_path, "stranger").issue("spark", "URI:spiffe://prod/spark")
    expired = authority.issue("expired", "URI:spiffe://prod/spark", days=-1)
    with running_server(*pair.flags, "--tls-client-ca", str(authority.ca), "--tls-client", mode) as server:

        def welcomes(client: Pair | None) -> bool:
            context = authority.trusting(client)
            context.maximum_version = version
            return answers(server.url, context)

        assert welcomes(known)
        assert not welcomes(stranger)
        assert not welcomes(expired)
        assert welcomes(None) == (mode == "optional")


def test_a_connection_knows_the_names_of_its_client(authority: Authority, pair: Pair, known: Pair) -> None:
    settings = Settings(
        port=0,
        tls_cert=str(pair.cert),
        tls_key=str(pair.key),
        tls_client_ca=str(authority.ca),
        tls_client="optional",
    )

    async def names_with(client: Pair | None, server: Server, url: str) -> ClientNames:
        def ask() -> SecureWire:
            wire = SecureWire(url, authority.trusting(client))
            assert wire.ask("GET", "/healthz").status == 200
            return wire

        wire = await asyncio.get_running_loop().run_in_executor(None, ask)
        [connection] = server.connections
        assert isinstance(connection, Connection)
        found = connection.client_names
        wire.close()
        for _ in range(500):
            if not server.connections:
                break
            await asyncio.sleep(0.01)
        return found

    async def run() -> None:
        async with bench() as node:
            server = Server(settings)
            url = await server.listen()
            server.serve(node.node)
            assert await names_with(known, server, url) == SPARK
            assert await names_with(None, server, url) == NO_NAMES
            await server.drain()

    asyncio.run(run())


def test_a_certificate_that_has_ended_is_no_credential_on_a_connection_that_lasts(
    tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    client = authority.issue_for_seconds("brief", "URI:spiffe://prod/brief", 8)
    flags = (*pair.flags, "--tls-client-ca", str(authority.ca), "--tls-client", "optional")
    more = '[[certificate]]\nname = "spiffe://prod/brief"\ngrants = ["* *"]\n'
    with (
        guarded(tmp_path, {}, *flags, more=more) as guard,
        SecureWire(guard.server.url, authority.trusting(client)) as wire,
    ):
        assert wire.ask("PUT", PATH, TEXT, b"text").status == 201
        assert eventually(lambda: wire.ask("GET", PATH).status == 401, 20)
        refused(wire.ask("GET", PATH), 401, "token_expired")


def test_a_certificate_without_names_has_none() -> None:
    assert names_of(None) == names_of({}) == names_of({"subject": ()}) == NO_NAMES


# -- The end, and operators --------------------------------------------------------------------------------------------


def test_a_shutdown_answers_what_waits_and_ends_live_reads(pair: Pair, trust: ssl.SSLContext) -> None:
    with running_server(*pair.flags) as server, ExitStack() as stack:
        poll, tail, idle = (stack.enter_context(SecureWire(server.url, trust)) for _ in range(3))
        stopped = stack.enter_context(Wire(server.url))
        assert idle.ask("PUT", PATH, TEXT, b"abc").status == 201
        poll.send(request("GET", f"{PATH}?offset=now&live=long-poll&timeout_ms=60000"))
        events = tail.open_sse(f"{PATH}?offset=-1&live=sse")
        assert events.event().data == "abc"
        assert poll.silent_for(0.2)
        server.process.terminate()
        assert poll.receive().status == 204
        assert poll.ended()
        events.rest()
        assert idle.ended()
        with suppress(ConnectionResetError):
            assert stopped.ended()
        assert server.process.wait(8) == 0


OPERATORS = ["/metrics", "/__headwater/status", "/__headwater/buckets"]


@pytest.mark.parametrize("flags", ["plain", "secure"])
def test_operators_have_a_listener_of_their_own(pair: Pair, authority: Authority, flags: str) -> None:
    with running_server("--ops", "127.0.0.1:0", *(pair.flags if flags == "secure" else ())) as server:
        assert eventually(lambda: "Operators are served at " in server.output())
        [line] = [line for line in logged(server) if line.startswith("Operators are served at ")]
        ops_url = line.removeprefix("Operators are served at ").rstrip(".")
        assert ops_url.startswith("https:" if flags == "secure" else "http:")

        def connect(url: str) -> Wire:
            return SecureWire(url, authority.trusting()) if flags == "secure" else Wire(url)

        with connect(server.url) as main, connect(ops_url) as ops:
            assert main.ask("PUT", PATH, TEXT, b"abc").status == 201
            for path in OPERATORS:
                refused(main.ask("GET", path), 404, "not_found")
                assert ops.ask("GET", path).status == 200
            # A job that compacts the lake has one URL; this server has no lake.
            refused(main.ask("POST", "/__headwater/swap", {}, b"{}"), 501, "not_implemented")
            refused(main.ask("PUT", "/metrics"), 404, "not_found")
            for method, path in [("GET", PATH), ("PUT", "/v1/stream/t"), ("DELETE", PATH), ("GET", "/agents/run-1")]:
                refused(ops.ask(method, path), 404, "not_found")
            refused(ops.ask("POST", "/__headwater/describe", {}, b"{}"), 404, "not_found")
            for wire in (main, ops):
                assert [wire.ask("GET", path).status for path in ("/healthz", "/readyz")] == [200, 200]
            assert main.ask("GET", PATH).body == b"abc"
