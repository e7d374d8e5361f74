"""A file can be read in one sitting, and a function fits on a screen."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
MODULES = sorted((ROOT / "src").rglob("*.py"))


def test_there_are_modules_to_measure() -> None:
    assert len(MODULES) > 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_a_module_and_its_functions_are_small(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= FILE_LINES_MAX
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or node.lineno) - node.lineno < FUNCTION_LINES_MAX, node.name
