"""Writers of snapshots: they publish them, trim history, and read what others have published."""

import time
from hashlib import sha256

from .clients import BUCKET, Client, render_offset
from .ledger import Life, Snapshot
from .snapshot_checks import read_snapshot
from .writers import GONE, Writer

TYPES = ("application/octet-stream", "image/png", "text/plain; charset=utf-8", "application/json")
SIZES = (16, 100, 5_000, 70_000, 400_000)


class Snapshotter(Writer):
    """Publishes snapshots at offsets that a client has seen."""

    def step(self, client: Client) -> None:
        time.sleep(0.005)
        life = self.life_of(self.any_name())
        if life is None:
            return
        choice = self.random.random()
        if choice < 0.6:
            self._publish(client, life)
        elif choice < 0.8:
            self._retain(client, life)
        else:
            self._look(client, life)

    def any_name(self) -> str:
        return self.random.choice([name for name, kind in self.ledger.kinds.items() if kind.snapshots])

    def _place(self, life: Life) -> int:
        """An offset between messages, before or after the latest snapshot."""
        return self.random.choice([life.tail, *life.boundaries[-20:], *(seen.end for seen, _ in life.seen[-200:])])

    def _publish(self, client: Client, life: Life) -> None:
        self.numbers += 1
        body = f"{self.identity}:{self.numbers}:".encode() + self.random.randbytes(self.random.choice(SIZES))
        offset, content_type = self._place(life), self.random.choice(TYPES)
        digest = sha256(body).digest()
        snapshot = Snapshot(life.name, life.incarnation, offset, content_type, digest, self.ledger.trims)
        self.ledger.send_snapshot(snapshot)
        headers = {"Content-Type": content_type, "Stream-Incarnation": life.incarnation}
        response = client.ask("PUT", f"{BUCKET}/{life.name}/snapshot/{render_offset(offset)}", headers, body)
        if response.status == 204:
            assert response.snapshot_offset == offset, f"{life.name} was answered {response.snapshot_offset}"
            self.ledger.snapshots_acknowledged += 1
            self.ledger.acknowledge_snapshot(life, snapshot)
        elif response.status in (*GONE, 409):  # there is a later one meanwhile, or another one there
            self.ledger.refused_snapshot(snapshot)
        else:
            raise self.unexpected(response, f"a snapshot of {life.name} at {offset}")

    def _retain(self, client: Client, life: Life) -> None:
        offset = self._place(life)
        self.ledger.send_retention(life, offset)
        headers = {"Stream-Incarnation": life.incarnation}
        response = client.ask("PUT", f"{BUCKET}/{life.name}/retention/{render_offset(offset)}", headers)
        if response.status == 204:
            self.ledger.acknowledge_start(life, offset)
        elif response.status not in (*GONE, 409):  # gone already, or no snapshot covers it
            raise self.unexpected(response, f"retaining {life.name} from {offset} on")

    def _look(self, client: Client, life: Life) -> None:
        """Read the latest snapshot: it must stay until there is a later one."""
        shown = read_snapshot(client, self.ledger, life)
        if shown is not None:
            self.ledger.acknowledge_snapshot(life, shown)
