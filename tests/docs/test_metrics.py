"""The page of metrics has every metric of a server, and the alert rules refer to metrics that exist."""

import re
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.testing import RunningServer, running_server
from headwater.testing.clusters import running_cluster

from .pages import DOCS, PAGES, blocks, name_of

PAGE = DOCS / "reference" / "metrics.md"
OF_CLUSTER = "headwater_cluster_"
NAME = re.compile(r"\b(?:headwater|process)_[a-z_]+\b")
OF_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


class Metric(NamedTuple):
    name: str
    kind: str
    meaning: str


def listed() -> list[Metric]:
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    return [Metric(*row) for row in rows]


def shown_by(server: RunningServer) -> list[Metric]:
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        text = response.read().decode()
    meanings = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    return [Metric(name, kinds[name], meaning) for name, meaning in meanings.items()]


def test_the_page_lists_every_metric_of_a_running_server_and_no_others(tmp_path: Path) -> None:
    access = tmp_path / "auth.toml"
    access.write_text('version = 1\n[anonymous]\ngrants = ["observe *"]\n')
    with running_server("--auth", str(access), data=tmp_path / "data") as server:
        assert [metric for metric in listed() if not metric.name.startswith(OF_CLUSTER)] == shown_by(server)


def test_the_page_lists_every_metric_of_a_node_of_a_cluster_and_no_others(tmp_path: Path) -> None:
    access = tmp_path / "auth.toml"
    access.write_text('version = 1\n[anonymous]\ngrants = ["observe *"]\n')
    with running_cluster(tmp_path, "--auth", str(access), nodes=1, nats=1) as cluster:
        shown = shown_by(cluster.nodes[0])
    assert [metric for metric in listed() if metric.name != "headwater_free_disk_bytes"] == shown


@pytest.mark.parametrize("page", [page for page in PAGES if page != PAGE], ids=name_of)
def test_a_metric_that_a_page_speaks_of_is_one(page: Path) -> None:
    known = {metric.name for metric in listed()}
    shown = "".join(block.text for block in blocks(page) if block.language in {"yaml", "promql"})
    named = set(NAME.findall(shown)) | set(re.findall(r"`((?:headwater|process)_[a-z_]+)", page.read_text()))
    assert {OF_HISTOGRAM.sub("", name) for name in named} <= known
