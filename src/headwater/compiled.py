"""Compiled modules: they do the work of pure modules for the usual requests.

They are built at installation if there is a C compiler, and the server is complete without them. HEADWATER_PURE=1
disables them, for comparison; HEADWATER_REQUIRE_COMPILED=1 makes an installation fail that would do without them.
Decision 35 says which pure modules each one stands for.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

PURE_VARIABLE = "HEADWATER_PURE"
REQUIRED_VARIABLE = "HEADWATER_REQUIRE_COMPILED"
MODULES = (
    "headwater.http.connection.fast._short_path",
    "headwater.http.wire._scanning",
)
PURE = os.environ.get(PURE_VARIABLE, "") not in ("", "0")
"""Whether only modules in Python are used."""


def compiled(name: str) -> Any:
    """A compiled module by its full name; None if it was not built or is not to be used."""
    assert name in MODULES
    return None if PURE or find_spec(name) is None else import_module(name)


def missing() -> list[str]:
    """The names of those that were not built."""
    return [name for name in MODULES if find_spec(name) is None]


def is_compiled() -> bool:
    """Whether all of them were built and may be used."""
    return not PURE and not missing()
