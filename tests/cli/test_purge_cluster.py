"""`headwater purge` in a cluster: nothing is left in the store of its nodes, nor in the files of its NATS servers."""

import json
from pathlib import Path

from headwater.client import Admin, Client
from headwater.testing.clusters import running_cluster
from headwater.testing.nats import NatsServers

from ..http.processes import eventually
from ..searching import holders
from .commands import Shell
from .test_purge import MARKER, NEVER, SECRET, Site, contents_of_others, write, write_everywhere

WAIT_SECONDS = 90.0


def in_nats(nats: NatsServers) -> list[str]:
    return [name for server in nats.servers for name in holders(server.folder / "store", MARKER)]


def test_any_node_purges_the_store_and_the_log(tmp_path: Path) -> None:
    with running_cluster(tmp_path, *NEVER, nodes=2, nats=3) as cluster:
        Shell(cluster.urls[0]).ok("cluster", "wait-ready", "--nodes", "2")
        for server in cluster.nodes:
            with Client(server.url) as client, Admin(server.url) as admin:
                here = Site(server, tmp_path / "lake", client, admin, Shell(server.url))
                write_everywhere(here)
                before = contents_of_others(here)
                assert here.found()
                assert in_nats(cluster.nats)
                here.purge("--prefix", SECRET, "--with-forks")
                here.purge("team/short")
                assert here.found() == []
                assert eventually(lambda: not in_nats(cluster.nats), WAIT_SECONDS), in_nats(cluster.nats)
                assert contents_of_others(here) == before
        digests = Shell(cluster.urls[0])("cluster", "verify", "--json")
        assert digests.code == 0, digests


def test_another_node_goes_on_with_a_purge(tmp_path: Path) -> None:
    with running_cluster(tmp_path, *NEVER, nodes=2, nats=1) as cluster:
        Shell(cluster.urls[0]).ok("cluster", "wait-ready", "--nodes", "2")
        keeper = json.loads(Shell(cluster.urls[0]).ok("cluster", "status", "--json").out)["keeper"]
        nodes = {f"n{number}": node for number, node in enumerate(cluster.nodes, 1)}
        [other] = [node for name, node in nodes.items() if name != keeper]
        with Client(other.url) as client, Admin(other.url) as admin:
            here = Site(other, tmp_path / "lake", client, admin, Shell(other.url))
            write(here)
            before = contents_of_others(here)
            purge_id = admin.purge(SECRET).id
            nodes[keeper].kill()

            def is_done() -> bool:
                return admin.purge_info(purge_id).stage == "done"

            assert eventually(is_done, WAIT_SECONDS)
            assert here.found() == []
            assert eventually(lambda: not in_nats(cluster.nats), WAIT_SECONDS), in_nats(cluster.nats)
            assert contents_of_others(here) == before
