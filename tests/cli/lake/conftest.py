"""A lake that a server has written, and a copy of it to damage."""

import shutil
from pathlib import Path

import pytest

from ...lake.built_lakes import tell_a_story, writing
from .commands import Written


@pytest.fixture(scope="package")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    data = tmp_path_factory.mktemp("written") / "data"
    with writing(data) as writer:
        tell_a_story(writer)
        return Written(data, writer.contents())


@pytest.fixture
def copied(written: Written, tmp_path: Path) -> Path:
    """A copy of the lake, which a test may damage."""
    return Path(shutil.copytree(written.lake, tmp_path / "lake"))
