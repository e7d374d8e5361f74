"""A server that is killed and restarted: producers and followers resume."""

import threading
from pathlib import Path
from typing import Any

from headwater.client import Client, RetryPolicy
from headwater.testing import running_server
from headwater.testing.ports import free_port

PATIENT = RetryPolicy(attempts_max=400, first_delay_seconds=0.01, delay_seconds_max=0.1)
LIVES = 3
MESSAGES_PER_LIFE = 200
JOIN_SECONDS = 60.0


def test_a_producer_and_a_follower_outlive_the_server(tmp_path: Path) -> None:
    port = free_port()
    seen: list[Any] = []
    with Client(f"http://127.0.0.1:{port}/v1/stream", retry=PATIENT, follow_retry=PATIENT) as client:
        stream = client.stream("s", content_type="application/json")

        def follow() -> None:
            with stream.follow() as follower:
                seen.extend(follower.messages())

        follower = threading.Thread(target=follow)
        producer = stream.producer("p", linger_ms=1, batch_messages_max=10)
        for life in range(LIVES):
            with running_server("--port", str(port), data=tmp_path / "data") as server:
                if life == 0:
                    stream.create()
                    follower.start()
                futures = [
                    producer.append_json(life * MESSAGES_PER_LIFE + number) for number in range(MESSAGES_PER_LIFE)
                ]
                # Some of it is written, some is in flight, some is pending.
                futures[MESSAGES_PER_LIFE // 4].result(JOIN_SECONDS)
                if life == LIVES - 1:
                    producer.close_stream()
                    producer.close()
                    follower.join(JOIN_SECONDS)
                else:
                    server.kill()
    assert not follower.is_alive()
    assert seen == list(range(LIVES * MESSAGES_PER_LIFE))
