"""Fetching: messages that were missed are read from any replica of the stream, many at a time."""

import asyncio
from typing import NamedTuple

import msgspec

from headwater.log.jetstream.client import Client, NotConnected
from headwater.log.jetstream.streams import ClusterConfig, LogBehind, LogChanged, sequence_of
from headwater.log.jetstream.wire import Message

FETCH_MESSAGES_MAX = 1_024
FETCH_BYTES_MAX = 2 * 1000 * 1000
"""What one request returns at most: more would be held back or dropped by a NATS server whose client reads slowly."""
FETCH_SECONDS_MAX = 1.0
NOT_FOUND = 404


class Stored(NamedTuple):
    """A message of the stream."""

    sequence: int
    data: bytes


class Fetcher:
    """Reads a stretch of the stream at a time."""

    def __init__(self, client: Client, config: ClusterConfig) -> None:
        self._client, self._config = client, config
        self._subject = f"$JS.API.DIRECT.GET.{config.stream}".encode()
        self._inbox = client.inbox(self._receive)
        self._number = 0
        self._found: list[Stored] = []
        self._end: asyncio.Future[None] | None = None

    async def fetch(self, sequence: int) -> list[Stored]:
        """The messages from a sequence on, without a gap; empty if the replica that answered has none yet.

        LogBehind if the log begins behind that sequence. NotConnected if nothing can be asked.
        """
        self._number += 1
        self._found, self._end = [], asyncio.get_running_loop().create_future()
        request = {"seq": sequence, "batch": FETCH_MESSAGES_MAX, "max_bytes": FETCH_BYTES_MAX}
        reply = self._inbox + b".%d" % self._number
        if not self._client.publish(self._subject, msgspec.json.encode(request), reply):
            raise NotConnected(self._client.problem)
        try:
            async with asyncio.timeout(FETCH_SECONDS_MAX):
                await self._end
        except TimeoutError:
            pass  # What has arrived is good, and the rest is asked for again.
        found, self._found, self._end = self._found, [], None
        for expected, stored in enumerate(found, sequence):
            if stored.sequence == expected:
                continue
            if expected == sequence:
                raise LogBehind(f"The log in {self._config.stream} begins at {stored.sequence}, not at {sequence}.")
            raise LogChanged(f"The log in {self._config.stream} lacks messages {expected} to {stored.sequence - 1}.")
        return found

    def _receive(self, message: Message) -> None:
        if self._end is None or self._end.done() or not message.subject.endswith(b".%d" % self._number):
            return
        if message.status is not None:
            self._end.set_result(None)
        else:
            self._found.append(Stored(sequence_of(message), message.data))
