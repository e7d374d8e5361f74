"""Every block of the guide runs, in order, against a fresh server."""

import re
import subprocess
import sys
from pathlib import Path

from headwater.testing import running_server

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "client.md"
URL = "http://127.0.0.1:4437"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_SECONDS_MAX = 30


def test_every_example_of_the_guide_runs() -> None:
    blocks = BLOCK.findall(GUIDE.read_text())
    assert blocks
    with running_server() as server:
        for block in blocks:
            command = [sys.executable, "-W", "error", "-c", block.replace(URL, server.url)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BLOCK_SECONDS_MAX, check=False)
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
