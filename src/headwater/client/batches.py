"""What a producer sends: its options, and the batch that one sequence number stands for."""

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from headwater.client.bodies import EncodedMessages
from headwater.client.retrying import Failures
from headwater.client.values import OnDuplicate
from headwater.protocol.limits import NUMBER_MAX

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The identity of a producer, and how much it sends at a time."""

    id: str
    epoch: int = 0
    auto_claim: bool = False
    on_duplicate: OnDuplicate = "raise"
    batch_bytes_max: int = 1024 * 1024
    batch_messages_max: int = 10_000
    linger_ms: float = 5.0
    in_flight_max: int = 5
    pending_bytes_max: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("id is empty; a producer needs a name.")
        if not 0 <= self.epoch <= NUMBER_MAX:
            raise ValueError(f"epoch is {self.epoch}; it must be from 0 to {NUMBER_MAX}.")
        if self.auto_claim and self.on_duplicate == "accept":
            raise ValueError(
                "auto_claim and on_duplicate='accept' exclude each other: a claimed epoch has no duplicates."
            )
        for name in ("batch_bytes_max", "batch_messages_max", "in_flight_max", "pending_bytes_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms is {self.linger_ms}; it must not be below 0.")


class BatchState(Enum):
    """Whether a batch can be sent."""

    READY = "ready"
    IN_FLIGHT = "in flight"
    BEHIND = "behind"
    """Refused as a gap: to be sent again when all before it are settled."""


@dataclass(slots=True, eq=False)
class Batch(Generic[W]):
    """The messages of one sequence number, and what is known about their request."""

    epoch: int
    seq: int
    pieces: list[EncodedMessages]
    waiters: list[W]
    failures: Failures
    closing: bool = False
    state: BatchState = BatchState.READY
    not_before: float = 0.0
    in_doubt: bool = False
    """Whether it may have been accepted."""
    sent_before: bool = False
    """Whether an earlier request with this number left; a network may deliver one again, even a refused one."""
    sent_as_first: bool = False
