"""The pictures are drawn by their commands, and load nothing from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .pages import DOCS

IMAGES = DOCS / "images"


@pytest.mark.parametrize("picture", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_has_a_title_and_both_colour_schemes_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    assert root.findtext("{http://www.w3.org/2000/svg}title")
    assert root.findtext("{http://www.w3.org/2000/svg}desc")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(?:href|src)=|@import|url\((?!#)", text)


def test_the_recording_can_be_made_again(tmp_path: Path) -> None:
    for program in ("bash", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, str(IMAGES / "record"), str(tmp_path / "made.svg")]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # It ends with an error unless the reader got every message once.
    assert "none lost, none twice" in (tmp_path / "made.svg").read_text()
