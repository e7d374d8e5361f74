"""Where there is a C compiler, the compiled modules are built, so that every test runs with them."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from headwater import compiled

ROOT = Path(__file__).parent.parent
CAN_BUILD = shutil.which("cc") is not None and (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()


def run(source: str, **variables: str) -> str:
    """What a program prints that starts with these variables."""
    command = [sys.executable, "-c", source]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_every_compiled_module_is_named() -> None:
    found = {".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in ROOT.glob("src/**/*.pyx")}
    assert set(compiled.MODULES) == found


@pytest.mark.parametrize("path", sorted(ROOT.glob("src/**/*.pyx")), ids=lambda path: path.name)
def test_compiled_modules_use_nothing_private_of_other_objects(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not re.match(r"(from|import|cimport) ", line)]
    assert [line for line in lines if re.search(r"\b(?!self\b|_scanning\b)\w+(\)|\])?\._(?!_)\w", line)] == []


@pytest.mark.skipif(not CAN_BUILD, reason="there is no C compiler, or no headers of Python")
def test_compiled_modules_are_built_where_they_can_be() -> None:
    assert run("from headwater.compiled import is_compiled; print(is_compiled())", HEADWATER_PURE="") == "True"


def test_compiled_modules_are_not_used_if_that_is_asked_for() -> None:
    source = (
        "from headwater import compiled\n"
        "print(compiled.is_compiled(), *map(compiled.compiled, compiled.MODULES))\n"
        "import sys, headwater.http.server, headwater.node.node\n"
        "print(*[name for name in compiled.MODULES if name in sys.modules])"
    )
    assert run(source, HEADWATER_PURE="1") == "False None None"
