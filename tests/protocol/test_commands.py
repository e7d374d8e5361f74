import msgspec
import pytest

from headwater.protocol import commands
from headwater.protocol.commands import (
    Ancestry,
    Append,
    Batch,
    Command,
    Confirm,
    Create,
    CreateFork,
    Delete,
    Expire,
    Origin,
    Paid,
    Pin,
    Settle,
    Touch,
    Unpin,
)
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.producers import Producer

ONE_OF_EACH: list[Command] = [
    Create("b/s", "application/json", Lifetime(ttl_seconds=60), True, b"12", (1, 2)),
    Append("b/s", b"\x00\xff", (1, 2), "text/plain", True, "\u00e9", Producer("p", 1, 2), 7),
    Delete("b/s", 7),
    Touch("b/s", 7),
    Expire("b/s", 7),
    Pin("b/s", "pin", "b/fork", 99, 7, 5, 2),
    Confirm("b/s", 7, "pin"),
    Unpin("b/s", 7, "pin"),
    CreateFork(
        "b/fork",
        "text/plain",
        Lifetime(expires_at=5, expires_at_text="1970-01-01T00:00:00.000005Z"),
        False,
        b"x",
        None,
        Origin("b/s", 7, 0, 5, 0, 2, "pin", 1),
        Ancestry("b/s", 3, 2, None, FOREVER),
        99,
    ),
    Settle("b/fork", "pin", 99),
    Paid("pin"),
]


def test_the_list_above_holds_every_command() -> None:
    assert {type(command) for command in ONE_OF_EACH} == set(Command.__args__)


def test_a_record_gives_back_the_commands_that_went_in() -> None:
    record = commands.encode(123, ONE_OF_EACH)
    assert commands.decode(record, 40) == Batch(40, 123, ONE_OF_EACH)
    assert commands.decode(memoryview(record), 40) == Batch(40, 123, ONE_OF_EACH)


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_a_command_in_the_log_begins_with_its_name_and_version(command: Command) -> None:
    _, [[tag, *_]] = msgspec.msgpack.decode(commands.encode(0, [command]))
    name, _, version = tag.rpartition(".")
    assert name.replace("-", "") == type(command).__name__.lower()
    assert version == "1"


def test_an_unknown_command_in_the_log_is_not_passed_over() -> None:
    with pytest.raises(msgspec.ValidationError):
        commands.decode(msgspec.msgpack.encode((0, [("create.2", "b/s")])), 1)


def test_a_record_that_lacks_a_trailing_field_reads_as_its_default() -> None:
    record = msgspec.msgpack.encode((0, [("create.1", "b/s", "text/plain")]))
    assert commands.decode(record, 1).commands == [Create("b/s", "text/plain")]


def test_a_batch_counts_its_positions_by_commands() -> None:
    assert Batch(5, 0, [Paid("a"), Paid("b"), Paid("c")]).last_position == 7


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_the_cost_of_a_command_is_that_of_its_payload_and_a_little(command: Command) -> None:
    payload = getattr(command, "payload", b"")
    assert commands.cost_bytes(command) == 128 + len(payload)
