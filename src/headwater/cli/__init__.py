"""The command line: one tree of commands under `headwater`."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from headwater.cli.tree import main

__all__ = ["main", "run"]


def run() -> NoReturn:
    """Run the command line and end the process without tearing the interpreter down.

    Threads of Arrow may still be reading ahead through our files; one that returns to an interpreter in teardown
    aborts the process.
    """
    code: str | int | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)
