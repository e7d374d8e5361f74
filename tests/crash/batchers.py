"""Writers of batches: frames that are separate appends, and frames that are one append."""

from collections.abc import Mapping
from itertools import pairwise

from .clients import BUCKET, Client, Response
from .ledger import Life
from .messages import Composed, Key, compose_batch, frame
from .writers import GONE, Appender, IdempotentProducer


class Batcher(Appender):
    """Sends batches without producer headers: each frame is acknowledged or refused by itself."""

    def step(self, client: Client) -> None:
        name = self.any_name()
        appends = [self.compose(name) for _ in range(self.random.randint(1, 5))]
        headers = {"Content-Type": self.ledger.kinds[name].content_type}
        with self.ledger.using(name) as sent_at:
            body = frame([append.body for append in appends])
            response = client.ask("POST", f"{BUCKET}/{name}/append-batch", headers, body)
        if response.status == 200:
            for append, ack in zip(appends, response.acks(), strict=True):
                self.settle(name, append, ack, sent_at)
        elif response.status in GONE:
            for append in appends:
                self.ledger.refused(name, append.key)
        else:
            raise self.unexpected(response, f"a batch to {name}")


class BatchProducer(IdempotentProducer):
    """Sends batches with producer headers: all frames or none, and none twice."""

    def compose_as(self, key: Key, content_type: str) -> Composed:
        is_batch = self.random.random() < 0.8
        return compose_batch(key, content_type, self.random) if is_batch else super().compose_as(key, content_type)

    def post(self, client: Client, life: Life, headers: Mapping[str, str], append: Composed) -> Response:
        if not append.frames:
            return super().post(client, life, headers, append)
        response = client.ask("POST", f"{BUCKET}/{life.name}/append-batch", headers, append.body)
        if response.status != 200:
            return response
        acks = response.acks()
        ends = [ack.next_offset for ack in acks]
        sizes = [end - start for start, end in pairwise(ends)]
        assert sizes == [len(data) for data in append.frames[1:]], f"the frames of {append.key} are answered as {ends}"
        assert len({ack.status for ack in acks}) == 1, f"the frames of {append.key} had different outcomes"
        life.boundaries += ends[:-1]
        return acks[-1]
