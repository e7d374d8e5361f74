"""A function fits on a screen."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FUNCTION_LINES_MAX = 60
MODULES = sorted((ROOT / "src").rglob("*.py"))


def test_there_are_modules_to_measure() -> None:
    assert len(MODULES) > 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_the_functions_of_a_module_are_small(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or node.lineno) - node.lineno < FUNCTION_LINES_MAX, node.name
