"""A server that is killed and restarted, always at the same address and on the same data."""

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port
from headwater.testing.servers import ServerNotStarted

STARTS_MAX = 5
FLAGS = (
    *("--journal-file-bytes", str(4 << 20), "--image-log-bytes", str(4 << 20), "--retention", "snapshot"),
    *("--flush-bytes-max", "400000", "--flush-segment-bytes", "100000", "--lake-history-seconds", "5"),
)
"""Small files, frequent images and flushes, and a short grace period, so that much happens in little time."""


class MortalServer:
    """A server that can be killed and restarted; used from one thread."""

    def __init__(self, data: Path) -> None:
        self._data, self._port = data, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.counts: Counter[str] = Counter()
        self._context: AbstractContextManager[RunningServer] | None = None
        self._server: RunningServer | None = None

    def __enter__(self) -> "MortalServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._end(kill=False)

    def start(self) -> None:
        for attempt in range(STARTS_MAX):
            context = running_server("--port", str(self._port), *FLAGS, data=self._data)
            try:
                self._server, self._context = context.__enter__(), context
                return
            except ServerNotStarted:
                if attempt == STARTS_MAX - 1:
                    raise

    def kill(self) -> None:
        """Kill the server; it is offline until it is started again."""
        self._end(kill=True)

    def _end(self, kill: bool) -> None:
        assert self._server is not None and self._context is not None
        if kill:
            self._server.kill()
        output = self._server.output()
        self._context.__exit__(None, None, None)
        self._server = self._context = None
        self.counts += Counter(lives=1, compactions=output.count("compaction ("))
        errors = [line for line in output.splitlines() if _is_error(line)]
        assert not errors, "\n".join(errors)


def _is_error(line: str) -> bool:
    """Whether the server logged an internal error; a swap that lost a race is none."""
    return any(word in line for word in ("ERROR", "CRITICAL", "Traceback")) and "the swap was refused" not in line
