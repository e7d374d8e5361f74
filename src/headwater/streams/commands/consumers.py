"""What consumers of the lake report, as commands: how far they have read, or for how long they need its objects."""

from headwater.streams.commands.command import Command, Row


@Row(asked_by="client", room="frees")
class RegisterConsumer(Command, frozen=True, tag="register-reader.1"):
    """A consumer of the lake has read everything up to a position; rows above it are kept for it."""

    consumer: str
    position: int
    renews: bool = False
    """Whether this is refused unless the consumer has been registered without a break."""


@Row(asked_by="client", room="frees", level=4)
class RegisterConsumerFor(Command, frozen=True, tag="register-reader.2"):
    """The same, with how long the consumer may be silent from now on."""

    consumer: str
    position: int
    life_us: int
    renews: bool = False


@Row(asked_by="client", room="frees")
class LeaseLake(Command, frozen=True, tag="lease.1"):
    """Keep every object that the lake has now for this long; a renewal keeps the same objects for longer."""

    consumer: str
    life_us: int
    renews: bool = False


@Row(asked_by="client", room="frees")
class DropConsumer(Command, frozen=True, tag="drop-reader.1"):
    """Remove a consumer: nothing is kept for it any more."""

    consumer: str
