"""The official packages as clients: what they do against the reference server they do against ours."""

import json
from typing import Any

import pytest

from ..guides.node_project import HERE as INSTALLED
from ..guides.node_project import NodeProject

PACKAGES = {
    "client": ["@durable-streams/client"],
    "state": ["@durable-streams/state"],
    "chats": ["@durable-streams/aisdk-transport", "@durable-streams/tanstack-ai-transport"],
    "yjs": ["@durable-streams/y-durable-streams"],
}


def results(project: NodeProject, scenario: str, url: str) -> Any:
    """What a scenario observed, which is its last line; packages may print others before."""
    return json.loads(project.run(f"{scenario}.mjs", url).splitlines()[-1])


@pytest.mark.parametrize("scenario", PACKAGES)
def test_a_package_does_with_headwater_what_it_does_with_the_reference(
    scenario: str, project: NodeProject, reference: str, headwater: str
) -> None:
    expected = results(project, scenario, reference)
    found = results(project, scenario, headwater)
    assert found.keys() == expected.keys()
    for what in expected:
        assert found[what] == expected[what], what


def test_every_official_package_that_is_installed_is_used() -> None:
    pinned = json.loads((INSTALLED / "package.json").read_text())["devDependencies"]
    official = {name for name in pinned if name.startswith("@durable-streams/")}
    assert official == {"@durable-streams/server", *(name for names in PACKAGES.values() for name in names)}


def test_the_lock_names_no_registry() -> None:
    assert '"resolved"' not in (INSTALLED / "package-lock.json").read_text()
