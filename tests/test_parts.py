"""The test command leaves nothing out: it names every folder that holds tests."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def named() -> set[str]:
    """Every place that the test command names, its braces spelled out."""
    text = (ROOT / "scripts" / "test").read_text()
    places: set[str] = set()
    for start, choices, end in re.findall(r"((?:src|tests)/[\w/]*)(?:\{([\w,.]+)\})?([\w/.]*)", text):
        places |= {f"{start}{choice}{end}" for choice in choices.split(",")}
    return places


def test_every_folder_of_tests_is_part_of_the_test_command() -> None:
    folders = {path.parent.relative_to(ROOT).parts[:2] for path in ROOT.glob("tests/*/**/test_*.py")}
    by_marker = {("tests", "conformance"), ("tests", "fuzz"), ("tests", "hostile"), ("tests", "torture")}
    assert {"/".join(folder) for folder in folders - by_marker} <= named()


def test_every_package_with_examples_in_its_docstrings_is_part_of_the_test_command() -> None:
    modules = [path for path in ROOT.glob("src/headwater/**/*.py") if ">>> " in path.read_text()]
    assert {"/".join(path.relative_to(ROOT).parts[:3]) for path in modules} <= named()
