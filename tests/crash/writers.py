"""Writers: each makes one kind of request over one connection, as fast as it is answered, until the server is gone."""

import time
from collections.abc import Mapping
from random import Random
from threading import Thread
from typing import NamedTuple

from .clients import PATH, Client, Response, Unknown, render_offset
from .ledger import Ledger, Life
from .messages import Composed, Key, compose, split, store

GONE = (404, 410)
READ_BYTES_KEPT = 10_000
"""How much of the end of a page is remembered and compared later."""


class Writer:
    """What all writers share. A writer outlives the servers it works against."""

    def __init__(self, identity: str, ledger: Ledger, random: Random) -> None:
        self.identity, self.ledger, self.random = identity, ledger, random
        self.numbers = 0
        self.ended_at = 0.0
        self.error: Exception | None = None

    def start(self, url: str) -> Thread:
        """Work against this server in a new thread."""
        thread = Thread(target=self._run, args=(url,), name=self.identity)
        thread.start()
        return thread

    def _run(self, url: str) -> None:
        client = Client(url)
        try:
            while True:
                self.step(client)
        except Unknown:
            pass
        except Exception as error:
            self.error = error
        finally:
            self.ended_at = time.monotonic()
            client.close()

    def step(self, client: Client) -> None:
        """Make one request; raises `Unknown` when the server is gone."""
        raise NotImplementedError

    def any_name(self) -> str:
        return self.random.choice(list(self.ledger.kinds))

    def life_of(self, name: str) -> Life | None:
        """The last life of that name that may exist."""
        lives = self.ledger.living(name)
        return lives[-1] if lives else None

    def compose(self, name: str) -> Composed:
        """The next append; from now on it may be seen."""
        self.numbers += 1
        key = Key(self.identity, self.numbers)
        self.ledger.send_append(name, key)
        return self.compose_as(key, self.ledger.kinds[name].content_type)

    def compose_as(self, key: Key, content_type: str) -> Composed:
        return compose(key, content_type, self.random)

    def unexpected(self, response: Response, what: str) -> AssertionError:
        return AssertionError(f"{self.identity}: {response.status} to {what}: {response.body[:300]!r}")


class Appender(Writer):
    """Appends without producer headers; never repeats a request whose outcome is unknown."""

    def step(self, client: Client) -> None:
        name = self.any_name()
        append = self.compose(name)
        headers = {"Content-Type": self.ledger.kinds[name].content_type}
        with self.ledger.using(name) as sent_at:
            response = client.request("POST", name, headers, append.body)
        self.settle(name, append, response, sent_at)

    def settle(self, name: str, append: Composed, response: Response, sent_at: float) -> None:
        """Record the outcome of an append."""
        if response.status == 204:
            self.ledger.acknowledge_append(name, response, append.stored, sent_at)
        elif response.status in GONE or (response.status == 409 and response.closed):
            self.ledger.refused(name, append.key)
            if response.closed:
                self.ledger.see(name, response)
        else:
            raise self.unexpected(response, f"an append to {name}")


class Attempt(NamedTuple):
    """A producer's request to one life of a stream."""

    life: Life
    seq: int
    append: Composed
    offset: int | None = None
    """The offset in the answer, if there was one."""


class IdempotentProducer(Writer):
    """Appends with producer headers; repeats requests whose outcome is unknown, and sometimes others."""

    def __init__(self, identity: str, ledger: Ledger, random: Random) -> None:
        super().__init__(identity, ledger, random)
        self._next_seq: dict[str, int] = {}
        self._unknown: Attempt | None = None
        self._done: Attempt | None = None

    def step(self, client: Client) -> None:
        if self._unknown is not None:
            self._send(client, self._unknown, again=True)
        elif self._done is not None and self.random.random() < 0.1:
            self._send(client, self._done, again=True)
        elif (life := self.life_of(self.any_name())) is not None:
            self._unknown = Attempt(life, self._next_seq.get(life.incarnation, 0), self.compose(life.name))
            self._send(client, self._unknown, again=False)

    def _send(self, client: Client, attempt: Attempt, *, again: bool) -> None:
        life, append = attempt.life, attempt.append
        headers = {
            "Content-Type": self.ledger.kinds[life.name].content_type,
            "Producer-Id": self.identity,
            "Producer-Epoch": "0",
            "Producer-Seq": str(attempt.seq),
            "Stream-Incarnation": life.incarnation,
        }
        with self.ledger.using(life.name) as sent_at:
            response = self.post(client, life, headers, append)
        self._unknown = None
        if response.status == 200 or (response.status == 204 and again):
            assert attempt.offset in (None, response.next_offset), f"{append.key} got another answer"
            if attempt.offset is None:
                repeated = response.status == 204
                self.ledger.acknowledge_append(life.name, response, append.stored, sent_at, repeated=repeated)
            self._next_seq[life.incarnation] = attempt.seq + 1
            self._done = attempt._replace(offset=response.next_offset)
        elif response.status == 409 and response.closed and attempt.offset is None:
            self.ledger.see(life.name, response)
            self.ledger.refused(life.name, append.key)
        elif response.status in GONE:
            self._done = None
        else:
            raise self.unexpected(response, f"{attempt.append.key}, seq {attempt.seq} on {life.name}")

    def post(self, client: Client, life: Life, headers: Mapping[str, str], append: Composed) -> Response:
        return client.request("POST", life.name, headers, append.body)


class Janitor(Writer):
    """Creates streams, closes them, deletes them and creates them again."""

    def step(self, client: Client) -> None:
        name = self.any_name()
        if self.ledger.kinds[name].source is not None:
            return
        life = self.life_of(name)
        if life is None or self.random.random() < 0.02:
            self._create(client, name)
        elif self.random.random() < 0.01:
            delete(client, self.ledger, life)
        elif self.random.random() < 0.01:
            self._close(client, life)
        else:
            time.sleep(0.002)

    def _create(self, client: Client, name: str) -> None:
        kind = self.ledger.kinds[name]
        ttl = None if kind.ttl_seconds is None else str(kind.ttl_seconds)
        self.ledger.send_create(name)
        with self.ledger.using(name):
            response = client.request("PUT", name, {"Content-Type": kind.content_type, "Stream-TTL": ttl})
        if response.status in (200, 201):
            self.ledger.acknowledge_create(name, response)
        elif response.status != 409:  # closed meanwhile, or forks still need the name
            raise self.unexpected(response, f"creating {name}")

    def _close(self, client: Client, life: Life) -> None:
        life.close_sent = True
        append = self.compose(life.name) if self.random.random() < 0.5 else None
        headers = {
            "Content-Type": self.ledger.kinds[life.name].content_type,
            "Stream-Closed": "true",
            "Stream-Incarnation": life.incarnation,
        }
        with self.ledger.using(life.name) as sent_at:
            response = client.request("POST", life.name, headers, b"" if append is None else append.body)
        if response.status == 204:
            assert response.closed, f"{life.name} was not closed"
            if append is None:
                self.ledger.see(life.name, response)
            else:
                self.ledger.acknowledge_append(life.name, response, append.stored, sent_at)
        elif response.status not in (*GONE, 409):
            raise self.unexpected(response, f"closing {life.name}")


class Forker(Writer):
    """Creates forks at offsets that a client has seen, and deletes them."""

    def step(self, client: Client) -> None:
        name = self.any_name()
        source = self.ledger.kinds[name].source
        life = self.life_of(name)
        if source is None or (life is not None and self.random.random() > 0.1):
            time.sleep(0.002)
        elif life is not None:
            delete(client, self.ledger, life)
        else:
            self._fork(client, name, source)

    def _fork(self, client: Client, name: str, source: str) -> None:
        before = client.request("HEAD", source)
        if before.status != 200:
            return
        # A page may end inside an append, and a fork there would show a part of it.
        seen = self.ledger.life(source, before.incarnation).seen[-40:]
        places = [extent.end for extent, appended in seen if appended]
        offset = render_offset(self.random.choice(places)) if places and self.random.random() < 0.7 else None
        self.ledger.send_create(name)
        headers = {"Stream-Forked-From": PATH + source, "Stream-Fork-Offset": offset}
        unanswered = (source, time.time())
        self.ledger.forks_unanswered.append(unanswered)
        response = client.request("PUT", name, headers)
        self.ledger.forks_unanswered.remove(unanswered)
        after = client.request("HEAD", source)
        if response.status in (200, 201):
            life = self.ledger.acknowledge_create(name, response)
            if response.status == 201 and after.status == 200 and before.incarnation == after.incarnation:
                life.fork_of = self.ledger.life(source, before.incarnation)
                life.fork_offset = response.next_offset
        elif response.status not in (400, *GONE, 409):  # the source may have been replaced or deleted meanwhile
            raise self.unexpected(response, f"forking {source}")


class Reader(Writer):
    """Reads near the tail: what it has seen must stay."""

    def step(self, client: Client) -> None:
        life = self.life_of(self.any_name())
        if life is None:
            return
        time.sleep(0.002)
        start = self.random.choice([0, *(seen.end for seen, _ in life.seen[-10:])])
        query = f"?offset={render_offset(start)}"
        with self.ledger.using(life.name):
            response = client.request("GET", life.name, {"Stream-Incarnation": life.incarnation}, query=query)
        if response.status == 200:
            content_type = self.ledger.kinds[life.name].content_type
            data = store(split(response.body, content_type), content_type)
            assert start + len(data) == response.next_offset, f"a page of {life.name} is not as long as it says"
            self.ledger.tell(life.name, response, data[-READ_BYTES_KEPT:])
        elif response.status not in GONE:
            raise self.unexpected(response, f"reading {life.name}")
        elif response.earliest_offset is not None:
            assert response.earliest_offset > start, f"{life.name} is refused as trimmed where it is retained"
            self.ledger.acknowledge_start(life, response.earliest_offset)


def delete(client: Client, ledger: Ledger, life: Life) -> None:
    """Delete this life of a stream and no other."""
    life.delete_sent = True
    response = client.request("DELETE", life.name, {"Stream-Incarnation": life.incarnation})
    if response.status in (204, *GONE):
        ledger.bury(life)
    else:
        raise AssertionError(f"{response.status} to deleting {life.name}: {response.body[:300]!r}")
