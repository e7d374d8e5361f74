"""The compiled modules: every `.pyx` file below `src`. All else about the package is in pyproject.toml.

Without a C compiler they are left out, and the modules in Python beside them do their work: decision 35. With
HEADWATER_REQUIRE_COMPILED=1 the build fails instead; with HEADWATER_PURE=1 they are not built.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

optional = os.environ.get("HEADWATER_REQUIRE_COMPILED", "") in ("", "0")
sources = [] if os.environ.get("HEADWATER_PURE", "") not in ("", "0") else sorted(Path("src").rglob("*.pyx"))
names = {".".join(source.relative_to("src").with_suffix("").parts): str(source) for source in sources}


class BuildModules(build_ext):
    """Says what to do about a module that must be built and cannot be."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError) as error:
            if optional:
                raise
            raise SystemExit(
                f"HEADWATER_REQUIRE_COMPILED is set, but {ext.name} cannot be compiled: install a C compiler and "
                f"Python's headers, or unset the variable to install without compiled modules. {error}"
            ) from error


modules = [Extension(name, [path], extra_compile_args=["-g0"], optional=optional) for name, path in names.items()]
setup(cmdclass={"build_ext": BuildModules}, ext_modules=modules)
