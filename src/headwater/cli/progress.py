"""The progress of a command: one line on standard error, redrawn in place and erased at the end.

    with Progress("Verifying") as progress:
        for done, item in enumerate(items, 1):
            ...
            progress.update(done, len(items), item.name)

Nothing is drawn where standard error is not a terminal. Threads may share a line.
"""

import shutil
import sys
import threading
import time
from types import TracebackType

from headwater.cli.terminal import coloured

REDRAW_SECONDS = 0.2
BAR_CHARACTERS = 24

_ERASE = "\r\x1b[K"


def bar(done: int, total: int) -> str:
    """Draw a bar.

    >>> bar(3, 12), bar(12, 12), bar(0, 0)
    ('[######..................]  25%', '[########################] 100%', '[........................]')
    """
    full = BAR_CHARACTERS * min(done, total) // total if total else 0
    drawn = f"[{'#' * full}{'.' * (BAR_CHARACTERS - full)}]"
    return f"{drawn} {100 * min(done, total) // total:3}%" if total else drawn


class Progress:
    """The progress line of one command."""

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._enabled = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._redraw_at = 0.0

    def show(self, text: str) -> None:
        """Show a text, for work whose end is not known."""
        self._draw(text, now=False)

    def update(self, done: int, total: int, remark: str = "") -> None:
        """Show a bar with what is done of the total, followed by a remark."""
        self._draw(f"{bar(done, total)} {remark}".rstrip(), now=total > 0 and done >= total)

    def _draw(self, text: str, *, now: bool) -> None:
        if not self._enabled:
            return
        with self._lock:
            if now or time.monotonic() >= self._redraw_at:
                self._redraw_at = time.monotonic() + REDRAW_SECONDS
                # A line that wraps could not be erased.
                line = f"{self._label} {text}".strip()[: shutil.get_terminal_size().columns - 1]
                sys.stderr.write(f"{_ERASE}{coloured(line, 'cyan', sys.stderr)}")
                sys.stderr.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            with self._lock:
                self._enabled = False
                sys.stderr.write(_ERASE)
                sys.stderr.flush()
