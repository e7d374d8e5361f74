"""`headwater lake catalog`: what is printed works as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.lake.command import ENGINES

from ...lake.built_lakes import writing
from ..processes import usage_error
from .commands import headwater, output


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    with writing(data) as writer:
        writer.make("/team/notes", b"one")
        writer.flush()
    return data


def test_the_lines_for_pyiceberg_open_the_table(data: Path) -> None:
    program = output("catalog", "--data", str(data), "--engine", "pyiceberg")
    counted = subprocess.run(
        [sys.executable, "-c", f"{program}\nprint(messages.scan().count())"], capture_output=True, text=True, check=True
    )
    assert counted.stdout.split() == ["1"]


def test_every_engine_has_a_part_and_the_server_is_the_catalog_if_it_is_named(data: Path) -> None:
    text = output("catalog", "--data", str(data), "--server", "http://localhost:4437")
    assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == list(ENGINES)
    assert text.count("http://localhost:4437/iceberg") == 5


def test_a_lake_must_be_named() -> None:
    assert "Name a lake" in usage_error(headwater("lake", "catalog"))
