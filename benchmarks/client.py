"""A plain blocking client for everything that is not measured: creating, filling, reading back, deleting."""

import http.client
from dataclasses import dataclass
from types import TracebackType
from typing import Self

PAGES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection; header names in responses are lower case."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float) -> None:
        self.connection = http.client.HTTPConnection(*address, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.connection.close()

    def send(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> Answer:
        """Send one request and read the whole response; a broken connection raises OSError."""
        headers = {"Content-Type": content_type} if content_type else {}
        try:
            self.connection.request(method, path, body or None, headers)
            response = self.connection.getresponse()
            data = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, data)

    def must(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> Answer:
        """Send one request that must succeed; without it the measurement would be meaningless."""
        answer = self.send(method, path, body, content_type)
        if not 200 <= answer.status < 300:
            raise OSError(f"{method} {path} was answered with {answer.status}: {answer.body[:200]!r}")
        return answer

    def read(self, path: str) -> bytes:
        """Read a stream from its start to its tail, page by page."""
        pages, offset = [], "-1"
        for _ in range(PAGES_MAX):
            answer = self.must("GET", f"{path}?offset={offset}")
            pages.append(answer.body)
            following = answer.headers.get("stream-next-offset", offset)
            if answer.headers.get("stream-up-to-date") == "true" or following == offset:
                return b"".join(pages)
            offset = following
        raise OSError(f"{path} has more than {PAGES_MAX} pages.")
