"""Every command with its row, as one table. A new command is a new line here, and nothing else to remember."""

from headwater.streams.apply import HANDLERS
from headwater.streams.commands import Command
from headwater.streams.commands.command import ROWS

COMMANDS = """
command              tag                  asked by room   level settles  handler
AdvancePurge         advance-purge.1      chore    frees  3     -        purges.advance
Append               append.1             client   takes  1     -        appending.apply
AskFlush             ask-flush.1          client   frees  1     -        membership.ask_flush
AskPurge             ask-purge.1          client   frees  3     -        purges.ask
AskTables            ask-tables.1         client   frees  3     -        membership.ask_tables
Cataloged            cataloged.1          chore    frees  1     -        membership.cataloged
Checkpoint           checkpoint.1         client   frees  2     -        membership.checkpoint
Confirm              confirm.1            chore    frees  1     -        forking.confirm
Create               create.1             client   takes  1     settles  lifecycle.create
CreateFork           create-fork.1        client   takes  1     settles  forking.create_fork
Delete               delete.1             client   frees  1     settles  lifecycle.delete
Discarded            discarded.1          chore    frees  1     -        snapshots.discarded
DropBucket           drop-bucket.1        chore    frees  1     -        buckets.drop_bucket
DropConsumer         drop-reader.1        client   frees  1     -        consumers.drop
Evict                evict.1              chore    frees  1     -        membership.evict
Expire               expire.1             chore    frees  1     -        lifecycle.expire
FinishProducer       finish-producer.1    client   frees  1     -        finishing.finish
ForgetSegments       forget-segments.1    chore    frees  1     -        tiering.forget
Join                 join.1               chore    frees  1     -        membership.join
Keep                 keep.1               chore    frees  1     -        membership.keep
LeaseLake            lease.1              client   frees  1     -        consumers.lease
OpenBucket           open-bucket.1        client   frees  1     -        buckets.open_bucket
Paid                 paid.1               chore    frees  1     -        forking.paid
Pin                  pin.1                client   frees  1     -        forking.pin
PublishSegment       publish-segment.1    chore    frees  1     -        tiering.publish
PublishSnapshot      publish-snapshot.1   client   takes  1     -        snapshots.publish
RaiseLevel           raise-level.1        chore    frees  1     -        membership.raise_level
RegisterConsumer     register-reader.1    client   frees  1     -        consumers.register
RegisterConsumerFor  register-reader.2    client   frees  4     -        consumers.register_for
Retain               retain.1             client   frees  1     -        snapshots.retain
SealBucket           seal-bucket.1        client   frees  1     -        buckets.seal_bucket
SetAttrs             set-attrs.1          client   takes  1     -        snapshots.set_attrs
Settle               settle.1             chore    frees  1     -        forking.settle
SettleBucket         settle-bucket.1      chore    frees  1     -        buckets.settle_bucket
SwapSegments         swap-segments.1      chore    frees  1     -        tiering.swap
Touch                touch.1              chore    frees  1     -        lifecycle.touch
Unpin                unpin.1              chore    frees  1     -        forking.unpin
UnsealBucket         unseal-bucket.1      chore    frees  1     -        buckets.unseal_bucket
WithdrawSegments     withdraw-segments.1  chore    frees  3     -        purges.withdraw
"""


def _line(kind: type[Command]) -> str:
    row, handler = ROWS[kind], HANDLERS[kind]
    place = f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"
    settles = "settles" if row.settles else "-"
    tag = kind.__struct_config__.tag
    return f"{kind.__name__:20} {tag:20} {row.asked_by:8} {row.room:6} {row.level:<5} {settles:8} {place}"


def test_every_command_is_in_the_table_with_its_row_and_its_handler() -> None:
    lines = COMMANDS.strip().splitlines()
    assert sorted(map(_line, Command.__subclasses__())) == lines[1:]


def test_every_command_has_a_row_and_a_handler() -> None:
    assert set(Command.__subclasses__()) == set(ROWS) == set(HANDLERS)


def test_a_command_that_takes_room_is_one_that_a_client_waits_for() -> None:
    """On a full disk it is refused, and no chore expects that."""
    assert [kind for kind, row in ROWS.items() if row.room == "takes" and row.asked_by != "client"] == []
