"""Producers without a network, and answers for them."""

from typing import Any

from headwater.client.bodies import EncodedMessages
from headwater.client.producing import Batch, ProducerOptions, Producing
from headwater.client.retrying import RetryPolicy
from headwater.client.wire import Response

URL = "http://h/s"
POLICY = RetryPolicy(attempts_max=5, first_delay_seconds=1.0, dice=lambda: 0.0)
FOREVER = RetryPolicy(attempts_max=10_000, first_delay_seconds=0.001, delay_seconds_max=0.01)
FENCED = Response(403, {"producer-epoch": "5"})
GAP = Response(409, {"producer-expected-seq": "0"})


def producing(policy: RetryPolicy = POLICY, *, proven: bool = True, **options: Any) -> Producing[int]:
    """A producer, which has written before in its epoch unless it is not `proven` or claims one."""
    given = ProducerOptions("p", **{"linger_ms": 0.0, "batch_bytes_max": 1, **options})
    return Producing(URL, "text/plain", given, policy, _proven=proven and not given.auto_claim)


def accepted(batch: Batch[int]) -> Response:
    return Response(200, {"stream-next-offset": str(batch.seq), "producer-seq": str(batch.seq)})


def given_to(core: Producing[int], *texts: str) -> None:
    for at, text in enumerate(texts):
        core.add(EncodedMessages(text.encode()), at, now=0.0)


def taken(core: Producing[int], now: float = 0.0) -> list[Batch[int]]:
    batches = []
    while (batch := core.take(now)) is not None:
        batches.append(batch)
    return batches


def names(batches: list[Batch[int]]) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.seq) for batch in batches]
