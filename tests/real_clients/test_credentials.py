"""The official client on a server with an access file: a refused producer stops, and readers outlive their tickets."""

import json
from pathlib import Path

import pytest

from ..guides.node_project import NodeProject
from ..http.guarded import guarded
from ..http.sites import running_site

pytestmark = pytest.mark.attack


def test_a_refused_producer_stops_and_readers_go_on_with_new_tickets(project: NodeProject, tmp_path: Path) -> None:
    with guarded(tmp_path, {"reader": ["read *"]}) as guard, running_site() as backend:
        backend.answers["/ticket"] = lambda: guard.ticket("read real-clients/*", seconds=2)
        tickets = backend.url("127.0.0.1", "/ticket")
        printed = project.run("guarded.mjs", guard.server.url, tickets, guard.tokens["root"], guard.tokens["reader"])
    found = json.loads(printed.splitlines()[-1])
    # It takes 403 for a newer epoch, and would claim the next one for ever.
    assert found["producer"] == {"requests": 1, "errors": [["FetchError", 401]], "epoch": 0}
    for live in ("long-poll", "sse"):
        assert found[live] == {"ended": "none", "exact": True, "tickets": True}, live
