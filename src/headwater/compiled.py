"""Compiled modules: the same work as the pure ones beside them, for the few functions that every request passes.

They are built at installation if there is a C compiler, and the server is complete without them. HEADWATER_PURE=1
leaves them unused, to compare. A compiled module is named like its pure one, with an underscore before it.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

VARIABLE = "HEADWATER_PURE"
MODULES = (
    "headwater.http._short_path",
    "headwater.http.wire._scanning",
    "headwater.node._committing",
    "headwater.streams._appending",
)
PURE = bool(os.environ.get(VARIABLE))
"""Whether only modules in Python are used."""


def compiled(name: str) -> Any:
    """A compiled module by its full name; None if it was not built or is not to be used."""
    assert name in MODULES
    return None if PURE or find_spec(name) is None else import_module(name)


def is_compiled() -> bool:
    """Whether this process uses all of them."""
    return not PURE and None not in map(find_spec, MODULES)
