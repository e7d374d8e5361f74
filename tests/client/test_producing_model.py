"""The producer against a correct stream, over a faulty network."""

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.client.bodies import EncodedMessages
from headwater.client.errors import ClientError, OutcomeUnknown
from headwater.client.producing import Batch
from headwater.client.values import Appended
from headwater.client.wire import Request, Response

from .cores import FOREVER, producing, taken
from .script import LOST, UNREACHABLE


@dataclass
class Rules:
    """A stream that applies the rules of producers, and remembers the bytes of each number."""

    epoch: int = 0
    seq: int = -1
    data: list[bytes] = field(default_factory=list)
    bodies: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def take(self, request: Request) -> Response:
        epoch, seq = int(request.headers["Producer-Epoch"]), int(request.headers["Producer-Seq"])
        assert request.body is not None
        known = self.bodies.setdefault((str(epoch), str(seq)), request.body)
        assert known == request.body, "a number was used for other bytes"
        if epoch < self.epoch:
            return Response(403, {"producer-epoch": str(self.epoch)})
        expected = self.seq + 1 if epoch == self.epoch else 0
        if seq < expected:
            return Response(204, {"producer-seq": str(self.seq)})
        if seq > expected:
            return Response(409, {"producer-expected-seq": str(expected), "producer-received-seq": str(seq)})
        self.epoch, self.seq = epoch, seq
        self.data.append(request.body)
        return Response(200, {"stream-next-offset": str(len(self.data))})


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 6), fences=st.integers(0, 3))
def test_everything_is_written_once_and_in_order_over_any_network(seed: int, width: int, fences: int) -> None:
    """Requests and answers are lost, delayed and reordered; other instances may claim the epoch."""
    dice = random.Random(seed)
    stream = Rules()
    core = producing(FOREVER, in_flight_max=width, batch_bytes_max=4, auto_claim=fences > 0)
    flying: list[Batch[int]] = []
    late: list[Request] = []
    settled: dict[int, Appended | ClientError] = {}
    now, sent = 0.0, 0
    for _ in range(5_000):
        now += 0.005
        if sent < 60 and dice.random() < 0.5 and core.failure is None:
            core.add(EncodedMessages(b"%d." % sent), sent, now)
            sent += 1
        flying += taken(core, now)
        if fences and dice.random() < 0.01:
            stream.epoch, stream.seq, fences = stream.epoch + 1, -1, fences - 1
        if late and dice.random() < 0.3:
            stream.take(late.pop(dice.randrange(len(late))))
        if flying:
            batch = flying.pop(dice.randrange(len(flying)))
            settled.update(core.settle(batch, exchange(core.request(batch), stream, late, dice), now))
        elif core.idle and (sent == 60 or core.failure is not None):
            break
    written = b"".join(stream.data).decode().split(".")[:-1]
    assert written == [str(number) for number in range(len(written))]
    assert settled.keys() == set(range(sent))
    succeeded = [number for number, outcome in settled.items() if isinstance(outcome, Appended)]
    assert all(str(number) in written for number in succeeded)
    if core.failure is None:
        assert len(written) == sent
    else:
        assert isinstance(core.failure, OutcomeUnknown)


def exchange(request: Request, stream: Rules, late: list[Request], dice: random.Random) -> Any:
    fate = dice.random()
    if fate < 0.1:
        return UNREACHABLE
    if fate < 0.15:
        return Response(503, {}, b'{"code":"overloaded"}')
    if fate < 0.3:
        # It arrives after the client has given up waiting.
        late.append(request)
        return LOST
    answer = stream.take(request)
    if fate < 0.45:
        return LOST
    return answer if fate < 0.95 else Response(503)
