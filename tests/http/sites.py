"""Web sites for tests in a browser: pages of any origin, and one whose name comes to mean another server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Document = tuple[str, bytes]
"""A content type and a body."""

BLANK: Document = ("text/html", b"<!doctype html><title>A page</title>")


class Site:
    """A web server on loopback. Its pages have whatever origin the name has by which the browser calls it."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {"/": BLANK}
        self.answers: dict[str, Callable[[], str]] = {}
        """What a path answers that is made anew for each request."""
        self.rebound_to: str | None = None
        """The URL of the server that the site's name means from now on, for everything that is not a document."""
        self.port = 0

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    def find(self, path: str) -> Document | None:
        if path in self.answers:
            return "text/plain", self.answers[path]().encode()
        return self.documents.get(path)


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        document = self.site.find(urlsplit(self.path).path)
        if document is not None:
            self._send(200, *document)
        elif self.site.rebound_to is not None:
            self._pass_on(self.site.rebound_to)
        else:
            self._send(404, "text/plain", b"")

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = _answer

    def _send(self, status: int, content_type: str, body: bytes, policy: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if policy is not None:
            self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, url: str) -> None:
        """Hand the request to the other server as the browser wrote it, `Host` and `Origin` included."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            content_type, policy = (response.headers.get(name) for name in ("Content-Type", "Content-Security-Policy"))
            self._send(response.status, content_type or "text/plain", response.read(), policy)
        finally:
            connection.close()


@contextmanager
def running_site() -> Iterator[Site]:
    """Run a site for the duration of the block."""
    site = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site})) as server:
        site.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
