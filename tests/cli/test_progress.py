"""The progress line: drawn over itself on a terminal, erased at the end, absent elsewhere."""

import io
import sys

import pytest

from headwater.cli.printing import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def put_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal; not a fixture, because pytest replaces standard error after the set-up."""
    terminal = Terminal()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def lines_of(file: io.StringIO) -> list[str]:
    """Return the lines that were drawn, one over the other."""
    return file.getvalue().split("\r\x1b[K")[1:]


def test_a_line_is_drawn_over_the_one_before_and_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch)
    with Progress("Copying") as progress:
        progress.update(1, 4, "first")
        progress.update(2, 4, "too soon after the first")
        progress.update(4, 4)
    assert lines_of(terminal) == [
        "Copying [######..................]  25% first",
        "Copying [########################] 100%",
        "",
    ]


def test_a_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20")
    with Progress() as progress:
        progress.show("x" * 100)
    assert lines_of(terminal) == ["x" * 19, ""]


def test_nothing_is_drawn_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with Progress("Copying") as progress:
        progress.update(4, 4)
    assert file.getvalue() == ""
