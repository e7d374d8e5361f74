"""The guide to the internet: its blocks run in order, as in one shell, and what it says of them holds."""

import http.server
import os
import re
import shlex
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headwater.access import policy
from headwater.testing import RunningServer, running_server

from ..access.signing import jwks, make, signer
from .node_project import GUIDES, MODULES, NODE, RUN_SECONDS_MAX, NodeProject, wait_until

PAGE = (GUIDES / "internet.md").read_text()
BLOCK = re.compile(
    r"^(<!-- not run: [^\n]+ -->\n)?```(bash|toml|python|typescript|javascript|text)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
BLOCKS = BLOCK.findall(PAGE)
NAMED = re.compile(r"(?:#|//) (\S+)\n(.*)", re.DOTALL)
JWKS = "https://login.example/.well-known/jwks.json"
ROOM = "/v1/stream/chat/room-42"
PAGE_MAIN = """
import { follow } from "./follow.js";
const [stream, first, second] = process.argv.slice(2);
const tickets = [first, second];
const getTicket = async () => {
  if (tickets.length === 1) console.log("second ticket");
  return tickets.shift();
};
await follow(stream, getTicket, (messages) => messages.forEach((one) => console.log(one)));
"""
CLIENT_MAIN = """
import { open } from "./session.ts";
const [stream, first, second] = process.argv.slice(2);
const began = Date.now();
let used = 0;
const getTicket = async () => {
  if (Date.now() - began < 1000) return first;
  if (used++ === 0) console.log("second ticket");
  return second;
};
const session = await open(stream, getTicket);
session.subscribeJson(({ items }) => items.forEach((one) => console.log(one)));
await session.closed;
"""


class Walk:
    """A reader who types what the page shows, in one folder."""

    def __init__(self, folder: Path, port: int, keys_url: str) -> None:
        self.folder, self.port = folder, port
        self.replaced = {"4437": str(port), JWKS: keys_url}
        self.printed = ""
        self.server: RunningServer
        self._serving = ExitStack()

    def close(self) -> None:
        self._serving.close()

    def take(self, language: str, text: str) -> None:
        for shown, ours in self.replaced.items():
            text = text.replace(shown, ours)
        if language == "bash" and text.startswith("headwater serve"):
            self._serve(text)
        elif language == "bash":
            self.run(text)
        elif language == "text":
            assert text in self.printed, f"The page shows\n{text}\nand this was printed:\n{self.printed}"
        else:
            found = NAMED.fullmatch(text)
            assert found, f"A block of {language} must begin with the name of its file:\n{text}"
            with (self.folder / found[1]).open("a" if language == "toml" else "x") as file:
                file.write(found[2])
            if language == "toml":
                policy.load(self.folder / found[1])

    def run(self, text: str) -> str:
        """Run lines in the shell; what they export is there for the next ones."""
        kept = "exported.sh"
        script = f"[ ! -f {kept} ] || . ./{kept}\n{text}\nexport -p > {kept}"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        self.printed = done.stdout
        return done.stdout

    def _serve(self, text: str) -> None:
        """Serve until the next such block: on this machine only, and on a free port."""
        words = shlex.split(text.replace("\\\n", " "))[2:]
        for name, value in (("--data", "data"), ("--host", "0.0.0.0")):
            at = words.index(name)
            assert words[at + 1] == value
            del words[at : at + 2]
        flags = [str(self.folder / word) if re.fullmatch(r"[\w-]+\.(pem|toml)", word) else word for word in words]
        self._serving.close()
        running = running_server("--access-log", "--port", str(self.port), *flags, data=self.folder / "data")
        self.server = self._serving.enter_context(running)

    def ask(self, method: str, path: str, token: str, body: bytes | None = None) -> int:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        url = f"https://localhost:{self.port}{path}"
        request = urllib.request.Request(url, body, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.folder / "cert.pem"))
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as response:
                status: int = response.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return status


@contextmanager
def serving_keys() -> Iterator[str]:
    """An identity provider's key set, at this URL."""
    document = jwks({"k1": signer("RS256")})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(document)))
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{provider.server_port}/jwks.json"
        finally:
            provider.shutdown()


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The page, walked to its end."""
    folder = tmp_path_factory.mktemp("internet")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as taken:
        port = taken.server_port
    with serving_keys() as keys_url:
        walk = Walk(folder, port, keys_url)
        # What `npm install @durable-streams/client` leaves there.
        (folder / "node_modules").symlink_to(MODULES)
        (folder / "package.json").write_text('{"type": "module"}')
        try:
            for skipped, language, text in BLOCKS:
                if not skipped:
                    walk.take(language, text)
            yield walk
        finally:
            walk.close()


def admin(walk: Walk) -> str:
    return (walk.folder / "admin.token").read_text().strip()


def ticket(walk: Walk, seconds: int, name: str = "chat/room-42") -> str:
    return walk.run(f"headwater token sign --key app-2026.key --for {seconds}s 'read {name}'").strip()


def test_every_block_of_the_page_runs(walk: Walk) -> None:
    assert len(BLOCKS) == PAGE.count("\n```") // 2
    assert walk.server.process.poll() is None


def test_the_types_of_the_page_are_right(tmp_path: Path) -> None:
    files = [NAMED.fullmatch(text) for _, language, text in BLOCKS if language == "typescript"]
    project = NodeProject(tmp_path / "project", [(file[1], file[2], "") for file in files if file], {})
    assert sorted(path.name for path in project.folder.glob("*.ts")) == ["session.ts", "ticket.ts"]
    project.check()


@pytest.mark.parametrize("main", [PAGE_MAIN, CLIENT_MAIN], ids=["EventSource", "official client"])
def test_a_reader_goes_on_after_its_ticket_has_ended_and_gets_every_message_once(
    walk: Walk, main: str, tmp_path: Path
) -> None:
    name = f"chat/renewed-{len(main)}"
    assert walk.ask("PUT", f"/v1/stream/{name}", admin(walk)) == 201
    tickets = [ticket(walk, seconds, name) for seconds in (7, 60)]
    (walk.folder / "main.js").write_text(main)
    printed = tmp_path / "printed.txt"
    with printed.open("w") as output:
        reader = subprocess.Popen(
            [
                NODE,
                "--experimental-eventsource",
                "main.js",
                f"https://localhost:{walk.port}/v1/stream/{name}",
                *tickets,
            ],
            cwd=walk.folder,
            env={**os.environ, "NODE_EXTRA_CA_CERTS": str(walk.folder / "cert.pem"), "NODE_NO_WARNINGS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        numbers, deadline = 0, time.monotonic() + RUN_SECONDS_MAX
        while "second ticket" not in printed.read_text():
            assert time.monotonic() < deadline, printed.read_text()
            assert walk.ask("POST", f"/v1/stream/{name}", admin(walk), str(numbers).encode()) == 204
            numbers += 1
            time.sleep(0.1)
        assert walk.ask("POST", f"/v1/stream/{name}", admin(walk), b'"end"') == 204
        wait_until(lambda: "end" in printed.read_text(), "the last message has arrived")
    finally:
        reader.kill()
        reader.wait()
    assert numbers > 1
    lines = [line for line in printed.read_text().splitlines() if line != "second ticket"]
    assert lines == [*map(str, range(numbers)), "end"]


def test_users_of_the_provider_reach_their_own_streams_only(walk: Walk) -> None:
    claims: Mapping[str, object] = {
        "iss": "https://login.example/",
        "aud": "headwater",
        "sub": "ann",
        "exp": int(time.time()) + 60,
    }
    token = make(signer("RS256"), claims).decode()
    wait_until(lambda: walk.ask("PUT", "/v1/stream/users/ann/inbox", token) != 503, "the keys are fetched")
    assert walk.ask("PUT", "/v1/stream/users/ann/sent", token) == 201
    for name in ("users/ann-lee/inbox", "users/bob/inbox", "chat/room-42"):
        assert walk.ask("PUT", f"/v1/stream/{name}", token) == 403
    assert walk.ask("GET", "/metrics", token) == 403
    operator = make(signer("RS256"), {**claims, "roles": ["operator"]}).decode()
    assert walk.ask("GET", "/metrics", operator) == 200


def test_all_tickets_of_a_user_end_with_the_entry_that_the_page_shows(walk: Walk) -> None:
    [entry] = re.findall(r"`(\{ sub = [^`]+\})` in `subjects` of `\[revoked\]`", PAGE)
    before = (walk.folder / "auth.toml").read_text()
    sign = "headwater token sign --key app-2026.key --for 60s --sub user-17 'read chat/room-42'"
    token = walk.run(sign).strip()
    assert walk.ask("GET", ROOM, token) == 200
    later = re.sub(r"before = [^ ]+", "before = 2999-01-01T00:00:00Z", entry)
    (walk.folder / "auth.toml").write_text(f"{before}\n[revoked]\nsubjects = [{later}]\n")
    assert walk.ask("POST", "/__headwater/reload", admin(walk), b"") == 200
    assert walk.ask("GET", ROOM, token) == 401
    assert walk.ask("GET", ROOM, ticket(walk, 60)) == 200
    (walk.folder / "auth.toml").write_text(before)
    assert walk.ask("POST", "/__headwater/reload", admin(walk), b"") == 200


def test_no_secret_is_in_the_log(walk: Walk) -> None:
    secret = ticket(walk, 60)
    walk.run(f'curl -fsS "$HEADWATER_URL{ROOM}?access_token={secret}"')
    printed = walk.server.output()
    assert secret.rpartition(".")[2] not in printed
    assert admin(walk) not in printed
