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


@pytest.mark.parametrize(("required", "succeeds"), [("1", False), ("", True)])
def test_without_a_compiler_a_build_fails_if_it_must_not_degrade(tmp_path: Path, required: str, succeeds: bool) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tmp_path)
    # One compiled module is enough, and is built faster than all.
    package = tmp_path / "src" / "headwater"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "_one.pyx").write_text("x = 1\n")
    variables = {"HEADWATER_REQUIRE_COMPILED": required, "HEADWATER_PURE": "", "CC": "/bin/false"}
    done = subprocess.run(
        [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_wheel('dist')"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode == 0) is succeeds, done.stderr
    sentence = "HEADWATER_REQUIRE_COMPILED is set, but headwater._one cannot be compiled: install a C compiler"
    assert (sentence in done.stderr) is not succeeds
    assert bool(list(tmp_path.glob("dist/*.whl"))) is succeeds
