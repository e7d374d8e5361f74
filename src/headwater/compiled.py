"""Compiled modules: the same work as the pure ones beside them, for the few functions that every request passes.

They are built at installation if there is a C compiler, and the server is complete without them. HEADWATER_PURE=1
leaves them unused, to compare. A compiled module is named like its pure one, with an underscore before it.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

VARIABLE = "HEADWATER_PURE"
PURE = bool(os.environ.get(VARIABLE))
"""Whether only modules in Python are used."""


def compiled(name: str) -> Any:
    """A compiled module by its full name; None if it was not built or is not to be used."""
    return None if PURE or find_spec(name) is None else import_module(name)
