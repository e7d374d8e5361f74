"""How the values of a state are kept: a walk shares them, and there may be millions."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import msgspec
import pytest

from headwater import streams
from headwater.protocol.lifetimes import FOREVER
from headwater.streams.cold import Consumer, Held, Retired, Tombstone
from headwater.streams.commands.forks import Ancestry
from headwater.streams.forking import ForkRequest
from headwater.streams.hot import Hot
from headwater.streams.state import Bucket, Debt, Hold, OpenPin, Stream


def values() -> Iterator[type[msgspec.Struct]]:
    """Every kind of value that the package defines."""
    for module in walk_packages(streams.__path__, f"{streams.__name__}."):
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.name:
                yield kind


@pytest.mark.parametrize("kind", [kind for kind in values() if kind is not Stream])
def test_only_a_stream_changes_in_place(kind: type[msgspec.Struct]) -> None:
    """A walk copies a stream that is about to change, and refers to everything else."""
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("kind", [Stream, Hot, Hold, Debt, OpenPin, Bucket, Held, Tombstone, Retired, Consumer])
def test_the_collector_never_walks_what_a_state_holds(kind: type[msgspec.Struct]) -> None:
    """Values have no cycles, and a collection over a million streams would stop the shard."""
    assert not kind.__struct_config__.gc


def test_a_stream_begins_empty_and_open() -> None:
    stream = Stream("b/s", 1, "text/plain", FOREVER, 0, 0, 0)
    assert (stream.tail, stream.record_next, stream.start, stream.record_start) == (0, 0, 0, 0)
    assert not stream.closed
    assert not stream.deleted


def test_a_fork_asks_for_no_bucket_unless_it_says_so() -> None:
    request = ForkRequest("b/f", Ancestry("b/s", None, 0, None, None), False, b"")
    assert not request.needs_bucket
