"""A client of a real cluster, whose node is killed: nothing is lost, nothing is doubled."""

import threading
from pathlib import Path
from typing import Any

from headwater.client import Client
from headwater.testing.clusters import running_cluster

MESSAGES = 600
JOIN_SECONDS = 60.0


def test_a_producer_and_a_follower_outlive_a_node_of_a_cluster(tmp_path: Path) -> None:
    seen: list[Any] = []
    with running_cluster(tmp_path) as cluster, Client(cluster.urls) as client:
        stream = client.stream("s", content_type="application/json")
        stream.create()

        def follow() -> None:
            with Client(cluster.urls) as other, other.stream("s").follow() as follower:
                seen.extend(follower.messages())

        following = threading.Thread(target=follow, daemon=True)
        following.start()
        with stream.producer("p", linger_ms=0) as producer:
            for number in range(MESSAGES):
                producer.append_json(number).result(JOIN_SECONDS)
                if number == MESSAGES // 2:
                    cluster.nodes[0].kill()
            producer.close_stream()
        following.join(JOIN_SECONDS)
        assert not following.is_alive()
        assert seen == list(range(MESSAGES)) == stream.read_json()
