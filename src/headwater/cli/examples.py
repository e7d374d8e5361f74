"""The examples at the end of a command's help."""

import click


def examples(*lines: str) -> str:
    """Return an epilog that shows these commands, one per line and unwrapped."""
    noun = "Example" if len(lines) == 1 else "Examples"
    return "\n".join(["\b", f"{noun}:", *(f"  {line}" for line in lines)])


def commands_in(command: click.Command) -> list[str]:
    """Return the example commands of a command's help."""
    return [line.strip() for line in (command.epilog or "").splitlines()[2:]]
