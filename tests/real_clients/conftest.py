"""A Node project with all scenarios, the reference server, and ours."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import running_server

from ..guides.node_project import NodeProject, install, wait_until

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*.mjs"))
LONG_POLL_SECONDS = "2"
"""As the reference has it: sessions that are left open end soon."""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> NodeProject:
    install()
    files = [(path.name, path.read_text(), "") for path in SCENARIOS]
    return NodeProject(tmp_path_factory.mktemp("real-clients") / "project", files, {})


@pytest.fixture(scope="session")
def reference(project: NodeProject) -> Iterator[str]:
    """The URL of the reference server."""
    with project.running("reference.mjs") as process:
        printed = project.printed("reference.mjs")

        def started() -> bool:
            assert process.poll() is None, printed.read_text()
            return re.search(r"^http://\S+\n", printed.read_text(), re.MULTILINE) is not None

        wait_until(started, "the reference server has started")
        yield printed.read_text().split()[0]


@pytest.fixture(scope="session")
def headwater(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of our server, which writes nearly everything to the lake at once and reads it back from there."""
    data = tmp_path_factory.mktemp("real-clients") / "data"
    with running_server("--long-poll-seconds", LONG_POLL_SECONDS, "--flush-bytes-max", "1", data=data) as server:
        yield server.url
