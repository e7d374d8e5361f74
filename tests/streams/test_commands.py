import msgspec
import pytest

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.message_ends import of, pack
from headwater.protocol.producers import Producer
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import DropBucket, OpenBucket, SealBucket, SettleBucket, UnsealBucket
from headwater.streams.commands.cluster import AskFlush, AskTables, Cataloged, Checkpoint, Evict, Join, Keep, RaiseLevel
from headwater.streams.commands.command import COMMAND_BYTES
from headwater.streams.commands.consumers import DropConsumer, LeaseLake, RegisterConsumer, RegisterConsumerFor
from headwater.streams.commands.forks import Ancestry, Confirm, CreateFork, Origin, Paid, Pin, Settle, Unpin
from headwater.streams.commands.lake import ForgetSegments, Publication, PublishSegment, SwapSegments
from headwater.streams.commands.purges import AdvancePurge, AskPurge, WithdrawSegments
from headwater.streams.commands.snapshots import Discarded, PublishSnapshot, Retain, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, Expire, FinishProducer, SetAttrs, Touch
from headwater.streams.segments import Rows, Segment

PUBLICATION = Publication(
    Segment("id", 1, 5, 10, 20, "b/a", "b/z", 9, 99, 999, 99, 7, "a", "z", 1, 7, 103),
    (Rows("b/s", 7, 0, 9, 5, 104, 3),),
)

ONE_OF_EACH: list[Command] = [
    Create(
        "b/s",
        "application/json",
        Lifetime(ttl_seconds=60),
        True,
        b"12",
        pack((1, 2)),
        "1",
        Producer("p", 1, 0),
        7,
        b'{"title":"t"}',
        True,
    ),
    Append(
        "b/s",
        b"\x00\xff",
        pack((1, 2)),
        "text/plain",
        True,
        "\u00e9",
        Producer("p", 1, 2),
        7,
        (Version(7, 42, False), Version(7, 43, True)),
        3,
    ),
    FinishProducer("p"),
    SetAttrs("b/s", b"{}", 7),
    PublishSnapshot("b/s", 7, Snapshot(5, 2, "blob", "text/html", 9, "digest"), True),
    Retain("b/s", 7, 5, 2),
    Discarded("blob"),
    Delete("b/s", 7),
    Touch("b/s", 7, 99),
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
        Origin("b/s", 7, 0, 5, 0, 2, "pin", 1, "blob"),
        Ancestry("b/s", 3, 2, None, FOREVER),
        99,
        "1",
        Producer("p", 1, 0),
        Snapshot(5, 2, "blob", "text/html", 9, "digest"),
        b"{}",
        True,
    ),
    Settle("b/fork", "pin", 99),
    Paid("pin"),
    OpenBucket("b"),
    SealBucket("b", "seal", 99, True),
    UnsealBucket("b", "seal"),
    DropBucket("b", "seal", True),
    SettleBucket("b", "seal", 99),
    PublishSegment(PUBLICATION, 99, 5),
    SwapSegments((1, 2), (PUBLICATION,), 99, 4),
    ForgetSegments(("id",)),
    RegisterConsumer("spark", 5),
    RegisterConsumer("spark", 5, renews=True),
    RegisterConsumerFor("spark", 5, 600_000_000, renews=True),
    LeaseLake("spark", 600_000_000, renews=True),
    DropConsumer("spark"),
    PublishSegment(PUBLICATION, 99, 5, 3),
    Join("n1", "session", "http://n1:4437", 2, 123),
    Evict("n1", "session", "of n2"),
    Keep("n1", "session", 5_000_000),
    RaiseLevel(2),
    Checkpoint("id"),
    AskFlush("n1"),
    AskTables("n1"),
    Cataloged(5, 3),
    PublishSnapshot("b/s", 7, Snapshot(5, 2, "blob", "text/html", 9, "digest"), True, 5, None, "none", 99),
    AskPurge("id", "b/", True, False),
    AdvancePurge("id", "rewriting", 3, {"b/fork": 7}),
    WithdrawSegments({"id": 99}),
]


def test_the_list_above_holds_every_command() -> None:
    assert {type(command) for command in ONE_OF_EACH} == set(Command.__subclasses__())


def test_a_record_gives_back_the_commands_that_went_in() -> None:
    record = batches.encode(123, ONE_OF_EACH)
    assert batches.decode(record, 40) == Batch(40, 123, ONE_OF_EACH)
    assert batches.decode(memoryview(record), 40) == Batch(40, 123, ONE_OF_EACH)


def test_the_form_of_the_log_never_changes() -> None:
    """A command whose form must change gets a new version; logs with the old one still exist."""
    publication = [
        ["id", 1, 5, 10, 20, "b/a", "b/z", 9, 99, 999, 99, 7, "a", "z", 1, 7, 103],
        [["b/s", 7, 0, 9, 5, 104, 3]],
    ]
    assert msgspec.msgpack.decode(batches.encode(123, ONE_OF_EACH)) == [
        123,
        [
            [
                "create.1",
                "b/s",
                "application/json",
                [60, None, None],
                True,
                b"12",
                pack((1, 2)),
                "1",
                ["p", 1, 0],
                7,
                b'{"title":"t"}',
                True,
                False,
            ],
            [
                "append.1",
                "b/s",
                b"\x00\xff",
                pack((1, 2)),
                "text/plain",
                True,
                "\u00e9",
                ["p", 1, 2],
                7,
                [[7, 42, False], [7, 43, True]],
                3,
                None,
            ],
            ["finish-producer.1", "p"],
            ["set-attrs.1", "b/s", b"{}", 7, None],
            ["publish-snapshot.1", "b/s", 7, [5, 2, "blob", "text/html", 9, "digest"], True, None, None, None, None],
            ["retain.1", "b/s", 7, 5, 2, None],
            ["discarded.1", "blob"],
            ["delete.1", "b/s", 7, None],
            ["touch.1", "b/s", 7, 99, None],
            ["expire.1", "b/s", 7],
            ["pin.1", "b/s", "pin", "b/fork", 99, 7, 5, 2],
            ["confirm.1", "b/s", 7, "pin"],
            ["unpin.1", "b/s", 7, "pin"],
            [
                "create-fork.1",
                "b/fork",
                "text/plain",
                [None, 5, "1970-01-01T00:00:00.000005Z"],
                False,
                b"x",
                None,
                ["b/s", 7, 0, 5, 0, 2, "pin", 1, "blob"],
                ["b/s", 3, 2, None, [None, None, None]],
                99,
                "1",
                ["p", 1, 0],
                [5, 2, "blob", "text/html", 9, "digest"],
                b"{}",
                True,
                False,
            ],
            ["settle.1", "b/fork", "pin", 99],
            ["paid.1", "pin"],
            ["open-bucket.1", "b"],
            ["seal-bucket.1", "b", "seal", 99, True],
            ["unseal-bucket.1", "b", "seal"],
            ["drop-bucket.1", "b", "seal", True],
            ["settle-bucket.1", "b", "seal", 99],
            ["publish-segment.1", publication, 99, 5, None],
            ["swap-segments.1", [1, 2], [publication], 99, 4],
            ["forget-segments.1", ["id"]],
            ["register-reader.1", "spark", 5, False],
            ["register-reader.1", "spark", 5, True],
            ["register-reader.2", "spark", 5, 600_000_000, True],
            ["lease.1", "spark", 600_000_000, True],
            ["drop-reader.1", "spark"],
            ["publish-segment.1", publication, 99, 5, 3],
            ["join.1", "n1", "session", "http://n1:4437", 2, 123],
            ["evict.1", "n1", "session", "of n2"],
            ["keep.1", "n1", "session", 5_000_000],
            ["raise-level.1", 2],
            ["checkpoint.1", "id"],
            ["ask-flush.1", "n1"],
            ["ask-tables.1", "n1"],
            ["cataloged.1", 5, 3],
            ["publish-snapshot.1", "b/s", 7, [5, 2, "blob", "text/html", 9, "digest"], True, 5, None, "none", 99],
            ["ask-purge.1", "id", "b/", True, False],
            ["advance-purge.1", "id", "rewriting", 3, {"b/fork": 7}],
            ["withdraw-segments.1", {"id": 99}],
        ],
    ]


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_a_command_is_a_frozen_value(command: Command) -> None:
    with pytest.raises(AttributeError):
        setattr(command, command.__struct_fields__[0], "b/other")


def test_an_unknown_command_in_the_log_is_not_passed_over() -> None:
    with pytest.raises(msgspec.ValidationError):
        batches.decode(msgspec.msgpack.encode((0, [("create.2", "b/s")])), 1)


def test_what_a_command_does_not_say_has_a_meaning() -> None:
    record = msgspec.msgpack.encode(
        (0, [("create.1", "b/s", "text/plain"), ("append.1", "b/s", b"x"), ("delete.1", "b/s")])
    )
    assert batches.decode(record, 1).commands == [
        Create("b/s", "text/plain", FOREVER, closed=False, payload=b"", ends=None),
        Append("b/s", b"x", None, content_type="", close=False, seq=None, producer=None, incarnation=None),
        Delete("b/s", incarnation=None),
    ]


def test_the_cost_of_many_small_messages_is_what_they_take_in_the_log() -> None:
    messages = [b"1"] * 10_000
    command = Append("b/s", b"".join(messages), of(messages), "application/json")
    taken = len(batches.encode(0, [command]))
    assert taken <= command.cost_bytes() <= taken + COMMAND_BYTES


def test_a_batch_counts_its_positions_by_commands() -> None:
    assert Batch(5, 0, [Paid("a"), Paid("b"), Paid("c")]).last_position == 7


@pytest.mark.parametrize("command", ONE_OF_EACH, ids=lambda command: type(command).__name__)
def test_the_cost_of_a_command_is_that_of_its_payload_and_a_little(command: Command) -> None:
    payload = b"".join(getattr(command, part, None) or b"" for part in ("payload", "ends", "attrs"))
    versions = getattr(command, "if_match", None) or ()
    named = 128 if isinstance(command, PublishSegment | SwapSegments) else 0
    if isinstance(command, Append):
        named += len(command.content_type)  # Of any length, until it is compared with the stream's.
    assert command.cost_bytes() == 128 + len(payload) + 20 * len(versions) + named


LARGE = b"{" + b" " * 16_000 + b"}"
VERSIONS = tuple(Version(2**40 + number, 2**40, closed=True) for number in range(800))


@pytest.mark.parametrize(
    "command",
    [
        SetAttrs("b/s", LARGE),
        Create("b/s", "text/plain", attrs=LARGE),
        Append("b/s", b"x", if_match=VERSIONS),
        Delete("b/s", if_match=VERSIONS),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_with_large_attributes_or_conditions_costs_what_it_takes_in_the_log(command: Command) -> None:
    assert len(batches.encode(0, [command])) <= command.cost_bytes()


@pytest.mark.parametrize(
    ("command", "frees"),
    [
        (Delete("b/s"), True),
        (ForgetSegments(()), True),
        (Append("b/s", b""), False),
        (Create("b/s", "text/plain"), False),
    ],
)
def test_commands_that_free_space_are_told_from_those_that_need_it(command: Command, frees: bool) -> None:
    assert batches.frees_space(command) is frees


def test_snapshots_in_old_logs_have_no_deadline() -> None:
    logged = ["publish-snapshot.1", "b/s", 7, [5, 2, "blob", "text/html", 9, "digest"], True, None, None, None]
    [command] = batches.decode(msgspec.msgpack.encode((123, [logged])), 40).commands
    assert command == PublishSnapshot("b/s", 7, Snapshot(5, 2, "blob", "text/html", 9, "digest"), True)


def test_registrations_of_old_logs_have_no_limit_of_their_own() -> None:
    logged = [["register-reader.1", "spark", 5], ["register-reader.1", "spark", 6, True]]
    assert batches.decode(msgspec.msgpack.encode((123, logged)), 40).commands == [
        RegisterConsumer("spark", 5),
        RegisterConsumer("spark", 6, renews=True),
    ]
