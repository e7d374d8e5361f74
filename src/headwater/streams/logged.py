"""The form that all commands have in the log."""

import msgspec


class Logged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Common to all commands: encoded as an array that begins with the tag."""
