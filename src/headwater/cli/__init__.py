"""The command line: one tree of commands under `headwater`."""

from headwater.cli.tree import main

__all__ = ["main"]
