"""The core is pure: `protocol` and `streams` do no I/O, read no clock, use no randomness and are never async."""

import ast
from pathlib import Path

import pytest

import headwater

PACKAGE = Path(headwater.__file__).parent
MODULES = sorted(path for folder in ("protocol", "streams") for path in (PACKAGE / folder).rglob("*.py"))

FORBIDDEN_IMPORTS = {
    "asyncio",
    "headwater.settings",
    "os",
    "random",
    "secrets",
    "socket",
    "threading",
    "time",
    "uuid",
}
CLOCK_READINGS = {"now", "today", "utcnow"}


def impurities(source: str) -> list[str]:
    """Return one line for each thing in `source` that a pure module may not do."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt | ast.expr)]
    return [f"line {node.lineno}: {what}" for node in nodes for what in judge(node)]


def judge(node: ast.stmt | ast.expr) -> list[str]:
    match node:
        case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
            return ["is async"]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return ["is async" for generator in node.generators if generator.is_async]
        case ast.Import(names=names):
            return [f"imports {name.name}" for name in names if forbidden(name.name)]
        case ast.ImportFrom(module=str(module), names=names, level=0):
            full_names = [module, *(f"{module}.{name.name}" for name in names)]
            return [f"imports {name}" for name in full_names if forbidden(name)][:1]
        case ast.ImportFrom():
            return ["imports by a relative name"]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CLOCK_READINGS:
            return [f"calls {name}()"]
    return []


def forbidden(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in FORBIDDEN_IMPORTS)


def test_there_are_modules_to_judge() -> None:
    assert {path.parent.name for path in MODULES} >= {"protocol", "streams"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_core_module_is_pure(path: Path) -> None:
    assert impurities(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", "line 1: imports time"),
        ("import os.path", "line 1: imports os.path"),
        ("from random import random", "line 1: imports random"),
        ("from headwater import settings", "line 1: imports headwater.settings"),
        ("from headwater.settings import Settings", "line 1: imports headwater.settings"),
        ("from ..settings import Settings", "line 1: imports by a relative name"),
        ("\nasync def f(): pass", "line 2: is async"),
        ("[x async for x in y]", "line 1: is async"),
        ("datetime.now(UTC)", "line 1: calls now()"),
        ("today()", "line 1: calls today()"),
    ],
)
def test_an_impure_line_is_found(source: str, found: str) -> None:
    assert impurities(source) == [found]


@pytest.mark.parametrize("source", ["import timeit", "from datetime import datetime", "now = offsets.NOW", "f(now=1)"])
def test_a_pure_line_is_not_found(source: str) -> None:
    assert impurities(source) == []
