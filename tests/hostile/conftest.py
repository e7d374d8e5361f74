"""Prints one table of all scenarios after the run."""

import pytest

from .siege import HEADING, outcomes


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if outcomes:
        terminalreporter.section("hostile clients")
        for line in (HEADING, *map(str, outcomes)):
            terminalreporter.write_line(line)
