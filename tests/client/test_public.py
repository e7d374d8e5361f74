"""What the client exports: exactly these names, and every type that their signatures mention."""

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest

import headwater
from headwater import client

NAMES = """
NOW START Admin Appended AsyncAdmin AsyncBootstrap AsyncBucket AsyncClient AsyncFlow AsyncFollower AsyncManyFollower
AsyncProducer AsyncRequestValue AsyncStream BadRequest BatchAck Bootstrap Bucket BucketInfo Chunk Client ClientError
Conflict ConsumerInfo Created Deframer Flow Follower Forbidden Fork Gone HostRefused IfExists IncarnationChanged
ListedStream Live ManyFollower NotFound OffsetTrimmed OnDuplicate OnRefused OnTrimmed OutcomeUnknown
PreconditionFailed Producer ProducerEnded ProducerEpochUsed ProducerFenced ProtocolViolation PurgeBegun PurgeInfo
QuotaExceeded RateLimited Record RequestRefused RequestValue ResponseIncomplete RetryPolicy ScanRange SequenceConflict
ServerUnavailable ServerUrls Snapshot Stream StreamClosed StreamInfo TooLarge TransportFailed Unauthorized frame
"""
EXPORTED = NAMES.split()

CONSTRUCTED = {"Admin", "AsyncAdmin", "AsyncClient", "Client", "Deframer", "Fork", "RetryPolicy", "ScanRange"}
"""The classes that callers make themselves; all others come from a method."""


def test_exactly_these_names_are_exported() -> None:
    assert sorted(client.__all__) == sorted(EXPORTED)
    assert all(hasattr(client, name) for name in EXPORTED)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_type_in_a_public_signature_is_exported(name: str) -> None:
    public = {getattr(client, exported) for exported in EXPORTED if inspect.isclass(getattr(client, exported))}
    for where, annotation in _annotations(name):
        for kind in _classes(annotation):
            if kind.__module__.split(".")[0] == "headwater":
                assert kind in public, f"{where} mentions {kind.__qualname__}, which is not exported"


def _annotations(name: str) -> Iterator[tuple[str, Any]]:
    found = getattr(client, name)
    if inspect.isfunction(found):
        yield from _hints(name, found)
    if not inspect.isclass(found):
        return
    if dataclasses.is_dataclass(found):
        yield from _hints(name, found)
    for attribute, member in inspect.getmembers(found):
        if attribute.startswith("_") and not (attribute == "__init__" and name in CONSTRUCTED):
            continue
        function = member.fget if isinstance(member, property) else member
        if inspect.isfunction(function):
            yield from _hints(f"{name}.{attribute}", function)


def _hints(where: str, found: Any) -> Iterator[tuple[str, Any]]:
    for parameter, annotation in typing.get_type_hints(found).items():
        yield f"{where}({parameter})", annotation


def _classes(annotation: Any) -> Iterator[type]:
    kind = typing.get_origin(annotation) or annotation
    if inspect.isclass(kind):
        yield kind
    for part in typing.get_args(annotation):
        for one in part if isinstance(part, list) else [part]:
            yield from _classes(one)


PAIRS = [name for name in EXPORTED if f"Async{name}" in EXPORTED and inspect.isclass(getattr(client, name))]


@pytest.mark.parametrize("name", PAIRS)
def test_both_clients_have_the_same_methods_with_the_same_parameters(name: str) -> None:
    blocking, awaited = getattr(client, name), getattr(client, f"Async{name}")
    assert _public(blocking) == {
        "close" if method == "aclose" else method: parameters for method, parameters in _public(awaited).items()
    }


def _public(kind: type) -> dict[str, list[str] | None]:
    """The public methods with their parameters; None for a property."""
    members = {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}
    return {
        name: list(inspect.signature(member).parameters) if callable(member) else None
        for name, member in members.items()
    }


def test_the_version_is_the_one_of_the_package() -> None:
    assert headwater.__version__ == version("headwater")
