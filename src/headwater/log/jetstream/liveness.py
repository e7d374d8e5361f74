"""Liveness: what the nodes tell each other outside the log, by pulses and by questions for barriers."""

from collections.abc import Callable, Mapping

from headwater.log.jetstream import pulses
from headwater.log.jetstream.barriers import SILENT_SECONDS, Barriers, encode_answer
from headwater.log.jetstream.client import Client
from headwater.log.jetstream.judging import Judge
from headwater.log.jetstream.pulses import Peers, Pulse
from headwater.log.jetstream.streams import ClusterConfig
from headwater.log.jetstream.wire import Message

Guard = Callable[[Callable[[Message], None]], Callable[[Message], None]]


class Liveness:
    """One node's part in this conversation."""

    def __init__(
        self,
        config: ClusterConfig,
        judge: Judge,
        *,
        clock: Callable[[], int],
        learn: Callable[[int], None],
        send_barrier: Callable[[Callable[[], None]], None],
        heard: Callable[[], None],
    ) -> None:
        self._config, self._judge, self._clock = config, judge, clock
        self.learn, self.send_barrier, self._heard = learn, send_barrier, heard
        self.peers = Peers(config.node)
        self.barriers = Barriers(self)
        self.members: Mapping[str, str] = {}

    def connect(self, client: Client, guarded: Guard) -> None:
        """Listen to the other nodes."""
        self._client = client
        self._pulse_subject, self._ask_subject = self._config.subject("pulse"), self._config.subject("ask")
        self._answers = client.inbox(guarded(self._on_answer))
        client.subscribe(self._pulse_subject, guarded(self._on_pulse))
        client.subscribe(self._ask_subject, guarded(self._on_question))

    # -- Pulses ----------------------------------------------------------------------------------------------------

    def pulse(self, known: int) -> None:
        """Say how far this node is."""
        checkpoint = self._judge.checkpoint
        pulse = Pulse(
            self._config.node,
            self._config.session,
            self._judge.sequence,
            known,
            self._clock(),
            self._config.address,
            self._config.level,
            checkpoint.sequence,
            checkpoint.chain,
            self.peers.digest,
        )
        self._client.publish(self._pulse_subject, pulses.encode(pulse))

    def _on_pulse(self, message: Message) -> None:
        peer = self.peers.receive(message.data, self._clock())
        if peer is not None:
            self.learn(peer.applied)
            self._heard()

    def divergence(self) -> str | None:
        """Which node has judged the log differently, or has another state, as one sentence; None if all agree."""
        if (peer := self.peers.differing()) is not None:
            return (
                f"The nodes {self._config.node} and {peer.name} differ in what they read from the log up to message"
                f" {peer.checkpoint.sequence}; compare them with headwater cluster verify."
            )
        if (peer := self.peers.differing_state()) is not None:
            return (
                f"The nodes {self._config.node} and {peer.name} differ in what they hold at checkpoint"
                f" {peer.digest[0]}; find out with headwater cluster verify which one differs from the others, and"
                " restart it."
            )
        return None

    # -- Barriers --------------------------------------------------------------------------------------------------

    @property
    def applied(self) -> int:
        return self._judge.sequence

    @property
    def others(self) -> dict[str, str]:
        """The other members: name and session."""
        return {name: session for name, session in self.members.items() if name != self._config.node}

    def members_to_ask(self) -> frozenset[str] | None:
        if not self.members:
            return None
        others = self.others
        heard = all(self.peers.heard_within(name, session, SILENT_SECONDS) for name, session in others.items())
        return frozenset(others.values()) if heard else None

    def ask(self, number: int) -> bool:
        reply = b"%b.%d" % (self._answers, number)
        return self._client.publish(self._ask_subject, self._config.session.encode(), reply)

    def _on_question(self, message: Message) -> None:
        if message.data != self._config.session.encode():
            # What was delivered is applied, and nothing was acknowledged that was not.
            self._client.publish(message.reply, encode_answer(self._config.session, self._judge.sequence))

    def _on_answer(self, message: Message) -> None:
        self.barriers.receive(int(message.subject.rsplit(b".", 1)[1]), message.data)
