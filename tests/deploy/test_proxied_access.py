"""Who decides behind a proxy, under the name that the files of `deploy/` have: access file, proxy, or nobody."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.access import tickets, tokens
from headwater.testing import RunningServer, running_server

from .proxies import PROXIES, PUBLIC_NAME, Proxy, find

pytestmark = pytest.mark.attack

PATH = "/v1/stream/chat/room-42"
PUBLIC = {"Host": PUBLIC_NAME, "Content-Type": "text/plain"}
KEY = secrets.token_bytes(32)
TOKEN = tokens.make("writer")
WRITER = {**PUBLIC, "Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module", params=sorted(PROXIES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    for program in [name, *(["openssl"] if name == "nginx" else [])]:
        if find(program) is None:
            pytest.skip(f"{program} is not installed")
    return name


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("access")
    key = folder / "app.key"
    key.write_text(base64.urlsafe_b64encode(KEY).decode())
    key.chmod(0o600)
    file = folder / "auth.toml"
    file.write_text(
        f"""version = 1
        [[token]]
        id = "writer"
        sha256 = "{tokens.digest(TOKEN.encode()).hex()}"
        grants = ["create,append chat/*"]
        [[key]]
        id = "app"
        file = "app.key"
        grants = ["read chat/*"]
        """
    )
    with running_server("--auth", str(file), "--proxies", "127.0.0.1") as server:
        yield server


@pytest.fixture(scope="module")
def proxy(kind: str, guarded: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with PROXIES[kind](urlsplit(guarded.url).netloc, tmp_path_factory.mktemp(kind)) as proxy:
        assert proxy.ask("PUT", PATH, b"hello", {**WRITER, "Stream-Closed": "true"}).status < 300
        yield proxy


def test_the_access_file_decides_behind_a_proxy(proxy: Proxy) -> None:
    refused = proxy.ask("GET", PATH, headers=PUBLIC)
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Bearer realm="headwater"')
    assert proxy.ask("GET", PATH, headers=WRITER).status == 403
    assert proxy.ask("GET", "/metrics", headers=PUBLIC).status == 401


def test_a_ticket_in_a_url_follows_a_stream_and_is_in_no_log(proxy: Proxy) -> None:
    ticket = tickets.sign(KEY, ["read chat/room-42"], key_id="app", seconds=600)
    target = f"{PATH}?offset=-1&live=sse&access_token={ticket}"
    with proxy.opened(target, PUBLIC) as response:
        assert (response.status, response.headers["Cache-Control"]) == (200, "no-cache, no-store")
        assert b"hello" in response.read()
    proxy.ask("GET", PATH, headers={"Host": PUBLIC_NAME, "Authorization": f"Bearer {ticket}"})
    logged = proxy.log.read_text()
    assert PATH in logged
    assert ticket.rpartition(".")[2] not in logged
    assert TOKEN not in logged


def test_failures_of_one_address_do_not_lock_out_another(proxy: Proxy) -> None:
    wrong = tickets.sign(bytes(32), ["read chat/room-42"], key_id="app", seconds=600)
    good = tickets.sign(KEY, ["read chat/room-42"], key_id="app", seconds=600)
    seen = {
        proxy.ask("GET", f"{PATH}?access_token={wrong}", headers=PUBLIC, source="127.0.0.2").status for _ in range(200)
    }
    assert 401 in seen
    assert proxy.ask("GET", f"{PATH}?access_token={good}", headers=PUBLIC, source="127.0.0.3").status == 200


def test_a_server_in_local_mode_refuses_the_name_of_the_proxy(kind: str, tmp_path: Path) -> None:
    with running_server() as server, PROXIES[kind](urlsplit(server.url).netloc, tmp_path) as proxy:
        assert proxy.ask("GET", "/healthz", headers=PUBLIC).status == 421


@pytest.mark.parametrize("flags", [["--no-auth"], ["--hosts", PUBLIC_NAME]], ids=" ".join)
def test_a_server_that_knows_the_name_or_lets_the_proxy_decide_answers(
    kind: str, flags: list[str], tmp_path: Path
) -> None:
    flags = [*flags, "--proxies", "127.0.0.1"]
    with running_server(*flags) as server, PROXIES[kind](urlsplit(server.url).netloc, tmp_path) as proxy:
        created = proxy.ask("PUT", PATH, headers=PUBLIC)
        assert (created.status, created.headers["Location"]) == (201, f"https://{PUBLIC_NAME}{PATH}")
