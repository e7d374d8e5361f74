"""The compiled modules: every `.pyx` file below `src`. All else about the package is in pyproject.toml.

Without a C compiler they are left out, and the modules in Python beside them do their work: decision 35. With
HEADWATER_REQUIRE_COMPILED=1 the build fails instead; with HEADWATER_PURE=1 they are not built.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

optional = os.environ.get("HEADWATER_REQUIRE_COMPILED", "") in ("", "0")
sources = [] if os.environ.get("HEADWATER_PURE", "") not in ("", "0") else sorted(Path("src").rglob("*.pyx"))
names = {".".join(source.relative_to("src").with_suffix("").parts): str(source) for source in sources}
setup(
    ext_modules=[Extension(name, [path], extra_compile_args=["-g0"], optional=optional) for name, path in names.items()]
)
