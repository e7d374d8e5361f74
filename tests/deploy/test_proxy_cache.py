"""A shared cache in front, which knows nothing of credentials: only what everybody may read is answered from it.

nginx's `proxy_cache` with its defaults keys on the URL alone, so `Authorization` is not in its key. It keeps what the
server says may be kept; with `proxy_cache_valid any`, also every answer that the server does not say it must not keep.
Caddy has no cache of its own: a caching one has to be built with a plugin, so there is none to test here.
"""

import os
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from headwater.testing.ports import free_port

from ..http.guarded import Guarded, guarded
from .proxies import TIMEOUT_SECONDS, Answer, find, running

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(find("nginx") is None, reason="nginx is not installed"),
]

CONFIG = """
{user}daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/client_body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    proxy_cache_path {folder}/cache keys_zone=pages:1m;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://{upstream};
            proxy_cache pages;
            {more}
            add_header X-Cache $upstream_cache_status always;
        }}
    }}
}}
"""
TEXT = {"Content-Type": "text/plain"}
GUARDED, PUBLIC = "/v1/stream/mine/page", "/v1/stream/open/page"
QUERIES = ("", "?offset=-1", "?offset=now", "?offset=-1&live=long-poll")


class Cache(NamedTuple):
    """nginx with a cache, in front of a server with an access file."""

    port: int
    folder: Path
    """Where it keeps pages."""
    guard: Guarded

    def ask(self, target: str, who: str | None = None, headers: dict[str, str] | None = None) -> Answer:
        """Send a GET through the cache, with the token of somebody or with none."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        credential = {} if who is None else self.guard.bearer(who)
        try:
            connection.request("GET", target, headers={**credential, **(headers or {})})
            with connection.getresponse() as response:
                return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module", params=["", "proxy_cache_valid any 1m;"], ids=["defaults", "greedy"])
def cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    folder, port = tmp_path_factory.mktemp("cache"), free_port()
    rights = {"alice": ["read mine/*"], "bob": ["read bobs/*"]}
    with guarded(tmp_path_factory.mktemp("access"), rights, anonymous=["read open/*"]) as guard:
        with guard.wire() as wire:
            for path in (GUARDED, PUBLIC):
                closed = {**TEXT, **guard.bearer("root"), "Stream-Closed": "true"}
                assert wire.ask("PUT", path, closed, b"some text").status == 201
        config = folder / "nginx.conf"
        user = "user root;\n" if os.geteuid() == 0 else ""
        upstream = urlsplit(guard.server.url).netloc
        config.write_text(CONFIG.format(user=user, folder=folder, port=port, upstream=upstream, more=request.param))
        command = [find("nginx") or "nginx", "-e", "stderr", "-p", str(folder), "-c", str(config)]
        with running(command, folder / "nginx.log", port, dict(os.environ), tls=False):
            yield Cache(port, folder / "cache", guard)


@pytest.mark.parametrize("query", QUERIES)
def test_a_guarded_page_is_never_answered_from_the_cache(cache: Cache, query: str) -> None:
    target = GUARDED + query
    for _ in range(3):
        page = cache.ask(target, "alice")
        assert (page.status, page.headers["X-Cache"]) in ((200, "MISS"), (204, "MISS"))
        assert cache.ask(target, "bob").status == 403
        assert cache.ask(target).status == 401


def test_a_refusal_is_not_kept_for_those_who_may_read(cache: Cache) -> None:
    target = f"{GUARDED}?offset=-1&first=refused"
    assert [cache.ask(target, who).status for who in (None, "bob", "alice", None)] == [401, 403, 200, 401]


def test_a_ticket_in_a_url_keeps_its_page_out_of_the_cache(cache: Cache) -> None:
    ticket = cache.guard.ticket("read mine/page")
    for _ in range(2):
        page = cache.ask(f"{GUARDED}?offset=-1&access_token={ticket}")
        assert (page.status, page.body, page.headers["X-Cache"]) == (200, b"some text", "MISS")
    assert cache.ask(f"{GUARDED}?offset=-1").status == 401


def test_an_etag_gets_nobody_an_answer_about_a_guarded_page(cache: Cache) -> None:
    etag = cache.ask(f"{GUARDED}?offset=-1", "alice").headers["ETag"]
    condition = {"If-None-Match": etag}
    # nginx asks for the whole page, to keep it, and would answer the condition itself from what it has.
    assert cache.ask(f"{GUARDED}?offset=-1", "alice", condition).status == 200
    assert cache.ask(f"{GUARDED}?offset=-1", "bob", condition).status == 403
    assert cache.ask(f"{GUARDED}?offset=-1", None, condition).status == 401


def test_a_public_page_is_answered_from_the_cache(cache: Cache) -> None:
    target = f"{PUBLIC}?offset=-1"
    first = cache.ask(target)
    assert (first.status, first.headers["X-Cache"], first.body) == (200, "MISS", b"some text")
    assert first.headers["Cache-Control"].startswith("public")
    for who in (None, "alice", "bob"):
        again = cache.ask(target, who)
        assert (again.status, again.headers["X-Cache"], again.body) == (200, "HIT", b"some text")


def test_what_was_read_with_a_credential_is_kept_only_if_everybody_may_read_it(cache: Cache) -> None:
    target = f"{PUBLIC}?offset=-1&first=alice"
    assert cache.ask(target, "alice").headers["X-Cache"] == "MISS"
    assert cache.ask(target).headers["X-Cache"] == "HIT"


def test_the_cache_holds_no_guarded_page(cache: Cache) -> None:
    cache.ask(f"{GUARDED}?offset=-1", "alice")
    cache.ask(f"{PUBLIC}?offset=-1")
    kept = [file.read_bytes() for file in cache.folder.rglob("*") if file.is_file()]
    assert kept
    assert not [page for page in kept if b"/mine/" in page]
