"""The command line: one tree of commands under `headwater`."""

import atexit
import os
import sys
from contextlib import suppress
from typing import NoReturn

from headwater.cli.tree import main

__all__ = ["main", "run"]


def run() -> NoReturn:
    """Run the command that the process was started with, and end the process.

    At once: Arrow may still be reading ahead, in threads of its own, through files of ours. A thread that comes back to
    an interpreter that is being taken down makes it abort.
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
